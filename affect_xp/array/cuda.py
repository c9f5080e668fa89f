"""CuPy kernels for dense matrices: one pass over memory instead of one per array operation.

Each function has a twin in the array API standard, which all other libraries use; the caller chooses by
`has_kernels`. Sums are in float64 and without atomic additions of floats, so their bits do not depend on the
order in which threads run. An entry of W is read from memory once, unless there are more clusters than
`MAX_BINS`.
"""

import dataclasses
import functools
import math
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from affect_xp.array.typing import Array

LANES = 32
SHARED_BYTES = 48 * 1024  # of a block, on every device
MAX_WARPS = 8  # in a block
MAX_BINS = 96  # of a warp; more clusters than these take another read of W
MAX_COUNTS = 8192  # of clusters in all runs, which a block counts in shared memory
MAX_CLUSTERS = 8192  # of block moments, whose offsets are 32-bit integers
TILE = 32  # of the check of symmetry
SLICES = 8  # blocks that share a row of tiles

# Types of arrays that are packed, in the order of their numbers in the kernel, and how many arrays.
PACKED = ("float64", "float32", "int64", "int32", "int16", "int8", "bool")
MAX_PARTS = 16
PARTS = np.dtype([("from", "u8", MAX_PARTS), ("ends", "i8", MAX_PARTS), ("kinds", "i4", MAX_PARTS)])

SOURCE = Path(__file__).with_name("kernels.cu")

TEMPLATES = tuple(
    f"{name}<{kind}>"
    for name in (
        "products",
        "residuals",
        "regroup",
        "blend",
        "extremes",
        "guess_means",
        "sums_by_cluster",
        "shared_effects",
        "profile_sums",
        "move_probability",
        "csr_products",
        "csr_residuals",
        "nearest_other",
        "merge_clusters",
    )
    for kind in ("float", "double")
) + tuple(f"csr_matmul<{a}, {b}>" for a in ("float", "double") for b in ("float", "double"))


