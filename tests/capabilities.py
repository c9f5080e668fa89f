"""Support of public functions and models by array library and representation.

python tests/capabilities.py rewrites docs/capabilities.md; columns of missing libraries are unchanged.
"""

import contextlib
import re
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from conftest import BACKENDS, _backend, _strictness

import affect_xp as ax
from affect_xp.array import namespace
from affect_xp.exceptions import AffectError

PAGE = Path(__file__).parents[1] / "docs" / "capabilities.md"
LIBRARIES = {"numpy": "NumPy", "torch": "torch", "cupy": "CuPy", "strict": "other"}
REPRESENTATIONS = {"Dense": LIBRARIES, "Factored": LIBRARIES, "Sparse": ("numpy", "cupy")}
REPRESENTATIONS["Chunked"] = REPRESENTATIONS["Sparse"]
N, K = 150, 3
TRUTH = np.arange(N) % K
YES, HOST, NO = "yes", "host", "no"


def features(t):
    """Return three clusters of points with positive coordinates, whose dot products are similarities."""
    return 1 + 8 * np.eye(K)[TRUTH] + np.random.default_rng(t).uniform(-0.5, 0.5, (N, K))


def distances(x):
    """Return Euclidean distances, (n, n)."""
    return np.linalg.norm(x[:, None] - x[None, :], axis=2)


