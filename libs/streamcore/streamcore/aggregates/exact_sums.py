"""Sums of whole numbers that no number of rows can overflow.

A sum is held in *limbs* of 32 bits, each in an int64 array, the lowest first: all but the last are in ``0 .. 2**32``,
the last has the sign. Two limbs hold sums of int64, four those of 128-bit decimals and of squares. There is room for
2**31 rows at the limits of their type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from streamcore.aggregates.arrays import LONGEST_DIGITS, is_long, join_words, split_words, to_array
from streamcore.aggregates.base import Array, Ints, Mask, Partials

BITS = 32
_LOW = np.int64((1 << BITS) - 1)
#: Whole numbers below this are floats too.
_EXACT_FLOATS = 2**53
_INT64_MAX = np.iinfo(np.int64).max


def carry(limbs: Sequence[Ints]) -> list[Ints]:
    """Return equal sums with every limb except the last in its range."""
    result: list[Ints] = []
    rest: Ints | np.int64 = np.int64(0)
    for limb in limbs[:-1]:
        whole = limb + rest
        result.append(whole & _LOW)
        rest = whole >> BITS
    return [*result, limbs[-1] + rest]


def sums(limbs: Sequence[Ints], group: Ints, groups: int) -> list[Ints]:
    """Return the sum of each group."""
    return carry([scatter(limb, group, groups) for limb in limbs])


def scatter(values: Array, group: Ints, groups: int) -> Array:
    """Return plain sums of each group, in the type of the values."""
    total = np.zeros(groups, dtype=values.dtype)
    np.add.at(total, group, values)
    return total


def integer_sums(values: Ints, group: Ints, groups: int) -> list[Ints]:
    """Return two limbs for the sum of each group."""
    if _bound(values) * values.size <= _INT64_MAX:  # nearly always, and half the work
        return carry([scatter(values, group, groups), np.zeros(groups, dtype=np.int64)])
    return sums([values & _LOW, values >> BITS], group, groups)


def _bound(values: Ints) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def column_sums(column: pl.Series, group: Ints, groups: int) -> list[Ints]:
    """Return the sum of each group of a column of integers or decimals, nulls being 0: four limbs for long decimals."""
    if not is_long(column.dtype):
        return integer_sums(to_array(column), group, groups)
    upper, lower = split_words(column)
    return sums([lower & _LOW, (lower >> BITS) & _LOW, upper & _LOW, upper >> BITS], group, groups)


def square_sums(values: Ints, group: Ints, groups: int) -> list[Ints]:
    """Return four limbs for the sum of the squares of each group."""
    if _bound(values) ** 2 <= _INT64_MAX:
        none = np.zeros(groups, dtype=np.int64)
        return carry([*integer_sums(values * values, group, groups), none, none])
    return sums(_squares(values), group, groups)


def _squares(values: Ints) -> list[Ints]:
    """Return four limbs for the square of each value, by halves: ``(a * 2**32 + b)**2``."""
    size = np.abs(values).view(np.uint64)
    half, low = np.uint64(BITS), np.uint64(_LOW)
    a, b = size >> half, size & low
    aa, ab, bb = a * a, np.uint64(2) * a * b, b * b
    limbs = bb & low, (bb >> half) + (ab & low), (ab >> half) + (aa & low), aa >> half
    return carry([limb.view(np.int64) for limb in limbs])


def name_limbs(prefix: str, limbs: Sequence[Ints]) -> dict[str, Ints]:
    """Return the limbs as columns of a partial."""
    return {f"{prefix}{i}": limb for i, limb in enumerate(limbs)}


def select_limbs(prefix: str, partials: Partials) -> list[Ints]:
    """Return the limbs of a partial that ``name_limbs`` named."""
    count = sum(1 for name in partials if name.startswith(prefix))
    return [partials[f"{prefix}{i}"] for i in range(count)]


def carry_partials(partials: Partials, *prefixes: str) -> dict[str, Array]:
    """Return the partials with the limbs of each prefix in their range, if they have any."""
    result = dict(partials)
    for prefix in prefixes:
        limbs = select_limbs(prefix, partials)
        result |= name_limbs(prefix, carry(limbs)) if limbs else {}
    return result


def as_floats(limbs: Sequence[Ints]) -> Array:
    """Return the nearest floats but for a rounding or two: from the top, so that small negative sums stay exact."""
    total = limbs[-1].astype(np.float64)
    for limb in reversed(limbs[:-1]):
        total = total * 2.0**BITS + limb
    return total


def as_small(limbs: Sequence[Ints]) -> Ints:
    """Return each sum as one number; all must fit into int64."""
    return limbs[0] + (limbs[1] << BITS)


def as_objects(limbs: Sequence[Ints]) -> Array:
    """Return the sums as Python integers."""
    total = limbs[-1].astype(object)
    for limb in reversed(limbs[:-1]):
        total = total * (1 << BITS) + limb
    return total


def ratios(numerators: Array, denominators: Ints, unit: int) -> Array:
    """Divide whole numbers by ``denominators * unit``; the result is the nearest float, up to one rounding."""
    if numerators.dtype != object and unit < _EXACT_FLOATS and _bound(denominators) * unit < _EXACT_FLOATS:
        return numerators / (denominators * unit)
    quotients: Array = numerators.astype(object) / (denominators.astype(object) * unit)
    return quotients.astype(np.float64)


def as_int64(limbs: Sequence[Ints]) -> tuple[Ints, Mask]:
    """Return two limbs as one number, and a mask of those that fit into int64."""
    low, high = limbs
    return (high << BITS) | low, (high >> (BITS - 1)) == (high >> 63)


def as_decimals(limbs: Sequence[Ints], scale: int, present: Mask) -> pl.Series:
    """Return decimals of 38 digits; null if there are more digits, or where ``present`` is false."""
    if len(limbs) == 2:
        upper, fits = limbs[1] >> BITS, np.ones(len(present), dtype=bool)
        lower = (limbs[1] << BITS) | limbs[0]
    else:
        lower, upper = limbs[0] | (limbs[1] << BITS), limbs[2] | (limbs[3] << BITS)
        fits = (limbs[3] >> (BITS - 1)) == (limbs[3] >> 63)
        fits &= _below(10**LONGEST_DIGITS, upper, lower) & ~_below(1 - 10**LONGEST_DIGITS, upper, lower)
    return join_words(upper, lower, pl.Decimal(LONGEST_DIGITS, scale), present & fits)


def _below(bound: int, upper: Ints, lower: Ints) -> Mask:
    """Return a mask of the two-word numbers that are less than the bound."""
    high, low = bound >> 64, np.uint64(bound & ((1 << 64) - 1))
    below: Mask = (upper < high) | ((upper == high) & (lower.view(np.uint64) < low))
    return below
