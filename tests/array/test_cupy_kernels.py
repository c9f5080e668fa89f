"""The kernels for CuPy: compiled by NVRTC, which needs no driver, and executed against their twins."""

import ctypes
import dataclasses
import importlib.util
import mmap
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal

import affect_xp as ax
from affect_xp.affect.initial_labels import judge
from affect_xp.affect.moments import moments_of
from affect_xp.affect.movers import move_probability, move_probability_by_kernels, pair_moments
from affect_xp.array import cuda, namespace
from affect_xp.array.namespace import MAX_KERNEL_CLUSTERS, has_kernels
from affect_xp.clustering import linkage
from affect_xp.clustering.lloyd import _draw
from affect_xp.partition import Partition, align
from affect_xp.proximity import Pair
from affect_xp.proximity.blend import Known
from affect_xp.proximity.sparse import Sparse

# ---- compiled


def nvrtc():
    found = importlib.util.find_spec("nvidia.cuda_nvrtc") if importlib.util.find_spec("nvidia") else None
    if found is None:
        pytest.skip("the package nvidia-cuda-nvrtc-cu12 is not installed")
    folder = Path(next(iter(found.submodule_search_locations))) / "lib"
    return ctypes.CDLL(str(next(folder.glob("libnvrtc.so.*"))))


@pytest.mark.parametrize("architecture", [70, 75, 80, 86, 89, 90, 100, 120])
def test_kernels_compile_for_cupy_on_gpus(architecture):
    library, program = nvrtc(), ctypes.c_void_p()
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    known = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(known)
    if architecture not in list(known):
        pytest.skip(f"this NVRTC does not compile for sm_{architecture}")
    source = cuda.SOURCE.read_text().encode()
    assert library.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None) == 0
    for name in cuda.TEMPLATES:
        assert library.nvrtcAddNameExpression(program, name.encode()) == 0
    options = [f"--gpu-architecture=sm_{architecture}".encode(), b"-std=c++17"]
    status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert status == 0 and b"kernels.cu(" not in log.value, log.value.decode()
    assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0 and size.value > 1000
    library.nvrtcDestroyProgram(ctypes.byref(program))


# ---- executed

SIZES = [(1, 1), (31, 2), (32, 5), (33, 3), (70, 7), (64, 96), (65, 97), (20, 200)]


@pytest.fixture(scope="module")
def cupy():
    library = pytest.importorskip("cupy")
    try:
        library.zeros(1)
    except Exception as error:
        pytest.skip(f"CuPy cannot be used here: {error!r}")
    return library


def data(n, k, dtype, seed=0):
    """A symmetric matrix with a large mean, and labels with some -1 and some empty clusters."""
    rng = np.random.default_rng([seed, n, k])
    w = rng.normal(3.0, 1.0, (n, n))
    return (w + w.T).astype(dtype), rng.integers(-1, max(1, k - 1), n)


def csr_parts(w):
    matrix = scipy.sparse.csr_array(w)
    return matrix.data, matrix.indices, matrix.indptr


def pair_of(library, n, k, dtype, churn):
    """W and a past that shares all objects with it but some, in another order, on a library."""
    (w, _), (past, _) = data(n, k, dtype), data(n, k, dtype, seed=1)
    order = np.random.default_rng(n).permutation(n) if churn else range(n)
    past_ids = tuple(i + churn for i in order) if n > churn else tuple(range(n))
    w, past = (library.asarray(x) for x in (w, past))
    return Pair(ax.Dense(w), ax.Dense(past), align(tuple(range(n)), past_ids, w))


def stays(noise, drift, static_noise, static_drift, v, d):
    """Whether α of the previous labels is at least as close to v / d."""
    previous, static = (
        x / (x + y) if 0 < x + y < np.inf else 0.0 for x, y in ((noise, drift), (static_noise, static_drift))
    )
    return abs(previous * d - v) <= abs(static * d - v)


def one_hot(labels, k):
    return (labels[..., None] == np.arange(k)).astype(float).reshape(len(labels), -1)