def given(xp, representation, x, matrix):
    """Return a proximity of the features in a representation; fail if it is not supported."""
    if representation == "Factored":
        return ax.Factored.from_features(xp.array(x))
    w = xp.array(matrix(x))
    if representation == "Sparse":
        module = __import__("cupyx.scipy" if xp.name == "cupy" else "scipy", fromlist=["sparse"]).sparse
        return ax.Sparse(module.csr_matrix(w))
    if representation == "Chunked":
        import dask.array

        return ax.Chunked(dask.array.from_array(w, chunks=N // 2))
    return ax.Dense(w)


def products(x):
    """Return dot products, (n, n)."""
    return x @ x.T


# Functions of a library, a representation, and a function that makes the proximity of step t.


def of_labels(function, **options):
    return lambda xp, _, make: function(make(0), xp.array(TRUTH), **options)


def of_labels_and_past(xp, _, make):
    return ax.forgetting_factor(make(1), make(0), xp.array(TRUTH))


def moments(xp, _, make):
    return ax.block_moments(make(0), xp.array(TRUTH)).means


def clusters(function, **options):
    return lambda xp, _, make: function(make(0), K, **options).labels


def dendrogram(xp, _, make):
    return ax.linkage(make(0)).heights


def model(kind, clusterer, **options):
    """Return three steps of a model; a factored representation takes features as input."""

    def run(xp, representation, make):
        kwargs, steps = {}, map(make, range(3))
        if representation == "Factored":
            kwargs, steps = {"proximity": "dot", "scale": "none"}, (xp.array(features(t)) for t in range(3))
        return kind(clusterer, random_state=0, **kwargs, **options).fit(steps).labels_

    return run


def smoothed(xp, representation, make):
    kwargs, steps = {}, [make(t) for t in range(3)]
    if representation == "Factored":
        kwargs, steps = {"proximity": "dot"}, [xp.array(features(t)) for t in range(3)]
    return ax.smooth(steps, ax.KMeans(K), random_state=0, **kwargs).history_.labels[-1]


SPECTRAL = ax.Spectral(K, solver="iterative")  # as for many objects
CALLS = {
    "`block_moments`": (moments, products),
    "`forgetting_factor`": (of_labels_and_past, products),
    "`kmeans`": (clusters(ax.kmeans, rng=0), products),
    "`spectral`": (clusters(ax.spectral, rng=0, solver="iterative"), products),
    "`linkage`": (dendrogram, distances),
    "`silhouette`": (of_labels(ax.silhouette, kind="similarity"), products),
    "`calinski_harabasz`": (of_labels(ax.calinski_harabasz, kind="similarity"), products),
    "`modularity`": (of_labels(ax.modularity), products),
    "`Affect(KMeans(k))`": (model(ax.Affect, ax.KMeans(K)), products),
    "`Affect(Spectral(k))`": (model(ax.Affect, SPECTRAL), products),
    "`Affect(Linkage(k))`": (model(ax.Affect, ax.Linkage(K)), distances),
    "`Affect(function)`": (model(ax.Affect, lambda w: TRUTH), products),
    '`Affect(…, absent="keep")`': (model(ax.Affect, ax.KMeans(K), absent="keep"), products),
    '`Affect(…, forgetting="objects")`': (
        model(ax.Affect, SPECTRAL, forgetting="objects"),
        products,
    ),
    "`smooth`": (smoothed, products),
    "`Static(KMeans(k))`": (model(ax.Static, ax.KMeans(K)), products),
    "`PCQ(Spectral(k))`": (model(ax.PCQ, SPECTRAL), products),
    "`PCM(Spectral(k))`": (model(ax.PCM, SPECTRAL), products),
    "`RG(KMeans(k))`": (model(ax.RG, ax.KMeans(K)), products),
}


@contextlib.contextmanager
def moved_to_host():
    """Yield a list of the sizes of arrays copied to the host; torch tensors are already there."""
    sizes, copy = [], namespace._to_numpy

    def watched(x):
        if not isinstance(x, np.ndarray | np.generic) and "torch" not in type(x).__module__:
            sizes.append(int(np.prod(x.shape)))
        return copy(x)

    # Reduce the samples that k-means copies to the host, so that n can be small.
    small = mock.patch.multiple("affect_xp.clustering.kmeans", AUTO_LIMITS=(40, 40), FRESH_LIMITS=(20, 20))
    with small, mock.patch.object(namespace, "_to_numpy", watched):
        yield sizes


def found(xp, representation, name):
    """Return whether a call works, and whether it copies half of the n×n entries or more to the host."""
    call, matrix = CALLS[name]
    with _strictness(xp), warnings.catch_warnings(), moved_to_host() as sizes:
        warnings.simplefilter("ignore")
        try:
            result = call(xp, representation, lambda t: given(xp, representation, features(t), matrix))
        except AffectError:
            return NO
    own = np.asarray(xp.numpy(result))
    if own.dtype.kind == "i":
        assert ax.rand_index(own, TRUTH) == 1, (name, xp.name, representation)
    else:
        expected = call(NUMPY, "Dense", lambda t: given(NUMPY, "Dense", features(t), matrix))
        np.testing.assert_allclose(own, expected, rtol=1e-6, err_msg=f"{name} {xp.name} {representation}")
    return HOST if max(sizes, default=0) >= N * (N - 1) // 2 else YES


NUMPY = _backend("numpy")


def installed(representation):
    """Return the array libraries that are installed and have the representation."""
    return [backend for backend in BACKENDS if backend.name in REPRESENTATIONS[representation]]


def page_cells(text):
    """Return the cells of a page by representation, name and library."""
    cells = {}
    for representation, rows in re.findall(r"(?ms)^## `(\w+)`.*?^\|---.*?\n(.*?)(?:\n\n|\Z)", text):
        for row in rows.splitlines():
            name, *values = (cell.strip() for cell in row.strip("|").split("|"))
            cells |= {
                (representation, name, lib): v for lib, v in zip(columns(representation), values, strict=True)
            }
    return cells


def columns(representation):
    return [name for name in LIBRARIES if name in REPRESENTATIONS[representation]]


def rewritten(text):
    """Return the page with updated cells for the installed libraries; other cells are unchanged."""
    cells = page_cells(text)
    for representation in REPRESENTATIONS:
        for xp in installed(representation):
            cells |= {(representation, name, xp.name): found(xp, representation, name) for name in CALLS}
        names = columns(representation)
        lines = [
            "| | " + " | ".join(LIBRARIES[name] for name in names) + " |",
            "|---" * (1 + len(names)) + "|",
        ]
        lines += [
            f"| {call} | " + " | ".join(cells.get((representation, call, lib), "") for lib in names) + " |"
            for call in CALLS
        ]
        text = re.sub(
            rf"(?ms)(^## `{representation}`.*?)^\| \|.*?(?=\n\n|\Z)",
            lambda match, lines=lines: match[1] + "\n".join(lines),
            text,
        )
    return text.rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
