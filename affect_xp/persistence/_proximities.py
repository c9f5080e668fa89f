"""Proximities and their products as JSON and arrays, in their own representation."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import scipy.sparse

from affect_xp.array.namespace import array_namespace, device_of, is_array
from affect_xp.array.typing import Array
from affect_xp.exceptions import InputError, InputTypeError
from affect_xp.partition import Partition
from affect_xp.persistence._archive import Reader
from affect_xp.persistence._values import Json, decode, encode
from affect_xp.proximity import Chunked, Dense, Factored, Grouped, Proximity, Sparse
from affect_xp.proximity._columns import Factor, Scatter
from affect_xp.proximity._factored_groups import FactoredGroups
from affect_xp.proximity.chunked._plan import Chunks, Plan, mirrored, upper
from affect_xp.proximity.grouped import Summed


class Arrays(dict[str, Array]):
    """Arrays to be written, by name; an array that is put twice is written once."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, str] = {}  # by id, which is valid while the arrays are kept

    def put(self, name: str, x: Array | None) -> str | None:
        """Add an array and return its name; None for None."""
        if x is None:
            return None
        known = self._names.setdefault(id(x), name)
        self[known] = x
        return known


def pack_proximity(proximity: Proximity | None, arrays: Arrays) -> Json:
    """Return the description of a proximity as JSON, and add its arrays to the others."""
    if proximity is None:
        return None
    packer = _PACKERS.get(type(proximity))
    if packer is None:
        raise InputTypeError(
            f"smoothed proximities of type {type(proximity).__name__} cannot be saved; supported types: "
            f"{', '.join(kind.__name__ for kind in _PACKERS)}"
        )
    magnitude = encode(proximity.known_magnitude, "magnitude")  # type: ignore[attr-defined]
    return {"kind": type(proximity).__name__, "magnitude": magnitude, **packer(proximity, arrays)}


def unpack_proximity(stored: Json, file: Reader, store: str | os.PathLike[str] | None) -> Proximity | None:
    """Return the unpacked proximity; a chunked one goes to a store if it came from one."""
    if stored is None:
        return None
    if stored["kind"] == Chunked.__name__:
        made: Proximity = _unpack_chunked(stored, file, store)
    else:
        made = _UNPACKERS[stored["kind"]](stored, file)
    object.__setattr__(made, "known_magnitude", decode(stored["magnitude"]))
    return made


def pack_groups(groups: Grouped | None, arrays: Arrays) -> Json:
    """Return the name of the array with the product of a proximity and a membership."""
    if isinstance(groups, FactoredGroups):
        return arrays.put("product", groups.t)
    return None if groups is None else arrays.put("product", groups.rows(slice(0, groups.proximity.n)))


def pack_squares(groups: Grouped | None, arrays: Arrays) -> Json:
    """Return the name of the array with sums of squares by the labels of the groups, if there are any."""
    known = groups.earlier if isinstance(groups, Summed) else None  # by the labels of the state
    return None if known is None else arrays.put("squares", known[1])


def unpack_groups(
    stored: Json, smoothed: Proximity | None, partition: Partition, file: Reader, squares: Json = None
) -> Grouped | None:
    """Return the smoothed proximities with the labels of their objects, and what was packed of them."""
    if stored is None or smoothed is None:
        return None
    array = file.array(stored)
    n_rows = smoothed.rank if isinstance(smoothed, Factored) else smoothed.n
    if array.ndim != 2 or array.shape != (n_rows, partition.k):
        raise ValueError("the product does not belong to the smoothed proximities")
    name = "known_t" if isinstance(smoothed, Factored) else "wz"
    groups = dataclasses.replace(smoothed.group(partition), **{name: array})
    if squares is None:
        return groups
    known = file.array(squares)
    if known.shape != (partition.k, partition.k) or not isinstance(groups, Summed):
        raise ValueError("the sums of squares do not belong to the clusters")
    return dataclasses.replace(groups, earlier=(partition, known))


def _pack_dense(dense: Dense, arrays: Arrays) -> Json:
    return {
        "array": arrays.put("smoothed", dense.array),
        "square_sum": encode(dense.square_sum, "square_sum"),
    }


def _unpack_dense(stored: Json, file: Reader) -> Dense:
    array = file.array(stored["array"])
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"smoothed proximities of shape {tuple(array.shape)}")
    return Dense(array, square_sum=decode(stored["square_sum"]))


def _pack_sparse(sparse: Sparse, arrays: Arrays) -> Json:
    matrix = sparse.matrix
    parts = {part: arrays.put(f"smoothed.{part}", getattr(matrix, part)) for part in _CSR}
    return {"n": sparse.n, "prune": encode(sparse.prune, "prune"), **parts}


_CSR = ("data", "indices", "indptr")


def _unpack_sparse(stored: Json, file: Reader) -> Sparse:
    host = tuple(file.host_array(stored[part]) for part in _CSR)
    matrix = scipy.sparse.csr_array(host, shape=(stored["n"], stored["n"]))
    matrix.check_format(full_check=True)  # an index out of range would read foreign memory
    try:
        matrix = Sparse.on_device_of(file.like, matrix)
    except Exception as error:
        raise InputError(
            "the smoothed proximities are sparse, which only NumPy and CuPy support; "
            "load without xp=, or with xp=cupy"
        ) from error
    return Sparse(matrix, decode(stored["prune"]))