def same_bits(action):
    """Run twice: results are identical to the bit."""
    first, second = action(), action()
    for a, b in zip(first, second, strict=True):
        assert a.tobytes() == b.tobytes()
    return first


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "k"), SIZES)
class TestCupyKernels:
    def test_products(self, cupy, n, k, dtype):
        w, labels = data(n, k, dtype)
        runs = np.stack([labels, labels[::-1]], axis=1)
        for given in (labels[:, None], runs):
            (found,) = same_bits(
                lambda given=given: [cuda.products(cupy.asarray(w), cupy.asarray(given), k).get()]
            )
            np.testing.assert_allclose(found, w.astype(float) @ one_hot(given, k), rtol=1e-13)

    def test_arrays_in_any_order(self, cupy, n, k, dtype):
        w, labels = data(n, k, dtype)
        runs = np.stack([np.maximum(labels, 0), labels], axis=1)
        by_rows, by_columns = cupy.asarray(runs), cupy.asfortranarray(cupy.asarray(runs))
        wz, diagonal = cuda.products(cupy.asarray(w), by_rows, k), cupy.asarray(np.diag(w).astype(float))
        for a, b in (
            (wz, cuda.products(cupy.asarray(w), by_columns, k)),
            *zip(
                cuda.lloyd_assign(cuda.Product(wz), diagonal, by_rows, k)[::2],
                cuda.lloyd_assign(cuda.Product(cupy.asfortranarray(wz)), diagonal, by_columns, k)[::2],
                strict=True,
            ),
        ):
            np.testing.assert_array_equal(a.get(), b.get())

    def test_residual_sums(self, cupy, n, k, dtype):
        w, labels = data(n, k, dtype)
        guess, centre = np.random.default_rng(1).normal(6.0, 0.1, (k, k)), np.linspace(0.0, 1.0, k)
        d = np.where(np.eye(n) > 0, 0.0, guess[labels][:, labels] - w.astype(float))
        z, w_ii = one_hot(labels, k), np.diag(w).astype(float)
        given = [cupy.asarray(x) for x in (w, labels, guess)]
        (sums,) = same_bits(lambda: [cuda.residual_sums(*given, cupy.asarray(centre)).get()])
        blocks, (m, means, squares) = sums[: 2 * k * k].reshape(k, 2 * k), sums[2 * k * k :].reshape(3, k)
        np.testing.assert_allclose(blocks[:, :k], z.T @ d @ z, atol=1e-11)
        np.testing.assert_allclose(blocks[:, k:], z.T @ (d * d) @ z, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(m, z.sum(axis=0))
        np.testing.assert_allclose(m * means, w_ii @ z, rtol=1e-13)
        np.testing.assert_allclose(squares, (z * (w_ii[:, None] - centre) ** 2).sum(axis=0), rtol=1e-13)
        total = cuda.total_squares(cupy.asarray(sums), k).get()
        np.testing.assert_allclose(total, blocks[:, k:].sum() + squares.sum(), rtol=1e-13)

    def test_moments_are_those_of_numpy(self, cupy, n, k, dtype):
        w, labels = data(n, k, dtype)
        w[np.diag_indices(n)] *= 10
        found, expected = (
            moments_of(ax.Dense(x).group(Partition(c, k)))
            for x, c in ((cupy.asarray(w), cupy.asarray(labels)), (w, labels))
        )
        assert hasattr(found, "noise") and not hasattr(expected, "noise")
        for name in ("means", "variances", "diagonal_means", "diagonal_variances", "pair_counts", "sizes"):
            ours, theirs = getattr(found, name).get(), getattr(expected, name)
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max())
        for name in ("total_variance", "total_squares"):
            np.testing.assert_allclose(getattr(found, name)().get(), getattr(expected, name)(), rtol=1e-12)
        same_bits(lambda: [cuda.moments(cupy.asarray(w), cupy.asarray(labels), k).flat.get()])

    @pytest.mark.parametrize("churn", [0, 3])
    def test_two_labellings_are_judged_as_by_numpy(self, cupy, n, k, dtype, churn):
        results = []
        for library in (cupy, np):
            previous, static = (
                pair_of(library, n, k, dtype, churn).group(Partition(library.asarray(labels), c))
                for labels, c in ((data(n, k, dtype)[1], k), (data(n, k + 1, dtype, seed=2)[1], k + 1))
            )
            assert previous.has_kernels == (library is cupy)
            judged = judge(previous, static)
            results.append([*judged.previous, *judged.static, judged.noise, judged.difference])
            results[-1] = [float(x) for x in results[-1]]
            assert bool(judged.stays()) == stays(*results[-1])
        np.testing.assert_allclose(*results, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("churn", [0, 3])
    def test_moves_are_those_of_numpy(self, cupy, n, k, dtype, churn):
        if k < 2:
            return
        labels = data(n, k, dtype)[1]
        ours, theirs = (
            pair_of(library, n, k, dtype, churn).group(Partition(library.asarray(labels), k))
            for library in (cupy, np)
        )
        found, lowest = (x.get() for x in move_probability_by_kernels(ours))
        moments = pair_moments(theirs, products=False)
        np.testing.assert_allclose(found, move_probability(moments), rtol=1e-9, atol=1e-12)
        assert lowest == pytest.approx(
            min(0.0, moments.rows.at(slice(0, n)).min(), moments.past_rows.at(slice(0, n)).min()), rel=1e-12
        )

    def test_sparse_products(self, cupy, n, k, dtype):
        w, labels = data(n, k, dtype)
        w[np.abs(w) < 6] = 0
        given = [cupy.asarray(x) for x in (*csr_parts(w), np.diag(w).astype(float))]
        runs = np.stack([labels, labels[::-1]], axis=1)
        matrix, there = cuda.Csr(*given), cupy.asarray(runs)
        (found,) = same_bits(lambda: [cuda.products(matrix, there, k).get()])
        np.testing.assert_allclose(found, w.astype(float) @ one_hot(runs, k), rtol=1e-13, atol=1e-13)
        for columns, kind in ((1, np.float64), (k, dtype), (40, np.float64)):
            v = np.random.default_rng(3).normal(size=(n, columns)).astype(kind)
            (found,) = same_bits(lambda v=v: [cuda.csr_matmul(*given[:3], cupy.asarray(v.T).T).get()])
            assert found.dtype == kind
            exact, eps = w.astype(float) @ v.astype(float), np.finfo(kind).eps
            np.testing.assert_allclose(found, exact, rtol=4 * eps, atol=1e-13)

    def test_sparse_moments_are_those_of_numpy(self, cupy, n, k, dtype):
        w, labels = data(n, k, dtype)
        w[np.abs(w) < 6] = 0
        found, expected = (
            moments_of(Sparse(Sparse.on_device_of(like, scipy.sparse.csr_array(w))).group(Partition(c, k)))
            for like, c in ((cupy.zeros(1), cupy.asarray(labels)), (labels, labels))
        )
        assert hasattr(found, "noise") and not hasattr(expected, "noise")
        for name in ("means", "variances", "diagonal_means", "diagonal_variances", "pair_counts", "sizes"):
            ours, theirs = getattr(found, name).get(), getattr(expected, name)
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max())

    def test_draw_is_that_of_numpy(self, cupy, n, k, dtype):
        rng = np.random.default_rng([n, k])
        weight, order = rng.random((n, k)).astype(dtype) * (rng.random((n, k)) > 0.3), rng.permutation(n)
        weight[:, 0] = 0
        numbers = np.concatenate([rng.random((k, 4)), np.zeros((k, 1))], axis=1)
        found = _draw(*(cupy.asarray(x) for x in (weight.astype(float), order, numbers)))
        assert_array_equal(found.get(), _draw(weight.astype(float), order, numbers))

    def test_moved_products(self, cupy, n, k, dtype):
        w, before = data(n, k, dtype)
        before = np.stack([before, before[::-1]], axis=1)
        after = before.copy()
        rows = np.flatnonzero(np.arange(n) % 3 == 0)
        after[rows] = np.random.default_rng(2).integers(-1, k, (len(rows), 2))
        wz = w.astype(float) @ one_hot(before, k)
        given = [cupy.asarray(x) for x in (wz, w, rows, before, after)]
        (found,) = same_bits(lambda: [cuda.moved_products(*given).get()])
        np.testing.assert_allclose(found, w.astype(float) @ one_hot(after, k), rtol=1e-12, atol=1e-11)
        given[2] = cupy.asarray(np.pad(rows, (0, n - len(rows)), constant_values=-1))
        assert_array_equal(cuda.moved_products(*given).get(), found)
        # The same objects in another order; the first that moves is absent.
        order = np.random.default_rng(5).permutation(n)
        w, wz = w[np.ix_(order, order)], wz[order]
        places = np.argsort(order)[rows]
        places[0] = -1
        given = [cupy.asarray(x) for x in (wz, w, rows, before, after, places)]
        v = one_hot(after, k) - one_hot(before, k)
        v[rows[0]] = 0
        expected = wz + w.astype(float) @ v[order]
        found = cuda.moved_products(*given).get()
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-11)
        # Rows of -1 at the end are ignored, whatever their places and the memory before the labels.
        rows, places = (np.pad(x, (0, n - len(x)), constant_values=c) for x, c in ((rows, -1), (places, 0)))
        padded = (np.pad(x, ((1, 0), (0, 0)), constant_values=c) for x, c in ((before, -1), (after, 0)))
        before, after = (cupy.asarray(x)[1:] for x in padded)
        given[2:] = cupy.asarray(rows), before, after, cupy.asarray(places)
        assert_array_equal(cuda.moved_products(*given).get(), found)

    def test_blend(self, cupy, n, k, dtype):
        (w, labels), (past, _) = data(n, k, dtype), data(n, k, dtype, seed=1)
        on_device = cupy.asarray(past)
        alpha, there = cupy.asarray(0.3), cupy.asarray(labels)
        found, product = cuda.blend(cupy.asarray(w), on_device, alpha, out=on_device, labels=there, k=k)
        blend, a = on_device.get(), dtype(0.3)
        assert found is on_device
        np.testing.assert_allclose(blend, a * past + (1 - a) * w, rtol=4 * np.finfo(dtype).eps)
        np.testing.assert_allclose(product.get(), blend.astype(float) @ one_hot(labels, k), rtol=1e-13)
        found, product = cuda.blend(cupy.asarray(w), on_device, 0.0)
        assert product is None
        np.testing.assert_array_equal(found.get(), w)
        np.testing.assert_array_equal(on_device.get(), blend)

    def test_blend_of_objects_that_come_and_go(self, cupy, n, k, dtype):
        (w, _), (past, _) = data(n, k, dtype), data(n + 3, k, dtype, seed=1)
        source = np.random.default_rng(4).permutation(n + 3)[:n]
        source[::4] = -1
        found, _ = cuda.blend(cupy.asarray(w), cupy.asarray(past), 0.3, source=cupy.asarray(source))
        a, common = dtype(0.3), (source >= 0)[:, None] & (source >= 0)
        expected = np.where(common, a * past[np.ix_(source, source)] + (1 - a) * w, w)
        np.testing.assert_allclose(found.get(), expected, rtol=4 * np.finfo(dtype).eps)

    def test_extremes(self, cupy, n, k, dtype):
        w, _ = data(n, k, dtype)
        w[n - 1, 0] += 0.5
        largest, asymmetry = cuda.extremes(cupy.asarray(w)).get()
        assert largest == np.abs(w).max() and asymmetry == np.abs(w - w.T).max()
        for bad in (np.nan, np.inf, -np.inf):
            w[n // 2, n - 1] = bad
            assert not np.isfinite(cuda.extremes(cupy.asarray(w)).get()[0])

    def test_lloyd_assign(self, cupy, n, k, dtype):
        (w, labels), (past, _) = data(n, k, dtype), data(n, k, dtype, seed=1)
        labels = np.stack([np.maximum(labels, 0), labels], axis=1)
        z, alpha = one_hot(labels, k), 0.4
        wz, psi = w.astype(float) @ z, past.astype(float) @ z
        diagonal = np.random.default_rng(3).normal(size=n)
        base, source = wz + 1, np.random.default_rng(6).permutation(n)
        source[::3] = -1
        mixed = np.where((source >= 0)[:, None], wz + alpha * (psi[source] - base), wz)
        for blended, *parts in (
            (wz, wz),
            (wz + alpha * (psi - wz), wz, psi, alpha),
            (mixed, wz, psi, alpha, base, source),
        ):
            given = [x if x is None or np.isscalar(x) else cupy.asarray(x) for x in parts]
            expected = nearest(blended, diagonal, labels, k)
            found, rows, sizes, report = (
                x.get()
                for x in cuda.lloyd_assign(
                    cuda.Product(*given), cupy.asarray(diagonal), cupy.asarray(labels), k
                )
            )
            np.testing.assert_array_equal(found, expected[0])
            moved = (found != labels).any(axis=1)
            np.testing.assert_array_equal(rows[: moved.sum()], np.flatnonzero(moved))
            assert (rows[moved.sum() :] == -1).all()
            np.testing.assert_array_equal(sizes, expected[1])
            np.testing.assert_array_equal(report[:2], (found != labels).sum(axis=0))
            assert report[2] == moved.sum() and report[3] == (sizes == 0).sum()
            np.testing.assert_allclose(report[4:], expected[2], rtol=1e-11, atol=1e-9)


def nearest(wz, diagonal, labels, k):
    """Return the nearest centroids, the new sizes, and the previous sum of squares, object by object."""
    found, inertia = np.empty_like(labels), []
    for r in range(labels.shape[1]):
        part, own = wz[:, r * k : (r + 1) * k], labels[:, r]
        members = [own == c for c in range(k)]
        m = np.array([x.sum() for x in members])
        centre = np.array([part[x, c].sum() for c, x in enumerate(members)])
        with np.errstate(divide="ignore", invalid="ignore"):
            d = np.where(m > 0, part * (-2 / m) + centre / (m * m), np.inf)
        found[:, r] = d.argmin(axis=1)
        inertia.append(diagonal[own >= 0].sum() - sum(centre[m > 0] / m[m > 0]))
    sizes = one_hot(found, k).sum(axis=0).reshape(labels.shape[1], k)
    return found, sizes, inertia


@pytest.mark.parametrize("seed", range(4))
def test_one_left_alone_has_no_others_as_in_numpy(cupy, seed):
    n, before = 40, np.arange(40) // 10
    after = np.where((before == 0) & (np.arange(n) > 0), 1, before)  # object 0 is left alone

    def updated(library):
        """Return a pair whose products follow from those before the moves, and are rounded."""
        ids = tuple(range(n))
        w, past = (ax.Dense(library.asarray(np.abs(data(n, 4, float, s)[0]))) for s in (seed, seed + 9))
        first, last, rows = (library.asarray(x) for x in (before[:, None], after[:, None], np.arange(1, 10)))
        known = (x.grouped(first, 4).regrouped(last, rows) for x in (w, past))
        partition = Partition(library.asarray(after), 4)
        now, then = (dataclasses.replace(x, given=partition) for x in known)
        pair = Pair(w, past, align(ids, ids, w.array)).group(partition)
        return dataclasses.replace(pair, known=Known(current=now, past=then))

    ours, moments = updated(cupy), pair_moments(updated(np), products=False)
    rests = [x.array[0, 0] - x.proximity.array[0, 0] for x in (ours.common, ours.past)]
    assert any(float(rest) != 0 for rest in rests)
    found, lowest = (x.get() for x in move_probability_by_kernels(ours))
    assert lowest == moments.profiles_and_lowest[1] == 0
    np.testing.assert_allclose(found, move_probability(moments), rtol=1e-9, atol=1e-12)


def test_cupy_offsets_have_64_bits(cupy):
    pytest.importorskip("cupy_cpu", reason="memory that is reserved but not used is host memory")
    n, stride = 5, 2**30  # the last row begins 2³² entries after the first
    unreserved = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE of Linux
    memory = mmap.mmap(-1, 4 * (stride * (n - 1) + n), flags=unreserved)
    buffer = (ctypes.c_char * len(memory)).from_buffer(memory)
    pointer = cupy.cuda.MemoryPointer(
        cupy.cuda.UnownedMemory(ctypes.addressof(buffer), len(memory), buffer, 0), 0
    )
    wide = cupy.ndarray((n, n), np.float32, pointer, strides=(4 * stride, 4))
    w, labels = data(n, 2, np.float32)
    for i in range(n):
        wide[i] = cupy.asarray(w[i])
    assert has_kernels(wide)
    found = cuda.products(wide, cupy.asarray(labels)[:, None], 2).get()
    np.testing.assert_allclose(found, w.astype(float) @ one_hot(labels, 2))
    assert cuda.extremes(wide).get()[0] == np.abs(w).max()
    cuda.blend(cupy.asarray(2 * w), wide, 0.5, out=wide)
    np.testing.assert_allclose(wide.get(), 1.5 * w)


def test_what_cupy_kernels_cannot_read(cupy):
    w = cupy.zeros((4, 6))
    assert has_kernels(w) and has_kernels(w.T[:3].T)
    assert not has_kernels(w.T) and not has_kernels(w[:, ::2]) and not has_kernels(w.astype(np.float16))
    assert not has_kernels(np.zeros((4, 4))) and not has_kernels(w, MAX_KERNEL_CLUSTERS + 1)


# ---- small arrays: one launch for several operations of the standard


def shaped(cupy, shape, seed=0):
    x = np.random.default_rng(seed).integers(-2, 3, shape).astype(float)
    return x, cupy.asarray(x)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((), ()), ((3, 4), (3, 1)), ((0, 2), (0, 2))]
)
def test_ratio_is_that_of_numpy(cupy, shapes):
    (total, on_device), (count, divisor) = (shaped(cupy, shape, i) for i, shape in enumerate(shapes))
    assert_array_equal(namespace.ratio(on_device, divisor).get(), namespace.ratio(total, count))


