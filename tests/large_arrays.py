"""Arrays of 100,000 objects with shapes but without memory and values: torch's meta tensors."""

import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import affect_xp as ax  # noqa: E402
from affect_xp.partition import Partition  # noqa: E402

N = 100_000
VIEWS = (
    "slice",
    "t",
    "transpose",
    "diagonal",
    "detach",
    "alias",
    "permute",
    "select",
    "view",
    "_unsafe_view",
)


class Large(TorchDispatchMode):
    """Lists the operations whose results have more than n²/20 entries; views are not results."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        for x in out if isinstance(out, tuple | list) else (out,):
            if (
                isinstance(x, torch.Tensor)
                and x.numel() > N * N / 20
                and name not in VIEWS
                and name[-1] != "_"
            ):
                self.found.append((name, tuple(x.shape)))
        return out


def matrix(dtype):
    return ax.Dense(torch.empty((N, N), dtype=dtype, device="meta"))


def labels(k=12):
    return Partition(torch.empty((N,), dtype=torch.int64, device="meta"), k)
