"""Count, sum and average.

Sums of integers and decimals are exact whatever the number of rows, and so they can be undone. Float sums are float64
in the order in which the rows come: they are rounded, and an infinity hides the values before it, so subtracting a part
does not give the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from math import isfinite

import numpy as np
import polars as pl

from streamcore.aggregates import exact_sums as exact
from streamcore.aggregates.arrays import (
    LONGEST_DIGITS,
    NUMBERS,
    decimal_scale,
    is_integer,
    is_long,
    is_number,
    present,
    with_nulls,
)
from streamcore.aggregates.base import Aggregate, Array, Ints, Partials, Schema, non_null_values
from streamcore.windowing.model import Element, Result

_LIMB = "s"


@dataclass(frozen=True)
class Count(Aggregate):
    """How many rows; with a column, how many rows where it is not null."""

    column: str | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        if self.column is not None:
            self.column_type(schema, self.column)
        return pl.Int64()

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:  # noqa: ARG002 - the same for all types
        return {"n": pl.Int64()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        counted = group if self.column is None else group[present(rows[self.column])]
        return {"n": np.bincount(counted, minlength=groups)}

    def merge(self, left: Partials, right: Partials) -> Partials:
        return {"n": left["n"] + right["n"]}

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        return {"n": sum_runs(partials["n"], starts)}

    def can_subtract(self, schema: Schema) -> bool:  # noqa: ARG002 - always
        return True

    def subtract(self, total: Partials, part: Partials) -> Partials:
        return {"n": total["n"] - part["n"]}

    def result(self, partials: Partials, schema: Schema) -> pl.Series:  # noqa: ARG002
        return pl.Series(partials["n"])

    def reference(self, elements: Sequence[Element]) -> Result:
        return len(elements) if self.column is None else len(non_null_values(elements, self.column))


@dataclass(frozen=True)
class _Total(Aggregate):
    """A count and a sum: ``n``, and the sum's limbs or the float ``f``."""

    column: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        dtype = schema[self.column]
        if dtype.is_float():
            return {"n": pl.Int64(), "f": pl.Float64()}
        return {"n": pl.Int64()} | {f"{_LIMB}{i}": pl.Int64() for i in range(4 if is_long(dtype) else 2)}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        column = rows[self.column]
        counts = {"n": np.bincount(group[present(column)], minlength=groups)}
        if column.dtype.is_float():
            return counts | {"f": float_sums(column.cast(pl.Float64).fill_null(0.0).to_numpy(), group, groups)}
        return counts | exact.name_limbs(_LIMB, exact.column_sums(column, group, groups))

    def merge(self, left: Partials, right: Partials) -> Partials:
        with np.errstate(invalid="ignore", over="ignore"):
            return exact.carry_partials({name: left[name] + right[name] for name in left}, _LIMB)

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        with np.errstate(invalid="ignore", over="ignore"):
            return exact.carry_partials({name: sum_runs(column, starts) for name, column in partials.items()}, _LIMB)

    def can_subtract(self, schema: Schema) -> bool:
        return not schema[self.column].is_float()

    def subtract(self, total: Partials, part: Partials) -> Partials:
        if "f" in total:
            raise NotImplementedError(f"{self} over floats cannot be undone")
        return exact.carry_partials({name: total[name] - part[name] for name in total}, _LIMB)

    def _number(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_number(dtype):
            raise self.type_error(self.column, dtype, NUMBERS)
        return dtype


@dataclass(frozen=True)
class Sum(_Total):
    """The sum. Null where there is nothing to add, and where the result does not fit its type.

    Integers give Int64, decimals a Decimal of 38 digits and the column's scale, floats Float64. A partial is exact even
    where the result does not fit, so a sum that comes back into its range is right again.
    """

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self._number(schema)
        if isinstance(dtype, pl.Decimal):
            return pl.Decimal(LONGEST_DIGITS, dtype.scale)
        return pl.Int64() if is_integer(dtype) else pl.Float64()

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        chosen = partials["n"] > 0
        if "f" in partials:
            return with_nulls(pl.Series(partials["f"]), chosen)
        limbs = exact.select_limbs(_LIMB, partials)
        if isinstance(schema[self.column], pl.Decimal):
            return exact.as_decimals(limbs, decimal_scale(schema[self.column]), chosen)
        values, fits = exact.as_int64(limbs)
        return with_nulls(pl.Series(values), chosen & fits)

    def reference(self, elements: Sequence[Element]) -> Result:
        values = non_null_values(elements, self.column)
        if not values:
            return None
        if any(isinstance(value, float) for value in values):
            return _float_sum(values)
        total = sum((Fraction(value) for value in values), Fraction())
        if any(isinstance(value, Decimal) for value in values):
            return _decimal(total, max(_scale(value) for value in values))
        return int(total) if -(2**63) <= total < 2**63 else None


@dataclass(frozen=True)
class Mean(_Total):
    """The arithmetic mean as Float64, of the exact sum where the column is of integers or decimals; null of nothing."""

    def check(self, schema: Schema) -> pl.DataType:
        self._number(schema)
        return pl.Float64()

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        count = partials["n"]
        total = partials["f"] if "f" in partials else exact.as_floats(exact.select_limbs(_LIMB, partials))
        unit = 10.0 ** decimal_scale(schema[self.column])
        return with_nulls(pl.Series(total / (np.maximum(count, 1) * unit)), count > 0)

    def reference(self, elements: Sequence[Element]) -> Result:
        values = non_null_values(elements, self.column)
        if not values:
            return None
        if all(isfinite(value) for value in values):
            return float(sum(Fraction(value) for value in values) / len(values))
        return _float_sum(values) / len(values)


def float_sums(values: Array, group: Ints, groups: int) -> Array:
    """Return the float sum of each group, in the order of the rows."""
    with np.errstate(invalid="ignore", over="ignore"):
        return exact.scatter(values, group, groups)


def sum_runs(values: Array, starts: Ints) -> Array:
    """Return the sum of each run of partials, for ``Aggregate.reduce``."""
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _float_sum(values: Sequence[float | int]) -> float:
    """Return the sum, rounded once if all values are finite."""
    if all(isfinite(value) for value in values):
        return float(sum(Fraction(value) for value in values))
    return float(sum(values))


def _scale(value: int | Decimal) -> int:
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    assert isinstance(exponent, int), "decimals are finite"
    return max(0, -exponent)


def _decimal(total: Fraction, scale: int) -> Decimal | None:
    """Return the number with ``scale`` digits after the point; null if it has more than 38 digits."""
    unscaled = int(total * 10**scale)
    context = Context(prec=LONGEST_DIGITS)
    return Decimal(unscaled).scaleb(-scale, context) if abs(unscaled) < 10**LONGEST_DIGITS else None
