"""The first and the last value by event time; values with equal event times are ordered by arrival, or by themselves.

Arrival is the order in which rows reach the shard: those of an earlier stage arrive in the order of its shard numbers.
If values are ordered by themselves, the result depends only on the rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from streamcore.aggregates.arrays import ORDERED, from_array, is_ordered, non_null_rows, stored_type, to_array
from streamcore.aggregates.base import Aggregate, Array, Ints, Mask, Partials, Schema
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import Element, Result, Scalar


class Ties(StrEnum):
    """The order of values with the same event time."""

    ARRIVAL = "arrival"
    VALUE = "value"


@dataclass(frozen=True)
class _PickedValue(Aggregate):
    """The base of ``First`` and ``Last``.

    Partial: ``has``, whether there is a value; ``v``, the value; ``at``, its event time; ``number``, its arrival.
    """

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
            raise self.type_error(self.column, dtype, "with ties by value, all ordered types except floats")
        return dtype

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        value = stored_type(schema[self.column])
        return {"v": value, "at": pl.Int64(), "number": pl.Int64(), "has": pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        chosen = non_null_rows(rows[self.column])
        at = rows[EVENT_MS].to_numpy()[chosen]
        column = rows[self.column].drop_nulls()
        row = self._pick_rows(at, group[chosen], groups, column)
        has = row >= 0
        row = row[has]
        values = to_array(column.gather(row))
        picked = {"v": values, "at": at[row], "number": numbers[chosen][row]}
        return {name: _fill_missing(values, has) for name, values in picked.items()} | {"has": has}

    def merge(self, left: Partials, right: Partials) -> Partials:
        right_wins = right["has"] & (self._wins(right, left) | ~left["has"])
        return {name: np.where(right_wins, right[name], left[name]) for name in left}

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        return from_array(partials["v"], partials["has"], schema[self.column])

    def reference(self, elements: Sequence[Element]) -> Result:
        chosen = [element for element in elements if element.value.get(self.column) is not None]
        ordered = sorted(chosen, key=self._sort_key)
        return self._pick([element.value[self.column] for element in ordered]) if ordered else None

    def _sort_key(self, element: Element) -> tuple[int, Any]:
        by_value = self.ties is Ties.VALUE
        return element.event_ms, element.value[self.column] if by_value else element.number

    def _pick_rows(self, at: Ints, group: Ints, groups: int, values: pl.Series) -> Ints:
        """Return the index of the row that each group picks, of shape (groups,); -1 for a group without rows.

        Of the rows with the best event time, that is the one with the best value or arrival.
        """
        candidates = self._best(at, group, groups, np.arange(len(at)))
        if self.ties is Ties.VALUE and len(candidates) > len(np.unique(group[candidates])):
            ranks = values.gather(candidates).rank("dense").cast(pl.Int64).to_numpy()
            candidates = self._best(ranks, group[candidates], groups, candidates)
        row = np.full(groups, self._worst, dtype=np.int64)
        self._choose.at(row, group[candidates], candidates)
        return np.where(row == self._worst, -1, row)

    def _best(self, by: Ints, group: Ints, groups: int, rows: Ints) -> Ints:
        """Return those of ``rows`` for which ``by`` is the best of their group. ``by``, ``group``: by row."""
        best = np.full(groups, self._worst, dtype=np.int64)
        self._choose.at(best, group, by)
        best_rows: Ints = rows[by == best[group]]
        return best_rows

    def _wins(self, one: Partials, other: Partials) -> Mask:
        """Return a mask of the pairs in which ``one`` is better than ``other``. Pairs without a value are undefined."""
        better: Mask = (one["at"] != other["at"]) & (self._choose(one["at"], other["at"]) == one["at"])
        tied = np.flatnonzero((one["at"] == other["at"]) & one["has"] & other["has"])
        decides = "v" if self.ties is Ties.VALUE else "number"
        better[tied] = self._choose(one[decides][tied], other[decides][tied]) == one[decides][tied]
        return better

    @property
    @abstractmethod
    def _choose(self) -> np.ufunc:
        """Return the function that picks the better of two event times, arrival numbers or values."""

    @property
    @abstractmethod
    def _worst(self) -> int:
        """Return the number that is worse than every event time and arrival number."""

    @abstractmethod
    def _pick(self, ordered: Sequence[Scalar]) -> Scalar:
        """Pick one of the values, of which there is at least one, ordered by event time and ``ties``."""


class First(_PickedValue):
    """The value with the earliest event time; of several, the one that arrived first or is least; null if none."""

    @property
    def _choose(self) -> np.ufunc:
        return np.minimum

    @property
    def _worst(self) -> int:
        return int(np.iinfo(np.int64).max)

    def _pick(self, ordered: Sequence[Scalar]) -> Scalar:
        return ordered[0]


class Last(_PickedValue):
    """The value with the latest event time; of several, the one that arrived last or is greatest; null if none."""

    @property
    def _choose(self) -> np.ufunc:
        return np.maximum

    @property
    def _worst(self) -> int:
        return int(np.iinfo(np.int64).min)

    def _pick(self, ordered: Sequence[Scalar]) -> Scalar:
        return ordered[-1]


def _fill_missing(values: Array, has: Mask) -> Array:
    """Return an array with the values where ``has`` is true; elsewhere 0, or None for objects."""
    filled = np.full(len(has), None if values.dtype == object else 0, dtype=values.dtype)
    filled[has] = values
    return filled