@pytest.mark.parametrize("name", ["not_zero", "not_negative"])
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.float64])
def test_replacements_are_those_of_numpy(cupy, name, dtype):
    x, function = np.array([[3, -1, 0], [-7, 2, 1]], dtype=dtype), getattr(namespace, name)
    found = function(cupy.asarray(x)[:, ::2])
    assert found.dtype == dtype
    assert_array_equal(found.get(), function(x[:, ::2]))


@pytest.mark.parametrize("shape", [(6,), (4, 3), (0, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_hot_is_that_of_numpy(cupy, shape, dtype):
    labels = np.random.default_rng(0).integers(-1, 4, shape)
    found = namespace.one_hot(cupy.asarray(labels.T).T, 4, dtype)
    assert found.dtype == dtype
    assert_array_equal(found.get(), namespace.one_hot(labels, 4, dtype))


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 2)])
@pytest.mark.parametrize("fill", [0, -1])
def test_gather_is_that_of_numpy(cupy, shape, fill):
    x, index = np.random.default_rng(0).normal(size=shape), np.array([4, -1, 0, 2, -1, 2])
    found = namespace.gather(cupy.asarray(np.asfortranarray(x)), cupy.asarray(index), fill)
    assert_array_equal(found.get(), namespace.gather(x, index, fill))


