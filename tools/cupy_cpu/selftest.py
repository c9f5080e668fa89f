"""Compare CuPy on the CPU rig with NumPy and SciPy, and check that the counters count.

Usage: run python selftest.py [WORD...]     (only the checks whose name contains one of the words)
"""

import subprocess
import sys
import warnings

import array_api_compat.cupy as cxp
import array_api_compat.numpy as nxp
import array_api_extra as xpx
import cupy as cp
import cupy_cpu
import cupyx
import cupyx.scipy.linalg
import cupyx.scipy.sparse as csparse
import cupyx.scipy.sparse.linalg as clinalg
import numpy as np
import scipy.linalg
import scipy.sparse as nsparse

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)

N, K = 40, 5
A = rng.standard_normal((N, N))  # a square matrix
S = A + A.T  # symmetric
P = A @ A.T + N * np.eye(N)  # positive definite
T = rng.standard_normal((N, K))  # thin
V = rng.standard_normal(N)
L = rng.integers(0, K, N)  # labels
B = rng.standard_normal((3, 6, 6))  # a batch
SPARSE = nsparse.random(N, N, 0.15, random_state=1, format="csr") + nsparse.eye(N, format="csr")
SPARSE2 = nsparse.random(N, N, 0.15, random_state=2, format="csr")

CHECKS = {}


def same(name, f):
    """f(namespace, *arrays) gives the same on both libraries, in float64 and float32."""
    CHECKS[name] = lambda: compare(f)


def sparse_same(name, f):
    """f(sparse module, namespace, matrix, matrix) gives the same on both libraries."""
    CHECKS["sparse " + name] = lambda: compare_sparse(f)


def check(f):
    """f() contains its own assertions."""
    CHECKS[f.__name__.replace("_", " ")] = f


def dense(x):
    if isinstance(x, tuple):
        return tuple(dense(part) for part in x)
    if nsparse.issparse(x) or csparse.issparse(x):
        x = x.toarray()
    return cp.asnumpy(x) if isinstance(x, cp.ndarray) else np.asarray(x)


def assert_close(got, expected, tolerance):
    if isinstance(expected, tuple):
        for one, other in zip(got, expected, strict=True):
            assert_close(one, other, tolerance)
        return
    assert got.shape == expected.shape, (got.shape, expected.shape)
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def compare(f):
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-3)):
        arrays = [x.astype(dtype) for x in (A, S, P, T, V)] + [L, B.astype(dtype)]
        expected = f(nxp, *(x.copy() for x in arrays))
        got = f(cxp, *(cp.asarray(x) for x in arrays))
        for part in got if isinstance(got, tuple) else (got,):
            assert isinstance(part, cp.ndarray), type(part)
        assert_close(dense(got), dense(expected), tolerance)


