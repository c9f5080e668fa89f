"""Transforms of proximities: each on each representation and library, against the definition."""

import math
import os

import numpy as np
import pytest
import scipy.sparse
from conftest import BACKENDS
from patches import replace_everywhere

import affect_xp as ax
from affect_xp.exceptions import InputError, InputTypeError, SkewedWarning
from affect_xp.partition import align
from affect_xp.proximity.chunked import Chunked
from affect_xp.proximity.dissimilarity import stored
from affect_xp.proximity.kernels import features_to_proximity
from affect_xp.proximity.sparse import Sparse
from affect_xp.proximity.transforms import (
    MISSED,
    SKEWED,
    TRANSFORMS,
    check_transform,
    skewness,
    skewness_hint,
    transform,
)

pytest_plugins = ("chunked_fixtures",)

N = 13
RTOL = {np.float32: 1e-5, np.float64: 1e-12}


@pytest.fixture(autouse=True)
def one_thread():
    """Compute chunks sequentially, so that CuPy's kernels are compiled once."""
    try:
        import dask
    except ImportError:
        yield
        return
    with dask.config.set(scheduler="synchronous"):
        yield


def counts(n=N, seed=0, spread=1.5):
    """Return counts with a heavy tail, many zeros, a diagonal, and one isolated object."""
    rng = np.random.default_rng(seed)
    w = np.triu(rng.poisson(rng.lognormal(0.5, spread, size=(n, n))))
    w = (w + w.T).astype(float)
    w[3, :] = w[:, 3] = 0
    return w


def auto_rescale(W):
    """Return what rescale="auto" chooses for similarities that are not negative."""
    return "log1p" if float(skewness(W)) > SKEWED else None


def twin(w, how):
    """Return the transform, entry by entry."""
    out, n = np.zeros_like(w), len(w)
    total = sum(w[i, j] for i in range(n) for j in range(n) if i != j)
    degree = [sum(w[i, j] for j in range(n)) for i in range(n)]
    for i in range(n):
        for j in range(n):
            x = w[i, j]
            if how == "log1p":
                out[i, j] = math.log(1 + x)
            elif how == "sqrt":
                out[i, j] = math.sqrt(x)
            elif how == "binary":
                out[i, j] = 1.0 if x > 0 else 0.0
            elif how == "volume":
                out[i, j] = x / total
            elif how == "degree":
                out[i, j] = x / math.sqrt(degree[i] * degree[j]) if x else 0.0
            else:
                out[i, j] = float(how(np.array(x)))
    return out


def dense(xp, w):
    return xp.array(w)


def sparse(xp, w):
    if xp.name not in ("numpy", "cupy"):
        pytest.skip("sparse matrices are SciPy's and CuPy's")
    module = pytest.importorskip("cupyx.scipy.sparse" if xp.name == "cupy" else "scipy.sparse")
    return module.csr_matrix(xp.array(w))


def chunked(xp, w):
    if xp.name not in ("numpy", "cupy"):
        pytest.skip("chunks are NumPy's and CuPy's")
    return Chunked(pytest.importorskip("dask.array").from_array(xp.array(w), chunks=5, asarray=False))


def entries(xp, proximity):
    """Return all entries of a proximity on the host."""
    array = stored(proximity)
    return xp.numpy(array.compute() if hasattr(array, "compute") else array)


def capped(w):
    return 4 * w / (4 + w)


def doubled(w):
    return w + w


def name(how):
    return getattr(how, "__name__", how)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", [*TRANSFORMS, capped], ids=name)