@dataclasses.dataclass(frozen=True, eq=False)
class Csr:
    """Rows of a sparse matrix in CSR format; of a square one with its diagonal in float64."""

    data: Array
    indices: Array
    indptr: Array
    diagonal: Array = None
    dtype: ClassVar[type] = np.float64  # of the diagonal

    @property
    def shape(self) -> tuple[int]:
        """The number of rows."""
        return (self.indptr.shape[0] - 1,)

    def arguments(self) -> tuple[Array, ...]:
        """Return the arguments of kernels."""
        return self.data, *_in_order(np.int32, self.indices, self.indptr)

    def run(self, name: str, n_bins: int, given: tuple[Any, ...]) -> None:
        """Run a kernel with one warp for each row."""
        warps = _n_warps(n_bins)
        grid, shared = -(-self.shape[0] // warps), n_bins * warps * LANES
        _run(f"{name}<{_c_type(self.data)}>", None, grid, (LANES, warps), shared, (*self.arguments(), *given))


def csr_matmul(data: Array, indices: Array, indptr: Array, v: Array) -> Array:
    """Return W·V for a matrix in CSR format, in the dtype of V; the same bits at each call."""
    (indices, indptr), n, columns = _in_order(np.int32, indices, indptr), len(indptr) - 1, v.shape[1]
    v = _cupy().ascontiguousarray(v)
    out = _cupy().empty((n, columns), dtype=v.dtype)
    width = min(LANES, 2 ** max(0, columns - 1).bit_length())
    given = (data, indices, indptr, v, n, *_ints(columns, width), out)
    _run(f"csr_matmul<{_c_type(data)}, {_c_type(v)}>", None, -(-n // 8), (LANES, 8), 0, given)
    return out


def products(w: Array | Csr, labels: Array, k: int) -> Array:
    """Return W·Z, (n, R·k), in float64, given the labels (n, R); -1 for objects in no cluster."""
    n, runs = w.shape[0], labels.shape[1]
    out = _cupy().empty((n, runs * k))
    short = _short(labels)
    for first, width in _pieces(runs * k, 1):
        given = (short, n, *_ints(runs, k, first, width), out)
        if isinstance(w, Csr):
            w.run("csr_products", width, given)
        else:
            _by_rows("products", w, width, given)
    return out


@dataclasses.dataclass(frozen=True, eq=False)
class Moments:
    """Block moments of a matrix by labels, as views of one array; see `affect.moments.BlockMoments`."""

    flat: Array
    k: int

    def _part(self, first: int, *shape: int) -> Array:
        return self.flat[first : first + math.prod(shape)].reshape(shape)

    def blocks(self) -> tuple[Array, ...]:
        """Return means, sums of squares, variances, and numbers of entries, (k, k) each."""
        return tuple(self._part(i * self.k**2, self.k, self.k) for i in range(4))

    def diagonals(self) -> tuple[Array, ...]:
        """Return cluster sizes, and means and variances of the diagonal, (k,) each."""
        return tuple(self._part(4 * self.k**2 + i * self.k, self.k) for i in range(3))

    def totals(self) -> tuple[Array, ...]:
        """Return Σ var(wᵢⱼ) and Σ(wᵢⱼ − μ)² over all entries, 0-d each."""
        return tuple(self._part(4 * self.k**2 + 3 * self.k + i) for i in range(2))


def moments(w: Array | Csr, labels: Array, k: int) -> Moments:
    """Return the block moments of W, given labels (n,)."""
    short, guess = _short(labels), _cupy().empty((k, k))
    if isinstance(w, Csr):  # the means about zero
        guess[...] = 0
        guess = _moments_about(w, short, guess).blocks()[0]
    else:
        width = min(k, MAX_BINS // 2)
        warps, given = _n_warps(2 * width), (short, w.shape[0], *_ints(k, width), guess)
        _run("guess_means", w, k, (LANES, warps), 2 * width * warps, given)
    return _moments_about(w, short, guess)


def _moments_about(w: Array | Csr, labels: Array, guess: Array) -> Moments:
    k = guess.shape[0]
    found = _cupy().empty(4 * k * k + 3 * k + 2)
    given = (residual_sums(w, labels, guess), guess, *_ints(k), found)
    _run("block_moments", None, 1, (256,), 0, given)
    return Moments(found, k)


def residual_sums(w: Array | Csr, labels: Array, guess: Array, diagonal_means: Array | None = None) -> Array:
    """Return sums by cluster about a guess of each block mean, (2k² + 3k,); labels (n,).

    They are Σ (g − wᵢⱼ) and Σ (g − wᵢⱼ)² over i ≠ j, side by side, (k, 2k); then the cluster sizes, the
    means of wᵢᵢ, and Σ (wᵢᵢ − g)² about given means or these, (k,) each.
    """
    n, k, cupy = w.shape[0], guess.shape[0], _cupy()
    rows, out, short = cupy.empty((n, 2 * k)), cupy.empty(2 * k * k + 3 * k), _short(labels)
    guess, diagonal_means = _in_order(np.float64, guess, diagonal_means)
    if isinstance(w, Csr):
        sizes = one_hot(short, k, np.float64).sum(axis=0)
        for first, width in _pieces(k, 3):
            bounds = _ints(k, first, width)
            w.run("csr_residuals", 3 * width, (short, sizes, guess, n, *bounds, rows))
        w = w.diagonal
    else:
        for first, width in _pieces(k, 2):
            _by_rows("residuals", w, 2 * width, (short, guess, n, *_ints(k, first, width), rows))
    given = (short, rows, diagonal_means, n, *_ints(k), out)
    _run("sums_by_cluster", w, (k, -(-2 * k // LANES) + 1), _tall_block(n), 0, given)
    return out


def total_squares(sums: Array, k: int) -> Array:
    """Return all squares of `residual_sums`, off and on the diagonal, 0-d."""
    out = _cupy().empty(())
    _run("total_squares", None, 1, (256,), 0, (sums, *_ints(k), out))
    return out


@dataclasses.dataclass(frozen=True, eq=False)
class Both:
    """W and its past Ψ, of one dtype, with labels of the objects that are in both."""

    w: Array | Csr
    past: Array | Csr
    wz: Array  # WZ, (n, k)
    past_z: Array  # ΨZ, (n', k)
    source: Array | None  # the position in the past of each object with a label; None if they are the same
    labels: Array  # (n,), -1 for objects that are not in the past

    def run(
        self, name: str, grid: int | tuple[int, int], block: tuple[int, ...], given: tuple[Any, ...]
    ) -> None:
        """Start a kernel with these arrays as its first arguments."""
        w, past = (x.diagonal if isinstance(x, Csr) else x for x in (self.w, self.past))
        wz, past_z = _in_order(np.float64, self.wz, self.past_z)
        (source,) = _in_order(np.int64, self.source)
        first = (past, _stride(past), wz, past_z, source, _short(self.labels))
        _run(name, w, grid, block, 0, (*first, *given))


def judge(both: Both, previous: tuple[Any, Array, Array], static: tuple[Any, Array, Array]) -> Array:
    """Return V and D per entry, (2,), given both with the previous labels; see `affect.initial_labels`.

    The tuples are the moments of W by these labels, the `residual_sums` of the past about their means, and
    the drift.
    """
    (moments, sums, drift), (fresh, fresh_sums, _), cupy = previous, static, _cupy()
    k, n = moments.k, both.w.shape[0]
    effects, out = cupy.empty(k * k + k), cupy.empty(2)
    grid = k, -(-k // LANES) + 1
    both.run("shared_effects", grid, _tall_block(n), (moments.flat, sums, n, *_ints(k), effects))
    given = (moments.flat, drift, effects, *_ints(k), fresh.flat, fresh_sums, *_ints(fresh.k), out)
    _run("judge", None, 1, (256,), 0, given)
    return out


def move_probability(
    both: Both, moments: Moments, rate: float, prior: tuple[float, float], least: tuple[float, float]
) -> tuple[Array, Array]:
    """Return the probability that each object has moved, (n,), and the lowest sum of a row, 0-d; k ≥ 2.

    See `affect.movers` for the formulas: `prior` holds the weight of the mean profile, and the share of the
    uniform profile in it; `least` the smallest dispersion, and the smallest entry of a profile.
    """
    cupy, n, k = _cupy(), both.w.shape[0], moments.k
    columns = -(-k // LANES)
    sums, profiles, out = cupy.empty(k * k + k * columns), cupy.empty(2 * k * k + 2), cupy.empty(n)
    both.run("profile_sums", (k, columns), _tall_block(n), (n, moments.flat, *_ints(k), sums))
    given = (sums, *_ints(k * columns), moments.flat, *_ints(k), *prior, least[0], profiles)
    _run("log_profiles", None, 1, (256,), 0, given)
    given = (n, moments.flat, *_ints(k), profiles, rate, least[1], out)
    both.run("move_probability", -(-n // 256), (256,), given)
    return out, profiles[2 * k * k + 1]


def draw(weight: Array, order: Array, numbers: Array) -> Array:
    """Return objects drawn with the weights of each column, (n, R), in an order, given numbers (R, m)."""
    (weight, numbers), (order,) = _in_order(np.float64, weight, numbers), _in_order(np.int64, order)
    (n, runs), out = weight.shape, _cupy().empty(numbers.shape, dtype=np.int64)
    _run("draw", None, runs, (256,), 0, (weight, order, numbers, n, *_ints(runs, numbers.shape[1]), out))
    return out


def add_centre(
    products: Array, w_ii: Array, tried: Array, nearest: Array, labels: Array, c: int, tie: float
) -> tuple[Array, Array]:
    """Add centre c to each run; return the distances to the nearest centre and the labels, (n, R).

    Of the T objects tried in each run, (R·T,), with the products (n, R·T), the first with the smallest sum of
    squares becomes the centre, where `tie` is a relative difference that does not count.
    """
    n, runs = nearest.shape
    trials, left = tried.shape[0] // runs, _cupy().empty(tried.shape)
    given = (*_in_order(np.float64, products, w_ii), tried, *_in_order(np.float64, nearest))
    found, relabelled = _cupy().empty(nearest.shape), _cupy().empty(nearest.shape, dtype=np.int64)
    _run("try_centres", None, runs * trials, (256,), 0, (*given, n, *_ints(runs, trials), left))
    given = (*given, *_in_order(np.int64, labels), left, tie, n, *_ints(runs, trials), c, found, relabelled)
    _run("add_centre", None, -(-n * runs // 256), (256,), 0, given)
    return found, relabelled


def moved_products(
    wz: Array, w: Array, objects: Array, before: Array, after: Array, places: Array | None = None
) -> Array:
    """Return W·Z after some objects have changed clusters, given all labels before and after, (n', R).

    `objects` may be followed by -1. `places` are their positions in W if they differ, -1 for objects that are
    not in W.
    """
    n, runs = w.shape[0], after.shape[1]
    k, out = wz.shape[1] // runs, _cupy().empty(wz.shape)
    wz, objects, before, after = *_in_order(np.float64, wz), *_in_order(np.int64, objects, before, after)
    (places,) = _in_order(np.int64, places)
    for first, width in _pieces(runs * k, 1):
        warps, bounds = _n_warps(width), _ints(runs, k, first, width)
        given = (objects, places, *_ints(objects.shape[0]), before, after, n, *bounds, wz, out)
        _run("regroup", w, -(-n // LANES), (LANES, warps), width * warps, given)
    return out


def blend(
    w: Array,
    past: Array,
    alpha: Array | float,
    *,
    source: Array | None = None,
    out: Array | None = None,
    labels: Array | None = None,
    k: int = 0,
) -> tuple[Array, Array | None]:
    """Return α·past + (1 − α)·W and, given labels (n,), its product with Z, (n, k).

    With a source, the past of object i is at source[i]; objects at -1 have no past and keep W. The result may
    overwrite `out`, which may be the past if there is no source.
    """
    cupy, n = _cupy(), w.shape[0]
    out = cupy.empty((n, n), dtype=w.dtype) if out is None else out
    width = k if labels is not None and k <= MAX_BINS else 0
    product = cupy.empty((n, k)) if width else None
    short = _short(labels) if labels is not None and width else None
    (source,) = _in_order(np.int64, source)
    matrices = [y for x in (past, out) for y in (x, x.strides[0] // x.itemsize)]
    given = (*matrices, source, *_weight(alpha), short, n, *_ints(k, width), product)
    _by_rows("blend", w, width, given)
    return out, products(out, labels[:, None], k) if labels is not None and not width else product


def extremes(w: Array) -> Array:
    """Return max |wᵢⱼ| and max |wᵢⱼ − wⱼᵢ|, (2,), in float64; the first is NaN if an entry is not finite."""
    n_tiles = -(-w.shape[0] // TILE)
    out = _cupy().empty((n_tiles * SLICES, 2))
    _run("extremes", w, (n_tiles, SLICES), (TILE, 8), 0, (w.shape[0], out))
    return out.max(axis=0)


@dataclasses.dataclass(frozen=True, eq=False)
class Product:
    """The product of a matrix with Z, (n, R·k), or of a blend: WZ + α (past − base)."""

    wz: Array
    past: Array | None = None  # ΨZ, (n', R·k); None if there is only WZ
    alpha: Array | float = 0.0
    base: Array | None = None  # WZ with the labels of common objects only, if it differs
    source: Array | None = None  # the position in the past, -1 for none; None if the objects are the same

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of kernels."""
        (source,) = _in_order(np.int64, self.source)
        return *_in_order(np.float64, self.wz, self.base, self.past), source, *_weight(self.alpha)


def blended(product: Product) -> Array:
    """Return the product of a blend with Z, (n, R·k)."""
    (n, bins), out = product.wz.shape, _cupy().empty(product.wz.shape)
    _run(
        "blended_product", None, -(-n * bins // 256), (256,), 0, (*product.arguments(), n, *_ints(bins), out)
    )
    return out


def pack(arrays: tuple[Array, ...]) -> Array:
    """Return up to 16 arrays one after the other, flat, in float64."""
    arrays = tuple(_cupy().ascontiguousarray(x) for x in arrays)
    parts = np.zeros(1, dtype=PARTS)
    for p, x in enumerate(arrays):
        parts["from"][0, p], parts["kinds"][0, p] = x.data.ptr, PACKED.index(x.dtype.name)
    parts["ends"][0, : len(arrays)] = np.cumsum([x.size for x in arrays])
    out = _cupy().empty(sum(x.size for x in arrays))
    _run("pack", None, -(-out.size // 256), (256,), 0, (parts, out.size, out))
    return out


def label_table(labels: Array, k: int, others: Array, k_others: int) -> Array:
    """Return how often two labels meet, (k, k'), in float64; -1 does not count."""
    counts = _cupy().zeros((k, k_others))  # sums of ones are exact in any order
    _elementwise("count_pairs")(labels, others, k_others, counts)
    return counts


def label_counts(labels: Array, k: int) -> Array:
    """Return the count of each label in each column of `labels`, (R, k), in float64."""
    runs = labels.shape[1]
    counts = _cupy().zeros((runs, k))
    _elementwise("count")(labels, runs, k, counts)
    return counts


def submatrix(w: Array, index: Array) -> Array:
    """Return the entries of W among the objects at `index`, (m, m), in float64; a negative index is 0."""
    m = index.shape[0]
    return _elementwise("submatrix")(w, index, m, w.shape[1], _cupy().empty((m, m)))


def rank_keys(values: Array, largest: Array) -> Array:
    """Return values as multiples of 2⁻²⁰ of the largest one, rounded."""
    return _elementwise("rank_keys")(values, largest)


def lloyd_assign(product: Product, w_ii: Array, labels: Array, k: int) -> tuple[Array, Array, Array, Array]:
    """Return the nearest centroids, (n, R), the moved objects, the sizes, (R, k), and a report.

    The report for the host, (2R + 2,), holds the number of objects that move in each run and in any run, the
    number of empty clusters, and the sum of squares of each run before the moves. The moved objects, (n,),
    are followed by -1.
    """
    cupy, (n, runs) = _cupy(), labels.shape
    bins = runs * k
    (w_ii,), (labels,), mixed = _in_order(np.float64, w_ii), _in_order(np.int64, labels), product.arguments()
    sums, report = cupy.empty((3, bins)), cupy.empty(2 * runs + 2)
    found, rows = cupy.empty(labels.shape, dtype=np.int64), cupy.empty(n, dtype=np.int64)
    moves, counts = cupy.empty(n, dtype=np.uint8), cupy.zeros(bins + runs, dtype=np.int32)
    _run("cluster_sums", None, bins, (256,), 0, (*mixed, w_ii, labels, n, *_ints(runs, k), sums))
    given = (*mixed, sums, labels, n, *_ints(runs, k), found, moves, counts)
    _run("nearest", None, -(-n // 256), (256,), (bins + runs + 1) // 2, given)
    _run("conclude", None, 1, (1024,), 0, (sums, counts, moves, n, *_ints(runs, k), rows, report))
    return found, rows, counts[:bins].reshape(runs, k), report


def nearest_other(d: Array, group: Array | None, *, upper: bool) -> tuple[Array, Array]:
    """Return for each row the nearest column of another group, (n,), and its distance in float64, (n,).

    Of equal distances it is the column with the smallest i XOR j. Without groups each row is its own.
    """
    n = d.shape[0]
    near, least = _cupy().empty(n, dtype=np.int64), _cupy().empty(n)
    given = (*_in_order(np.int64, group), n, *_ints(upper), near, least)
    _run("nearest_other", d, -(-n // MAX_WARPS), (LANES, MAX_WARPS), 0, given)
    return near, least


def merge_clusters(d: Array, plan: Array, sizes: Array, rows: slice, method: int) -> Array:
    """Return some rows of the distances after a merge, by complete, average or Ward's linkage: 0, 1, 2."""
    q, n_rows = plan.shape[1], rows.stop - rows.start
    out = _cupy().empty((n_rows, q), dtype=d.dtype)
    given = (plan, sizes, q, rows.start, n_rows, *_ints(method), out)
    _run("merge_clusters", d, -(-n_rows * q // 256), (256,), 0, given)
    return out


def mirror_upper(d: Array) -> None:
    """Copy the upper triangle of a contiguous matrix to the lower one."""
    _elementwise("mirror")(d, d.shape[0], d)


# Small arrays cost launches, not bytes: one kernel replaces several operations of the standard.
ELEMENTWISE = {
    "ratio": ("T total, T count", "T out", "out = count > 0 ? total / count : (T)0"),
    "share": (
        "T noise, T drift",
        "T out",
        "const T both = noise + drift; out = both < (T)INFINITY && both > 0 ? noise / both : (T)0",
    ),
    "stays": (
        "T noise, T drift, T static_noise, T static_drift, T v, T d",
        "bool out",
        """const T both = noise + drift, other = static_noise + static_drift;
        const T previous = both < (T)INFINITY && both > 0 ? noise / both : (T)0;
        const T fresh = other < (T)INFINITY && other > 0 ? static_noise / other : (T)0;
        out = fabs(previous * d - v) <= fabs(fresh * d - v)""",
    ),
    "keep": ("T x, L known, T fill", "T out", "out = known < 0 ? fill : x"),
    "mix": ("T w, T psi, T alpha", "T out", "out = w + alpha * (psi - w)"),
    "mix_known": (
        "T w, raw T psi, L source, T alpha",
        "T out",
        "out = source < 0 ? w : w + alpha * (psi[source] - w)",
    ),
    "mix_pairs": (
        "T w, T psi, L row, L column, T alpha",
        "T out",
        "out = row < 0 || column < 0 ? w : w + alpha * (psi - w)",
    ),
    "count_pairs": (
        "L label, M other, int64 k_others",
        "raw float64 counts",
        "if (label >= 0 && other >= 0) atomicAdd(&counts[label * k_others + other], 1.0)",
    ),
    "count": (
        "L label, int64 runs, int64 k",
        "raw float64 counts",
        "if (label >= 0) atomicAdd(&counts[i % runs * k + label], 1.0)",
    ),
    "submatrix": (
        "raw T w, raw L index, int64 m, int64 n",
        "float64 out",
        "out = w[max((L)0, index[i / m]) * n + max((L)0, index[i % m])]",
    ),
    "mirror": ("raw T d, int64 q", "T out", "if (i / q > i % q) out = d[i % q * q + i / q]"),
    "coupling": (
        "T w, T r, T bound",
        "T out",
        "const T x = min(max(w, -bound), bound); out = r * x / (r * r - x * x)",
    ),
    "damping": (
        "T w, T r, T bound",
        "T out",
        "const T x = min(max(w, -bound), bound); out = x * x / (r * r - x * x)",
    ),
    "rank_keys": ("T x, T largest", "T out", "out = largest > 0 ? rint(x / largest * 1048576) : (T)0"),
    "not_zero": ("T count", "T out", "out = count > 0 ? count : (T)1"),
    "not_negative": ("T index", "T out", "out = index < 0 ? (T)0 : index"),
    "one_hot": ("raw L labels, int64 k", "T hot", "hot = labels[i / k] == (L)(i % k)"),
    "gather": (
        "raw T x, raw L index, int64 width, T fill",
        "T out",
        "const long long from = index[i / width]; out = from < 0 ? fill : x[from * width + i % width]",
    ),
}


def bethe_hessian_term(name: str, w: Array, r: float, bound: float) -> Array:
    """Return the "coupling" r w / (r² − w²) or the "damping" w² / (r² − w²), with |w| at most `bound`."""
    return _elementwise(name)(w, w.dtype.type(r), w.dtype.type(bound))


def ratio(total: Array, count: Array) -> Array:
    """Return total / count, and 0 where the count is not positive; both have the same dtype."""
    return _elementwise("ratio")(total, count)


def share(noise: Array, drift: Array) -> Array:
    """Return noise / (noise + drift), and 0 if their sum is not positive and finite."""
    return _elementwise("share")(noise, drift)


def stays(previous: tuple[Array, Array], static: tuple[Array, Array], v: Array, d: Array) -> Array:
    """Return whether the `share` of the previous noise is at least as close to v / d as the static one."""
    return _elementwise("stays")(*previous, *static, v, d)


def keep(x: Array, known: Array, fill: float) -> Array:
    """Return x, and `fill` where `known` is negative, along the first axis."""
    return _elementwise("keep")(x, known.reshape(-1, *(1,) * (x.ndim - 1)), fill)


def mixed(w: Array, psi: Array, alpha: Array | float, source: Array | None = None) -> Array:
    """Return w + α (ψ − w), with ψ at `source`; w where the source is negative."""
    if source is None:
        return _elementwise("mix")(w, psi, alpha)
    return _elementwise("mix_known")(w, psi, source, alpha)


def mixed_pairs(w: Array, psi: Array, alpha: Array | float, places: Array) -> Array:
    """Return w + α (ψ − w), (m, m), and w where the place of either object is negative."""
    return _elementwise("mix_pairs")(w, psi, places[:, None], places[None, :], alpha)


def not_zero(count: Array) -> Array:
    """Return counts with 0 replaced by 1."""
    return _elementwise("not_zero")(count)


def not_negative(index: Array) -> Array:
    """Return an index with negative numbers replaced by 0."""
    return _elementwise("not_negative")(index)


def one_hot(labels: Array, k: int, dtype: object) -> Array:
    """Return the membership Z, labels along its first axes and clusters along the last."""
    return _elementwise("one_hot")(labels, k, _cupy().empty((*labels.shape, k), dtype=dtype))


def gather(x: Array, index: Array, fill: float) -> Array:
    """Return x[index] along the first axis, and `fill` where the index is negative."""
    shape = (*index.shape, *x.shape[1:])
    width = math.prod(x.shape[1:])
    return _elementwise("gather")(x, index, width, fill, _cupy().empty(shape, dtype=x.dtype))


@functools.cache
def _elementwise(name: str) -> Any:
    return _cupy().ElementwiseKernel(*ELEMENTWISE[name], f"affect_xp_{name}")


def _cupy() -> Any:
    return sys.modules["cupy"]


@functools.cache
def _module(device: int) -> Any:
    """Return the kernels, compiled for the current device at first use."""
    return _cupy().RawModule(
        code=SOURCE.read_text(encoding="utf-8"), options=("-std=c++17",), name_expressions=TEMPLATES
    )


@functools.cache
def _kernel(device: int, name: str) -> Any:
    return _module(device).get_function(name)


def _weight(alpha: Array | float) -> tuple[Array | None, float]:
    """Return α as an array on the device, or as a number."""
    if isinstance(alpha, _cupy().ndarray):
        return alpha.astype(np.float64, copy=False), 0.0
    return None, float(alpha)


def _short(labels: Array) -> Array:
    """Return labels as contiguous 16-bit integers, copied only if needed."""
    return labels.astype(np.int16, order="C", copy=False)


def _in_order(dtype: type, *arrays: Array | None) -> tuple[Any, ...]:
    """Return contiguous arrays of the given dtype, copied only if needed."""
    return tuple(None if x is None else _cupy().ascontiguousarray(x, dtype=dtype) for x in arrays)


def _c_type(x: Array) -> str:
    return "float" if x.dtype.itemsize == 4 else "double"


def _stride(w: Array) -> int:
    """Return the number of entries between rows; 0 for an array that is only a diagonal."""
    return 0 if w.ndim == 1 else w.strides[0] // w.itemsize


def _ints(*values: int) -> tuple[np.int32, ...]:
    """Return numbers as C `int`; Python integers are passed as `long long`."""
    return tuple(np.int32(value) for value in values)


def _pieces(n_bins: int, n_kinds: int) -> list[tuple[int, int]]:
    """Return (first, width) of the groups of bins that fit into a warp, with `n_kinds` values per bin."""
    most = MAX_BINS // n_kinds
    return [(first, min(most, n_bins - first)) for first in range(0, n_bins, most)]


def _n_warps(n_bins: int) -> int:
    """Return how many warps with this number of bins fit into a block."""
    return max(1, min(MAX_WARPS, SHARED_BYTES // (8 * LANES * max(1, n_bins))))


def _tall_block(n: int) -> tuple[int, int]:
    """Return a block for columns of n rows: its warps, a power of two, take turns with the rows."""
    return LANES, 2 ** min(5, max(0, (n // LANES).bit_length() - 1))


def _by_rows(name: str, w: Array, n_bins: int, given: tuple[Any, ...]) -> None:
    """Run a kernel with one warp for each row of W."""
    warps = _n_warps(n_bins)
    _run(name, w, -(-w.shape[0] // warps), (LANES, warps), n_bins * warps, given)


def _run(
    name: str,
    w: Array | None,
    grid: int | tuple[int, int],
    block: tuple[int, ...],
    n_bins: int,
    given: tuple[Any, ...],
) -> None:
    """Start a kernel, for the dtype of W if given; a bin takes 8 bytes of shared memory per lane."""
    lanes = LANES if w is not None else 1
    if w is not None:
        name = f"{name}<{_c_type(w)}>"
        given = (w, _stride(w), *given)
    kernel = _kernel(_cupy().cuda.Device().id, name)
    kernel(grid if isinstance(grid, tuple) else (grid,), block, given, shared_mem=8 * lanes * n_bins)
