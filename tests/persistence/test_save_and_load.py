"""Saved and loaded models continue exactly as the original, bit for bit."""

import dataclasses
import datetime
import json
import zipfile
import zoneinfo

import hypothesis
import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies

import affect_xp as ax
from affect_xp.affect.absence import Away, Meetings
from affect_xp.affect.step import State
from affect_xp.partition import Partition
from affect_xp.persistence import load, save
from affect_xp.persistence._values import decode, encode
from affect_xp.proximity._columns import Factor, Scatter
from affect_xp.proximity.sparse import is_sparse
from affect_xp.tracking.events import Clusters, Dormant
from affect_xp.tracking.history import History, Record

N_STEPS = 7


def steps(dtype=np.float64):
    """Yield features and ids: objects come, go and are permuted; cluster 2 is missing at steps 3 and 4."""
    rng = np.random.default_rng(5)
    for t in range(N_STEPS):
        names = np.arange(t // 2, 24 + t)
        names = names[names % 3 != 2] if t in (3, 4) else names
        names = rng.permutation(names) if t in (2, 5) else names
        x = 3 * np.eye(3)[names % 3] + 0.8 * rng.normal(size=(len(names), 3))
        yield x.astype(dtype), names.tolist()


def distances(x):
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2))
    return (d + d.T) / 2


def sparse(x):
    w = x @ x.T
    return scipy.sparse.csr_array(np.where(w > 1.0, w, 0.0))


def chunked(x, store=None):
    dask_array = pytest.importorskip("dask.array")
    return ax.Chunked(dask_array.from_array(x @ x.T, chunks=16), store)


def plain(value):
    """Return the contents of a value; arrays with their dtype, memory order and bytes."""
    if is_sparse(value):
        return [plain(part) for part in (value.data, value.indices, value.indptr)]
    if type(value).__module__.startswith("dask"):
        return plain(value.compute())
    if isinstance(value, np.ndarray):
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous
        return (value.dtype.str, value.shape, by_columns, value.tobytes())
    if isinstance(value, ax.Chunked):
        return [value.store is not None, plain(value.array), value.array.chunks]
    if isinstance(value, ax.Factored):
        return [fields_of(value.with_known(), but=("known_diagonal",)), plain(value.diagonal())]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, fields_of(value)]
    if isinstance(value, History | tuple | list):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    return type(value).__name__, value


def fields_of(value, but=()):
    return {
        field.name: plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.name not in but and field.name != "_spill"
    }


def snapshot(model):
    """Return the contents of a model."""
    return {name: plain(value) for name, value in vars(model).items()}


def reloaded(model, path, **arguments):
    save(model, path)
    return load(path, **arguments)


def check_resumed(make, observed, path, **arguments):
    """Compare a model that is saved and loaded after each step with one that is not."""
    straight, stopped = make(), make()
    for t, (x, ids) in enumerate(observed()):
        straight.partial_fit(x(), ids, time=("step", t))
        stopped.partial_fit(x(), ids, time=("step", t))
        stopped = reloaded(stopped, path, **arguments)
        found, expected = snapshot(stopped), snapshot(straight)
        assert found.keys() == expected.keys()
        for name in found:
            assert found[name] == expected[name], (t, name)
    return stopped


K = [3, 3, 3, 2, 2, 3, 3]
KMEANS = ax.KMeans(K, n_init=2)
SPECTRAL = ax.Spectral(K, objective="average_association", n_init=2)
LINKAGE = ax.Linkage(K, method="complete")

