"""The interface of proximities: the contract between storage and algorithms."""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from affect_xp import display
from affect_xp.array.namespace import (
    array_namespace,
    as_array,
    device_of,
    host_view,
    is_array,
    native,
    not_zero,
    to_host,
    wide_dtype,
)
from affect_xp.array.typing import Array, Namespace
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import Alignment, Partition
from affect_xp.proximity.grouped import Grouped, Moves, Stored, Summed, identity

# `np.asarray` writes out other representations up to this many bytes; `to_dense()` has no limit.
MAX_ARRAY_BYTES = 2 * 2**30
# Asymmetry, relative to the largest entry, that is attributed to rounding. Products of features in single
# precision differ from their transposes by about 1e-6.
TOLERANCE = {"float64": 1e-8, "float32": 1e-4}
# Plain sums of squares are used if at least this share of them remains after the mean is subtracted: the
# relative error is then at most about 1e-11.
MIN_SHARE_LEFT = 1e-5
# The diagonal may be subtracted from plain sums if at least this share of the squares remains.
MIN_OFF_DIAGONAL_SHARE = 1e-7


class Proximity(abc.ABC):
    """A symmetric n×n matrix W of proximities, accessed only through reductions and products.

    Moments, forgetting factor and clustering use only this interface, so that a new storage format is
    one new class. Sums are accumulated in float64 if the device has it, whatever the dtype of W; only
    `Dense` sums a few rows of a large float32 W in float32. Sums by block exclude objects with the label -1.
    """

    dense_type: ClassVar[Any]  # `Dense`, which no other representation imports
    carries_products: ClassVar[bool] = True  # whether to keep products from step to step
    updates_each_run: ClassVar[bool] = False  # whether products of several runs are updated one by one
    max_update_share: ClassVar[float] = 1.0  # if more objects move, a product is computed from scratch

    @property
    @abc.abstractmethod
    def n(self) -> int:
        """The number of objects."""

    @property
    @abc.abstractmethod
    def like(self) -> Array:
        """An array with the library and device of all results."""

    @property
    def thin_dtype(self) -> object:
        """The dtype of thin matrices for the fastest products, if half of the digits are enough."""
        return wide_dtype(self.like)

    @property
    def magnitude(self) -> float:
        """About log₂ of the largest absolute entry, −∞ if all are 0; 0 by default.

        It is known for checked matrices and their blends; otherwise the host waits once to compute it.
        """
        return 0.0

    def in_units_of(self, unit: float) -> "Proximity":
        """Return W / unit, where the unit is an even power of two."""
        return self.scaled(0 * self.diagonal() + unit**-0.5)

    @abc.abstractmethod
    def diagonal(self) -> Array:
        """Return wᵢᵢ, (n,), in wide floats."""

    @abc.abstractmethod
    def matmul(self, v: Array, rows: Array | None = None) -> Array:
        """Return W·V for a thin V, (n, r), in the dtype of V.

        With `rows`, `v` holds only these rows of V, and all other rows are zero: W[:, rows]·v.
        """

    def row_sums(self) -> Array:
        """Return W1, (n,), in wide floats."""
        xp, like = array_namespace(self.like), self.like
        return self.matmul(xp.ones((self.n, 1), dtype=wide_dtype(like), device=device_of(like)))[:, 0]

    def group(self, partition: Partition) -> Grouped:
        """Return W with the labels of its objects."""
        return self.grouped(partition.labels[:, None], partition.k, partition)

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> Grouped:
        """Return W with the labels (n, R) of its objects in R partitions into k clusters each."""
        return Stored(self, labels, k, given)

    def moved_product(self, groups: Stored, moves: Moves) -> Array:
        """Return W·Z, (n, R·k), after some objects have changed clusters."""
        wz = self.matmul(moves.v, moves.rows)
        wz += groups.array
        return wz

    def summing_squares(self) -> "Proximity":
        """Return W, whose products by label come with sums of squares if that saves a pass."""
        return self

    def with_squares_of(self, groups: Grouped) -> "Proximity":
        """Return W with its sum of squares, if that is of use and follows from the groups of W."""
        return self

    def carried(self, groups: Grouped, given: Partition | None = None) -> Grouped | None:
        """Convert groups of the same matrix, made before it was stored, to groups of this one.

        `given` is their partition, if known. Return None if that is not possible.
        """
        stored = self.grouped(groups.labels, groups.k, given or groups.given)
        assert isinstance(stored, Stored)
        return dataclasses.replace(stored, wz=groups.rows(slice(0, self.n)))

    @abc.abstractmethod
    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean μ and the sum of squares Σ(w − μ)² of each block, both (k, k).

        The block (c, d) holds the entries wᵢⱼ with i in c, j in d and i ≠ j.
        """

    @abc.abstractmethod
    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})², a number, for given block means μ (k, k)."""

    @abc.abstractmethod
    def take(self, index: Array) -> Self:
        """Return the proximities among the objects at `index`."""

    def submatrix(self, index: Array | None = None) -> Array:
        """Return wᵢⱼ among the few objects at `index`, by default all, as an (m, m) array in wide floats."""
        taken, like = self if index is None else self.take(index), self.like
        m = self.n if index is None else index.shape[0]
        return taken.matmul(array_namespace(like).eye(m, dtype=wide_dtype(like), device=device_of(like)))

    @abc.abstractmethod
    def blend(
        self, past: Self, alpha: Array | float, alignment: Alignment, *, out: Self | None = None
    ) -> Self:
        """Return Ψ̂: α·past + (1 − α)·W for pairs of objects that have a past, and W for the others.

        The result uses the storage of `out`, which may be the past, if it fits; `out` must not be read
        afterwards.
        """

    def blend_by_object(
        self, past: Self, alpha: Array | float, trust: Array, alignment: Alignment, *, out: Self | None = None
    ) -> Self:
        """Return wᵢⱼ + α sᵢsⱼ (ψᵢⱼ − wᵢⱼ) with s = `trust`, (n,), 0 for objects without a past.

        The result may use the storage of `out`, which may be `past`.
        """
        raise InputError(f"{type(self).__name__} does not hold its entries; call its formed() first")

    def blend_two_sided(self, sides: Sequence[tuple[Self, Array, Array]]) -> Self:
        """Return wᵢⱼ + Σ a sᵢsⱼ (ψᵢⱼ − wᵢⱼ) over two sides (Ψ, a, s) with the same objects."""
        same = Alignment(None, None, n_common=self.n, n_new=0)
        first, second = (self.blend_by_object(psi, 2 * a, s, same) for psi, a, s in sides)
        return first.blend(second, 0.5, same, out=second)

    def block_products(self, past: Self, alignment: Alignment, partition: Partition) -> Array:
        """Return Σ wᵢⱼψᵢⱼ over i ≠ j of each block, (k, k).

        Objects that are not in the past have no label in `partition`.
        """
        raise InputError(f"{type(self).__name__} does not hold its entries; call its formed() first")

    def change_matmul(self, past: Self, v: Array, rows: Array) -> Array:
        """Return (Ψ − W)·V for a V that is zero except in some rows."""
        return past.matmul(v, rows) - self.matmul(v, rows)

    def block_differences(self, past: Self, partition: Partition) -> np.ndarray | None:
        """Return Σ (wᵢⱼ − ψᵢⱼ)² over i ≠ j of each block, (k, k), if it is faster than `block_products`.

        Large float32 matrices need no wider floats for it: errors are relative to the differences.
        """
        return None

    def change_by_trust(
        self, past: Self, alpha: float, trust: np.ndarray, movers: np.ndarray, partition: Partition
    ) -> np.ndarray | None:
        """Return the change of Σ ψ̂ᵢⱼ² of each block, (k, k), if some weights are a·sᵢsⱼ instead of a.

        `movers` are the objects with s = `trust` < 1. With d = ψ − w and u = sᵢsⱼ,

            (w + a u d)² − (w + a d)² = a (u − 1) d {2w + a (u + 1) d}

        None if the representation does not sum squares of entries from step to step.
        """
        return None

    def products_and_past(self, past: Self, partition: Partition) -> tuple[Array, Grouped] | None:
        """Return `block_products` and the past by labels from one pass, or None if two are faster."""
        return None

    @abc.abstractmethod
    def copy(self) -> Self:
        """Return a copy of the proximities."""

    def formed(self) -> "Proximity":
        """Return a stored proximity; a computed one is formed."""
        return self

    def mapped(self, function: Callable[[Array], Array]) -> "Proximity":
        """Return f(wᵢⱼ) for a function of entries, which receives read-only blocks of them.

        Only stored entries are mapped: if zeros are not stored, the function must map 0 to 0.
        """
        raise InputError(
            f"{type(self).__name__} does not hold the entries of W, so no function can be applied to them; "
            "call its to_dense() first, if there is memory for n×n numbers"
        )

    def scaled(self, s: Array) -> "Proximity":
        """Return sᵢ wᵢⱼ sⱼ for s, (n,), in wide floats."""
        raise InputError(f"{type(self).__name__} cannot be scaled; call its formed() or to_dense() first")

    def with_absent(self, past: Self, source: Array, away: Array) -> Self:
        """Return these proximities followed by the past proximities of absent objects.

            [[W, B], [Bᵀ, Ψ[away, away]]],   B = Ψ[source, away], and 0 for new objects

        The past Ψ has the same representation. `source`, (n,), is the position in the past of each object, -1
        for a new one, and `away`, (m,), that of the absent objects.
        """
        raise InputError(
            f"{type(self).__name__} cannot hold absent objects; call its formed() or to_dense() first"
        )

    def add_between_groups(self, other: Self, groups: Array, table: np.ndarray) -> Self:
        """Return wᵢⱼ + table[gᵢ, gⱼ]·oᵢⱼ: add other proximities between some pairs of groups.

        The other O has the same objects and representation; g = `groups`, (n,), numbers groups from 0, and
        the table (G, G) is symmetric, with 1 for the pairs of groups to add, 0 elsewhere.
        """
        raise InputError(
            f"{type(self).__name__} cannot be added to others; call its formed() or to_dense() first"
        )

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        return array_namespace(self.like)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the entries of W as a NumPy array, (n, n), for `np.asarray(W)`.

        An array on the host is returned as a read-only view; `np.array(W)` copies it. Other
        representations are written out if that takes at most `MAX_ARRAY_BYTES` bytes. Arrays on a device
        and lazy arrays raise an error.
        """
        stored = self.formed()
        array = getattr(stored, "array", None)
        seen = host_view(stored.like if array is None else array, repr(self))
        if array is not None:
            shown = seen.view()
            shown.flags.writeable = False
            return np.array(shown, dtype=dtype, copy=copy)
        if copy is False:
            raise InputError(
                f"{type(self).__name__} is not stored as an array; give copy=None, or use to_dense()"
            )
        made = _written_out(stored)
        return made if dtype is None else made.astype(dtype, copy=False)

    @property
    def stored_bytes(self) -> int:
        """The size of its arrays."""
        return sum(_n_bytes(array) for array in _arrays_of(self).values())

    @property
    def _library(self) -> str:
        return type(self.like).__module__.split(".")[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, dtype={self.like.dtype}, library={self._library})"

    def _repr_html_(self) -> str:
        facts = {
            "dtype": str(self.like.dtype),
            "library": self._library,
            "device": str(device_of(self.like)),
            "storage": display.in_bytes(self.stored_bytes),
        }
        about = f"proximities of {display.counted(self.n, 'object')}"
        rows = [display.row(name, value) for name, value in facts.items()]
        return display.box(type(self).__name__, about, display.table(rows))


class Computed(Proximity):
    """Proximities that are multiplied without being stored; reductions of entries use `formed()`."""

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        return self.formed().block_moments(partition)

    def square_distance(self, partition: Partition, means: Array) -> Array:
        return self.formed().square_distance(partition, means)

    def take(self, index: Array) -> Proximity:  # type: ignore[override]
        return self.formed().take(index)

    def copy(self) -> Proximity:  # type: ignore[override]
        return self.formed().copy()

    def blend(  # type: ignore[override]
        self, past: Proximity, alpha: Array | float, alignment: Alignment, *, out: Proximity | None = None
    ) -> Proximity:
        return self.formed().blend(past, alpha, alignment, out=out)


class Summable(Proximity):
    """A proximity with fast plain sums, and accurate sums for cases where these lose digits."""

    sums_by_product: ClassVar[bool] = False  # whether block sums are made of W·Z, which is then kept
    sums_squares: bool = False  # whether W·Z is computed together with sums of squares

    def times_membership(self, groups: "Summed") -> tuple[Array, Array | None]:
        """Return W·Z, (n, R·k), and Σ wᵢⱼ² over i ≠ j of each block, (k, k), if the same pass sums them."""
        return self.matmul(groups.membership), None

    def kernel_array(self, k: int) -> Any:
        """Return the matrix if CuPy kernels can read it, for k clusters."""
        return None

    @abc.abstractmethod
    def block_sums(self, partition: Partition, *, squares: bool = True) -> tuple[Array, Array | None]:
        """Return Σ wᵢⱼ and, if `squares`, Σ wᵢⱼ² over i ≠ j of each block, (k, k), on the host."""

    @abc.abstractmethod
    def block_squares(self, partition: Partition) -> Array:
        """Return Σ wᵢⱼ² over i ≠ j of each block, (k, k)."""

    @abc.abstractmethod
    def change_of_squares(self, before: Partition, now: Partition, rows: np.ndarray) -> np.ndarray:
        """Return the change of Σ wᵢⱼ² over i ≠ j of each block, (k, k), if the labels of `rows` change."""

    @abc.abstractmethod
    def off_diagonal_squares(self, partition: Partition) -> Array:
        """Return Σ_{i≠j} wᵢⱼ² over the objects in clusters."""

    @abc.abstractmethod
    def centred_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, from differences."""

    def with_centred(
        self, partition: Partition, found: tuple[Array, Array], lost: Array
    ) -> tuple[Array, Array]:
        """Return the moments that were found, with accurate ones at least where digits were lost, (k, k)."""
        return self.centred_moments(partition)

    @abc.abstractmethod
    def centred_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})², from differences."""

    def grouped(self, labels: Array, k: int, given: Partition | None = None) -> "Summed":
        return Summed(self, labels, k, given)

    def carried(self, groups: Grouped, given: Partition | None = None) -> Grouped | None:
        stored: Any = super().carried(groups, given)
        if groups.n_runs > 1 or groups.handed_over() is None:
            return stored
        squares = dataclasses.replace(stored, earlier=groups.handed_over()).updated_squares()
        return dataclasses.replace(stored, earlier=None if squares is None else (stored.partition, squares))

    def block_moments(self, partition: Partition) -> tuple[Array, Array]:
        """Return the mean of each block and the sum of squares about it, both (k, k).

        Plain sums lose digits if the mean is large and the spread is small. On the host, which can check
        this without waiting, a second pass follows; a device uses the accurate sums at once.
        """
        return Summed(self, partition.labels[:, None], partition.k, partition).moments()

    def square_distance(self, partition: Partition, means: Array) -> Array:
        """Return Σ_{i≠j} (wᵢⱼ − μ_{cᵢcⱼ})², in two passes if the first one lost digits."""
        return Summed(self, partition.labels[:, None], partition.k, partition).distance_to(means)

    @property
    @abc.abstractmethod
    def sums_plainly(self) -> bool:
        """Whether plain sums are tried first: where lost digits can be seen without waiting."""

    def plain_moments(self, partition: Partition, sums: Array, squares: Array) -> tuple[Array, Array]:
        """Return μ and Σ(w − μ)² of each block from plain sums, or differences where digits were lost."""
        means, left, lost = plain_moments(self.diagonal(), partition, sums, squares)
        is_exact = not bool(array_namespace(lost).any(lost))
        return (means, left) if is_exact else self.with_centred(partition, (means, left), lost)

    def plain_distance(
        self, partition: Partition, means: Array, sums: Array, squares: Array | None
    ) -> Array | None:
        """Return Σw² − 2Σμ Σw + ΣNμ², given Σw of each block and perhaps Σw², or None if digits were lost."""
        xp, w_ii = array_namespace(sums), self.diagonal()
        squares = self.off_diagonal_squares(partition) if squares is None else xp.sum(squares)
        spread = xp.sum(partition.pair_counts * means * means)
        total = squares - 2 * xp.sum(means * sums) + spread
        exact = total >= MIN_SHARE_LEFT * (squares + spread)
        exact &= squares >= MIN_OFF_DIAGONAL_SHARE * (w_ii @ w_ii)
        return total if bool(exact) else None


def plain_moments(
    w_ii: Array, partition: Partition, sums: Array, squares: Array
) -> tuple[Array, Array, Array]:
    """Return μ = Σw/N and Σ(w − μ)² = Σw² − Nμ² of each block, and where digits were lost."""
    xp, count = array_namespace(sums), partition.pair_counts
    means = sums / not_zero(count)
    left = squares - count * means * means
    varied = count - identity(count) > 1  # the others have no spread
    own = identity(count) * ((w_ii * w_ii) @ partition.membership)  # subtracted from the squares
    exact = (left >= MIN_SHARE_LEFT * squares) & (squares >= MIN_OFF_DIAGONAL_SHARE * own)
    return means, xp.where(varied, left, xp.zeros_like(left)), varied & ~exact


def checked_dtype(w: Array, name: str) -> Array:
    """Return w in float32 or float64, or say why it cannot be used."""
    xp, w = array_namespace(w), native(w)
    if xp.isdtype(w.dtype, "complex floating"):
        raise InputTypeError(f"{name} must be real, got dtype {w.dtype}; pass its real part or its modulus")
    if xp.isdtype(w.dtype, ("integral", "bool")):
        return xp.astype(w, wide_dtype(w))
    if w.dtype not in (xp.float32, xp.float64):
        smaller = "float32" if str(w.dtype).endswith("float16") else "float64"
        raise InputTypeError(
            f"{name} must be of dtype float32 or float64, got {w.dtype}; use astype({smaller!r})"
        )
    return w


def check_square(w: Any, name: str, remedy: str) -> None:
    """Raise unless w is a square matrix of at least one object."""
    if len(w.shape) != 2 or w.shape[0] != w.shape[1]:
        raise InputError(
            f"{name} must be a square matrix of proximities, got shape {tuple(w.shape)}; {remedy}"
        )
    if w.shape[0] == 0:
        raise InputError(
            f"{name} has no objects (shape (0, 0)); leave out steps at which nothing was observed"
        )


def feature_matrix(X: object) -> Array:
    """Return features in float32 or float64, with a row for each object; values are not checked."""
    x = as_array(X)
    if x.ndim != 2 or x.shape[0] == 0:
        hint = "; use X[:, None] for one feature" if x.ndim == 1 else ""
        raise InputError(
            "X must have a row for each object and a column for each feature, "
            f"got shape {tuple(x.shape)}{hint}"
        )
    return checked_dtype(x, "X")


def reject_not_finite(X: Array) -> NoReturn:
    """Raise an error that names the first entry of X that is not finite."""
    host = to_host(X, reason="finding the bad feature")[0]
    i, j = np.argwhere(~np.isfinite(host))[0]
    raise InputError(
        f"X must be finite, but X[{i}, {j}] = {host[i, j]}; leave out objects without data or fill it in"
    )


def log2(largest: float) -> float:
    """Return log₂ of a magnitude, −∞ for 0."""
    return math.log2(largest) if largest > 0 else -math.inf


def measured_magnitude(parts: Iterable[Array]) -> float:
    """Return log₂ of the largest |x| in some arrays; the host waits once."""
    sizes = [array_namespace(x).max(array_namespace(x).abs(x)) for x in parts if 0 not in x.shape]
    if not sizes:
        return -math.inf
    xp = array_namespace(sizes[0])
    return log2(float(to_host(xp.max(xp.stack(sizes)), reason="how large are proximities?")[0]))


def joint_magnitude(W: Any, past: Any, alpha: Array | float = 1.0) -> float | None:
    """Return the joint magnitude of W and α·past, or None if either is unknown."""
    w, psi = (_known_magnitude(part) for part in (W, past))
    if w is None or psi is None:
        return None
    return max(w, psi + log2(alpha) if isinstance(alpha, float) else psi)


def _known_magnitude(W: Any) -> float | None:
    measured = type(W).magnitude.known(W)
    return W.known_magnitude if measured is None else measured


def _written_out(stored: Any) -> np.ndarray:
    """Return all entries of a proximity that is not stored as an array, if they are not too many."""
    n, name = stored.n, type(stored).__name__
    n_bytes = n * n * array_namespace(stored.like).finfo(stored.like.dtype).bits // 8
    if not hasattr(stored, "to_dense"):
        raise InputTypeError(f"{name} cannot be written out as an array: it has no to_dense()")
    if n_bytes > MAX_ARRAY_BYTES:
        raise InputError(
            f"{name} of {n} objects takes {display.in_bytes(n_bytes)} as an array; call its to_dense() if "
            "there is memory for that"
        )
    return to_host(stored.to_dense().array, reason="asked for as a NumPy array")[0]


def _arrays_of(value: Any) -> dict[int, Any]:
    """Return the arrays that an object consists of, each once, by id."""
    if is_array(value) and not isinstance(value, Proximity):
        return {id(value): value}
    found: dict[int, Any] = {}
    for part in _parts_of(value):
        found |= _arrays_of(part)
    return found


def _n_bytes(array: Array) -> int:
    """Return the size of an array in bytes, for libraries without `nbytes` too."""
    if hasattr(array, "nbytes"):
        return array.nbytes
    return math.prod(array.shape) * array_namespace(array).finfo(array.dtype).bits // 8


def _parts_of(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        yield from value
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, field.name) for field in dataclasses.fields(value))
    else:  # a sparse matrix
        yield from (getattr(value, name) for name in ("data", "indices", "indptr") if hasattr(value, name))