@pytest.mark.parametrize("shape", [(6,), (6, 3)])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_keep_is_that_of_numpy(cupy, shape, dtype):
    x, known = np.arange(np.prod(shape)).reshape(shape).astype(dtype), np.array([4, -1, 0, 2, -1, 2])
    found = namespace.keep(cupy.asarray(x), cupy.asarray(known), -1)
    assert found.dtype == dtype
    assert_array_equal(found.get(), namespace.keep(x, known, -1))


@pytest.mark.parametrize("source", [None, [3, -1, 0, 2]])
@pytest.mark.parametrize("on_device", [False, True])
def test_mixed_is_that_of_numpy(cupy, source, on_device):
    w, psi = np.random.default_rng(0).normal(size=(2, 4))
    there = None if source is None else np.array(source)
    found = namespace.mixed(
        cupy.asarray(w),
        cupy.asarray(psi),
        cupy.asarray(0.3) if on_device else 0.3,
        None if there is None else cupy.asarray(there),
    )
    np.testing.assert_allclose(found.get(), namespace.mixed(w, psi, 0.3, there), rtol=1e-15)


def test_small_arrays_cost_one_launch(cupy):
    cupy_cpu = pytest.importorskip("cupy_cpu")
    x, index = cupy.asarray(np.arange(6.0)), cupy.asarray(np.array([2, -1, 0]))
    for action in (
        lambda: namespace.ratio(x, x),
        lambda: namespace.not_zero(x),
        lambda: namespace.not_negative(index),
        lambda: namespace.one_hot(index, 3, np.float64),
        lambda: namespace.gather(x, index, 0),
        lambda: namespace.keep(x[:3], index, 0.0),
        lambda: namespace.mixed(x[:3], x, 0.5, index),
    ):
        action()
        with cupy_cpu.count() as count:
            action()
        assert (count.launch, count.h2d, count.sync) == (1, 0, 0)


