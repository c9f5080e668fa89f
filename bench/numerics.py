"""Accuracy of α and the block moments: largest relative errors compared with 50-digit arithmetic.

Run with `python -m bench.numerics`. The reference uses the stored entries, so that rounding in storage does
not count as an error. Matrices are ill-conditioned in three ways: by units, by a mean much larger than the
spread, and by blocks of very different size.
"""

import importlib.util
import itertools
from pathlib import Path

import mpmath
import numpy as np
import scipy.sparse

import affect_xp as ax

N, K = 18, 3
LABELS = np.arange(N) % K
DIGITS = 50
SCALES = {"float64": (1e-200, 1e-150, 1.0, 1e150, 1e200), "float32": (1e-20, 1.0, 1e20)}
REPRESENTATIONS = ("Dense", "Sparse", "Factored", "Chunked")
TROUBLES = ("units", "large mean", "uneven blocks")


def _twins():
    """Return the slow twins of the tests, which accept numbers of any type."""
    path = Path(__file__).parent.parent / "tests" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def features(seed: int, trouble: str) -> np.ndarray:
    """Return features of three groups."""
    rng = np.random.default_rng(seed)
    x = 3 * np.eye(K)[LABELS] + rng.normal(size=(N, K))
    if trouble == "large mean":
        return x * 1e-2 + 10
    return x * (10.0 ** (3 * LABELS))[:, None] if trouble == "uneven blocks" else x


def proximity(kind: str, seed: int, trouble: str, scale: float, dtype: str) -> ax.Proximity:
    """Return the same proximities in one of the representations."""
    x = features(seed, trouble)
    if kind == "Factored":
        return ax.Factored.from_features((x * np.sqrt(scale)).astype(dtype))
    w = ((x @ x.T) * scale).astype(dtype)
    w = np.triu(w) + np.triu(w, 1).T
    if kind == "Sparse":
        return ax.as_proximity(scipy.sparse.csr_array(np.where(w > 0, w, 0)))
    if kind == "Chunked":
        import dask.array

        return ax.as_proximity(dask.array.from_array(w, chunks=7))
    return ax.as_proximity(w)


def exact(w: ax.Proximity) -> np.ndarray:
    """Return the stored entries as 50-digit numbers, (n, n)."""
    number = np.vectorize(lambda value: mpmath.mpf(float(value)), otypes=[object])
    if isinstance(w, ax.Factored):
        u = np.concatenate([number(factor.x) for factor in w.factors], axis=1)
        return (u * number(w.weights)) @ u.T
    array = w.matrix.toarray() if isinstance(w, ax.Sparse) else np.asarray(w.array)
    return number(array)


def errors(twins, kind: str, trouble: str, scale: float, dtype: str) -> tuple[float, float]:
    """Return the relative errors of α and, if they are finite, of the block variances."""
    w, past = (proximity(kind, seed, trouble, scale, dtype) for seed in (0, 1))
    w_exact, past_exact = exact(w), exact(past)
    alpha = twins.forgetting_factor(w_exact, past_exact, LABELS)
    found = float(ax.forgetting_factor(w, past, LABELS))
    if not 1e-150 <= scale <= 1e140:  # variances are squares
        return abs(float((found - alpha) / alpha)), 0.0
    variances = ax.block_moments(w, LABELS).variances
    pairs = [(c, d, p) for c, d, p in twins.blocks(LABELS) if d is not None]
    of_blocks = [
        twins.mean_and_variance([w_exact[i, j] for i, j in p], each_stands_twice=c == d)[1]
        for c, d, p in pairs
    ]
    worst = max(abs(float((variances[c, d] - v) / v)) for (c, d, _), v in zip(pairs, of_blocks, strict=True))
    return abs(float((found - alpha) / alpha)), worst


def main() -> None:
    """Print the table."""
    mpmath.mp.dps = DIGITS
    twins = _twins()
    print("| dtype | representation | trouble | worst error of α | of a variance |\n|---|---|---|---|---|")
    for (dtype, scales), kind, trouble in itertools.product(SCALES.items(), REPRESENTATIONS, TROUBLES):
        found = [errors(twins, kind, trouble, scale, dtype) for scale in scales]
        alpha, variance = (max(column) for column in zip(*found, strict=True))
        print(f"| {dtype} | {kind} | {trouble} | {alpha:.1e} | {variance:.1e} |")


if __name__ == "__main__":
    main()