@pytest.mark.parametrize("make", [dense, sparse, chunked])
def test_each_transform_on_each_representation(xp, small_blocks, make, how, dtype):
    w = counts().astype(dtype)
    given = make(xp, w)
    W = ax.as_proximity(given)
    result = transform(W, how)
    assert type(result) is type(W)
    assert result.like.dtype == W.like.dtype
    assert xp.owns(result.diagonal())
    found = entries(xp, result)
    np.testing.assert_allclose(found, twin(w.astype(float), how), rtol=RTOL[dtype], atol=0)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(entries(xp, W), w)  # the input is unchanged


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("how", ["volume", "degree"])
def test_scalings_of_features(eager_xp, small_blocks, how, dtype):
    x = np.random.default_rng(0).random((N, 3)).astype(dtype)
    x[4] = 0
    W = ax.Factored.from_features(eager_xp.array(x), eager_xp.array(np.array([1.0, 2.0, 0.5])))
    found = transform(W, how)
    assert isinstance(found, ax.Factored) and found.like.dtype == W.like.dtype
    wide = x.astype(float)
    expected = twin(wide * [1.0, 2.0, 0.5] @ wide.T, how)
    np.testing.assert_allclose(entries(eager_xp, found), expected, rtol=RTOL[dtype])
    np.testing.assert_array_equal(eager_xp.numpy(W.like), x)


def test_scalings_of_a_blend_of_features():
    """Features of two steps, masks for new objects, and dropped columns."""
    rng = np.random.default_rng(1)
    x, y = rng.random((N, 2)), rng.random((N - 2, 2))
    moves = align(tuple(range(N)), tuple(range(2, N)), x)
    past = ax.Factored.from_features(y, max_rank=2)
    psi = ax.Factored.from_features(x).blend(past, 0.25, moves)
    s = rng.random(N)
    expected = s[:, None] * psi.to_dense().array * s
    np.testing.assert_allclose(psi.scaled(s).to_dense().array, expected, rtol=1e-12)
    np.testing.assert_allclose(psi.scaled(s).diagonal(), np.diag(expected), rtol=1e-12)
    short = psi._truncate(2)
    error = np.linalg.norm(short.scaled(s).to_dense().array - expected)
    assert 0 < error <= float(short.scaled(s).error)


@pytest.mark.parametrize("how", ["log1p", "sqrt", "binary", capped], ids=name)
def test_features_have_no_entries(how):
    with pytest.raises(InputError, match=r"to_dense\(\)"):
        transform(ax.Factored.from_features(np.ones((3, 1))), how)


def test_none_is_the_proximity_itself():
    W = ax.Dense(counts())
    assert transform(W, None) is W


def test_a_blend_is_formed():
    from affect_xp.proximity import Pair

    w = counts()
    blend = Pair(ax.Dense(w), ax.Dense(w + 2), align(range(N), range(N), w)).blend(0.5)
    np.testing.assert_allclose(transform(blend, "log1p").array, np.log1p(w + 1), rtol=1e-12)


def test_the_diagonal_counts_for_degrees_but_not_for_volume():
    w = np.array([[5.0, 1.0], [1.0, 0.0]])
    np.testing.assert_allclose(transform(w, "volume").array, w / 2)
    np.testing.assert_allclose(transform(w, "degree").array, w / np.sqrt([[36, 6], [6, 1]]))
    for how in ("log1p", "sqrt", "binary"):
        np.testing.assert_allclose(np.diag(transform(w, how).array), [twin(w, how)[0, 0], 0.0])


def test_a_sparse_matrix_keeps_its_pattern():
    w = scipy.sparse.csr_array(counts())
    values = w.data.copy()
    for how in (*TRANSFORMS, capped, lambda x: x * (x > 3)):
        result = transform(Sparse(w, prune=1e-3), how)
        np.testing.assert_array_equal(result.matrix.indices, w.indices)
        np.testing.assert_array_equal(w.data, values)
        assert result.prune == 1e-3


@pytest.mark.parametrize("how", ["log1p", "sqrt", "binary", "degree", capped], ids=name)
def test_a_step_without_contacts(how):
    for empty in (np.zeros((4, 4)), scipy.sparse.csr_array((4, 4))):
        np.testing.assert_array_equal(stored(transform(empty, how)), np.zeros((4, 4)))


