"""Random sequences with random options: all representations and libraries give the same labels and α.

Each example is run on NumPy arrays, and in another representation or library, with saving and loading in
between. If the two disagree, the first is run again on proximities that differ in the last digits: if its
result changes, the example has ties, and both results are valid.
"""

import contextlib
import dataclasses
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import BACKENDS, Backend, _strictness
from fuzzing import fuzz
from hypothesis import event, given, note
from hypothesis import strategies as st

import affect_xp as ax
from affect_xp.exceptions import AffectError, AffectWarning
from affect_xp.models.smooth import smooth
from affect_xp.persistence import load, save

HOST = Backend("numpy", np)
EAGER = [backend for backend in BACKENDS if backend.name != "dask"] or [HOST]
TIES = 20  # reruns with other last digits: a tie of two is missed with probability 2⁻²⁰


def squashed(w):
    """A custom transform that keeps zeros."""
    return w / (1 + w)


def constant_alpha(W, past, labels, t):
    return 0.25 + 0.5 * (t % 2)


def alpha_of_the_library(W, past, labels, t):
    """A custom α that uses the library, including another model."""
    n_clusters = int(max(labels)) + 1 if isinstance(labels, np.ndarray) else 1
    ax.Static(ax.KMeans(min(2, n_clusters)), random_state=0).partial_fit(np.eye(3))
    return ax.forgetting_factor(W, past, labels)


def halves(proximity):
    """A custom clusterer: splits objects at the median of their mean proximity."""
    like = proximity.like
    backend = next(b for b in (*BACKENDS, HOST) if b.owns(like))
    means = backend.numpy(proximity.matmul(backend.array(np.ones((proximity.n, 1)))))[:, 0]
    return backend.array((means > np.median(means)).astype(np.int64))


CLUSTERERS = {
    "kmeans": lambda k: ax.KMeans(k),
    "random kmeans": lambda k: ax.KMeans(k, init="random", n_init=1, tol=0),
    "spectral": lambda k: ax.Spectral(k),
    "ratio cut": lambda k: ax.Spectral(k, objective="ratio_cut"),
    "association": lambda k: ax.Spectral(k, objective="average_association"),
    "rotation": lambda k: ax.Spectral(k, assign_labels="rotation"),
    "linkage": lambda k: ax.Linkage(k),
    "function": lambda k: halves,
    "silhouette": lambda k: ax.KMeans("silhouette", max_clusters=4),
}


