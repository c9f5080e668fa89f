"""Proximities multiplied by a power of two, where squares of their entries leave the range of numbers."""

import dataclasses
import math
from collections.abc import Iterable

from affect_xp.array.namespace import array_namespace, row_blocks, to_host
from affect_xp.array.typing import Array
from affect_xp.proximity._base import Proximity
from affect_xp.proximity.chunked import Chunked
from affect_xp.proximity.dense import Dense, assemble
from affect_xp.proximity.factored import Factored
from affect_xp.proximity.sparse import Sparse, with_values

Scaled = tuple[Proximity, Proximity, float]  # two proximities in units of the third

# Entries between 2⁻²⁰⁰ and 2²⁰⁰ have squares whose sums, and the squares of these, are numbers.
USUAL = 200
# 2¹⁰⁰⁰ is a number, its inverse too.
MAX_EXPONENT = 1000


def in_units_of_their_own(W: Proximity, past: Proximity) -> Scaled:
    """Return 2⁻ᵉW and 2⁻ᵉΨ, of which the largest entry is about 1, and 2ᵉ; e is 0 if that is not needed.

    One pass over the proximities, and one wait of the host for each, to learn how large they are.
    """
    known = [e for e in (_exponent(W), _exponent(past)) if e is not None]
    exponent = max(-MAX_EXPONENT, min(MAX_EXPONENT, max(known, default=0)))
    if abs(exponent) <= USUAL:
        return W, past, 1.0
    return scaled(W, -exponent), scaled(past, -exponent), 2.0**exponent


def _exponent(W: Proximity) -> int | None:
    """Return the exponent of the largest entry, about; None if all are 0, or nobody knows."""
    if isinstance(W, Factored):
        x, s = _largest(factor.x for factor in W.factors), _largest([W.weights])
        return 2 * math.frexp(x)[1] + math.frexp(s)[1] if x and s else None
    if isinstance(W, Sparse):
        largest = _largest([W.matrix.data])
    elif isinstance(W, Dense):
        largest = _largest(W.array[rows, :] for rows in row_blocks(W.array))
    elif isinstance(W, Chunked):
        largest = _largest([W.array])
    else:
        return None
    return math.frexp(largest)[1] if largest else None


def _largest(parts: Iterable[Array]) -> float:
    """Return the largest |x|; 0 where there is nothing."""
    sizes = [array_namespace(x).max(array_namespace(x).abs(x)) for x in parts if 0 not in x.shape]
    if not sizes:
        return 0.0
    xp = array_namespace(sizes[0])
    return float(to_host(xp.max(xp.stack(sizes)), reason="how large are proximities?")[0])


def scaled(W: Proximity, exponent: int) -> Proximity:
    """Return 2ᵉW, exact to the last bit but for what becomes too small to be a number."""
    factor = 2.0**exponent
    if isinstance(W, Dense):
        return Dense(assemble(W.array, row_blocks(W.array), lambda rows: W.array[rows, :] * factor))
    if isinstance(W, Sparse):
        return Sparse(with_values(W.matrix, W.matrix.data * factor), W.prune)
    if isinstance(W, Factored):
        return _scaled_factors(W, exponent)
    if isinstance(W, Chunked):
        return Chunked(W.array * factor, W.store)
    return W


def _scaled_factors(W: Factored, exponent: int) -> Factored:
    """Return 2ᵉW with features of about 1, of which fourth powers are summed; weights take the rest."""
    f = -math.frexp(_largest(factor.x for factor in W.factors))[1]
    factors = tuple(dataclasses.replace(factor, x=factor.x * 2.0**f) for factor in W.factors)
    weights = W.weights * 2.0 ** (exponent - f) * 2.0**-f  # in two parts: either is a number
    return dataclasses.replace(W, factors=factors, weights=weights, leading=None, known_diagonal=None)
