"""Fixtures of the tests of chunked proximities, a plugin of pytest."""

import pytest
from chunked_cases import run
from conftest import BACKENDS


@pytest.fixture
def da():
    return pytest.importorskip("dask.array")


@pytest.fixture(params=[b for b in BACKENDS if b.name in ("numpy", "cupy")], ids=lambda b: b.name)
def library(request):
    """An array library for chunks."""
    return request.param


@pytest.fixture
def store(tmp_path):
    pytest.importorskip("zarr")
    return tmp_path / "store"


@pytest.fixture
def computes(da):
    """A list that grows by one entry per computed graph."""
    import dask

    graphs = []

    def get(graph, keys, **options):
        graphs.append(keys)
        return dask.get(graph, keys, **options)

    with dask.config.set(scheduler=get):
        yield graphs


@pytest.fixture(scope="module")
def expected():
    return run(lambda x, t: x @ x.T)
