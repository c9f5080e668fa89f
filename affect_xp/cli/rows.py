"""Which rows of a file the steps of a checkpoint were made of, so that `--resume` notices changes."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from affect_xp.exceptions import InputError
from affect_xp.files import replacing
from affect_xp.io import Snapshot

BLOCK = 1024  # rows that are converted to float64 together
TOLERANCE = 1e-9  # relative; sums of weights may be rounded in another order


class Rows:
    """A fingerprint of each step, in a file next to the checkpoint."""

    def __init__(self, state: Path) -> None:
        self._path = state.with_name(f"{state.name}.rows")
        self._known: dict[str, list[Any]] = {}

    def load(self) -> None:
        """Read the file, if there is one."""
        if self._path.exists():
            self._known = json.loads(self._path.read_text(encoding="utf-8"))

    def save(self) -> None:
        """Write the file."""
        with replacing(self._path) as file:
            file.write(json.dumps(self._known).encode())

    def add(self, step: Snapshot) -> None:
        """Remember a step."""
        self._known[str(step.time)] = fingerprint(step)

    def check(self, step: Snapshot, input: str) -> None:
        """Raise if a step differs from the one remembered for its time."""
        known = self._known.get(str(step.time))
        if known is not None and not _equal(known, fingerprint(step)):
            raise InputError(
                f"the rows of {input} at time {step.time} have changed since the checkpoint used them; "
                "start again with --overwrite, or another --out"
            )


def fingerprint(step: Snapshot) -> list[Any]:
    """Return the shape, a hash of the ids, the norm of the values X, and uᵀXv with fixed random u and v.

    A single changed entry changes uᵀXv by at least as much, because the entries of u and v are at least 1.

    Examples
    --------
    >>> fingerprint(Snapshot(0, ("a", "b"), np.eye(2)))[:1]
    [[2, 2]]
    """
    X = step.values.tocsr() if scipy.sparse.issparse(step.values) else step.values
    rng = np.random.default_rng(0)
    n, p = X.shape
    u, v = rng.uniform(1, 2, size=n), rng.uniform(1, 2, size=p)
    sketch = squares = 0.0
    for i in range(0, n, BLOCK):
        block = X[i : i + BLOCK].astype(np.float64)
        sketch += float(u[i : i + BLOCK] @ (block @ v))
        entries = block.data if scipy.sparse.issparse(block) else block.ravel()
        squares += float(entries @ entries)
    ids = "\0".join(map(str, step.ids or ())).encode(errors="surrogateescape")
    return [[n, p], hashlib.blake2b(ids, digest_size=8).hexdigest(), math.sqrt(squares), sketch]


def _equal(a: list[Any], b: list[Any]) -> bool:
    """Return whether two fingerprints are equal up to rounding."""
    return a[:2] == b[:2] and all(abs(x - y) <= TOLERANCE * a[2] for x, y in zip(a[2:], b[2:], strict=True))
