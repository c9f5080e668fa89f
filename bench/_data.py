"""Benchmark data: drifting clusters, measured or simulated stock prices, and graphs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse

from affect_xp.datasets import load_nasdaq

STOCKS, WINDOWS, CHANGES = 1929, 16, 15  # of nasdaq2008.npz


def drifting(
    n: int, n_steps: int, k: int = 12, p: int = 15, *, spread: float = 3.0, drift: float = 0.1, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield features and labels of samples around slowly moving centres."""
    rng = np.random.default_rng(seed)
    centres, labels = spread * rng.normal(size=(k, p)), rng.integers(0, k, n)
    for _ in range(n_steps):
        centres = centres + drift * rng.normal(size=centres.shape)
        yield centres[labels] + rng.normal(size=(n, p)), labels


def stock_windows(folder: Path | None, n: int, n_windows: int) -> tuple[list[np.ndarray], str]:
    """Return the features of NASDAQ stocks by window, and their source.

    Without the file, simulate data of the same shape: a common signal per sector, plus strong noise.
    """
    path = None if folder is None else folder / "nasdaq2008.npz"
    if path is not None and path.is_file():
        return [step.X[:n] for step in load_nasdaq(path)[:n_windows]], path.name
    rng = np.random.default_rng(0)
    sector = rng.integers(0, 12, n)
    windows = []
    for _ in range(n_windows):
        market, course = rng.normal(size=CHANGES), rng.normal(size=(12, CHANGES))
        changes = market + 0.7 * course[sector] + 1.5 * rng.normal(size=(n, CHANGES))
        centred = changes - changes.mean(axis=1, keepdims=True)
        windows.append(centred / changes.std(axis=1, keepdims=True))
    return windows, "a simulated stand-in; AFFECT_XP_DATA names no folder with nasdaq2008.npz"


def communities(
    n: int, n_edges: int, n_steps: int, k: int = 12, *, within: float = 0.7, kept: float = 0.8
) -> Iterator[tuple[scipy.sparse.csr_array, np.ndarray]]:
    """Yield graphs and their communities (node number modulo k); most edges persist to the next step."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % k
    a = b = np.empty(0, dtype=np.int64)  # the two ends of each edge
    for _ in range(n_steps):
        stay = rng.random(len(a)) < kept
        i, j = rng.integers(0, n, (2, n_edges - int(stay.sum())))
        mate = np.minimum(j - j % k + i % k, n - 1)
        j = np.where(rng.random(len(i)) < within, mate, j)
        a, b = np.concatenate([a[stay], i]), np.concatenate([b[stay], j])
        half = scipy.sparse.coo_array((np.ones(len(a)), (a, b)), shape=(n, n)).tocsr()
        yield half + half.T, labels
