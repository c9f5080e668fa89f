"""Random sequences of steps, for all representations and clusterers: no failures, and α is correct.

A short run is part of the tests. AFFECT_XP_FUZZ=100000 (examples of all tests together) makes a long run,
split into parts that can run in parallel.
"""

import contextlib
import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
import reference
import scipy.sparse
from fuzzing import fuzz
from hypothesis import assume, given
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.persistence import load, save

# Random similarities may be skewed, or all equal.
pytestmark = [
    pytest.mark.filterwarnings("ignore::affect_xp.exceptions.SkewedWarning"),
    pytest.mark.filterwarnings("ignore::affect_xp.exceptions.ScaleWarning"),
    pytest.mark.filterwarnings("ignore::affect_xp.exceptions.InputWarning"),
]

EXPONENTS = (0, 0, 0, -500, -300, 300, 490)  # powers of two, up to about 1e±150


@dataclasses.dataclass
class Steps:
    """Integer features, and the ids of each step; W = 2ᵉ·XXᵀ."""

    features: list
    ids: list
    k: list
    exponent: int
    dtype: str
    keep: int  # the sparse W keeps entries above this

    def products(self, t, exponent=None):
        x = self.features[t]
        scale = 2.0 ** (self.exponent if exponent is None else exponent)
        return ((x @ x.T) * scale).astype(self.dtype)

    def pattern(self, t, exponent=None):
        """Return only the large products, and the diagonal."""
        w = self.products(t, exponent)
        kept = (self.products(t, 0) > self.keep) | np.eye(len(w), dtype=bool)
        return np.where(kept, w, 0)


@st.composite
def sequences(draw, most=30, steps=4, exponents=EXPONENTS):
    """Draw steps whose objects come, go and change positions; few values, hence many ties and zeros."""
    n_steps, p = min(steps, draw(st.sampled_from([1, 2, 2, 3, 4]))), draw(st.integers(1, 3))
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    span = draw(st.sampled_from([0, 1, 2, 9]))  # 0: all features are zero
    duplicates = draw(st.booleans())
    ids, features, k = [], [], []
    names = list(range(n))
    for t in range(n_steps):
        change = draw(st.sampled_from(["none", "none", "shuffle", "churn", "others"])) if t else "none"
        if change == "shuffle":
            names = rng.permutation(names).tolist()
        elif change == "churn":
            stay = [i for i in names if rng.random() < 0.7]
            names = (stay + [100 * t + i for i in range(int(rng.integers(0, 5)))] or [100 * t + 99])[:most]
        elif change == "others":
            names = [100 * t + i for i in range(int(rng.integers(1, most + 1)))]
        x = rng.integers(-span, span + 1, size=(len(names), p)).astype(float)
        if duplicates:
            x = x[rng.integers(0, len(x), size=len(x))]
        ids.append(list(names))
        features.append(x)
        k.append(draw(st.integers(1, min(5, len(names)))))
    if draw(st.booleans()):
        k = [min(min(k), *map(len, ids))] * n_steps
    dtype = draw(st.sampled_from(["float64", "float64", "float32"]))
    exponent = draw(st.sampled_from(exponents if dtype == "float64" else (0, -60, 60)))
    return Steps(features, ids, k, exponent, dtype, draw(st.sampled_from([-(10**6), 0, 3])))


def dense(steps, t, exponent=None):
    return steps.products(t, exponent)


def sparse(steps, t, exponent=None):
    return scipy.sparse.csr_array(steps.pattern(t, exponent))