def test_packed_arrays_are_those_of_numpy(cupy):
    rng = np.random.default_rng(0)
    shapes = [(), (3, 4), (300,), (0,), (2, 3), (5,), (7,), (4, 2)]
    arrays = [
        rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
        for dtype, shape in zip([*cuda.PACKED, "float64"], shapes, strict=True)
    ]
    arrays[2] = arrays[2] - 2**40  # more than 32 bits
    arrays.append(np.asfortranarray(rng.normal(size=(3, 5))))
    found = namespace.to_host(*(cupy.asarray(x, order="K") for x in arrays), reason="a test")
    for x, y in zip(arrays, found, strict=True):
        assert y.dtype == np.float64
        assert_array_equal(x.astype(float), y)


def test_more_arrays_than_are_packed(cupy):
    arrays = [cupy.arange(i) for i in range(cuda.MAX_PARTS + 1)]
    for i, x in enumerate(namespace.to_host(*arrays, reason="a test")):
        assert_array_equal(x, np.arange(i))


@pytest.mark.parametrize("k", [1, 5, 200])
def test_counts_of_labels_are_those_of_numpy(cupy, k):
    labels = np.random.default_rng(k).integers(-1, k, (101, 3))
    on_device = cupy.asfortranarray(cupy.asarray(labels))
    assert_array_equal(
        namespace.label_counts(on_device, k).get(), namespace.label_counts(labels, k), strict=True
    )
    table = namespace.label_table(on_device[:, 0], k, on_device[:, 1], k + 1)
    assert_array_equal(table.get(), namespace.label_table(labels[:, 0], k, labels[:, 1], k + 1), strict=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_submatrix_of_a_blend_is_that_of_numpy(cupy, dtype, alpha):
    index = np.array([5, 0, 0, 39, 7, 2])
    for churn in (0, 3):
        host, device = (
            pair_of(library, 40, 3, dtype, churn).blend(alpha).submatrix(library.asarray(index))
            for library in (np, cupy)
        )
        np.testing.assert_allclose(device.get(), host, rtol=1e-15)
        assert device.dtype == np.float64


def test_products_of_a_blend_are_those_of_numpy(cupy):
    for churn in (0, 3):
        host, device = (
            pair_of(library, 40, 3, np.float64, churn)
            .blend(0.3)
            .grouped(library.asarray(np.arange(80).reshape(40, 2) % 3), 3)
            .rows(slice(0, 40))
            for library in (np, cupy)
        )
        np.testing.assert_allclose(device.get(), host, rtol=1e-12)


def test_keys_of_ranks_are_those_of_numpy(cupy):
    values = np.random.default_rng(0).normal(size=50)
    for x in (values, np.abs(values), 0 * values):
        assert_array_equal(namespace.rank_keys(cupy.asarray(x)).get(), namespace.rank_keys(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 33, 70])
@pytest.mark.parametrize("groups", [None, 2])
def test_nearest_neighbours_are_those_of_numpy(cupy, dtype, n, groups):
    d = np.random.default_rng(n).integers(1, 9, (n, n)).astype(dtype)  # many ties
    d = d if groups else np.minimum(d, d.T)
    given = None if groups is None else np.arange(n) % groups
    near, least = linkage._nearest(d, given)
    on_device = linkage._nearest(cupy.asarray(d), None if groups is None else cupy.asarray(given))
    assert_array_equal(near, on_device[0])
    assert_array_equal(least, on_device[1])
