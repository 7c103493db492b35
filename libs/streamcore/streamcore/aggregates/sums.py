"""Count, sum and arithmetic mean.

Sums of integers and decimals are exact, so a part can be subtracted. Sums of floats are float64, added in the order of
the rows: they are rounded, and an infinity hides the other values, so a part cannot be subtracted.
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
    non_null_rows,
    with_nulls,
)
from streamcore.aggregates.base import Aggregate, Array, Ints, Partials, Schema, non_null_values
from streamcore.windowing.model import Element, Result

#: Prefix of the names of the sum's limbs.
_LIMB = "s"


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of rows; with a column, the number of rows where it is not null."""

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
        counted = group if self.column is None else group[non_null_rows(rows[self.column])]
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
    """The base of ``Sum`` and ``Mean``. Partial: ``n``, the count; and the sum, as limbs or as the float ``f``."""

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
        counts = {"n": np.bincount(group[non_null_rows(column)], minlength=groups)}
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

    def _check_number(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_number(dtype):
            raise self.type_error(self.column, dtype, NUMBERS)
        return dtype


@dataclass(frozen=True)
class Sum(_Total):
    """The sum; null for no values, and where the result does not fit in its type.

    Integers give Int64, decimals a Decimal of 38 digits and the column's scale, floats Float64. A partial stays
    exact where the result does not fit; the result is correct again when it fits.
    """

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self._check_number(schema)
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
            return _sum_floats(values)
        total = sum((Fraction(value) for value in values), Fraction())
        if any(isinstance(value, Decimal) for value in values):
            return _to_decimal(total, max(_scale(value) for value in values))
        return int(total) if -(2**63) <= total < 2**63 else None


@dataclass(frozen=True)
class Mean(_Total):
    """The arithmetic mean as Float64, for integers and decimals from the exact sum; null for no values."""

    def check(self, schema: Schema) -> pl.DataType:
        self._check_number(schema)
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
        return _sum_floats(values) / len(values)


def float_sums(values: Array, group: Ints, groups: int) -> Array:
    """Return the float sum of each group, in the order of the rows."""
    with np.errstate(invalid="ignore", over="ignore"):
        return exact.sum_groups(values, group, groups)


def sum_runs(values: Array, starts: Ints) -> Array:
    """Return the sum of each run of partials, for ``Aggregate.reduce``."""
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _sum_floats(values: Sequence[float | int]) -> float:
    """Return the sum, with one rounding if all values are finite."""
    if all(isfinite(value) for value in values):
        return float(sum(Fraction(value) for value in values))
    return float(sum(values))


def _scale(value: int | Decimal) -> int:
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    assert isinstance(exponent, int), "decimals are finite"
    return max(0, -exponent)


def _to_decimal(total: Fraction, scale: int) -> Decimal | None:
    """Return the number with ``scale`` digits after the point; None if it has more than 38 digits."""
    unscaled = int(total * 10**scale)
    context = Context(prec=LONGEST_DIGITS)
    return Decimal(unscaled).scaleb(-scale, context) if abs(unscaled) < 10**LONGEST_DIGITS else None
