"""The estimators: invalid input leaves the model unchanged; parameters, history, fit and partial_fit."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.proximity.kernels import features_to_proximity


def matrices(n_steps=3, n=6, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        x = rng.normal(size=(n, 2)) + np.repeat([[3, 0], [0, 3]], n // 2, axis=0)
        yield x @ x.T


W = next(matrices())


def spoiled(value):
    w = W.copy()
    w[1, 2] = w[2, 1] = value
    return w


def snapshot(model):
    """Return everything a model holds, as plain values."""

    def plain(value):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, ax.Dense):
            return value.array.tolist()
        if isinstance(value, np.ndarray):
            return value.tolist()
        if hasattr(value, "__len__") and not isinstance(value, str | dict | range):
            return [plain(v) for v in value]
        return value

    return {name: plain(value) for name, value in vars(model).items()}


# (the arguments of partial_fit, the message)
BAD_STEPS = [
    ({"W": np.ones((3, 4))}, "W must be a square matrix"),
    ({"W": np.triu(np.ones((6, 6)))}, "W is not symmetric"),
    ({"W": spoiled(np.nan)}, r"W must be finite, but W\[1, 2\] = nan"),
    ({"W": spoiled(np.inf)}, r"W must be finite, but W\[1, 2\] = inf"),
    ({"W": W + 1j}, "W must be real"),
    ({"W": np.ones((0, 0))}, "W has no objects"),
    ({"W": "matrix"}, "W must be a two-dimensional array, a sparse matrix or a Proximity"),
    ({"W": W, "ids": range(5)}, "ids has length 5, but there are 6 objects"),
    ({"W": W, "ids": list("aabcde")}, "ids must be unique; 'a' appears more than once"),
    ({"W": W, "ids": [[1], [2], [3], [4], [5], [6]]}, "ids must be hashable"),
    ({"W": np.eye(1)}, "pass ids= with each step"),
    ({"W": np.eye(1), "ids": [0]}, "n_clusters=2 exceeds the number of objects, 1"),
]


@pytest.mark.parametrize(("step", "message"), BAD_STEPS)
@pytest.mark.parametrize("make", [ax.Affect, ax.Static])
@pytest.mark.parametrize("n_before", [0, 2])
def test_a_rejected_step_changes_nothing(make, step, message, n_before):
    model = make(ax.KMeans(2), random_state=0)
    for w in matrices(n_before):
        model.partial_fit(w)
    if n_before == 0 and "pass ids=" in message:
        pytest.skip("without a step before, ids are not needed")
    before = snapshot(model)
    with pytest.raises((ValueError, TypeError), match=message):
        model.partial_fit(**step)
    assert snapshot(model) == before
    if n_before:
        model.partial_fit(W)
        expected = make(ax.KMeans(2), random_state=0).fit([*matrices(n_before), W])
        np.testing.assert_array_equal(model.labels_, expected.labels_)


BAD_PARAMETERS = [
    (ax.Affect, {"clusterer": ax.KMeans(0)}, "n_clusters must be at least 1, got 0"),
    (
        ax.Affect,
        {"clusterer": ax.KMeans("many")},
        "n_clusters, if not a number, must be one of 'silhouette', .*got 'many'",
    ),
    (ax.Affect, {"clusterer": ax.KMeans([])}, "n_clusters is an empty sequence; give one for each step"),
    (
        ax.Affect,
        {"clusterer": ax.KMeans(2, init="far")},
        "init must be one of 'k-means\\+\\+', 'random', got 'far'",
    ),
    (ax.Affect, {"clusterer": ax.KMeans(2, n_init=0)}, "n_init must be at least 1"),
    (ax.Affect, {"clusterer": ax.KMeans(2, max_iter=0)}, "max_iter must be at least 1"),
    (ax.Affect, {"clusterer": "kmeans"}, "clusterer must be an object such as KMeans"),
    (ax.Affect, {"clusterer": ax.KMeans}, "clusterer must be an object such as KMeans"),
    (ax.Affect, {"n_iter": 0}, "n_iter must be at least 1, got 0"),
    (ax.Affect, {"n_iter": 1.5}, "n_iter must be an integer, got 1.5"),
    (ax.Affect, {"alpha": 1.5}, "alpha must be between 0 and 1, got 1.5"),
    (ax.Affect, {"alpha": "guess"}, "alpha must be 'estimate', a number, one for each step, or a function"),
    (ax.Affect, {"alpha": None}, "alpha must be 'estimate'"),
    (ax.Affect, {"alpha": [0.1, 2.0]}, r"alpha\[1\] must be between 0 and 1, got 2.0"),
    (ax.Affect, {"init": "random"}, "init must be one of 'auto', 'previous', 'static', got 'random'"),
    (ax.Affect, {"random_state": "seed"}, "random_state must be None, a non-negative int"),
    (ax.Static, {"warm_start": 1}, "warm_start must be True or False, got 1"),
]


@pytest.mark.parametrize(("make", "parameters", "message"), BAD_PARAMETERS)
def test_bad_parameters_are_told_at_the_first_step(make, parameters, message):
    model = make(**{"clusterer": ax.KMeans(2), **parameters})
    with pytest.raises((ValueError, TypeError), match=message):
        model.partial_fit(W)
    assert model.n_steps_ == 0


@pytest.mark.parametrize(
    ("alpha", "message"),
    [
        ([0.5, 0.5], "alpha has 2 entries, but this is step 2"),
        (lambda w, past, labels, t: -1.0, "the forgetting factor returned by alpha must be between 0 and 1"),
        (lambda w, past, labels, t: "half", "the forgetting factor returned by alpha must be a number"),
    ],
)
def test_bad_alpha_at_a_later_step(alpha, message):
    model = ax.Affect(ax.KMeans(2), alpha=alpha, random_state=0)
    with pytest.raises((ValueError, TypeError), match=message):
        for w in matrices(3):
            before = snapshot(model)
            model.partial_fit(w)
    assert snapshot(model) == before


def test_too_few_numbers_of_clusters():
    with pytest.raises(ValueError, match="n_clusters has 2 entries, but this is step 2"):
        ax.Affect(ax.KMeans([2, 2])).fit(matrices(3))
    with pytest.raises(ValueError, match=r"n_clusters\[1\]=7 exceeds the number of objects, 6"):
        ax.Affect(ax.KMeans([2, 7])).fit(matrices(3))


def test_a_clusterer_that_fails_changes_nothing():
    def fails_at_the_third(proximity, calls=[0]):  # noqa: B006
        calls[0] += 1
        if calls[0] > 4:
            raise RuntimeError("no clusters today")
        return (proximity.array[0] > 0).astype(int)

    model = ax.Affect(fails_at_the_third)
    with pytest.raises(RuntimeError, match="no clusters today"):
        for w in matrices(9):
            before = snapshot(model)
            model.partial_fit(w)
    assert snapshot(model) == before


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0, 1], "labels returned by the clusterer has length 2, but there are 6 objects"),
        ([0.5] * 6, "labels returned by the clusterer must be integers"),
        ([-3] * 6, "labels returned by the clusterer must be 0 or more"),
    ],
)
def test_bad_labels_from_a_function(returned, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ax.Affect(lambda proximity: returned).partial_fit(W)


def test_libraries_are_not_mixed(eager_xp):
    if eager_xp.name == "numpy":
        pytest.skip("the same library")
    model = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(eager_xp.array(W))
    with pytest.raises(TypeError, match="arrays of different libraries"):
        model.partial_fit(W)
    assert model.n_steps_ == 1
    model.partial_fit(eager_xp.array(W))


def test_representations_are_not_mixed():
    sparse = scipy.sparse.csr_array(W)
    for first, second in ((W, sparse), (sparse, W)):
        model = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(first)
        before = snapshot(model)
        with pytest.raises(TypeError, match=r"but the previous steps were .*convert it first"):
            model.partial_fit(second)
        assert snapshot(model).keys() == before.keys() and model.n_steps_ == 1


def test_devices_are_not_mixed():
    strict = pytest.importorskip("array_api_strict")
    here, there = (strict.asarray(W, device=strict.Device(d)) for d in ("device1", "device2"))
    model = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(here)
    with pytest.raises(ValueError, match=r"W is on device .*device2.*, but the previous steps were on"):
        model.partial_fit(there)


def test_an_interrupted_write_is_not_passed_over(monkeypatch):
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(matrices(2))

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ax.Dense, "blend", interrupted)
        model.partial_fit(W)
    with pytest.raises(ax.exceptions.AffectError, match=r"interrupted .* call reset\(\)"):
        model.partial_fit(W)
    assert model.reset().partial_fit(W).n_steps_ == 1


@pytest.mark.parametrize("attribute", ["labels_", "alpha_", "alphas_", "smoothed_", "ids_"])
def test_nothing_to_see_before_the_first_step(attribute):
    with pytest.raises(
        ax.exceptions.NotFittedError, match="has not taken a step yet; call fit or partial_fit first"
    ):
        getattr(ax.Affect(ax.KMeans(2)), attribute)


def test_fit_forgets_what_was_before():
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(matrices(4, seed=1)).fit(matrices(3))
    assert model.n_steps_ == len(model.history_) == 3


def test_fit_that_fails_restores_the_model():
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(matrices(3))
    before = snapshot(model)
    with pytest.raises(ValueError, match="not symmetric"):
        model.fit([*matrices(2, seed=5), np.triu(W)])
    assert snapshot(model) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sequence": []}, "sequence is empty"),
        ({"sequence": iter([])}, "sequence is empty"),
        ({"sequence": scipy.sparse.csr_array(W)}, r"use partial_fit\(W\) or fit\(\[W\]\)"),
        ({"sequence": W}, r"use partial_fit\(W\) or fit\(\[W\]\)"),
        ({"sequence": W.tolist()}, r"use partial_fit\(W\) or fit\(\[W\]\)"),
        ({"sequence": W[0]}, r"got an array of shape \(6,\); pass a list of matrices"),
        ({"sequence": 5}, "sequence must be a list of matrices, got int"),
        ({"sequence": [W, W], "ids": [range(6)]}, "ids has 1 entries, but sequence has more"),
        (
            {"sequence": [W, W], "y": [range(6), range(1, 7)]},
            "y has a different value for each object.*by name: ids=",
        ),
        ({"sequence": [W, W], "y": list("abcdef")}, "y has a different value for each object"),
        ({"sequence": [W, W], "y": np.arange(6)}, "y has a different value for each object"),
    ],
)
def test_bad_sequences(arguments, message):
    model = ax.Affect(ax.KMeans(2))
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(**arguments)
    assert model.n_steps_ == 0


def test_sequences_of_all_kinds(eager_xp):
    steps = list(matrices())
    stacked = eager_xp.array(np.stack(steps))
    expected = ax.Static(ax.KMeans(2), random_state=0).fit(steps).labels_
    for sequence in (stacked, (eager_xp.array(w) for w in steps)):
        labels = ax.Static(ax.KMeans(2), random_state=0).fit_predict(sequence)
        np.testing.assert_array_equal(eager_xp.numpy(labels), expected)


@pytest.mark.parametrize(
    "ids", [list("abcdef"), np.array(list("abcdef")), [list("abcdef")] * 3, np.arange(18).reshape(3, 6) % 6]
)
def test_ids_of_all_kinds(ids):
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(matrices(), ids=ids)
    assert model.alpha_ > 0
    assert len(model.ids_) == 6


def test_ids_on_a_device(eager_xp):
    model = ax.Affect(ax.KMeans(2)).partial_fit(eager_xp.array(W), ids=eager_xp.array(np.arange(6)))
    assert model.ids_ == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("kind", ["dot", "rbf", "cosine", "euclidean", lambda a, b: a @ b.T + 1])
def test_features(eager_xp, kind):
    rng = np.random.default_rng(0)
    steps = [rng.normal(size=(12, 2)) + np.repeat([[5, 0], [0, 5]], 6, axis=0) for _ in range(3)]
    clusterer = ax.Linkage(2) if kind == "euclidean" else ax.KMeans(2)
    as_they_are = {"scale": "none", "gamma": "each" if kind == "rbf" else "first"}
    model = ax.Affect(clusterer, proximity=kind, random_state=0, **as_they_are)
    model.fit([eager_xp.array(x) for x in steps])
    by_hand = ax.Affect(clusterer, random_state=0)
    by_hand.fit([features_to_proximity(eager_xp.array(x), kind) for x in steps])
    np.testing.assert_allclose(model.history_.alpha, by_hand.history_.alpha, rtol=1e-10)
    np.testing.assert_array_equal(eager_xp.numpy(model.labels_), eager_xp.numpy(by_hand.labels_))
    assert isinstance(model.smoothed_, ax.Factored if kind == "dot" else ax.Dense)


@pytest.mark.parametrize(
    ("clusterer", "kind", "message"),
    [
        (
            ax.KMeans(2),
            "euclidean",
            "but KMeans takes a similarity; use proximity='dot' or",
        ),
        (
            ax.Spectral(2),
            "euclidean",
            "but Spectral takes .*convert with ax.to_similarity",
        ),
        (
            ax.Linkage(2),
            "rbf",
            "but Linkage takes a dissimilarity; use proximity='euclidean'",
        ),
        (
            ax.KMeans(2),
            "manhattan",
            "if not a function, must be one of 'precomputed', 'dot'",
        ),
        (ax.KMeans(2), None, "proximity, if not a function, must be one of"),
    ],
)
def test_kinds_must_agree(clusterer, kind, message):
    with pytest.raises(ValueError, match=message):
        ax.Affect(clusterer, proximity=kind).partial_fit(np.eye(4))


def test_history(monkeypatch):
    seen = []
    model = ax.Affect(ax.KMeans(2), random_state=0)
    model.fit(matrices(), times=["mon", "tue", "wed"], callback=seen.append)
    history = model.history_
    assert [record.time for record in seen] == history.times == ["mon", "tue", "wed"]
    assert history[0].alpha == 0 and history[-1].alphas == model.alphas_
    assert [record.n for record in history[1:]] == [6, 6]
    np.testing.assert_array_equal(history.labels[-1], model.labels_)


def test_a_history_takes_no_memory_of_a_device(eager_xp, tmp_path):
    rng = np.random.default_rng(0)
    steps = [eager_xp.array((w := rng.random((12, 12))) + w.T) for _ in range(3)]
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(steps)
    model.save(tmp_path / "model.npz")
    loaded = ax.load(tmp_path / "model.npz", xp=eager_xp.xp, device=eager_xp.device)
    for history in (model.history_, loaded.history_):
        kept = [x for record in history for x in (record.labels, record.moved) if x is not None]
        assert len(kept) == 5  # the first step has no moves
        assert all(type(x) is np.ndarray for x in kept)


def test_history_as_tables():
    pytest.importorskip("pandas")
    model = ax.Affect(ax.KMeans(2), random_state=0).fit(matrices(), ids=[list("abcdef")] * 3)
    steps, labels = model.history_.to_frame(), model.history_.labels_to_frame()
    assert list(steps.columns) == ["time", "n", "k", "alpha"] and len(steps) == 3
    assert list(labels.columns) == ["time", "id", "cluster"] and len(labels) == 18
    assert labels["cluster"].tolist()[-6:] == model.labels_.tolist()


def test_repr_and_parameters():
    model = ax.Affect(ax.KMeans(2), n_iter=1)
    assert model.get_params()["n_iter"] == 1
    assert repr(model).startswith("Affect(clusterer=KMeans(n_clusters=2")


def test_a_single_matrix_of_features_is_one_step(eager_xp):
    x = np.random.default_rng(0).normal(size=(12, 3)) + np.repeat([[5.0], [-5.0]], 6, axis=0)
    model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
    labels = eager_xp.numpy(model.fit_predict(eager_xp.array(x)))
    assert model.n_steps_ == 1 and model.n_features_in_ == 3
    np.testing.assert_array_equal(labels, eager_xp.numpy(model.fit([eager_xp.array(x)]).labels_))
    np.testing.assert_array_equal(labels, model.fit(x.tolist()).labels_)


def test_a_table_of_features_is_one_step():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [0, 4, 0, 4], "b": [0.0, 0.0, 1.0, 1.0]}, index=list("wxyz"))
    model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
    assert model.fit(frame).ids_ == tuple("wxyz")
    mixed = frame.astype(object)
    np.testing.assert_array_equal(
        model.labels_, ax.Affect(ax.KMeans(2), proximity="dot", random_state=0).fit_predict(mixed)
    )
    with pytest.raises(TypeError, match="use partial_fit"):
        ax.Affect(ax.KMeans(2)).fit(frame)


BAD_FEATURES = [
    (scipy.sparse.csr_array(np.eye(6)), "X is a sparse matrix, but features must be a dense array"),
    (np.eye(6) + 1j, "X must be real, got dtype complex128"),
    (np.empty((6, 0)), r"X has 0 feature\(s\)"),
    (np.array([["1.5", "one"]], dtype=object), "X contains values that are not numbers: .*'one'"),
]


@pytest.mark.parametrize(("x", "message"), BAD_FEATURES)
@pytest.mark.parametrize("make", [ax.Affect, ax.Static, ax.RG])
def test_bad_features(make, x, message):
    model = make(ax.KMeans(2), proximity="dot")
    for attempt in (model.fit, model.partial_fit):
        with pytest.raises((ValueError, TypeError), match=message):
            attempt(x)
    assert model.n_steps_ == 0


def test_features_may_change_and_are_forgotten_with_the_steps():
    rng = np.random.default_rng(0)
    model = ax.Affect(ax.KMeans(2), proximity="dot", random_state=0)
    assert not hasattr(model, "n_features_in_")
    model.fit([rng.normal(size=(6, 4)), rng.normal(size=(6, 3)).tolist()])
    assert model.n_features_in_ == 3
    assert not hasattr(model.reset(), "n_features_in_")
    assert not hasattr(ax.Affect(ax.KMeans(2)).fit([W]), "n_features_in_")  # there are none


def test_stopped_kmeans_warns():
    with pytest.warns(ax.exceptions.ConvergenceWarning, match="in max_iter=1 iterations; increase max_iter"):
        ax.Affect(ax.KMeans(2, init="random", max_iter=1), random_state=3).partial_fit(next(matrices(n=40)))