@pytest.mark.parametrize("exponent", [-660, -500, 500, 660])
@pytest.mark.parametrize("how", ["volume", "degree"])
def test_units_do_not_matter(how, exponent):
    x = np.random.default_rng(0).random((N, 3))
    expected = stored(transform(x @ x.T, how))
    scale = 2.0**exponent
    large = x @ x.T * scale
    for W in (
        large,
        scipy.sparse.csr_array(large),
        ax.Factored.from_features(x * 2.0 ** (exponent // 2)),
        ax.Factored.from_features(x, np.full(3, scale)),
    ):
        np.testing.assert_allclose(stored(transform(W, how)), expected, rtol=1e-12)


# Bad input


@pytest.mark.parametrize("how", ["log1p", "sqrt", "binary"])
@pytest.mark.parametrize("make", [dense, sparse, chunked])
def test_negative_similarities(xp, small_blocks, make, how):
    w = counts()
    w[10, 11] = w[11, 10] = -0.5
    with pytest.raises(InputError, match=r"nonnegative similarities, such as counts, but W contains -0\.5"):
        transform(make(xp, w), how).diagonal()  # Chunked checks lazily, only the chunks it reads


def test_chunks_are_looked_at_when_they_are_computed(computes):
    w = counts()
    w[0, 12] = w[12, 0] = -1
    W = ax.as_proximity(chunked_on_host(w))
    n_before = len(computes)
    planned = transform(W, "sqrt")
    planned_by_function = transform(W, lambda x: np.where(x < 0, np.nan, x))
    assert len(computes) == n_before
    for bad in (planned, planned_by_function):
        bad.diagonal()  # valid chunks
        with pytest.raises(InputError):
            bad.matmul(np.ones((N, 1)))


def chunked_on_host(w):
    return pytest.importorskip("dask.array").from_array(w, chunks=5)


@pytest.mark.parametrize("make", [dense, sparse, chunked])
def test_totals_and_degrees_that_cannot_be_divided_by(xp, make):
    with pytest.raises(InputError, match=r"sum of W off the diagonal, which is 0\.0"):
        transform(make(xp, np.eye(6)), "volume")
    w = np.eye(6)
    w[2, 4] = w[4, 2] = -3
    with pytest.raises(InputError, match=r"off the diagonal, which is -6\.0"):
        transform(make(xp, w), "volume")
    with pytest.raises(InputError, match=r"those of object 2 sum to -2\.0"):
        transform(make(xp, w), "degree")


def test_a_total_that_is_rounding():
    x = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]  # orthogonal
    with pytest.raises(InputError, match="sum of W off the diagonal"):
        transform(ax.Factored.from_features(x), "volume")


FAULTS = {
    "shape": (lambda x: x[..., :1], InputError, "an array of the shape it gets"),
    "a number": (lambda x: 1.0, InputError, "got float"),
    "complex": (lambda x: x + 1j, InputTypeError, "must be real"),
    "not finite": (lambda x: np.where(x > 2, np.inf, x), InputError, "finite"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array, chunked_on_host])
def test_functions_that_will_not_do(make, fault):
    function, error, message = FAULTS[fault]
    with pytest.raises(error, match=message):
        transform(make(counts()), function).matmul(np.ones((N, 1)))


def test_a_function_of_another_library():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputTypeError, match="different libraries"):
        transform(torch.asarray(counts()), lambda x: np.log1p(x.numpy()))


def test_a_function_must_leave_the_zeros_of_a_sparse_matrix():
    with pytest.raises(InputError, match=r"maps 0 to 1\.0.*to_dense"):
        transform(scipy.sparse.csr_array(counts()), lambda x: np.exp(-x))


def test_a_function_that_looks_at_other_entries(monkeypatch):
    monkeypatch.setattr("affect_xp.array.namespace.HOST_BLOCK_ROWS", 4)
    monkeypatch.setattr("affect_xp.array.namespace.HOST_BLOCK_BYTES", 1)
    with pytest.raises(InputError, match=r"each entry independently.*not symmetric"):
        transform(counts(), lambda x: x / x.max())


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array, chunked_on_host])
def test_a_function_may_write_to_what_it_gets(make):
    def in_place(x):
        x += x
        return x

    w = counts()
    given = make(w)
    np.testing.assert_array_equal(np.asarray(stored(transform(given, in_place))), 2 * counts())
    np.testing.assert_array_equal(w, counts())
    if scipy.sparse.issparse(given):
        np.testing.assert_array_equal(given.toarray(), counts())


