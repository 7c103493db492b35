"""The first and the last value: by event time, and where event times are equal by arrival or by the values themselves.

Arrival is the order on the shard: rows from an earlier stage arrive in the order of that stage's shard numbers. By the
values, the result depends on the rows alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from streamcore.aggregates.arrays import ORDERED, from_array, is_ordered, present, stored_type, to_array
from streamcore.aggregates.base import Aggregate, Array, Ints, Mask, Partials, Schema
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import Element, Result, Scalar


class Ties(StrEnum):
    """Order of values with the same event time."""

    ARRIVAL = "arrival"
    VALUE = "value"


@dataclass(frozen=True)
class _PickedValue(Aggregate):
    """``v``: the value that is picked, where it ``has`` one; ``at``, ``number``: its event time and its arrival."""

    column: str
    ties: Ties = Ties.ARRIVAL

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_ordered(dtype):
            raise self.type_error(self.column, dtype, ORDERED)
        if self.ties is Ties.VALUE and dtype.is_float():
            raise self.type_error(self.column, dtype, "with ties by value, anything with an order that is no float")
        return dtype

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        value = stored_type(schema[self.column])
        return {"v": value, "at": pl.Int64(), "number": pl.Int64(), "has": pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        chosen = present(rows[self.column])
        at = rows[EVENT_MS].to_numpy()[chosen]
        non_null_values = rows[self.column].drop_nulls()
        row = self._rows(at, group[chosen], groups, non_null_values)
        has = row >= 0
        row = row[has]
        values = to_array(non_null_values.gather(row))
        picked = {"v": values, "at": at[row], "number": numbers[chosen][row]}
        return {name: _spread(values, has) for name, values in picked.items()} | {"has": has}

    def merge(self, left: Partials, right: Partials) -> Partials:
        right_wins = right["has"] & (self._wins(right, left) | ~left["has"])
        return {name: np.where(right_wins, right[name], left[name]) for name in left}

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        return from_array(partials["v"], partials["has"], schema[self.column])

    def reference(self, elements: Sequence[Element]) -> Result:
        chosen = [element for element in elements if element.value.get(self.column) is not None]
        in_time = sorted(chosen, key=self._sort_key)
        return self._from_values([element.value[self.column] for element in in_time]) if in_time else None

    def _sort_key(self, element: Element) -> tuple[int, Any]:
        by_value = self.ties is Ties.VALUE
        return element.event_ms, element.value[self.column] if by_value else element.number

    def _rows(self, at: Ints, group: Ints, groups: int, values: pl.Series) -> Ints:
        """Return the row that each group picks, -1 where it has none: of those at the best time the first or the
        last."""
        candidates = self._best(at, group, groups, np.arange(len(at)))
        if self.ties is Ties.VALUE and len(candidates) > len(np.unique(group[candidates])):
            ranks = values.gather(candidates).rank("dense").cast(pl.Int64).to_numpy()
            candidates = self._best(ranks, group[candidates], groups, candidates)
        row = np.full(groups, self._loses, dtype=np.int64)
        self._choose.at(row, group[candidates], candidates)
        return np.where(row == self._loses, -1, row)

    def _best(self, by: Ints, group: Ints, groups: int, rows: Ints) -> Ints:
        """Return the rows with the best value of their group."""
        best = np.full(groups, self._loses, dtype=np.int64)
        self._choose.at(best, group, by)
        aggregated: Ints = rows[by == best[group]]
        return aggregated

    def _wins(self, one: Partials, other: Partials) -> Mask:
        better: Mask = (one["at"] != other["at"]) & (self._choose(one["at"], other["at"]) == one["at"])
        tied = np.flatnonzero((one["at"] == other["at"]) & one["has"] & other["has"])
        decides = "v" if self.ties is Ties.VALUE else "number"
        better[tied] = self._choose(one[decides][tied], other[decides][tied]) == one[decides][tied]
        return better

    @property
    @abstractmethod
    def _choose(self) -> np.ufunc:
        """Return the function that picks the winner of two times or two numbers."""

    @property
    @abstractmethod
    def _loses(self) -> int:
        """Return the number that every time and arrival number wins against."""

    @abstractmethod
    def _from_values(self, in_time: Sequence[Scalar]) -> Scalar:
        """Pick one of at least one plain values, which are ordered by time and arrival."""


class First(_PickedValue):
    """The value with the earliest event time, of equal ones that which came first or is least; null of nothing."""

    @property
    def _choose(self) -> np.ufunc:
        return np.minimum

    @property
    def _loses(self) -> int:
        return int(np.iinfo(np.int64).max)

    def _from_values(self, in_time: Sequence[Scalar]) -> Scalar:
        return in_time[0]


class Last(_PickedValue):
    """The value with the latest event time, of equal ones that which came last or is greatest; null of nothing."""

    @property
    def _choose(self) -> np.ufunc:
        return np.maximum

    @property
    def _loses(self) -> int:
        return int(np.iinfo(np.int64).min)

    def _from_values(self, in_time: Sequence[Scalar]) -> Scalar:
        return in_time[-1]


def _spread(values: Array, has: Mask) -> Array:
    """Return the values where there are any; elsewhere 0, or None for objects."""
    spread = np.full(len(has), None if values.dtype == object else 0, dtype=values.dtype)
    spread[has] = values
    return spread