def _pack_factored(factored: Factored, arrays: Arrays) -> Json:
    # Store computed values as well: computing them again could round differently.
    factored = factored.with_known()
    scatter = factored.leading

    def put(name: str, x: Array) -> str | None:
        return arrays.put(f"smoothed.{name}", x)

    def number(name: str, x: Array | float) -> Json:
        return {"array": put(name, x)} if is_array(x) else encode(x, name)

    return {
        "factors": [
            {
                "x": put(f"features.{i}", f.x),
                "mask": put(f"mask.{i}", f.mask),
                "decay": encode(f.decay, "decay"),
            }
            for i, f in enumerate(factored.factors)
        ],
        "weights": put("weights", factored.weights),
        "max_rank": encode(factored.max_rank, "max_rank"),
        "tolerance": encode(factored.tolerance, "tolerance"),
        "error": number("error", factored.error),
        "past_error": number("past_error", factored.past_error),
        "scatter": scatter
        and {
            "centre": put("scatter.centre", scatter.centre),
            "sums": put("scatter.sums", scatter.sums),
        },
        "diagonal": put("diagonal", factored.known_diagonal),
    }


def _unpack_factored(stored: Json, file: Reader) -> Factored:
    def array(name: str | None, *shape: int) -> Array:
        x = file.array(name)
        if x is not None and tuple(x.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(x.shape)}, not {shape}")
        return x

    features = [file.array(part["x"]) for part in stored["factors"]]
    n, q = features[0].shape[0], sum(x.shape[1] for x in features)
    factors = tuple(
        Factor(array(part["x"], n, x.shape[1]), array(part["mask"], n), decode(part["decay"]))
        for part, x in zip(stored["factors"], features, strict=True)
    )

    def number(value: Json) -> Any:
        is_stored = isinstance(value, dict) and "array" in value
        return array(value["array"]) if is_stored else decode(value)

    scatter = None
    if stored["scatter"] is not None:
        centre = file.array(stored["scatter"]["centre"])
        if centre.ndim != 1 or centre.shape[0] > q:
            raise ValueError(f"the scatter of {q} columns has a centre of shape {tuple(centre.shape)}")
        scatter = Scatter(centre, array(stored["scatter"]["sums"], *centre.shape, *centre.shape))
    return Factored(
        factors,
        array(stored["weights"], q),
        decode(stored["max_rank"]),
        decode(stored["tolerance"]),
        number(stored["error"]),
        scatter,
        array(stored["diagonal"], n),
        past_error=number(stored["past_error"]),
    )


def _pack_chunked(chunked: Chunked, arrays: Arrays) -> Json:
    sizes = [int(size) for size in chunked.array.chunks[0]]
    for i, j in upper(len(sizes)):
        arrays.put(_chunk_name(i, j), chunked.array.blocks[i, j])  # computed when it is written
    return {"sizes": sizes, "dtype": str(chunked.array.dtype), "in_store": chunked.store is not None}


def _unpack_chunked(stored: Json, file: Reader, store: str | os.PathLike[str] | None) -> Chunked:
    """Read the chunks one by one, each on its worker, to limit the memory in use."""
    if stored["in_store"] and store is None:
        raise InputError(
            "the smoothed proximities were in a store; pass store=, a scratch folder with as much free space "
            "as the size of the file"
        )
    sizes, xp = tuple(stored["sizes"]), array_namespace(file.like)
    if min(sizes) < 1 or not all(file.holds(_chunk_name(i, j)) for i, j in upper(len(sizes))):
        raise ValueError(f"invalid chunk sizes {sizes}")
    like = xp.empty((0, 0), dtype=getattr(xp, stored["dtype"]), device=device_of(file.like))
    tasks = Plan()
    nodes = {
        (i, j): tasks.add(_read_chunk, file.path, _chunk_name(i, j), (sizes[i], sizes[j]), like)
        for i, j in upper(len(sizes))
    }
    chunked = Chunked(mirrored(Chunks(nodes, tasks.graph), sizes, like), store).copy()
    chunked.diagonal()  # a cluster may still be reading
    file.check_in_place()
    return chunked


def _chunk_name(i: int, j: int) -> str:
    return f"smoothed.chunk.{i}.{j}"


def _read_chunk(path: str, name: str, shape: tuple[int, int], like: Array) -> Array:
    """Return a chunk; workers read the verified file themselves."""
    with Reader(path, like) as file, file.damage_explained():
        chunk = file.array(name)
        if tuple(chunk.shape) != shape or chunk.dtype != like.dtype:
            raise ValueError(f"{name} has shape {tuple(chunk.shape)}, not {shape}")
        return chunk


_PACKERS: dict[type, Callable[[Any, Arrays], Json]] = {
    Dense: _pack_dense,
    Factored: _pack_factored,
    Sparse: _pack_sparse,
    Chunked: _pack_chunked,
}

_UNPACKERS: dict[str, Callable[[Json, Reader], Proximity]] = {
    Dense.__name__: _unpack_dense,
    Factored.__name__: _unpack_factored,
    Sparse.__name__: _unpack_sparse,
}