def test_a_function_may_return_what_is_no_float():
    result = transform(counts().astype(np.float32), lambda x: x > 2)
    np.testing.assert_array_equal(result.array, (counts() > 2).astype(np.float32))
    assert result.array.dtype == np.float32


@pytest.mark.parametrize("how", ["log", 3, ["log1p"]])
def test_unknown_transforms(how):
    with pytest.raises(InputError, match="'log1p', 'sqrt', 'binary', 'volume', 'degree'"):
        check_transform(how)


# A whole step


@pytest.mark.filterwarnings("ignore::affect_xp.exceptions.SkewedWarning")  # some transforms leave it skewed
@pytest.mark.parametrize("how", [*TRANSFORMS, capped], ids=name)
@pytest.mark.parametrize("make", [dense, sparse, chunked])
def test_affect_rescales(xp, make, how):
    steps = [counts(20, seed) + 5 * np.kron(np.eye(2), np.ones((10, 10))) for seed in range(3)]
    found, expected = (ax.Affect(ax.KMeans(2), rescale=r, random_state=0) for r in (how, None))
    for w in steps:
        found.partial_fit(make(xp, w))
        expected.partial_fit(twin(w, how))
    assert expected.alpha_ > 0
    np.testing.assert_allclose(found.history_.alpha, expected.history_.alpha, rtol=1e-9)
    np.testing.assert_array_equal(xp.numpy(found.labels_), expected.labels_)


def test_skewed_counts_are_transformed_and_told_of_once():
    model, asked = (ax.Affect(ax.KMeans(2), random_state=0, **r) for r in ({}, {"rescale": "log1p"}))
    message = r"W is highly skewed \(skewness \d+\.\d\): a few pairs dominate. Using rescale=\"log1p\"; pass "
    message += 'rescale="log1p" to silence this warning, or rescale=None to use W unchanged'
    with pytest.warns(SkewedWarning, match=message) as caught:
        model.partial_fit(counts(30)).partial_fit(counts(30, 1))
    assert len(caught) == 1
    assert caught[0].filename == __file__  # where the step was taken
    asked.fit([counts(30), counts(30, 1)])
    assert model.rescale_ == asked.rescale_ == "log1p"
    assert model.alpha_ == asked.alpha_ > 0


def test_what_is_not_known_to_be_similar_is_only_hinted_at():
    model = ax.Affect(lambda psi: np.arange(psi.n) % 2, random_state=0)
    with pytest.warns(SkewedWarning, match='use rescale="log1p", or filter') as caught:
        model.fit([counts(30), counts(30, 1)])
    assert len(caught) == 1 and model.rescale_ is None


@pytest.mark.parametrize("how", [None, "sqrt", np.log1p])
def test_a_transform_that_is_asked_for_is_used(how):
    assert ax.Affect(ax.KMeans(2), rescale=how, random_state=0).fit([counts(30)]).rescale_ is how


def test_negative_similarities_are_not_transformed(monkeypatch):
    monkeypatch.setattr("affect_xp.proximity.transforms.SAMPLED_OBJECTS", 25)
    w = counts(50)
    w[1, 3] = w[3, 1] = -1.0  # not in the sample
    assert auto_rescale(ax.Dense(w)) == "log1p"
    assert ax.Affect(ax.KMeans(2), random_state=0).partial_fit(w).rescale_ is None


def test_auto_rescale():
    assert auto_rescale(ax.Dense(counts(30))) == "log1p"
    assert auto_rescale(transform(counts(30), "log1p")) is None


def test_a_chunked_matrix_in_a_store(store):
    w = counts(20)
    W = Chunked(chunked_on_host(w), store=store)
    for how in ("log1p", "degree"):
        result = transform(W, how)
        np.testing.assert_allclose(result.matmul(np.eye(20)), twin(w, how), rtol=1e-12)
        np.testing.assert_allclose(result.diagonal(), np.diag(twin(w, how)), rtol=1e-12)  # from the store
        assert result.store == store