@dataclasses.dataclass
class Case:
    """A sequence, the parameters of the model, and the other way to run it."""

    features: list
    ids: list
    clusterer: str
    k: Any
    options: dict
    representation: str
    backend: Backend
    threshold: float | None  # entries of W below it are zero
    save_after: int
    smooths: bool

    def matrix(self, t, noise=None):
        """Return W, or distances for linkage; noise changes the last digits."""
        x = self.features[t]
        w = x @ x.T
        if self.clusterer == "linkage":
            w = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2))
        if self.threshold is not None:
            w = np.where((w > self.threshold) | np.eye(len(w), dtype=bool), w, 0)
        if noise is not None:
            if self.options["rescale"] == "binary":  # would remove the noise
                w = (w > 0) * 1.0
            w = w * (1 + 1e-13 * (noise + noise.T)[: len(w), : len(w)])
        return w

    def given(self, t):
        """Return the same step in the other representation."""
        xp, x = self.backend, self.features[t]
        if self.representation == "factored":
            return ax.Factored.from_features(xp.array(x))
        w = self.matrix(t)
        if self.representation == "sparse":
            return scipy.sparse.csr_array(w)
        if self.representation == "chunked":
            return pytest.importorskip("dask.array").from_array(w, chunks=max(1, len(w) // 2))
        if self.representation == "features":
            return xp.array(x)
        return xp.array(w)

    def parameters(self):
        """Return the clusterer and the options, with functions restored."""
        return {"clusterer": CLUSTERERS[self.clusterer](self.k), **self.options, "random_state": 0}


GRAPHS = ("spectral", "ratio cut", "association", "rotation")


@st.composite
def sequences(draw):
    """Draw features without ties, of objects that come, go, return and change positions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, p = draw(st.integers(3, 14)), draw(st.integers(2, 3))
    names, away, features, ids = list(range(n)), [], [], []
    spread = draw(st.sampled_from([0.0, 3.0]))
    for t in range(draw(st.integers(2, 4))):
        if t and draw(st.booleans()):
            names = rng.permutation(names).tolist()
        if t and draw(st.booleans()):
            stay = max(3, len(names) - draw(st.integers(1, 3)))
            names, away = names[:stay], away + names[stay:]
        if t and draw(st.booleans()):
            names, away = names + away[:2], away[2:]  # back again
        if t and draw(st.booleans()):
            names = names + [100 * t + i for i in range(draw(st.integers(1, 3)))]
        centres = spread * np.eye(3)[np.array(names) % 3][:, :p]
        features.append(centres + rng.normal(size=(len(names), p)))
        ids.append(list(names))
    return features, ids


@st.composite
def cases(draw):
    features, ids = draw(sequences())
    clusterer = draw(st.sampled_from(sorted(CLUSTERERS)))
    representations = ["dense", "chunked", "features"]
    if clusterer != "linkage":
        representations += ["sparse", "factored"]
    representation = draw(st.sampled_from(representations))
    eager = representation in ("dense", "factored", "features")
    backend = draw(st.sampled_from(EAGER)) if eager else HOST
    rescale = draw(
        st.sampled_from([None, None, "auto", "log1p", "sqrt", "binary", "volume", "degree", squashed])
    )
    if representation in ("factored", "features") and rescale not in (None, "volume", "degree"):
        rescale = None  # functions need stored entries
    if clusterer == "linkage":
        rescale = None
    if clusterer in GRAPHS or rescale is not None:
        features = [abs(x) for x in features]
    fewest = min(map(len, ids))
    k = draw(st.integers(2, 3))
    if draw(st.booleans()):
        k = [draw(st.integers(1, min(3, len(now)))) for now in ids]
    alphas = [
        "estimate",
        "estimate",
        0.0,
        0.3,
        1.0,
        [0.1, 0.9, 0.5, 0.2],
        constant_alpha,
        alpha_of_the_library,
    ]
    options = {
        "rescale": rescale,
        "absent": draw(st.sampled_from(["forget", "keep"])),
        "max_absence": draw(st.integers(1, 3)),
        "n_iter": draw(st.integers(1, 4)),
        "init": draw(st.sampled_from(["auto", "previous", "static"])),
        "correction": draw(st.sampled_from([None, "objects"])),
        "forgetting": draw(st.sampled_from(["global", "global", "objects"])),
        "alpha": draw(st.sampled_from(alphas)),
    }
    if representation == "features":
        options["proximity"] = (
            "euclidean" if clusterer == "linkage" else draw(st.sampled_from(["dot", "rbf", "cosine"]))
        )
        options["scale"] = draw(st.sampled_from(["auto", "none", "center", "standard", "robust"]))
        if clusterer in GRAPHS and options["proximity"] != "rbf":
            options["scale"] = "none"  # similarities of graphs are nonnegative
        if rescale is not None:
            options["rescale"] = None
    threshold = (
        draw(st.sampled_from([None, 0.0, 1.0])) if representation in ("dense", "sparse", "chunked") else None
    )
    if clusterer == "linkage":
        threshold = None
    save_after = draw(st.integers(0, len(ids) - 1))
    smooths = options["alpha"] == "estimate" and options["forgetting"] == "global" and draw(st.booleans())
    assert fewest >= 3
    return Case(features, ids, clusterer, k, options, representation, backend, threshold, save_after, smooths)


def answers(case, steps, backend, resumes=False):
    """Return labels and α of each step, also with hindsight; or the error that ended the run."""
    model, found = ax.Affect(**case.parameters()), []
    try:
        for t, (w, ids) in enumerate(zip(steps, case.ids, strict=True)):
            model.partial_fit(w, ids)
            found.append((backend.numpy(model.labels_), model.alphas_))
            if resumes and t == case.save_after:
                model = resumed(case, model, backend)
        if case.smooths:
            parameters = case.parameters()
            parameters.pop("alpha")
            result = smooth(steps, ids=case.ids, **parameters)
            for labels, weights in zip(result.labels, result.weights, strict=True):
                found.append((backend.numpy(labels), tuple(weights)))
    except AffectError as error:
        note(f"{backend.name}: {error!r}")
        found.append((type(error), ()))
    return found


def resumed(case, model, backend):
    """Return the model after saving and loading; functions are passed again."""
    functions = {
        name: value
        for name, value in case.parameters().items()
        if callable(value) and not dataclasses.is_dataclass(value)
    }
    place = {} if backend.name == "numpy" else {"xp": backend.xp, "device": backend.device}
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder, "file"))
        return load(Path(folder, "file"), **place, **functions)


def differ(found, expected):
    """Return the difference of two runs, or None."""
    if len(found) != len(expected):
        return f"{len(found)} answers, not {len(expected)}: {found[-1]}, {expected[-1]}"
    for t, ((labels, alphas), (others, other_alphas)) in enumerate(zip(found, expected, strict=True)):
        if isinstance(labels, type) or isinstance(others, type):
            return None if labels is others else f"step {t}: {labels} and {others}"
        if not np.array_equal(labels, others):
            return f"step {t}: labels {labels.tolist()} and {others.tolist()}"
        longest = max(len(alphas), len(other_alphas))  # a converged step may stop, or repeat its α
        padded = [values + values[-1:] * (longest - len(values)) for values in (alphas, other_alphas)]
        if not np.allclose(*padded, rtol=1e-6, atol=1e-8):
            return f"step {t}: α {alphas} and {other_alphas}"
    return None


def only_names_differ(found, expected):
    """Return whether all partitions and α are equal, and only the names of clusters differ."""
    if len(found) != len(expected) or any(isinstance(labels, type) for labels, _ in found + expected):
        return False
    pairs = {
        (int(a), int(b))
        for (labels, _), (others, _) in zip(found, expected, strict=True)
        for a, b in zip(labels, others, strict=True)
    }
    names, others = dict(pairs), {b for _, b in pairs}
    if not len(pairs) == len(names) == len(others):
        return False
    same = [(np.array([names[int(a)] for a in labels]), alphas) for labels, alphas in found]
    return differ(same, expected) is None


def has_ties(case, found, expected):
    """Return whether the results on NumPy depend on the last digits of the input, or only names differ.

    The names of clusters at the first step depend on the best start of k-means, which may not be unique.
    """
    if only_names_differ(found, expected):
        return True
    rescale = None if case.options["rescale"] == "binary" else case.options["rescale"]
    same = dataclasses.replace(case, options=case.options | {"rescale": rescale})
    for seed in range(TIES):
        noise = np.random.default_rng(seed).normal(size=(40, 40))
        if case.representation == "features":
            steps = [x * (1 + 1e-13 * noise[: len(x), : x.shape[1]]) for x in case.features]
        else:
            steps = [case.matrix(t, noise) for t in range(len(case.ids))]
        if differ(answers(same, steps, HOST), expected) is not None:
            return True
    return False


@contextlib.contextmanager
def quietly(backend):
    """Ignore warnings on skewed or constant similarities and on k-means; compute chunks without threads."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore", AffectWarning)
        stack.enter_context(_strictness(backend))
        with contextlib.suppress(ImportError):
            import dask

            stack.enter_context(dask.config.set(scheduler="synchronous"))
        yield


@fuzz(share=0.1)
@given(cases())
def test_representations_and_libraries_agree(part, case):
    with quietly(case.backend):
        steps = [case.matrix(t) for t in range(len(case.ids))]
        if case.representation == "features":
            steps = case.features
        expected = answers(case, steps, HOST)
        found = answers(case, [case.given(t) for t in range(len(case.ids))], case.backend, resumes=True)
        wrong = differ(found, expected)
        if wrong is not None and has_ties(case, found, expected):
            event(f"ties: {case.clusterer}")
            return
    event(f"{case.representation} on {case.backend.name}")
    assert wrong is None, f"{case}\n{wrong}"