def factored(steps, t, exponent=None):
    e = steps.exponent if exponent is None else exponent
    return ax.Factored.from_features((steps.features[t] * 2.0 ** (e // 2)).astype(steps.dtype))


REPRESENTATIONS = (dense, sparse, factored)


def check_step(model, n, k):
    """Check properties of every step."""
    record = model.history_[-1]
    assert all(0 <= alpha <= 1 for alpha in record.alphas)
    labels = np.asarray(record.labels)
    assert labels.shape == (n,) and labels.min() >= 0
    assert 1 <= len(set(labels.tolist())) <= max(k, 1)


def run(steps, clusterer, put, exponent=None, **parameters):
    """Take all steps. rescale="auto" would take integers for counts, in one unit and not in another."""
    model = ax.Affect(clusterer, random_state=0, rescale=None, **parameters)
    for t, ids in enumerate(steps.ids):
        model.partial_fit(put(steps, t, exponent), ids)
        check_step(model, len(ids), steps.k[t])
    return model


@fuzz(share=0.3)
@given(sequences(), st.sampled_from(REPRESENTATIONS), st.sampled_from([None, "objects"]))
def test_kmeans_in_any_units(part, steps, put, correction):
    model = run(steps, ax.KMeans(steps.k), put, correction=correction)
    if steps.exponent:
        usual = run(steps, ax.KMeans(steps.k), put, 0, correction=correction)
        # In float32 the sums of a smoothed matrix are those of its entries before or after they are rounded.
        rtol = 1e-9 if steps.dtype == "float64" else 1e-6
        np.testing.assert_allclose(model.history_.alpha, usual.history_.alpha, rtol=rtol, atol=1e-12)
        for found, expected in zip(model.history_.labels, usual.history_.labels, strict=True):
            np.testing.assert_array_equal(found, expected)


def distances(steps, t, exponent=None):
    """Return distances on a line, for linkage."""
    x = steps.features[t][:, 0] * 2.0 ** (steps.exponent if exponent is None else exponent)
    return np.abs(x[:, None] - x[None, :]).astype(steps.dtype)


CLUSTERERS = {
    "kmeans": (ax.KMeans, REPRESENTATIONS),
    "k-means++": (lambda k: ax.KMeans(k, init="k-means++", n_init=2), REPRESENTATIONS),
    "spectral": (ax.Spectral, (dense, sparse)),
    "ratio cut": (lambda k: ax.Spectral(k, objective="ratio_cut"), (dense, sparse)),
    "association": (lambda k: ax.Spectral(k, objective="average_association"), (dense, sparse)),
    "linkage": (ax.Linkage, (distances,)),
    "function": (lambda k: lambda w: np.arange(w.n) % 2, REPRESENTATIONS),
    "rule": (lambda k: ax.KMeans("silhouette", max_clusters=4), REPRESENTATIONS),
}


@fuzz(share=0.3)
@given(st.data(), sequences(most=12), st.sampled_from(sorted(CLUSTERERS)))
def test_alpha_against_the_twin(part, data, steps, name):
    """For any clusters, α equals its definition, entry by entry."""
    make, representations = CLUSTERERS[name]
    put = data.draw(st.sampled_from(representations))
    rescale = data.draw(st.sampled_from([None, *RESCALED])) if put in (dense, sparse) else None
    if rescale is not None:
        steps = dataclasses.replace(steps, exponent=0)
    if rescale is not None or name not in ("kmeans", "k-means++", "function"):
        # Similarities of graphs, and rescaled ones, are nonnegative.
        steps = dataclasses.replace(steps, features=[abs(x) for x in steps.features], keep=-1)
    correction = data.draw(st.sampled_from([None, "objects"]))
    save_after = data.draw(st.integers(0, len(steps.ids) - 1))
    alpha_is_as_defined(steps, make(steps.k), put, rescale, correction, save_after)


RESCALED = {"log1p": np.log1p, "sqrt": np.sqrt, "binary": np.sign}


def chunked(steps, t, exponent=None):
    dask_array = pytest.importorskip("dask.array")
    return dask_array.from_array(steps.products(t, exponent), chunks=max(1, len(steps.ids[t]) // 2))


@fuzz(share=0.005)
@given(sequences(most=8, steps=3))
def test_alpha_of_chunks_against_the_twin(part, steps):
    """Few examples, because it is slow."""
    dask = pytest.importorskip("dask")
    with dask.config.set(scheduler="synchronous"):
        alpha_is_as_defined(steps, ax.KMeans(steps.k), chunked)


def alpha_is_as_defined(steps, clusterer, put, rescale=None, correction=None, save_after=None):
    """Check α of each step entry by entry, given the previous clusters."""
    options = {"n_iter": 1, "init": "previous", "correction": correction, "random_state": 0}
    model, psi, past_ids = ax.Affect(clusterer, rescale=rescale, **options), None, []
    for t, ids in enumerate(steps.ids):
        before = dict(zip(past_ids, np.asarray(model.labels_).tolist(), strict=True)) if t else {}
        exactly = steps.pattern if put is sparse else steps.products
        w = (distances(steps, t, 0) if put is distances else exactly(t, 0)).astype(float)
        w = w if rescale is None else RESCALED[rescale](w)
        model.partial_fit(put(steps, t), ids)
        check_step(model, len(ids), 5)
        here = [p for p, i in enumerate(ids) if i in before]
        psi_before, psi = psi, w
        if here:
            there = [past_ids.index(ids[p]) for p in here]
            labels = np.array([before[ids[p]] for p in here])
            known = w[np.ix_(here, here)], psi_before[np.ix_(there, there)]
            expected = reference.forgetting_factor(*known, labels, correction)
            tol = 1e-9 if steps.dtype == "float64" else 1e-4
            assert abs(model.alpha_ - expected) <= tol or not alpha_is_defined(*known, labels)
            psi = reference.blend(w, psi_before, model.alpha_, ids, past_ids)
        past_ids = ids
        if t == save_after:
            model = resumed(model, clusterer)


def alpha_is_defined(w, psi, labels):
    """Return whether there is noise or drift; otherwise α is 0 / 0, and the twin computes rounding errors."""
    block = labels[:, None] * (labels.max() + 1) + labels + 0.5 * np.eye(len(labels))  # diagonals apart
    both = np.stack([w, psi])
    return max(np.ptp(both[:, block == b]) for b in np.unique(block)) > 1e-12 * np.abs(both).max()


def resumed(model, clusterer):
    """Return the model after saving and loading."""
    functions = {"clusterer": clusterer} if callable(clusterer) else {}
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder, "file"))
        return load(Path(folder, "file"), **functions)


@st.composite
def smooth_sequences(draw):
    """Draw steps without ties, in which objects come, go and move: k-means has a unique result."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, p = draw(st.integers(2, 16)), draw(st.integers(1, 3))
    names, steps = list(range(n)), []
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            names = rng.permutation(names).tolist()
        if draw(st.booleans()):
            names = names[: max(2, len(names) - draw(st.integers(1, 3)))]
        if draw(st.booleans()):
            names = names + [100 * len(steps) + 100 + i for i in range(draw(st.integers(1, 3)))]
        centres = draw(st.sampled_from([0.0, 3.0])) * np.eye(3)[np.array(names) % 3][:, :p]
        steps.append((centres + rng.normal(size=(len(names), p)), names))
    return steps, draw(st.integers(1, min(3, *(len(listed) for _, listed in steps), 3)))


@contextlib.contextmanager
def accidents():
    """Collect the cases in which k-means of the twin has no unique result.

    These are increasing sums of squares, which are possible with new objects, because such a blend is not a
    matrix of dot products. The library then ends cycles with the best labels so far.
    """
    found, usual, last = [], reference.distances, [None, np.inf]

    def distances(w, labels, k):
        before = last[1] if last[0] is w else np.inf
        last[:] = w, reference.inertia(w, labels) if min(labels) >= 0 else np.inf
        if last[1] > before * (1 + 1e-12):
            found.append("rise")
        return usual(w, labels, k)

    reference.distances = distances
    try:
        yield found
    finally:
        reference.distances = usual


@fuzz(share=0.3)
@given(smooth_sequences(), st.sampled_from(["previous", "static"]), st.sampled_from(["Dense", "Factored"]))
def test_the_whole_loop_against_the_twin(part, drawn, init, representation):
    steps, k = drawn
    put = ax.Factored.from_features if representation == "Factored" else lambda x: x @ x.T
    clusterer = ax.KMeans(k, init="random", tol=0.0)
    model = ax.Affect(clusterer, init=init, alpha_tol=0, rescale=None, random_state=0)
    model.partial_fit(put(steps[0][0]), steps[0][1])
    matrices, ids = [x @ x.T for x, _ in steps], [names for _, names in steps]
    start = np.asarray(model._state.partition.labels)
    with accidents() as met:
        expected = reference.affect(matrices, ids, k, start, init=init)
    assume(not met)
    for (x, names), (labels, alphas, _) in zip(steps[1:], expected[1:], strict=True):
        model.partial_fit(put(x), names)
        found = model.alphas_  # the loop ends when nothing changes
        np.testing.assert_allclose(found, alphas[: len(found)], rtol=1e-7, atol=1e-10)
        assert reference.rand_index(np.asarray(model.labels_), labels) == 1