# Waiting and memory


@pytest.mark.parametrize("how", [*TRANSFORMS, doubled], ids=name)
def test_the_host_waits_once(small_blocks, how):
    strict = pytest.importorskip("array_api_strict")
    from transfers import DEVICE, counted

    W = ax.Dense(strict.asarray(counts(), device=DEVICE))
    with strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False), counted() as seen:
        transform(W, how)
    assert seen.total() == 1, seen.where
    features = ax.Factored.from_features(strict.asarray(np.ones((5, 2)), device=DEVICE))
    if how in ("volume", "degree"):
        with counted() as seen:
            transform(features, how)
        assert seen.total() == 1, seen.where


@pytest.mark.parametrize("how", [*TRANSFORMS, doubled], ids=name)
@pytest.mark.parametrize("make", [dense, sparse])
def test_cupy_waits_once(monkeypatch, make, how):
    """Counted on the real CuPy code executed on a CPU."""
    cupy_cpu = pytest.importorskip("cupy_cpu", reason="counts need CuPy running on the CPU")
    xp = next((b for b in BACKENDS if b.name == "cupy"), None)
    if xp is None:
        pytest.skip("CuPy is not among the backends")
    monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 4_000)
    W = ax.as_proximity(make(xp, counts(40)))
    transform(W, how), skewness(W)  # compile the kernels first
    with cupy_cpu.count() as count:
        transform(W, how)
    assert count.d2h == 1, count.where
    with cupy_cpu.count() as count:
        skewness(W)
    assert count.sync == count.d2h == 0, count.where


def test_skewness_waits_for_nothing():
    strict = pytest.importorskip("array_api_strict")
    from transfers import DEVICE, counted

    W = ax.Dense(strict.asarray(counts(), device=DEVICE))
    with strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False), counted() as seen:
        value = skewness(W)
    assert not seen, seen.where
    assert value.shape == () and value.device == DEVICE