def compare_sparse(f):
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-4)):
        a, b, t, v = SPARSE.astype(dtype), SPARSE2.astype(dtype), T.astype(dtype), V.astype(dtype)
        expected = dense(f(nsparse, np, a.copy(), b.copy(), t, v))
        got = dense(
            f(csparse, cp, csparse.csr_matrix(a), csparse.csr_matrix(b), cp.asarray(t), cp.asarray(v))
        )
        assert got.shape == expected.shape, (got.shape, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


# ---- elementwise
same("arithmetic", lambda xp, a, s, p, t, v, l, b: (a + 2 * s) * a / (1 + a * a) - 0.5)
same("exp log sqrt", lambda xp, a, s, p, t, v, l, b: xp.log(1 + xp.exp(a)) + xp.sqrt(xp.abs(a)))
same("broadcasting", lambda xp, a, s, p, t, v, l, b: a - v[:, None] + v[None, :])
same("where", lambda xp, a, s, p, t, v, l, b: xp.where(a > 0, a, xp.zeros_like(a)))
same("clip", lambda xp, a, s, p, t, v, l, b: xp.clip(a, -0.5, 0.5))
same("minimum maximum", lambda xp, a, s, p, t, v, l, b: xp.minimum(a, s) + xp.maximum(a, 0.0 * s))
same("comparison and logic", lambda xp, a, s, p, t, v, l, b: xp.logical_and(a > 0, ~(s < 0)))
same("isnan isinf", lambda xp, a, s, p, t, v, l, b: xp.isnan(a / 0) | xp.isinf(a / 0))
same("in place", lambda xp, a, s, p, t, v, l, b: a.__imul__(0.3).__iadd__(s))
same("astype", lambda xp, a, s, p, t, v, l, b: xp.astype(a * 10, xp.int32))
same(
    "one hot by comparison",
    lambda xp, a, s, p, t, v, l, b: xp.astype(l[:, None] == xp.arange(K)[None, :], a.dtype),
)
same("one_hot of array-api-extra", lambda xp, a, s, p, t, v, l, b: xpx.one_hot(l, K, xp=xp))
same("tril triu", lambda xp, a, s, p, t, v, l, b: xp.tril(a) - xp.triu(a, k=1))
same("sign floor round", lambda xp, a, s, p, t, v, l, b: xp.sign(a) + xp.floor(a) + xp.round(a))

# ---- reductions
same("sum", lambda xp, a, s, p, t, v, l, b: (xp.sum(a), xp.sum(a, axis=0), xp.sum(a, axis=1, keepdims=True)))
same(
    "mean var std",
    lambda xp, a, s, p, t, v, l, b: (xp.mean(a, axis=1), xp.var(a, axis=0, correction=1), xp.std(a)),
)
same("min max", lambda xp, a, s, p, t, v, l, b: (xp.min(a, axis=1), xp.max(a), xp.max(b, axis=(0, 2))))
same("prod", lambda xp, a, s, p, t, v, l, b: xp.prod(1 + 0.01 * a, axis=1))
same(
    "argmin argmax",
    lambda xp, a, s, p, t, v, l, b: (xp.argmin(a, axis=1), xp.argmax(a, axis=0), xp.argmax(v)),
)
same("any all", lambda xp, a, s, p, t, v, l, b: (xp.any(a > 2, axis=1), xp.all(a < 3)))
same("count_nonzero", lambda xp, a, s, p, t, v, l, b: xp.count_nonzero(a > 0, axis=1))
same("cumulative_sum", lambda xp, a, s, p, t, v, l, b: (xp.cumulative_sum(v), xp.cumulative_sum(a, axis=1)))
same("vector_norm", lambda xp, a, s, p, t, v, l, b: xp.linalg.vector_norm(a, axis=1))
same("trace", lambda xp, a, s, p, t, v, l, b: xp.linalg.trace(a))

# ---- indexing and sorting
same("slices", lambda xp, a, s, p, t, v, l, b: a[3:20:2, ::-1])
same("take", lambda xp, a, s, p, t, v, l, b: (xp.take(a, l, axis=0), xp.take(a, l, axis=1)))
same("integer index", lambda xp, a, s, p, t, v, l, b: a[l][:, l])
same("take_along_axis", lambda xp, a, s, p, t, v, l, b: xp.take_along_axis(a, xp.argsort(a, axis=1), axis=1))
same("boolean mask", lambda xp, a, s, p, t, v, l, b: (a[l == 1], a[a > 0]))
same("assign by mask", lambda xp, a, s, p, t, v, l, b: xpx.at(a, a > 0).set(0.0))
same("nonzero", lambda xp, a, s, p, t, v, l, b: xp.nonzero(a > 1))
same("diagonal", lambda xp, a, s, p, t, v, l, b: xp.linalg.diagonal(a))
same(
    "sort",
    lambda xp, a, s, p, t, v, l, b: (xp.sort(a, axis=1), xp.sort(a, axis=0), xp.sort(v, descending=True)),
)
same(
    "argsort",
    lambda xp, a, s, p, t, v, l, b: (xp.argsort(v), xp.argsort(a, axis=0), xp.argsort(l, stable=True)),
)
same("searchsorted", lambda xp, a, s, p, t, v, l, b: xp.searchsorted(xp.sort(v), t[:, 0], side="right"))
same("unique", lambda xp, a, s, p, t, v, l, b: (xp.unique_values(l), xp.unique_counts(l).counts))
same("isin", lambda xp, a, s, p, t, v, l, b: xpx.isin(l, xp.asarray([0, 2]), xp=xp))
same("concat stack", lambda xp, a, s, p, t, v, l, b: (xp.concat([a, s], axis=1), xp.stack([v, v], axis=1)))
same("repeat tile", lambda xp, a, s, p, t, v, l, b: (xp.repeat(v, 2), xp.tile(v, (2,))))
same("roll flip", lambda xp, a, s, p, t, v, l, b: (xp.roll(a, 3), xp.flip(a)))
same("permute reshape", lambda xp, a, s, p, t, v, l, b: xp.reshape(xp.permute_dims(b, (2, 0, 1)), (18, 6)))

# ---- linear algebra
same("matmul", lambda xp, a, s, p, t, v, l, b: (a @ s, a @ t, t.T @ (a @ t), a.T @ t, a[:, 5:20] @ t[5:20]))
same("matrix vector", lambda xp, a, s, p, t, v, l, b: (a @ v, v @ a, v @ v))
same("batched matmul", lambda xp, a, s, p, t, v, l, b: (b @ b, b @ xp.matrix_transpose(b), b @ v[:6]))
same("integer matmul", lambda xp, a, s, p, t, v, l, b: (l[:, None] @ l[None, :]) @ l)
same("tensordot", lambda xp, a, s, p, t, v, l, b: xp.tensordot(a, s, axes=2))
same("vecdot outer", lambda xp, a, s, p, t, v, l, b: (xp.vecdot(a, s), xp.linalg.outer(v, v)))
same("eigh", lambda xp, a, s, p, t, v, l, b: (lambda w, x: (w, x * w @ x.T))(*xp.linalg.eigh(s)))
same("eigh of a batch", lambda xp, a, s, p, t, v, l, b: xp.linalg.eigh(b + xp.matrix_transpose(b))[0])
same("eigvalsh", lambda xp, a, s, p, t, v, l, b: xp.linalg.eigvalsh(s))
same("qr", lambda xp, a, s, p, t, v, l, b: (lambda q, r: (q @ r, q.T @ q, xp.abs(r)))(*xp.linalg.qr(t)))
same(
    "svd",
    lambda xp, a, s, p, t, v, l, b: (lambda u, d, w: (u * d @ w, d))(*xp.linalg.svd(t, full_matrices=False)),
)
same("svd of a batch", lambda xp, a, s, p, t, v, l, b: xp.linalg.svdvals(b))
same("cholesky", lambda xp, a, s, p, t, v, l, b: xp.linalg.cholesky(p))
same("solve", lambda xp, a, s, p, t, v, l, b: (xp.linalg.solve(p, t), xp.linalg.solve(b, b + 1)))
same("inv pinv", lambda xp, a, s, p, t, v, l, b: (xp.linalg.inv(p), xp.linalg.pinv(t)))
same("det slogdet", lambda xp, a, s, p, t, v, l, b: (xp.linalg.det(b), xp.linalg.slogdet(p).logabsdet))


@check
def einsum():
    expected = np.einsum("ij,jk,ik->i", A, T, T)
    np.testing.assert_allclose(cp.einsum("ij,jk,ik->i", *map(cp.asarray, (A, T, T))).get(), expected)


@check
def solve_triangular():
    lower = np.tril(P)
    expected = scipy.linalg.solve_triangular(lower, T, lower=True)
    got = cupyx.scipy.linalg.solve_triangular(cp.asarray(lower), cp.asarray(T), lower=True)
    np.testing.assert_allclose(got.get(), expected, rtol=1e-10)


@check
def bincount_add_at_median():
    labels = cp.asarray(L)
    sums = cp.zeros(K)
    cp.add.at(sums, labels, cp.asarray(V))
    np.testing.assert_allclose(sums.get(), np.bincount(L, weights=V, minlength=K))
    np.testing.assert_array_equal(cp.bincount(labels, minlength=K).get(), np.bincount(L, minlength=K))
    np.testing.assert_allclose(cp.median(cp.asarray(V)).get(), np.median(V))


@check
def float16_elementwise():
    x = np.linspace(-70000, 70000, 999, dtype=np.float32)
    np.testing.assert_array_equal(cp.asarray(x).astype(cp.float16).get(), x.astype(np.float16))


@check
def random_numbers():
    x = cp.random.RandomState(0).standard_normal(20000)
    assert abs(float(x.mean())) < 0.05 and abs(float(x.std()) - 1) < 0.05
    assert int(cp.random.randint(0, 3, 100).max()) == 2


# ---- user kernels


@check
def elementwise_kernel():
    blend = cp.ElementwiseKernel("T w, T a", "T p", "p = p + a * (w - p)", "blend")
    p = cp.asarray(A)
    blend(cp.asarray(S), 0.25, p)
    np.testing.assert_allclose(p.get(), A + 0.25 * (S - A))


@check
def reduction_kernel():
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    np.testing.assert_allclose(norm(cp.asarray(A), axis=1).get(), np.linalg.norm(A, axis=1))


@check
def raw_kernel_with_barriers_and_shuffles():
    source = r"""
    extern "C" __global__ void row_sums(const double* x, double* out, int n) {
      extern __shared__ double partial[];
      double sum = 0;
      for (int j = threadIdx.x; j < n; j += blockDim.x) sum += x[(long long)blockIdx.x * n + j];
      for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
      if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; w++) sum += partial[w];
        out[blockIdx.x] = sum;
      }
    }"""
    out = cp.empty(N)
    cp.RawKernel(source, "row_sums")((N,), (64,), (cp.asarray(A), out, np.int32(N)), shared_mem=16)
    np.testing.assert_allclose(out.get(), A.sum(axis=1))


@check
def raw_module_with_template_and_constant():
    source = """
    __constant__ double factor[1];
    template <typename T> __global__ void scale(T* x, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) x[i] *= factor[0];
    }"""
    module = cp.RawModule(
        code=source, options=("-std=c++17",), name_expressions=("scale<float>", "scale<double>")
    )
    cp.ndarray((1,), cp.float64, module.get_global("factor"))[...] = 3.0
    x = cp.asarray(V)
    module.get_function("scale<double>")((2,), (32,), (x, np.int32(N)))
    np.testing.assert_allclose(x.get(), 3 * V)


@check
def a_wrong_kernel_does_not_compile():
    try:
        cp.RawKernel('extern "C" __global__ void f(int* x) { x = nonsense; }', "f")(
            (1,), (1,), (cp.arange(1),)
        )
    except cp.cuda.compiler.CompileException as error:
        assert "nonsense" in str(error)
    else:
        raise AssertionError("no CompileException")


@check
def fuse():
    @cp.fuse()
    def blend(p, w):
        return p + 0.25 * (w - p)

    np.testing.assert_allclose(blend(cp.asarray(A), cp.asarray(S)).get(), A + 0.25 * (S - A))


# ---- sparse matrices
sparse_same("matrix", lambda m, xp, a, b, t, v: a @ t)
sparse_same("vector", lambda m, xp, a, b, t, v: a @ v)
sparse_same("transposed", lambda m, xp, a, b, t, v: a.T @ t)
sparse_same("ZtWZ", lambda m, xp, a, b, t, v: t.T @ (a @ t))
sparse_same("product of two", lambda m, xp, a, b, t, v: a @ b)
sparse_same("blend", lambda m, xp, a, b, t, v: 0.3 * a + 0.7 * b)
sparse_same("difference", lambda m, xp, a, b, t, v: a - b)
sparse_same("multiply", lambda m, xp, a, b, t, v: a.multiply(b))
sparse_same("multiply by a column", lambda m, xp, a, b, t, v: a.multiply(v[:, None]))
sparse_same("power", lambda m, xp, a, b, t, v: a.power(2))
sparse_same(
    "sums", lambda m, xp, a, b, t, v: xp.asarray(a.sum(axis=1)) + xp.asarray(a.sum(axis=0)).T + a.sum()
)
sparse_same("diagonal", lambda m, xp, a, b, t, v: a.diagonal())
sparse_same("transpose to csr", lambda m, xp, a, b, t, v: a.T.tocsr())
sparse_same("coo and back", lambda m, xp, a, b, t, v: a.tocoo().tocsr())
sparse_same("csc and back", lambda m, xp, a, b, t, v: a.tocsc().tocsr())
sparse_same(
    "duplicates", lambda m, xp, a, b, t, v: m.coo_matrix((v, (xp.arange(N) % 4, xp.arange(N) % 3))).tocsr()
)
sparse_same("from dense", lambda m, xp, a, b, t, v: m.csr_matrix(xp.where(t > 0, t, xp.zeros_like(t))))
sparse_same("rows", lambda m, xp, a, b, t, v: a[3:20])
sparse_same("columns", lambda m, xp, a, b, t, v: a[:, 3:20])
sparse_same("index", lambda m, xp, a, b, t, v: a[xp.asarray([5, 1, 7])][:, xp.asarray([5, 1, 7])])
sparse_same("mask", lambda m, xp, a, b, t, v: a[xp.arange(N) % 2 == 0])
sparse_same("diags", lambda m, xp, a, b, t, v: m.diags(v) @ a)
sparse_same("stack", lambda m, xp, a, b, t, v: m.vstack([m.hstack([a, b]), m.hstack([b, a])]))
sparse_same(
    "compress", lambda m, xp, a, b, t, v: (lambda c: (c.eliminate_zeros(), c)[1])(a - a.multiply(a > 0.5))
)


@check
def eigsh():
    expected = np.linalg.eigvalsh(S)[-K:]
    for matrix in (cp.asarray(S), csparse.csr_matrix(cp.asarray(S))):
        values, vectors = clinalg.eigsh(matrix, k=K, which="LA", v0=cp.asarray(V))
        np.testing.assert_allclose(np.sort(values.get()), expected, rtol=1e-8)
        np.testing.assert_allclose((vectors * values).get(), S @ vectors.get(), atol=1e-6)


@check
def eigsh_without_start():
    values = clinalg.eigsh(cp.asarray(S), k=2, which="LA", return_eigenvectors=False)
    np.testing.assert_allclose(np.sort(values.get()), np.linalg.eigvalsh(S)[-2:], rtol=1e-8)


@check
def lobpcg():
    values, _ = clinalg.lobpcg(cp.asarray(P), cp.asarray(T[:, :2]), largest=True, tol=1e-6, maxiter=200)
    np.testing.assert_allclose(np.sort(values.get()), np.linalg.eigvalsh(P)[-2:], rtol=1e-6)


@check
def linear_operator_and_cg():
    operator = clinalg.LinearOperator((N, N), matvec=lambda x: cp.asarray(P) @ x, dtype=cp.float64)
    solution, _ = clinalg.cg(operator, cp.asarray(V), rtol=1e-10)
    np.testing.assert_allclose(solution.get(), np.linalg.solve(P, V), rtol=1e-5, atol=1e-8)


# ---- counters


@check
def counter_of_launches_products_and_solvers():
    a, s = cp.asarray(A), cp.asarray(S)
    a + s, a @ s, cp.linalg.eigh(s)  # compile first
    with cupy_cpu.count() as c:
        a + s
    assert (c.launch, c.gemm, c.sync, c.d2h, c.alloc) == (1, 0, 0, 0, 1), c
    assert list(c.kernels) == ["cupy_add__float64_float64_float64"], c.kernels
    with cupy_cpu.count() as c:
        a @ s
    assert (c.gemm, c.sync, c.d2h) == (1, 0, 0), c
    with cupy_cpu.count() as c:
        cp.linalg.eigh(s)
    assert c.solver == 1, c
    with cupy_cpu.count() as c:
        cp.sort(a)
    assert c.sort == 1, c
    with cupy_cpu.count() as c:
        csparse.csr_matrix(SPARSE) @ a
    assert c.sparse >= 1 and c.h2d == 3, c


@check
def counter_of_copies_and_waits():
    a = cp.asarray(A)
    with cupy_cpu.count() as c:
        float(a[0, 0])
    assert (c.d2h, c.d2h_bytes, c.sync) == (1, 8, 1), c
    assert all("selftest.py:" in line for line in c.where) and len(c.where) == 2, c.where
    with cupy_cpu.count() as c:
        a.get()
    assert c.d2h == 1 and c.d2h_bytes == A.nbytes, c
    with cupy_cpu.count() as c:
        cp.asarray(A)
    assert c.h2d == 1 and c.h2d_bytes == A.nbytes and c.d2h == 0, c
    with cupy_cpu.count() as c:
        a[a > 0]  # the shape depends on the data
    assert c.sync >= 1, c


@check
def counter_of_memory():
    a = cp.ones((200, 200))
    for _ in range(2):  # the second time, CuPy's pool provides the memory
        with cupy_cpu.count() as c:
            b = a * 2 + 1
        assert c.alloc == 2 and c.largest == a.nbytes and c.peak_bytes == 2 * a.nbytes, c
        del b
    with cupy_cpu.count() as c:
        a *= 2
    assert c.alloc == 0 and c.peak_bytes == 0, c


@check
def counter_of_bytes_that_move():
    a, v = cp.ones((30, 40)), cp.ones(40)
    a + v, a @ v[:, None], a.sum(axis=1), cp.take(a, cp.arange(3), axis=0)  # compile first
    for action, doubles in (
        (lambda: a + v, 2 * a.size + v.size),
        (lambda: a @ a.T, 2 * a.size + 900),
        (lambda: a.sum(axis=1), a.size + 30),
        (lambda: a.__imul__(2.0), 2 * a.size),
    ):
        with cupy_cpu.count() as c:
            action()
        assert c.moved_bytes == 8 * doubles, (c, doubles)
    with cupy_cpu.count() as c:
        cp.take(a, cp.arange(3), axis=0)  # three rows, not all
    assert c.moved_bytes < 3 * 120 * 8, c


@check
def two_devices():
    assert cp.cuda.runtime.getDeviceCount() == 2
    with cp.cuda.Device(1):
        a = cp.ones(3)
        assert (a + 1).device.id == 1
    assert a.device.id == 1 and cp.ones(3).device.id == 0
    try:
        a + 1
    except ValueError as error:
        assert "device" in str(error)
    else:
        raise AssertionError("device 0 has read the memory of device 1")
    code = "import cupy\nwith cupy.cuda.Device(1): a = cupy.ones((3, 3))\n"
    code += "import cupy.cublas\ncupy.cublas.gemm('N', 'N', a, a)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode != 0 and "memory of device 1" in result.stderr, result


@check
def counters_nest():
    a = cp.ones(3)
    with cupy_cpu.count() as outer:
        a + 1
        with cupy_cpu.count() as inner:
            a + 1
    assert (inner.launch, outer.launch) == (1, 2) and (inner.alloc, outer.alloc) == (1, 2)


@check
def a_call_that_is_not_emulated_aborts_with_its_name():
    result = subprocess.run(
        [sys.executable, "-c", "import cupy; cupy.fft.fft(cupy.ones(4))"], capture_output=True, text=True
    )
    assert result.returncode != 0 and "NOT EMULATED: cufft" in result.stderr, result


def main(words):
    failed = passed = 0
    for name, run in CHECKS.items():
        if words and not any(word in name for word in words):
            continue
        try:
            run()
            passed += 1
        except Exception as error:
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {str(error).strip()[:600]}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
