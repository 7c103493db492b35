"""Exact sums of integers and decimals, without overflow.

A sum consists of *limbs* of 32 bits (the term of multi-precision arithmetic), each in an int64 array, the lowest first.
All limbs but the last are at least 0 and less than ``2**32``; the last has the sign. Two limbs hold a sum of int64
values, four a sum of 128-bit decimals or of squares. There is room for 2**31 rows at the limits of their type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from streamcore.aggregates.arrays import LONGEST_DIGITS, is_long, join_words, split_words, to_array
from streamcore.aggregates.base import Array, Ints, Mask, Partials

BITS = 32
_LOW = np.int64((1 << BITS) - 1)
#: Every integer below this is exact as a float64.
_EXACT_FLOATS = 2**53
_INT64_MAX = np.iinfo(np.int64).max


def carry(limbs: Sequence[Ints]) -> list[Ints]:
    """Return equal sums with every limb except the last in its range: what exceeds it goes to the next limb."""
    result: list[Ints] = []
    carried: Ints | np.int64 = np.int64(0)
    for limb in limbs[:-1]:
        total = limb + carried
        result.append(total & _LOW)
        carried = total >> BITS
    return [*result, limbs[-1] + carried]


def sum_limbs(limbs: Sequence[Ints], group: Ints, groups: int) -> list[Ints]:
    """Return the limbs of the sum of each group. ``limbs``: those of each row; ``group``: the group of each row."""
    return carry([sum_groups(limb, group, groups) for limb in limbs])


def sum_groups(values: Array, group: Ints, groups: int) -> Array:
    """Return the sum of each group in the type of the values, without a check for overflow."""
    total = np.zeros(groups, dtype=values.dtype)
    np.add.at(total, group, values)
    return total


def integer_sums(values: Ints, group: Ints, groups: int) -> list[Ints]:
    """Return two limbs for the sum of each group."""
    if _bound(values) * values.size <= _INT64_MAX:  # nearly always true, and half the work: one sum cannot overflow
        return carry([sum_groups(values, group, groups), np.zeros(groups, dtype=np.int64)])
    return sum_limbs([values & _LOW, values >> BITS], group, groups)


def _bound(values: Ints) -> int:
    """Return the greatest absolute value; 0 for no values."""
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def column_sums(column: pl.Series, group: Ints, groups: int) -> list[Ints]:
    """Return the sum of each group of a column of integers (two limbs) or decimals (four if long). Nulls count as 0."""
    if not is_long(column.dtype):
        return integer_sums(to_array(column), group, groups)
    upper, lower = split_words(column)
    return sum_limbs([lower & _LOW, (lower >> BITS) & _LOW, upper & _LOW, upper >> BITS], group, groups)


def square_sums(values: Ints, group: Ints, groups: int) -> list[Ints]:
    """Return four limbs for the sum of the squares of each group."""
    if _bound(values) ** 2 <= _INT64_MAX:
        none = np.zeros(groups, dtype=np.int64)
        return carry([*integer_sums(values * values, group, groups), none, none])
    return sum_limbs(_squares(values), group, groups)


def _squares(values: Ints) -> list[Ints]:
    """Return four limbs for the square of each value, from its halves: ``(a * 2**32 + b)**2``."""
    magnitude = np.abs(values).view(np.uint64)
    half, low = np.uint64(BITS), np.uint64(_LOW)
    a, b = magnitude >> half, magnitude & low
    aa, ab, bb = a * a, np.uint64(2) * a * b, b * b
    limbs = bb & low, (bb >> half) + (ab & low), (ab >> half) + (aa & low), aa >> half
    return carry([limb.view(np.int64) for limb in limbs])


def name_limbs(prefix: str, limbs: Sequence[Ints]) -> dict[str, Ints]:
    """Return the limbs as columns of a partial."""
    return {f"{prefix}{i}": limb for i, limb in enumerate(limbs)}


def select_limbs(prefix: str, partials: Partials) -> list[Ints]:
    """Return the limbs that ``name_limbs`` has put into partials; empty if there are none."""
    count = sum(1 for name in partials if name.startswith(prefix))
    return [partials[f"{prefix}{i}"] for i in range(count)]


def carry_partials(partials: Partials, *prefixes: str) -> dict[str, Array]:
    """Return the partials after ``carry`` of the limbs of each prefix, where they have such limbs."""
    result = dict(partials)
    for prefix in prefixes:
        limbs = select_limbs(prefix, partials)
        result |= name_limbs(prefix, carry(limbs)) if limbs else {}
    return result


def as_floats(limbs: Sequence[Ints]) -> Array:
    """Return the sums as floats, with at most one rounding for each limb.

    It starts at the highest limb, so that negative sums of small magnitude stay exact.
    """
    total = limbs[-1].astype(np.float64)
    for limb in reversed(limbs[:-1]):
        total = total * 2.0**BITS + limb
    return total


def as_fitting_int64(limbs: Sequence[Ints]) -> Ints:
    """Return each sum as one number. All sums must fit in an int64."""
    return limbs[0] + (limbs[1] << BITS)


def as_objects(limbs: Sequence[Ints]) -> Array:
    """Return the sums as Python integers."""
    total = limbs[-1].astype(object)
    for limb in reversed(limbs[:-1]):
        total = total * (1 << BITS) + limb
    return total


def ratios(numerators: Array, denominators: Ints, unit: int) -> Array:
    """Return integers divided by ``denominators * unit``, as floats with at most two roundings."""
    if numerators.dtype != object and unit < _EXACT_FLOATS and _bound(denominators) * unit < _EXACT_FLOATS:
        return numerators / (denominators * unit)
    quotients: Array = numerators.astype(object) / (denominators.astype(object) * unit)
    return quotients.astype(np.float64)


def as_int64(limbs: Sequence[Ints]) -> tuple[Ints, Mask]:
    """Return sums of two limbs as int64, and a mask of those that fit."""
    low, high = limbs
    return (high << BITS) | low, (high >> (BITS - 1)) == (high >> 63)


def as_decimals(limbs: Sequence[Ints], scale: int, present: Mask) -> pl.Series:
    """Return decimals of 38 digits; null where a sum has more digits, or ``present`` is false."""
    if len(limbs) == 2:
        upper, fits = limbs[1] >> BITS, np.ones(len(present), dtype=bool)
        lower = (limbs[1] << BITS) | limbs[0]
    else:
        lower, upper = limbs[0] | (limbs[1] << BITS), limbs[2] | (limbs[3] << BITS)
        fits = (limbs[3] >> (BITS - 1)) == (limbs[3] >> 63)
        fits &= _below(10**LONGEST_DIGITS, upper, lower) & ~_below(1 - 10**LONGEST_DIGITS, upper, lower)
    return join_words(upper, lower, pl.Decimal(LONGEST_DIGITS, scale), present & fits)


def _below(bound: int, upper: Ints, lower: Ints) -> Mask:
    """Return a mask of the 128-bit numbers that are less than the bound."""
    high, low = bound >> 64, np.uint64(bound & ((1 << 64) - 1))
    below: Mask = (upper < high) | ((upper == high) & (lower.view(np.uint64) < low))
    return below