WS = {
    "float64": lambda x: x @ x.T,
    "float32": lambda x: (x @ x.T).astype(np.float32),
    "by columns": lambda x: np.asfortranarray(x @ x.T),
    "sparse": sparse,
    "sparse float32": lambda x: sparse(x).astype(np.float32),
    "chunked": chunked,
}
CASES = {
    **{
        f"Affect, {type(c).__name__}, {name}": (lambda c=c: ax.Affect(c, random_state=1), w)
        for c in (KMEANS, SPECTRAL)
        for name, w in WS.items()
    },
    **{
        f"Affect, Linkage, {name}": (lambda: ax.Affect(LINKAGE, random_state=1), w)
        for name, w in {
            "float64": distances,
            "float32": lambda x: distances(x).astype(np.float32),
            "by columns": lambda x: np.asfortranarray(distances(x)),
            "sparse": lambda x: scipy.sparse.csr_array(distances(x)),
        }.items()
    },
    **{
        f"Affect, {type(c).__name__}, factored {dtype.__name__}": (
            lambda c=c: ax.Affect(c, proximity="dot", random_state=1),
            lambda x, dtype=dtype: x.astype(dtype),
        )
        for c in (KMEANS, SPECTRAL)
        for dtype in (np.float64, np.float32)
    },
    "Affect, factored of bounded rank": (
        lambda: ax.Affect(KMEANS, random_state=1),
        lambda x: ax.Factored.from_features(x, max_rank=7),
    ),
    "Affect, factored, α fixed": (
        lambda: ax.Affect(KMEANS, alpha=0.3, random_state=1),
        ax.Factored.from_features,
    ),
    "Affect, factored, columns dropped": (
        lambda: ax.Affect(KMEANS, alpha=0.1, random_state=1),
        lambda x: ax.Factored.from_features(x, tolerance=0.02),
    ),
    "Affect, α by step": (
        lambda: ax.Affect(KMEANS, alpha=np.linspace(0, 0.9, N_STEPS), random_state=1),
        WS["float64"],
    ),
    "Affect, α is 0": (lambda: ax.Affect(KMEANS, alpha=0.0, random_state=1), WS["float64"]),
    "Affect, k chosen": (lambda: ax.Affect(ax.KMeans("silhouette"), random_state=1), WS["float64"]),
    "Affect, rbf": (lambda: ax.Affect(SPECTRAL, proximity="rbf", random_state=1), lambda x: x),
    "Affect, normalised cut": (
        lambda: ax.Affect(ax.Spectral(K, solver="iterative"), proximity="rbf", random_state=1),
        lambda x: x,
    ),
    "Affect, by objects": (
        lambda: ax.Affect(KMEANS, forgetting="objects", random_state=1),
        lambda x: np.exp(-(distances(x) ** 2)),
    ),
    "Affect, previous": (lambda: ax.Affect(KMEANS, init="previous", random_state=1), WS["float64"]),
    "Static": (lambda: ax.Static(KMEANS, random_state=1), WS["float64"]),
    "Static, factored": (lambda: ax.Static(KMEANS, proximity="dot", random_state=1), lambda x: x),
    "Static, Linkage": (lambda: ax.Static(LINKAGE, random_state=1), distances),
    "PCQ": (lambda: ax.PCQ(SPECTRAL, random_state=1), WS["float64"]),
    "PCQ, sparse": (lambda: ax.PCQ(SPECTRAL, random_state=1), sparse),
    "PCQ, factored": (lambda: ax.PCQ(SPECTRAL, proximity="dot", random_state=1), lambda x: x),
    "PCM": (lambda: ax.PCM(SPECTRAL, random_state=1), WS["float64"]),
    "PCM, discrete": (lambda: ax.PCM(SPECTRAL, membership="discrete", random_state=1), WS["float64"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_is_the_same_to_the_last_bit(name, tmp_path):
    make, w = CASES[name]
    model = check_resumed(make, lambda: [((lambda x=x: w(x)), ids) for x, ids in steps()], tmp_path / "model")
    assert any(event.kind == "return" for events in model.history_.events for event in events), "the story"


@pytest.mark.parametrize("clusterer", [ax.KMeans(3), ax.Linkage(3)], ids=["KMeans", "Linkage"])
def test_rg_resumes(clusterer, tmp_path):
    kind = "dot" if isinstance(clusterer, ax.KMeans) else "euclidean"
    observed = [x[:20] for x, _ in steps() if len(x) >= 20]
    check_resumed(
        lambda: ax.RG(clusterer, order=2, power=1, proximity=kind, random_state=1),
        lambda: [((lambda x=x: x), None) for x in observed],
        tmp_path / "model",
    )


def test_chunks_in_a_store_go_to_the_store_that_is_given(tmp_path):
    pytest.importorskip("zarr")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    observed = [((lambda x=x: chunked(x, tmp_path / "a")), ids) for x, ids in list(steps())[:4]]
    check_resumed(
        lambda: ax.Affect(KMEANS, random_state=1), lambda: observed, tmp_path / "model", store=tmp_path / "b"
    )
    with pytest.raises(ax.exceptions.InputError, match="pass store=, a scratch folder"):
        load(tmp_path / "model")


def test_a_model_without_a_step(tmp_path):
    model = reloaded(ax.Affect(ax.KMeans(2), random_state=3), tmp_path / "model")
    assert repr(model) == repr(ax.Affect(ax.KMeans(2), random_state=3))
    assert model.n_steps_ == 0 and not hasattr(model, "history_")


def test_saving_leaves_the_model_as_it_is_and_the_file_depends_on_nothing_else(tmp_path):
    model = ax.Affect(KMEANS, random_state=1)
    for x, ids in steps():
        model.partial_fit(x @ x.T, [f"object {i}" for i in ids])
    before = snapshot(model)
    save(model, tmp_path / "a")
    save(load(tmp_path / "a"), tmp_path / "b")
    assert snapshot(model) == before
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_model_whose_proximities_were_looked_at_writes_elsewhere_also_when_resumed(tmp_path):
    model = ax.Affect(ax.KMeans(2), random_state=0).fit([np.eye(4)] * 2)
    model.smoothed_  # noqa: B018
    assert not reloaded(model, tmp_path / "model")._owns_smoothed


def test_numpy_reads_the_arrays(tmp_path):
    model = ax.Affect(ax.KMeans(2), random_state=0).fit([np.eye(4)] * 2)
    save(model, tmp_path / "model")
    with np.load(tmp_path / "model", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["smoothed"], model.smoothed_.array)
        header = json.loads(arrays["header.json"])
    assert header["format"] == "affect_xp model" and header["version"] == 2
    with zipfile.ZipFile(tmp_path / "model") as archive:
        assert archive.testzip() is None


class TestParameters:
    @pytest.mark.parametrize(
        "clusterer",
        [
            ax.KMeans([2, 3], init=np.array([0, 1, 0, 1]), n_init=4, tol=0.25, max_clusters=7),
            ax.KMeans(range(2, 5)),
            ax.KMeans(np.array([2, 2])),
            ax.KMeans(np.int64(2)),
            ax.Spectral("eigengap", objective="ratio_cut", assign_labels="rotation", solver="full"),
            ax.Linkage(distance_threshold=0.1 + 0.2, method="single"),
        ],
        ids=lambda c: type(c).__name__,
    )
    def test_clusterers(self, clusterer, tmp_path):
        model = ax.Affect(
            clusterer, events=ax.EventRules(overlap=1 / 3, max_dormant=2, continuity=0.7), n_iter=5
        )
        assert plain(vars(reloaded(model, tmp_path / "model"))) == plain(vars(model))

    @pytest.mark.parametrize(
        "alpha", [0.1, 1, [0.1, 0.2], (0.0, 1.0), np.array([0.5, 0.25], dtype=np.float32)]
    )
    def test_alpha(self, alpha, tmp_path):
        model = reloaded(ax.Affect(ax.KMeans(2), alpha=alpha), tmp_path / "model")
        assert plain(model.alpha) == plain(alpha)

    def test_what_cannot_be_saved_must_be_passed_again(self, tmp_path):
        def first_three(psi):
            return [0, 0, 0, *[1] * (psi.n - 3)]

        w = np.eye(6)
        model = ax.Affect(first_three, alpha=lambda *_: 0.5, proximity="precomputed").fit([w])
        save(model, tmp_path / "model")
        with pytest.raises(
            ax.exceptions.InputError, match=r"does not contain clusterer \(a function\), alpha"
        ):
            load(tmp_path / "model")
        with pytest.raises(ax.exceptions.InputError, match=r"pass it again: load\(path, alpha=...\)"):
            load(tmp_path / "model", clusterer=first_three)
        resumed = load(tmp_path / "model", clusterer=first_three, alpha=0.25)
        assert resumed.partial_fit(w).alpha_ == 0.25
        with pytest.raises(
            ax.exceptions.InputError, match="the model has no parameter colour; valid ones: clust"
        ):
            load(tmp_path / "model", colour=1)

    def test_clusterers_of_other_libraries_must_be_passed_again(self, tmp_path):
        cluster = pytest.importorskip("sklearn.cluster")
        dbscan = cluster.DBSCAN(metric="precomputed", eps=0.5)
        d = distances(np.repeat(np.eye(2), 5, axis=0))
        model = ax.Affect(dbscan).fit([d])
        save(model, tmp_path / "model")
        with pytest.raises(ax.exceptions.InputError, match=r"clusterer \(a DBSCAN\)"):
            load(tmp_path / "model")
        resumed = load(tmp_path / "model", clusterer=dbscan).partial_fit(d)
        np.testing.assert_array_equal(resumed.labels_, model.labels_)

    @pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
    def test_a_generator_becomes_what_was_drawn_from_it(self, make, tmp_path):
        model = ax.Affect(ax.KMeans(2), random_state=make(0))
        with pytest.raises(
            ax.exceptions.InputError, match="random_state is a generator that has not been used"
        ):
            save(model, tmp_path / "model")
        resumed = reloaded(model.fit([np.eye(4)]), tmp_path / "model")
        assert resumed._seed == model._seed == resumed.random_state

    def test_no_seed_was_given(self, tmp_path):
        model = ax.Affect(ax.KMeans(2)).fit([np.eye(4)])
        resumed = reloaded(model, tmp_path / "model")
        assert resumed._seed == model._seed and resumed.random_state is None

    def test_only_models_can_be_saved(self, tmp_path):
        with pytest.raises(ax.exceptions.InputTypeError, match="model must be one of Affect, Static"):
            save(ax.KMeans(2), tmp_path / "model")

    def test_an_interrupted_model_is_not_saved(self, tmp_path):
        model = ax.Affect(ax.KMeans(2)).fit([np.eye(4)])
        model._interrupted = True
        with pytest.raises(ax.exceptions.AffectError, match="the last step was interrupted"):
            save(model, tmp_path / "model")


SCALARS = strategies.one_of(
    strategies.none(),
    strategies.booleans(),
    strategies.integers(),
    strategies.integers(-(2**200), 2**200),
    strategies.floats(allow_nan=False),
    strategies.text(strategies.characters(codec=None)),
    strategies.dates(),
    strategies.datetimes(),
    strategies.datetimes(timezones=strategies.timezones(), allow_imaginary=False),
    strategies.builds(
        lambda d, m: d.replace(tzinfo=datetime.timezone(datetime.timedelta(minutes=m))),
        strategies.datetimes(),
        strategies.integers(-1439, 1439),
    ),
    strategies.builds(np.float32, strategies.floats(width=32, allow_nan=False)),
    strategies.builds(np.int16, strategies.integers(-(2**15), 2**15 - 1)),
    strategies.builds(np.bool_, strategies.booleans()),
    strategies.builds(np.str_, strategies.text()),
    strategies.builds(lambda n: np.datetime64(n, "ns"), strategies.integers(0, 2**62)),
)
VALUES = strategies.recursive(SCALARS, lambda inner: strategies.lists(inner, max_size=3).map(tuple))


def typed(value):
    return tuple(map(typed, value)) if type(value) is tuple else (type(value), value)


class TestIdsAndTimes:
    @hypothesis.given(VALUES)
    @hypothesis.example(np.str_("a\0"))
    @hypothesis.settings(max_examples=100)
    def test_values_come_back_with_their_type(self, value):
        assert typed(decode(json.loads(json.dumps(encode(value, "id"), allow_nan=False)))) == typed(value)

    @pytest.mark.parametrize("value", [float("nan"), np.float64("nan"), np.datetime64("NaT", "s")])
    def test_times_need_not_be_equal_to_themselves(self, value):
        back = decode(encode(value, "time"))
        assert type(back) is type(value) and back != back

    def test_a_model_keeps_ids_and_times(self, tmp_path):
        zone = zoneinfo.ZoneInfo("Europe/Berlin")
        ids = [1, "1", (1, "a"), None, 2.5, np.int64(7), datetime.date(2020, 1, 2), -1.5]
        times = [datetime.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zone), (1, 2)]
        w = np.kron(np.eye(2), np.ones((4, 4)))
        model = ax.Affect(ax.KMeans(2), random_state=0)
        for time in times:
            model.partial_fit(w, ids, time=time)
        resumed = reloaded(model, tmp_path / "model")
        assert typed(resumed.ids_) == typed(model.ids_)
        assert typed(tuple(resumed.history_.times)) == typed(tuple(model.history_.times))
        assert resumed.history_.times[0].fold == 1

    def test_ids_that_are_equal_but_of_another_type_at_another_step(self, tmp_path):
        w = np.kron(np.eye(2), np.ones((2, 2)))
        model = ax.Affect(ax.KMeans(2), random_state=0)
        for ids in ([1, 2, 3, 4], [1.0, 2, 3, 4], [True, 2, 3, 4], [(1,), 2, 3, 4], [(1.0,), 2, 3, 4]):
            model.partial_fit(w, ids)
        resumed = reloaded(model, tmp_path / "model")
        for record, expected in zip(resumed.history_, model.history_, strict=True):
            assert typed(record.ids) == typed(expected.ids)

    @pytest.mark.parametrize("bad", [object(), frozenset([1]), b"a", 1j, np.complex64(2), ("a", (object(),))])
    def test_other_ids_are_refused_by_name_before_anything_is_written(self, bad, tmp_path):
        model = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(np.eye(3), [1, bad, 3])
        with pytest.raises(ax.exceptions.InputError, match=r"^id .* which cannot be saved; use numbers"):
            save(model, tmp_path / "model")
        assert list(tmp_path.iterdir()) == []

    def test_other_times_are_refused(self, tmp_path):
        model = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(np.eye(3), time=object())
        with pytest.raises(ax.exceptions.InputError, match=r"^time <object"):
            save(model, tmp_path / "model")

    def test_an_id_that_could_not_be_found_again_is_refused(self, tmp_path):
        model = ax.Affect(ax.KMeans(2), random_state=0).partial_fit(np.eye(3), [1, float("nan"), 3])
        with pytest.raises(ax.exceptions.InputError, match="id nan is not equal to itself"):
            save(model, tmp_path / "model")

    def test_ids_of_many_steps_are_stored_once(self, tmp_path):
        model, ids = (
            ax.Static(ax.KMeans(2), random_state=0),
            [f"a long name of object {i}" for i in range(50)],
        )
        w = np.kron(np.eye(2), np.ones((25, 25)))
        for _ in range(2):
            model.partial_fit(w, list(ids))
        save(model, tmp_path / "2 steps")
        for _ in range(20):
            model.partial_fit(w, list(ids))
        resumed = reloaded(model, tmp_path / "22 steps")
        grown = (tmp_path / "22 steps").stat().st_size - (tmp_path / "2 steps").stat().st_size
        assert grown < 20 * 500  # a label takes a byte; the rest is the record
        assert resumed.history_[0].ids is resumed.history_[-1].ids is resumed.ids_


def features_or_matrix(kind, x):
    return x if kind == "dot" else x @ x.T


@pytest.mark.parametrize("kind", ["dot", "precomputed"])
def test_resuming_on_every_library(kind, eager_xp, tmp_path):
    def make():
        return ax.Affect(KMEANS, proximity=kind, random_state=1)

    straight, stopped = make(), make()
    for x, ids in steps():
        w = eager_xp.array(features_or_matrix(kind, x))
        straight.partial_fit(w, ids)
        stopped = reloaded(
            stopped.partial_fit(w, ids), tmp_path / "model", xp=eager_xp.xp, device=eager_xp.device
        )
        assert eager_xp.owns(stopped.labels_) and eager_xp.owns(stopped._state.partition.labels)
        assert eager_xp.owns(stopped._state.smoothed.like)
        np.testing.assert_array_equal(eager_xp.numpy(stopped.labels_), eager_xp.numpy(straight.labels_))
        assert stopped.alphas_ == straight.alphas_


@pytest.mark.parametrize("kind", ["dot", "precomputed"])
def test_from_one_library_to_another_and_back(kind, eager_xp, tmp_path):
    expected, model = (ax.Affect(KMEANS, proximity=kind, random_state=1) for _ in range(2))
    for t, (x, ids) in enumerate(steps()):
        w = features_or_matrix(kind, x)
        expected.partial_fit(w, ids)
        if t % 2:
            model = reloaded(model, tmp_path / "model", xp=eager_xp.xp, device=eager_xp.device)
            model.partial_fit(eager_xp.array(w), ids)
            assert eager_xp.owns(model.labels_)
        else:
            model = reloaded(model, tmp_path / "model").partial_fit(w, ids)
            assert isinstance(model.labels_, np.ndarray)
    for found, record in zip(load_host(model, tmp_path).history_, expected.history_, strict=True):
        np.testing.assert_array_equal(found.labels, record.labels)
        np.testing.assert_allclose(found.alphas, record.alphas, rtol=1e-9)


def load_host(model, folder):
    return reloaded(model, folder / "host")


def test_sparse_matrices_go_where_there_are_some(eager_xp, tmp_path):
    model = ax.Affect(KMEANS, random_state=1).fit([sparse(x) for x, _ in steps()][:1])
    save(model, tmp_path / "model")
    if eager_xp.name not in ("numpy", "cupy"):
        with pytest.raises(ax.exceptions.InputError, match="sparse, which only NumPy and CuPy support"):
            load(tmp_path / "model", xp=eager_xp.xp, device=eager_xp.device)
        return
    moved = load(tmp_path / "model", xp=eager_xp.xp, device=eager_xp.device)
    assert eager_xp.owns(moved._state.smoothed.like)
    back = reloaded(moved, tmp_path / "back")
    assert plain(back._state.smoothed) == plain(model._state.smoothed)


@pytest.mark.parametrize(
    "arguments", [{"xp": "cupy"}, {"xp": json}, {"device": "elsewhere"}], ids=["text", "module", "device"]
)
def test_a_library_must_be_one(arguments, tmp_path):
    save(ax.Affect(ax.KMeans(2)), tmp_path / "model")
    with pytest.raises(ax.exceptions.InputTypeError, match="xp must be an array library such as cupy"):
        load(tmp_path / "model", **arguments)


def test_dask_is_not_the_library_of_chunks(tmp_path):
    dask_array = pytest.importorskip("dask.array")
    save(ax.Affect(ax.KMeans(2)), tmp_path / "model")
    with pytest.raises(ax.exceptions.InputTypeError, match="the library of the chunks, not dask"):
        load(tmp_path / "model", xp=dask_array)


# A new field must be saved; then add it here.
FIELDS = {
    State: "smoothed partition clusters ids memory groups away count",
    Away: "last_seen meetings",
    Meetings: "groups met",
    Partition: "labels k n_outside",
    Clusters: "names sizes fresh t dormant",
    Dormant: "name last_seen members",
    Record: "time n k alpha alphas labels ids events scores n_iter noise drift noise_of_means moved",
    ax.Event: "kind before after n_common size_before size_after objects probabilities",
    ax.Dense: "array square_sum known_magnitude sums sums_squares",
    ax.Sparse: "matrix prune known_magnitude",
    # Computed again after loading, if not given.
    ax.Chunked: "array store _spill known_magnitude sums chunk_squares _chunks _facts",
    ax.Factored: (
        "factors weights max_rank tolerance error leading known_diagonal known_magnitude past_error "
        "joins"  # only False within a step
    ),
    Factor: "x mask decay",
    Scatter: "centre sums",
}


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_all_fields_are_known_to_the_file(kind):
    assert [field.name for field in dataclasses.fields(kind)] == FIELDS[kind].split()