@pytest.mark.parametrize("how", [*TRANSFORMS, doubled], ids=name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_result_is_the_only_large_array(monkeypatch, dtype, how):
    torch = pytest.importorskip("torch")
    import large_arrays

    n = large_arrays.N
    monkeypatch.setattr("affect_xp.array.namespace.DEVICE_BLOCK_BYTES", 2_000 * n * 8)
    # Made-up host values: a total of 2, well above rounding errors of 1, and no asymmetry.
    replace_everywhere(
        monkeypatch,
        "to_host",
        lambda *arrays, reason: tuple(
            np.array([1.0, 0.0]) if a.shape == (2,) else np.full(a.shape, 2.0 / (i + 1))
            for i, a in enumerate(arrays)
        ),
    )
    W = large_arrays.matrix(getattr(torch, dtype))
    with large_arrays.Large() as large:
        result = transform(W, how)
    assert large.found == [("empty_like", (n, n))]
    assert result.array.dtype == W.array.dtype


def test_skewness_makes_no_large_array():
    pytest.importorskip("torch")
    import large_arrays
    import torch

    W = large_arrays.matrix(torch.float32)
    with large_arrays.Large() as large:
        skewness(W)
    assert large.found == []


# When a transform is needed


def skewness_twin(w):
    """Return the skewness by its definition over all pairs, corrected for small samples."""
    values = [w[i, j] for i in range(len(w)) for j in range(len(w)) if i != j]
    positive = np.array([v for v in values if v > 0])
    factor = 1 + 22 / len(positive)

    def of(x):
        return np.mean((x - x.mean()) ** 3) / np.mean((x - x.mean()) ** 2) ** 1.5

    logarithmic = of(np.log1p(positive))
    return factor * of(positive) if min(values) >= 0 and 3 * abs(logarithmic) < 2 * of(positive) else 0.0


@pytest.fixture
def of_few(monkeypatch):
    """The skewness is also defined for few entries."""
    monkeypatch.setattr("affect_xp.proximity.transforms.FEWEST", 1)


@pytest.mark.parametrize("of", [ax.Dense, lambda w: Sparse(scipy.sparse.csr_array(w))])
def test_nothing_is_said_of_few_entries(of):
    w = np.zeros((20, 20))
    for pairs in range(1, 15):
        w[pairs - 1, pairs] = w[pairs, pairs - 1] = 2.0**pairs
        assert (float(skewness(of(w))) > 0) == (pairs >= 10), pairs
    assert float(skewness(of(np.zeros((5, 5))))) == 0.0


@pytest.mark.parametrize("m", [10, 30, 100, 1000])
def test_the_skewness_of_a_few_is_that_of_many(m):
    """On average: the skewness of an exponential distribution is 2."""
    x = np.random.default_rng(0).exponential(size=(2000, m))
    deviation = x - x.mean(axis=1, keepdims=True)
    mean = (np.mean(deviation**3, axis=1) / np.mean(deviation**2, axis=1) ** 1.5).mean()
    assert abs((1 + MISSED / (2 * m)) * mean - 2) < 0.1  # each pair appears twice


@pytest.mark.usefixtures("of_few")
@pytest.mark.parametrize("make", [dense, sparse, chunked])
@pytest.mark.parametrize("spread", [0.2, 1.5])
def test_skewness(xp, small_blocks, make, spread):
    w = counts(spread=spread)
    value = skewness(ax.as_proximity(make(xp, w)))
    assert xp.owns(value)
    np.testing.assert_allclose(xp.numpy(value), skewness_twin(w), rtol=1e-10)


@pytest.mark.usefixtures("of_few")
def test_skewness_of_a_sample(monkeypatch):
    monkeypatch.setattr("affect_xp.proximity.transforms.SAMPLED_OBJECTS", 4)
    w = counts(12)
    some = np.zeros((12, 12), dtype=bool)
    some[:, [0, 3, 6, 9]] = True
    np.testing.assert_allclose(float(skewness(ax.Dense(w))), skewness_twin(np.where(some, w, 0)), rtol=1e-12)


@pytest.mark.usefixtures("of_few")
def test_skewness_of_large_and_small_numbers():
    w = counts()
    np.testing.assert_allclose(float(skewness(ax.Dense(w * 1e250))), skewness_scaled(w), rtol=1e-12)
    assert float(skewness(ax.Dense(w * 1e-250))) == 0  # log1p does not change them


def skewness_scaled(w):
    positive = w[~np.eye(len(w), dtype=bool) & (w > 0)]
    return (1 + 22 / len(positive)) * np.mean((positive - positive.mean()) ** 3) / positive.std() ** 3


@pytest.mark.usefixtures("of_few")
def test_skewness_of_a_sample_of_stored_entries(xp, monkeypatch):
    monkeypatch.setattr("affect_xp.proximity.transforms.SAMPLED_ENTRIES", 40)
    w = counts(20)
    matrix = scipy.sparse.csr_array(w)
    apart = -(-matrix.nnz // 40)
    some = np.zeros_like(w)
    for place, (i, j) in enumerate(zip(*w.nonzero(), strict=True)):
        if place % apart == 0:
            some[i, j] = w[i, j]
    assert apart > 1 and np.trace(some) > 0  # the diagonal does not count
    value = skewness(ax.as_proximity(sparse(xp, w)))
    assert xp.owns(value)
    np.testing.assert_allclose(xp.numpy(value), skewness_twin(some), rtol=1e-10)


def test_skewness_of_many_objects_with_few_links():
    """The columns of a few objects would contain about thirty entries."""
    n, rng = 40_000, np.random.default_rng(0)
    i, j = rng.integers(n, size=(2, 2 * n))
    weights = rng.lognormal(1, 1.5, size=2 * n)
    w = scipy.sparse.coo_array((weights * (i != j), (i, j)), shape=(n, n)).tocsr()
    for own, expected in ((w + w.T, "log1p"), ((w + w.T) > 0, None)):
        assert auto_rescale(ax.as_proximity(own.astype(float))) == expected


def similar(p, separation, rng):
    return separation * rng.normal(size=(4, p))[np.arange(200) % 4] + rng.normal(size=(200, p))


def test_what_is_not_skewed():
    rng = np.random.default_rng(0)
    for p, separation in ((1, 0), (2, 3), (5, 3), (10, 10), (30, 0)):
        x = similar(p, separation, rng)
        graph = np.triu(rng.random((200, 200)) < 1 / (p + 1), 1).astype(float)
        poisson = np.triu(rng.poisson(3 * p, size=(200, 200)), 1).astype(float)
        for W in (
            ax.Factored.from_features(x),
            features_to_proximity(x, "rbf"),
            features_to_proximity(x, "rbf", gamma=2.0),
            features_to_proximity(x, "cosine"),
            ax.Dense(np.corrcoef(np.hstack([x, rng.normal(size=(200, 5))]))),
            ax.Dense(graph + graph.T),
            ax.Dense(poisson + poisson.T),
            ax.Dense(np.zeros((5, 5))),
            ax.Dense(np.ones((5, 5))),
        ):
            assert skewness_hint(float(skewness(W))) is None


def test_what_is_skewed():
    rng = np.random.default_rng(0)
    for spread, mean in ((1.0, 20), (1.5, 1), (1.5, 20)):
        w = np.triu(rng.poisson(mean * rng.lognormal(0, spread, size=(100, 100))), 1).astype(float)
        w *= np.triu(rng.random((100, 100)) < 0.3)
        W = ax.Dense(w + w.T)
        hint = skewness_hint(float(skewness(W)))
        assert hint is not None and 'rescale="log1p"' in hint
        assert skewness_hint(float(skewness(transform(W, "log1p")))) is None
    assert skewness_hint(SKEWED) is None


def test_reality_mining_is_skewed():
    folder = os.environ.get("AFFECT_XP_DATA")
    if folder is None or not os.path.exists(os.path.join(folder, "reality.npz")):
        pytest.skip("AFFECT_XP_DATA names no folder with reality.npz")
    steps = ax.datasets.load_reality(os.path.join(folder, "reality.npz"))
    assert float(skewness(ax.Dense(steps[0].W.astype(float)))) > 2 * SKEWED
    assert sum(auto_rescale(ax.Dense(s.W.astype(float))) == "log1p" for s in steps) > 40
    for step in steps:
        assert float(skewness(transform(step.W, "log1p"))) <= SKEWED


# Decisions of rescale="auto"


def mirrored(upper):
    upper = np.triu(upper, 1).astype(float)
    return upper + upper.T


def in_blocks(inside, outside, n=60, k=3):
    """Return one value for pairs within a block and another for all other pairs, (n, n)."""
    blocks = np.arange(n) % k
    return np.where(blocks[:, None] == blocks, inside, outside)


def first_contacts(rng, **options):
    return next(ax.datasets.contacts(1, rng=rng, **{"daily_contacts": 50.0, **options})).W


HEAVY = {"people_spread": 0.8, "pair_spread": 1.5, "bursts": 4.0}
SPARSE = in_blocks(0.1, 0.03)
COUNTS = {
    "contacts": lambda rng: first_contacts(rng),
    "contacts of an hour": lambda rng: first_contacts(rng, steps_per_day=8),
    "contacts with absences": lambda rng: first_contacts(rng, absence=0.2),
    "contacts with heavy tails": lambda rng: first_contacts(rng, **HEAVY),
    "a school": lambda rng: first_contacts(rng, daily_contacts=500.0, n_groups=10, group_size=23),
    "log-normal weights": lambda rng: mirrored(
        (rng.random((60, 60)) < 0.3) * rng.lognormal(0, 1.5, (60, 60))
    ),
    "log-normal weights, sparse": lambda rng: mirrored(
        (rng.random((60, 60)) < SPARSE) * rng.lognormal(1, 1.5, (60, 60))
    ),
    "log-normal weights of all": lambda rng: mirrored(rng.lognormal(3, 1.5, (60, 60))),
    "log-normal weights of 15": lambda rng: mirrored(rng.lognormal(1, 1.8, (15, 15))),
    "log-normal counts of 30": lambda rng: mirrored(rng.poisson(rng.lognormal(1, 1.5, (30, 30)))),
}
OTHERS = {
    "dot products": lambda rng: next(ax.datasets.colliding_gaussians(rng=rng)).W,
    "correlations": lambda rng: np.corrcoef(rng.normal(size=(60, 5))),
    "a graph": lambda rng: mirrored(rng.random((60, 60)) < in_blocks(0.5, 0.2)),
    "a sparse graph": lambda rng: mirrored(rng.random((60, 60)) < SPARSE),
    "a graph of 15": lambda rng: mirrored(rng.random((15, 15)) < 0.3),
    "games": lambda rng: mirrored((rng.random((120, 120)) < 0.08) * (1.0 + (rng.random((120, 120)) < 0.02))),
    "uniform weights": lambda rng: mirrored((rng.random((60, 60)) < 0.3) * rng.random((60, 60))),
    "exponential weights": lambda rng: mirrored(rng.exponential(5.0, (60, 60))),
    "counts about 20": lambda rng: mirrored(rng.poisson(in_blocks(20, 10))),
    "counts about 2": lambda rng: mirrored(rng.poisson(in_blocks(2, 1))),
    "counts about 1": lambda rng: mirrored(rng.poisson(in_blocks(1, 0.3))),
    "counts about 20 and 1": lambda rng: mirrored(rng.poisson(in_blocks(20, 1))),
    "counts about 0.1": lambda rng: mirrored(rng.poisson(SPARSE)),
    "counts of 15": lambda rng: mirrored(rng.poisson(in_blocks(2, 1, n=15))),
    "counts of 30": lambda rng: mirrored(rng.poisson(in_blocks(2, 1, n=30))),
    "a kernel": lambda rng: features_to_proximity(similar(3, 3, rng), "rbf").array,
    "a narrow kernel": lambda rng: features_to_proximity(similar(3, 3, rng), "rbf", gamma=2.0).array,
    "a wide kernel": lambda rng: features_to_proximity(similar(3, 3, rng), "rbf", gamma=0.01).array,
    "a kernel of flocks": lambda rng: (
        features_to_proximity(next(ax.datasets.boids(rng=rng)).X, "rbf", gamma=0.1).array
    ),
    "nothing": lambda rng: np.zeros((20, 20)),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", COUNTS)
def test_auto_takes_logarithms_of_heavy_tails(kind, seed):
    assert auto_rescale(ax.Dense(COUNTS[kind](np.random.default_rng(seed)))) == "log1p"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", OTHERS)
def test_auto_leaves_others_as_they_are(kind, seed):
    assert auto_rescale(ax.Dense(OTHERS[kind](np.random.default_rng(seed)))) is None


@pytest.mark.parametrize("make", [dense, sparse, chunked])
@pytest.mark.parametrize(("kind", "how"), [("contacts", "log1p"), ("a sparse graph", None)])
def test_auto_decides_the_same_for_each_representation(xp, make, kind, how):
    w = (COUNTS | OTHERS)[kind](np.random.default_rng(0))
    for dtype in (np.float32, np.float64):
        assert auto_rescale(ax.as_proximity(make(xp, w.astype(dtype)))) == how


def test_auto_is_right_about_data_that_was_measured():
    folder = os.environ.get("AFFECT_XP_DATA")
    if folder is None or not os.path.exists(os.path.join(folder, "football.npz")):
        pytest.skip("AFFECT_XP_DATA names no folder with football.npz")
    games = np.load(os.path.join(folder, "football.npz"), allow_pickle=False)
    for t in range(len(games["member_ptr"]) - 1):
        played = slice(*games["game_ptr"][t : t + 2])
        w = np.zeros((len(games["teams"]),) * 2)
        np.add.at(w, (games["team1"][played], games["team2"][played]), 1)
        assert auto_rescale(ax.Dense(w + w.T)) is None
    prices = ax.datasets.load_nasdaq(os.path.join(folder, "nasdaq2008.npz"))
    assert auto_rescale(ax.Dense(np.asarray(prices[0].X @ prices[0].X.T, dtype=float))) is None
