"""The least and the greatest value of numbers, booleans, times or text (by code points).

NaN is greater than every other number, as in PostgreSQL, DuckDB and Spark: ``Max`` is NaN where there is one, ``Min``
only if all values are NaN.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.aggregates.arrays import ORDERED, from_array, is_ordered, non_null_rows, sort_key, stored_type, to_array
from streamcore.aggregates.base import Aggregate, Array, Ints, Partials, Schema, non_null_values
from streamcore.windowing.model import Element, Result, Scalar


@dataclass(frozen=True)
class _Extreme(Aggregate):
    """The base of ``Min`` and ``Max``. Partial: ``m``, the value; ``has``, whether there is one."""

    column: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_ordered(dtype):
            raise self.type_error(self.column, dtype, ORDERED)
        return dtype

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        return {"m": stored_type(schema[self.column]), "has": pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        chosen = non_null_rows(rows[self.column])
        column, group = rows[self.column].drop_nulls(), group[chosen]
        has = np.zeros(groups, dtype=bool)
        has[group] = True
        kind = stored_type(column.dtype)
        if kind not in (pl.Int64(), pl.Float64()):
            return {"m": self._best_objects(column, group, groups), "has": has}
        values = to_array(column)
        best = np.full(groups, self._identity(values), dtype=values.dtype)
        with np.errstate(invalid="ignore"):
            self._choose.at(best, group, values)
        return {"m": best, "has": has}

    def merge(self, left: Partials, right: Partials) -> Partials:
        has = left["has"] | right["has"]
        if left["m"].dtype != object:
            with np.errstate(invalid="ignore"):
                return {"m": self._choose(left["m"], right["m"]), "has": has}
        best, both = np.where(left["has"], left["m"], right["m"]), left["has"] & right["has"]
        best[both] = self._choose(left["m"][both], right["m"][both])
        return {"m": best, "has": has}

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        if partials["m"].dtype == object or not len(starts):
            return super().reduce(partials, starts)
        has = np.logical_or.reduceat(partials["has"], starts)
        with np.errstate(invalid="ignore"):
            return {"m": self._choose.reduceat(partials["m"], starts), "has": has}

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        has = partials["has"]
        values = partials["m"]
        if values.dtype != object and not has.all():  # ``_identity`` may be out of the range of the type
            values = np.where(has, values, np.zeros_like(values))
        return from_array(values, has, schema[self.column])

    def reference(self, elements: Sequence[Element]) -> Result:
        values = non_null_values(elements, self.column)
        return self._pick(values) if values else None

    def _best_objects(self, column: pl.Series, group: Ints, groups: int) -> Array:
        aggregated = pl.DataFrame({"group": group, "m": column}).group_by("group").agg(self._expression(pl.col("m")))
        best = np.full(groups, None, dtype=object)
        best[aggregated["group"].to_numpy()] = to_array(aggregated["m"])
        return best

    @property
    @abstractmethod
    def _choose(self) -> np.ufunc:
        """Return the function that picks the better of two arrays, value by value; NaN is the greatest."""

    @abstractmethod
    def _identity(self, values: Array) -> float | int:
        """Return the identity element of ``_choose``: the number that is worse than every value."""

    @abstractmethod
    def _expression(self, values: pl.Expr) -> pl.Expr:
        """Return the Polars expression that picks the best of a group's objects."""

    @abstractmethod
    def _pick(self, values: Sequence[Scalar]) -> Scalar:
        """Pick the best of the values, of which there is at least one."""


class Min(_Extreme):
    """The least value; null for no values."""

    @property
    def _choose(self) -> np.ufunc:
        return np.fmin

    def _identity(self, values: Array) -> float | int:
        return float("nan") if values.dtype == np.float64 else int(np.iinfo(np.int64).max)

    def _expression(self, values: pl.Expr) -> pl.Expr:
        return values.min()

    def _pick(self, values: Sequence[Scalar]) -> Scalar:
        return min(values, key=sort_key)


class Max(_Extreme):
    """The greatest value; null for no values."""

    @property
    def _choose(self) -> np.ufunc:
        return np.maximum

    def _identity(self, values: Array) -> float | int:
        return float("-inf") if values.dtype == np.float64 else int(np.iinfo(np.int64).min)

    def _expression(self, values: pl.Expr) -> pl.Expr:
        return values.max()

    def _pick(self, values: Sequence[Scalar]) -> Scalar:
        return max(values, key=sort_key)
