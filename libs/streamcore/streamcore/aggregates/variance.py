"""Variance and standard deviation.

For integers and decimals of up to 18 digits, they are computed from exact sums of the values and of their squares, so
the result does not depend on the order, and a part can be subtracted. For floats and longer decimals, they are computed
from the mean and the sum of squared deviations in float64, combined as in Chan, Golub, LeVeque: "Algorithms for
computing the sample variance" (1983). These are rounded, and to subtract a part would magnify the rounding errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, nan, sqrt

import numpy as np
import polars as pl

from streamcore.aggregates import exact_sums as exact
from streamcore.aggregates.arrays import NUMBERS, decimal_scale, is_long, is_number, non_null_rows, to_array, with_nulls
from streamcore.aggregates.base import Aggregate, Array, Ints, Partials, Schema, non_null_values
from streamcore.aggregates.sums import float_sums, sum_runs
from streamcore.windowing.model import Element, Result

_SUM, _SQUARES = "s", "q"
#: A product whose float is below this fits in an int64, whatever the rounding of the float.
_SAFE = 2.0**62


@dataclass(frozen=True)
class Variance(Aggregate):
    """The variance as Float64: of a sample, or of a whole ``population``.

    Null for no values, and for a sample of one value. NaN if a value is NaN or infinite.
    """

    column: str
    population: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_number(dtype):
            raise self.type_error(self.column, dtype, NUMBERS)
        return pl.Float64()

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        if not _is_exact(schema[self.column]):
            return {"n": pl.Int64(), "mean": pl.Float64(), "deviations": pl.Float64()}
        names = ("n", "s0", "s1", "q0", "q1", "q2", "q3")
        return dict.fromkeys(names, pl.Int64())

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        group = group[non_null_rows(rows[self.column])]
        column = rows[self.column].drop_nulls()
        count = np.bincount(group, minlength=groups)
        if not _is_exact(column.dtype):
            return {"n": count} | _deviations(column.cast(pl.Float64).to_numpy(), count, group)
        values = to_array(column)
        total = exact.integer_sums(values, group, groups)
        return (
            {"n": count}
            | exact.name_limbs(_SUM, total)
            | exact.name_limbs(_SQUARES, exact.square_sums(values, group, groups))
        )

    def merge(self, left: Partials, right: Partials) -> Partials:
        if "mean" in left:
            return _combine_moments(left, right)
        return exact.carry_partials({name: left[name] + right[name] for name in left}, _SUM, _SQUARES)

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        if "mean" in partials:
            return super().reduce(partials, starts)
        summed = {name: sum_runs(column, starts) for name, column in partials.items()}
        return exact.carry_partials(summed, _SUM, _SQUARES)

    def can_subtract(self, schema: Schema) -> bool:
        return _is_exact(schema[self.column])

    def subtract(self, total: Partials, part: Partials) -> Partials:
        if "mean" in total:
            raise NotImplementedError(f"{self} of rounded partials cannot be undone")
        return exact.carry_partials({name: total[name] - part[name] for name in total}, _SUM, _SQUARES)

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        count = partials["n"]
        degrees = count if self.population else count - 1
        chosen = degrees > 0
        if "mean" in partials:
            values = partials["deviations"] / np.maximum(degrees, 1)
        else:
            unit = 10 ** (2 * decimal_scale(schema[self.column]))
            values = exact.ratios(_scaled_variance(partials), np.maximum(count * degrees, 1), unit)
        return with_nulls(pl.Series(self._from_variance(values)), chosen)

    def reference(self, elements: Sequence[Element]) -> Result:
        values = non_null_values(elements, self.column)
        degrees = len(values) if self.population else len(values) - 1
        if degrees < 1:
            return None
        if not all(isfinite(value) for value in values):
            return nan
        mean = sum(Fraction(value) for value in values) / len(values)
        return self._from_number(float(sum((Fraction(value) - mean) ** 2 for value in values) / degrees))

    def _from_variance(self, values: Array) -> Array:
        return values

    def _from_number(self, value: float) -> float:
        return value


@dataclass(frozen=True)
class StdDev(Variance):
    """The standard deviation: the square root of the variance."""

    def _from_variance(self, values: Array) -> Array:
        return np.sqrt(values)

    def _from_number(self, value: float) -> float:
        return sqrt(value)


def _is_exact(dtype: pl.DataType) -> bool:
    return not dtype.is_float() and not is_long(dtype)


def _deviations(values: Array, count: Ints, group: Ints) -> dict[str, Array]:
    """Return the mean of each group, and the sum of squared deviations from it."""
    with np.errstate(invalid="ignore", over="ignore"):
        mean = float_sums(values, group, len(count)) / np.maximum(count, 1)
        return {"mean": mean, "deviations": float_sums((values - mean[group]) ** 2, group, len(count))}


def _combine_moments(left: Partials, right: Partials) -> dict[str, Array]:
    """Merge counts, means and sums of squared deviations (Chan, Golub, LeVeque)."""
    count = left["n"] + right["n"]
    share = right["n"] / np.maximum(count, 1)
    weight = left["n"] * share
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(weight > 0, right["mean"] - left["mean"], 0.0)
        mean = np.where(left["n"] > 0, left["mean"] + difference * share, right["mean"])
        return {
            "n": count,
            "mean": mean,
            "deviations": left["deviations"] + right["deviations"] + difference**2 * weight,
        }


def _scaled_variance(partials: Partials) -> Array:
    """Return ``n`` times the sum of squares minus the square of the sum, which is ``n`` squared times the variance.

    The numbers are int64, or Python integers if one does not fit.
    """
    count, total, squares = partials["n"], exact.select_limbs(_SUM, partials), exact.select_limbs(_SQUARES, partials)
    small = bool((count * exact.as_floats(squares) < _SAFE).all())  # the square of the sum is not greater
    as_numbers = exact.as_fitting_int64 if small else exact.as_objects
    scaled: Array = count * as_numbers(squares) - as_numbers(total) ** 2
    return scaled
