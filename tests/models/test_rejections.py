"""A rejected step changes nothing: a table of invalid inputs, each with its message.

After each of them the model equals the previous one, field by field and bit by bit, and the next valid step
gives the same result as without the rejected one.
"""

import csv
import dataclasses
import functools
import re
import types

import numpy as np
import pytest
import scipy.sparse

import affect_xp as ax
from affect_xp.cli import main
from affect_xp.models.pcm import PCM
from affect_xp.models.pcq import PCQ
from affect_xp.models.rg import RG
from affect_xp.proximity.chunked._plan import Chunks, Plan
from affect_xp.tracking.history import History

da = pytest.importorskip("dask.array")
Delayed = pytest.importorskip("dask.delayed").Delayed

N = 8
NAMES = list("abcdefgh")


def features(t):
    """Return two groups of objects in the quadrant where all dot products are positive."""
    rng = np.random.default_rng(t)
    return np.repeat([[4.0, 1.0], [1.0, 4.0]], N // 2, axis=0) + rng.uniform(-0.5, 0.5, size=(N, 2))


def products(t):
    x = features(t)
    return x @ x.T


def spoiled(value, i=1, j=2):
    w = products(9)
    w[i, j] = w[j, i] = value
    return w


def dense(w):
    return np.array(w)


def sparse(w):
    return scipy.sparse.csr_array(w)


def chunked(w):
    return da.from_array(np.array(w), chunks=3)


def factored(w):
    return ax.Factored.from_features(np.linalg.cholesky(w + 1e-9 * np.eye(len(w))))


REPRESENTATIONS = {"Dense": dense, "Sparse": sparse, "Chunked": chunked, "Factored": factored}


def alternating(proximity):
    return np.arange(proximity.n) % 2


ESTIMATORS = {
    "Affect": lambda **kw: ax.Affect(ax.KMeans(2), **kw),
    "Affect of a function": lambda **kw: ax.Affect(alternating, **kw),
    "Static": lambda **kw: ax.Static(ax.KMeans(2), **kw),
    "PCQ": lambda **kw: PCQ(ax.Spectral(2), **kw),
    "PCM": lambda **kw: PCM(ax.Spectral(2), **kw),
}


# Contents of a model, field by field ---------------------------------------------------------------------


def contents(value, path="model"):
    """Return everything below a value as {path: plain value}; arrays as (dtype, shape, bytes)."""
    if isinstance(value, np.ndarray):
        return {path: (str(value.dtype), value.shape, value.tobytes())}
    if isinstance(value, da.Array | Delayed):
        return contents(value.compute(), path)
    if isinstance(value, Chunks):  # the names of tasks are unique
        return _all(dict(zip(value.at, Plan(value).compute(list(value.at.values())), strict=True)), path)
    if scipy.sparse.issparse(value):
        return _all({name: getattr(value, name) for name in ("data", "indices", "indptr", "shape")}, path)
    if isinstance(value, np.random.Generator):
        return {path: repr(value.bit_generator.state)}
    if isinstance(value, np.random.RandomState):
        return {path: repr(value.get_state())}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Cached properties are not fields.
        return _all({f.name: getattr(value, f.name) for f in dataclasses.fields(value)}, path)
    if isinstance(value, History | list | tuple):
        return {f"{path} has": len(value)} | _all(dict(enumerate(value)), path)
    if isinstance(value, dict):
        return {f"{path} has": sorted(map(str, value))} | _all(value, path)
    if isinstance(value, types.FunctionType | type):
        return {path: id(value)}
    return {path: repr(value)}


def _all(parts, path):
    return {
        key: leaf for name, part in parts.items() for key, leaf in contents(part, f"{path}.{name}").items()
    }


def rejects(model, bad, message):
    """Check that the model rejects a call with this message and is unchanged."""
    before = contents(vars(model))
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        bad()
    assert isinstance(caught.value, ax.exceptions.AffectError)
    after = contents(vars(model))
    assert after.keys() == before.keys()
    assert [path for path in before if after[path] != before[path]] == []


def goes_on_alike(model, undisturbed, *step, **more):
    """Check that the next valid step gives identical results on both models."""
    model.partial_fit(*step, **more)
    undisturbed.partial_fit(*step, **more)
    assert _without_identity(contents(vars(model))) == _without_identity(contents(vars(undisturbed)))


def _without_identity(found):
    return {path: leaf for path, leaf in found.items() if " object at 0x" not in str(leaf)}


def after_steps(make, put, n_steps, **parameters):
    model = make(**{"random_state": 0, **parameters})
    for t in range(n_steps):
        model.partial_fit(put(products(t)), NAMES)
    return model


# Rejected by all representations and estimators ----------------------------------------------------------

BAD_IDS = [
    (N, NAMES[:5], "ids has length 5, but there are 8 objects"),
    (N, ["a", *NAMES[:-1]], "ids must be unique; 'a' appears more than once"),
    (N, [[name] for name in NAMES], "ids must be hashable"),
    (N, None, "pass ids= with each step so that objects can be matched"),
    (1, ["a"], "n_clusters=2 exceeds the number of objects, 1"),
]


@pytest.mark.parametrize("representation", REPRESENTATIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ids(estimator, representation):
    make, put = ESTIMATORS[estimator], REPRESENTATIONS[representation]
    model, undisturbed = (after_steps(make, put, 2) for _ in range(2))
    for n, ids, message in BAD_IDS:
        if estimator == "Affect of a function" and n == 1:  # a function may accept one object
            continue
        w = put(products(2)[:n, :n])
        rejects(model, functools.partial(model.partial_fit, w, ids), message)
    goes_on_alike(model, undisturbed, put(products(2)), NAMES)


# Rejected matrices ------------------------------------------------------------------------------------------

BAD_MATRICES = [
    (np.ones((3, 4)), "W must be a square matrix of proximities, got shape \\(3, 4\\)"),
    (np.triu(np.ones((N, N))), r"W is not symmetric: W\[0, 1\] = 1.0 but W\[1, 0\] = 0.0"),
    (spoiled(np.nan), r"W must be finite, but W\[1, 2\] = nan"),
    (spoiled(np.inf), r"W must be finite, but W\[1, 2\] = inf"),
    (spoiled(-np.inf, 3, 3), r"W must be finite, but W\[3, 3\] = -inf"),
    (products(9) + 1j, "W must be real, got dtype complex128; pass its real part or its modulus"),
    (np.ones((0, 0)), r"W has no objects \(shape \(0, 0\)\)"),
]


@pytest.mark.parametrize("representation", ["Dense", "Sparse", "Chunked"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n_before", [0, 2])
def test_matrices(estimator, representation, n_before):
    make, put = ESTIMATORS[estimator], REPRESENTATIONS[representation]
    model, undisturbed = (after_steps(make, put, n_before) for _ in range(2))
    for w, message in BAD_MATRICES:
        rejects(model, functools.partial(model.partial_fit, put(w), NAMES), message)
    goes_on_alike(model, undisturbed, put(products(2)), NAMES)


BAD_OBJECTS = [
    ("matrix", "W must be a two-dimensional array, a sparse matrix or a Proximity, got str"),
    (None, "W must be a two-dimensional array, a sparse matrix or a Proximity, got NoneType"),
    (7, "W must be a two-dimensional array, a sparse matrix or a Proximity, got int"),
    (np.float64(7), "W must be a square matrix of proximities, got shape \\(\\)"),
    (np.ones(N), "W must be a square matrix of proximities, got shape \\(8,\\)"),
    (np.ones((2, N, N)), "W must be a square matrix of proximities, got shape \\(2, 8, 8\\)"),
    (np.ones((N, N), dtype=np.float16), "W must be of dtype float32 or float64, got float16"),
    (np.full((N, N), "a"), "W must be of dtype float32 or float64, got <U1"),
    (np.full((N, N), None), "W must be of dtype float32 or float64, got object"),
    (np.ma.masked_array(products(9), mask=np.eye(N)), r"W is a masked array; fill it with W.filled\(0\)"),
    (scipy.sparse.csr_array(products(9)), "W is Sparse, but the previous steps were Dense; convert it first"),
    (chunked(products(9)), "W is Chunked, but the previous steps were Dense"),
    (factored(products(9)), "W is Factored, but the previous steps were Dense"),
]


@pytest.mark.parametrize(("given", "message"), BAD_OBJECTS, ids=[row[-1][:40] for row in BAD_OBJECTS])
def test_objects(given, message):
    model, undisturbed = (after_steps(ESTIMATORS["Affect"], dense, 2) for _ in range(2))
    rejects(model, lambda: model.partial_fit(given, NAMES), message)
    goes_on_alike(model, undisturbed, products(2), NAMES)


def indices_beyond_the_shape():
    w = scipy.sparse.csr_array(products(9))
    w.indices[3] = 99
    return w


def test_sparse_indices():
    model, undisturbed = (after_steps(ESTIMATORS["Affect"], sparse, 2) for _ in range(2))
    bad = indices_beyond_the_shape()
    rejects(model, lambda: model.partial_fit(bad, NAMES), "W is not a valid sparse matrix")
    goes_on_alike(model, undisturbed, sparse(products(2)), NAMES)


def test_a_frame_with_other_names_across():
    pandas = pytest.importorskip("pandas")
    model, undisturbed = (after_steps(ESTIMATORS["Affect"], dense, 2) for _ in range(2))
    bad = pandas.DataFrame(products(9), index=NAMES, columns=NAMES[::-1])
    rejects(model, lambda: model.partial_fit(bad), "W is a DataFrame whose index and columns differ")
    goes_on_alike(model, undisturbed, products(2), NAMES)


# Rejected features ------------------------------------------------------------------------------------------

BAD_FEATURES = [
    (np.ones(N), r"X must have a row for each object and a column for each feature, got shape \(8,\)"),
    (np.ones((0, 2)), r"X must have a row for each object .*, got shape \(0, 2\)"),
    (np.full((N, 2), np.nan), r"X must be finite, but X\[0, 0\] = nan"),
    (np.where(np.arange(16).reshape(N, 2) == 5, np.inf, 1.0), r"X must be finite, but X\[2, 1\] = inf"),
    (np.ones((N, 2), dtype=complex), "X must be real, got dtype complex128"),
    (np.full((N, 2), "a"), "X must be of dtype float32 or float64, got <U1"),
    (np.arange(10.0).reshape(5, 2), "ids has length 8, but there are 5 objects"),
]
OF_FEATURES = {
    "Affect": lambda: ax.Affect(ax.KMeans(2), proximity="dot", random_state=0),
    "Static": lambda: ax.Static(ax.KMeans(2), proximity="dot", random_state=0),
    "RG": lambda: RG(ax.KMeans(2), random_state=0),
    "PCM": lambda: PCM(ax.Spectral(2), proximity="dot", random_state=0),
}


@pytest.mark.parametrize(("x", "message"), BAD_FEATURES, ids=[row[-1][:40] for row in BAD_FEATURES])
@pytest.mark.parametrize("make", OF_FEATURES.values(), ids=OF_FEATURES)
@pytest.mark.parametrize("n_before", [0, 2])
def test_features(make, x, message, n_before):
    model, undisturbed = make(), make()
    for one in (model, undisturbed):
        for t in range(n_before):
            one.partial_fit(features(t), NAMES)
    rejects(model, lambda: model.partial_fit(x, NAMES), message)
    goes_on_alike(model, undisturbed, features(2), NAMES)


BAD_FOR_RG = [
    (features(2), [*NAMES[:-1], "z"], "RG needs the same ids at all steps, but 1 are new and 1 left"),
    (features(2)[:-1], NAMES[:-1], "RG needs the same ids at all steps, but 0 are new and 1 left"),
    (np.ones((N, 3)), NAMES, "X has 3 features, but the previous steps had 2"),
    (chunked(features(2)), NAMES, "RG takes an \\(n, p\\) array of features in memory, got Array"),
    (ax.Dense(products(2)), NAMES, "RG takes an \\(n, p\\) array of features in memory, got Dense"),
]


@pytest.mark.parametrize(("x", "ids", "message"), BAD_FOR_RG, ids=[row[-1][:44] for row in BAD_FOR_RG])
def test_filtered_features(x, ids, message):
    model, undisturbed = (RG(ax.KMeans(2), random_state=0) for _ in range(2))
    for one in (model, undisturbed):
        one.partial_fit(features(0), NAMES).partial_fit(features(1), NAMES)
    rejects(model, lambda: model.partial_fit(x, ids), message)
    goes_on_alike(model, undisturbed, features(2), NAMES)


# Rejected parameters, set between two steps -------------------------------------------------------------

BAD_PARAMETERS = [
    ("Affect", {"clusterer": ax.KMeans(0)}, "n_clusters must be at least 1, got 0"),
    ("Affect", {"clusterer": ax.KMeans(N + 1)}, "n_clusters=9 exceeds the number of objects, 8"),
    ("Affect", {"clusterer": ax.KMeans([2, 2])}, "n_clusters has 2 entries, but this is step 2"),
    ("Affect", {"clusterer": ax.KMeans(2, init="far")}, "init must be one of 'k-means\\+\\+'"),
    ("Affect", {"clusterer": "kmeans"}, "clusterer must be an object such as KMeans"),
    ("Affect", {"clusterer": lambda w: [0, 1]}, "labels returned by the clusterer has length 2"),
    ("Affect", {"clusterer": lambda w: [0.5] * N}, "labels returned by the clusterer must be integers"),
    ("Affect", {"n_iter": 0}, "n_iter must be at least 1, got 0"),
    ("Affect", {"alpha": 1.5}, "alpha must be between 0 and 1, got 1.5"),
    ("Affect", {"alpha": np.nan}, "alpha must be between 0 and 1, got nan"),
    ("Affect", {"alpha": [0.5, 0.5]}, "alpha has 2 entries, but this is step 2"),
    ("Affect", {"alpha": lambda *given: -1.0}, "the forgetting factor returned by alpha must be between 0"),
    ("Affect", {"alpha": lambda *given: np.nan}, "the forgetting factor returned by alpha must be between"),
    ("Affect", {"init": "random"}, "init must be one of 'auto', 'previous', 'static', got 'random'"),
    ("Affect", {"correction": "all"}, "correction must be 'objects' or None, got 'all'"),
    ("Affect", {"events": None}, "events must be an EventRules, got None"),
    ("Affect", {"proximity": "manhattan"}, "must be one of 'precomputed', 'dot'"),
    ("Affect", {"proximity": "euclidean"}, "gives a dissimilarity, but KMeans takes a similarity"),
    ("Static", {"warm_start": 1}, "warm_start must be True or False, got 1"),
    ("Static", {"clusterer": ax.Linkage(2, method="median")}, "method must be one of"),
    ("PCQ", {"alpha": -0.1}, "alpha must be between 0 and 1, got -0.1"),
    ("PCQ", {"clusterer": ax.KMeans(2)}, "PCQ takes a Spectral as clusterer"),
    ("PCM", {"membership": "fuzzy"}, "membership must be one of 'relaxed', 'discrete', got 'fuzzy'"),
    ("PCM", {"alpha": [0.5]}, "alpha has 1 entries, but this is step 2"),
]


@pytest.mark.parametrize(
    ("estimator", "changed", "message"),
    BAD_PARAMETERS,
    ids=[f"{row[0]}: {row[-1][:48]}" for row in BAD_PARAMETERS],
)
def test_parameters(estimator, changed, message):
    model, undisturbed = (after_steps(ESTIMATORS[estimator], dense, 2) for _ in range(2))
    ((name, bad),) = changed.items()
    good = getattr(model, name)
    setattr(model, name, bad)
    rejects(model, lambda: model.partial_fit(products(2), NAMES), message)
    setattr(model, name, good)
    goes_on_alike(model, undisturbed, products(2), NAMES)


@pytest.mark.parametrize("representation", REPRESENTATIONS)
def test_a_clusterer_that_fails(representation):
    put = REPRESENTATIONS[representation]
    model, undisturbed = (after_steps(ESTIMATORS["Affect"], put, 2) for _ in range(2))
    good, calls = model.clusterer, []

    def fails_at_last(proximity):
        calls.append(proximity)
        if len(calls) == 2:  # the last call of the step
            raise ax.exceptions.InputError("no clusters today")
        return [0, 1] * (N // 2)

    model.clusterer = fails_at_last
    rejects(model, lambda: model.partial_fit(put(products(2)), NAMES), "no clusters today")
    assert len(calls) == 2
    model.clusterer = good
    goes_on_alike(model, undisturbed, put(products(2)), NAMES)


# A rejected first step restores the generator ---------------------------------------------------------------

GENERATORS = {
    "Generator": lambda: np.random.default_rng(3),
    "RandomState": lambda: np.random.RandomState(3),
}


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS)
def test_generators(generator):
    model, undisturbed = (ax.Affect(ax.KMeans(2), random_state=generator()) for _ in range(2))
    rejects(model, lambda: model.partial_fit(np.eye(1)), "n_clusters=2 exceeds the number of objects, 1")
    rejects(model, lambda: model.fit([products(0), np.eye(1)]), "pass ids= with each step")
    goes_on_alike(model, undisturbed, products(0))


# Rejected sequences -----------------------------------------------------------------------------------------

BAD_SEQUENCES = [
    (([],), "sequence is empty; pass at least one step"),
    ((5,), "sequence must be a list of matrices, got int"),
    ((products(0),), r"use partial_fit\(W\) or fit\(\[W\]\)"),
    ((ax.Dense(products(0)),), r"use partial_fit\(W\) or fit\(\[W\]\)"),
    (([products(0), np.triu(products(1))], None, NAMES), "W is not symmetric"),
    (([products(0), products(1)], None, [NAMES]), "ids has 1 entries, but sequence has more"),
    (([products(0), sparse(products(1))], None, NAMES), "W is Sparse, but the previous steps were Dense"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_SEQUENCES, ids=[row[-1][:40] for row in BAD_SEQUENCES])
@pytest.mark.parametrize("estimator", ["Affect", "Static", "PCQ", "PCM"])
def test_sequences(estimator, arguments, message):
    if "Sparse" in message and estimator in ("Static", "PCM"):
        pytest.skip("where no proximities are kept, representations may change")
    model, undisturbed = (after_steps(ESTIMATORS[estimator], dense, 2) for _ in range(2))
    rejects(model, lambda: model.fit(*arguments[:2], ids=next(iter(arguments[2:]), None)), message)
    goes_on_alike(model, undisturbed, products(2), NAMES)


def test_times_too_few():
    model, undisturbed = (after_steps(ESTIMATORS["Affect"], dense, 2) for _ in range(2))
    steps = [products(0), products(1)]
    rejects(
        model, lambda: model.fit(steps, ids=NAMES, times=["mon"]), "times has 1 entries, but sequence has"
    )
    goes_on_alike(model, undisturbed, products(2), NAMES)


# Rejected by the command line ------------------------------------------------------------------------------


def write_rows(path, n_steps, last=()):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "id", "x", "y"])
        writer.writerows([t, NAMES[i], *features(t)[i]] for t in range(n_steps) for i in range(N))
        writer.writerows(last)
    return path


BAD_ROWS = [
    ([[3, "a", "nan", 1.0]], r"line 26 of .*3,a,nan,1.0.* in column 'x'; pass --missing drop"),
    ([[3, "a", "inf", 1.0]], r"line 26 of .*3,a,inf,1.0.* in column 'x'"),
    ([[3, "a", "many", 1.0]], r"line 26 of .*3,a,many,1.0.*: 'many' in column 'x' is not a number"),
    ([[3, "a", 1.0, 1.0], [3, "a", 2.0, 1.0]], "id 'a' has 2 rows at time 3; pass --aggregate mean"),
    ([[3, "a", 1.0]], "line 26 of .* it has 3 values, but there are 4 columns"),
    ([[1, "a", 1.0, 1.0]], "id 'a' has 2 rows at time 1"),
    ([[3, "a", 1.0, 1.0]], "n_clusters=2 exceeds the number of objects, 1"),
]


@pytest.mark.parametrize(("last", "message"), BAD_ROWS, ids=[str(row[0])[:32] for row in BAD_ROWS])
def test_rows_of_a_file(tmp_path, capsys, last, message):
    out, command = tmp_path / "out", ["-k", "2", "--quiet", "--out", str(tmp_path / "out"), "--resume"]
    assert main(["run", str(write_rows(tmp_path / "good.csv", 3)), *command]) == 0
    before = ax.load(out / "model.affect")
    bad = write_rows(tmp_path / "bad.csv", 3, last)
    assert main(["run", str(bad), *command]) != 0
    printed = capsys.readouterr().err
    assert "Traceback" not in printed and re.search(message, printed), printed
    assert contents(vars(ax.load(out / "model.affect"))) == contents(vars(before))
    assert main(["run", str(write_rows(tmp_path / "mended.csv", 4)), *command]) == 0
    whole = ax.Affect(ax.KMeans(2), proximity="dot", scale="standard", random_state=0)  # as in the command
    for t in range(4):
        whole.partial_fit(features(t), NAMES)
    resumed = ax.load(out / "model.affect")
    assert resumed.n_steps_ == 4
    np.testing.assert_array_equal(resumed.labels_, whole.labels_)
    assert resumed.alphas_ == whole.alphas_


BAD_OPTIONS = [
    (["-k", "0"], "-k 0 is neither a number from 1"),
    (["-k", "many"], "-k many is neither a number"),
    (["-k", "2", "--alpha", "2", "--overwrite"], "for --alpha. Must be estimate, or from 0 to 1"),
    (["-k", "2"], "contains a finished run"),
    (["-k", "2", "--n-iter", "0"], "for --n-iter. Must be > 0"),
    (["-k", "2", "--linkage", "single"], "--linkage is for --method linkage, not kmeans"),
    (
        ["-k", "2", "--resume", "--seed", "5"],
        "was made with random_state=0, but now random_state=5 is asked for",
    ),
    (["-k", "3", "--resume"], "was made with clusterer=KMeans"),
    (["-k", "2", "--freq", "never"], "for --freq: freq='never' is not understood; pass a number and a unit"),
    (["-k", "2", "--id", "name"], "--id name is not a column of"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=[" ".join(row[0]) for row in BAD_OPTIONS])
def test_options(tmp_path, capsys, options, message):
    out, rows = tmp_path / "out", write_rows(tmp_path / "good.csv", 3)
    assert main(["run", str(rows), "-k", "2", "--quiet", "--out", str(out)]) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    longer = write_rows(tmp_path / "longer.csv", 4)
    assert main(["run", str(longer), *options, "--quiet", "--out", str(out)]) != 0
    assert message in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
