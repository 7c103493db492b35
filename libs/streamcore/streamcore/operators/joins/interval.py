"""The interval join: each row of the left with the rows of the right of the same key that are near it in time.

A row of the left joins those of the right whose event time is ``lower_ms`` to ``upper_ms`` after its own (before it,
where the bound is negative). Rows of both sides are kept for as long as the watermark lets a partner come. A row behind
the watermark is late as a whole, even where partners of it are still kept: whether all of them are is unknown.
So however the input is cut, as long as no row is late or rejected, the output has the same rows.

An outer row is emitted in the cut whose watermark rules out any partner. It keeps its own event time, which is
then ``output_delay_ms`` behind the watermark at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN, CutTime, Ports
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REJECTED, JoinInput
from streamcore.operators.joins.output_columns import JoinColumns, JoinKeys, JoinKind, Schema
from streamcore.operators.joins.paging import PagedRows, PagedTable
from streamcore.state.row_table import RowTable
from streamcore.state.sorted_run import MARKED, Ints
from streamcore.state.table import StateTable

_MAX_BOUND_MS = 2**53


@dataclass(frozen=True)
class JoinInterval:
    """From ``lower_ms`` to ``upper_ms`` after the left row's event time. Bounds are inclusive by default."""

    lower_ms: DurationField = DurationField()
    upper_ms: DurationField = DurationField()
    lower_inclusive: bool = True
    upper_inclusive: bool = True

    def __post_init__(self) -> None:
        if self.first_ms > self.last_ms:
            raise ConfigError(f"no time is within {self}; lower_ms must not be above upper_ms")
        if max(abs(self.lower_ms), abs(self.upper_ms)) > _MAX_BOUND_MS:
            raise ConfigError(f"the bounds of {self} must be within 2**53 ms")

    @property
    def first_ms(self) -> int:
        """Return the inclusive lower bound in milliseconds."""
        return self.lower_ms + (not self.lower_inclusive)

    @property
    def last_ms(self) -> int:
        """Return the inclusive upper bound in milliseconds."""
        return self.upper_ms - (not self.upper_inclusive)


@dataclass(frozen=True, slots=True)
class IntervalJoinSpec:
    """The settings of the join. ``suffix``: for a right column with the name of a left one.

    ``max_rows``: rows of either side that a shard keeps; those that find no room are rejected (port ``REJECTED``).
    """

    keys: JoinKeys
    interval: JoinInterval
    kind: JoinKind = JoinKind.INNER
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS


class IntervalJoin:
    """The operator of an interval join. Inputs: left, right. Schemas are accepted with or without ``EVENT_MS``."""

    def __init__(self, spec: IntervalJoinSpec, left: Schema, right: Schema) -> None:
        self.spec = spec
        self._columns = JoinColumns.build(left, right, spec.keys, spec.suffix)
        self._left = JoinInput("left", left, spec.keys.left, spec.max_rows)
        self._right = JoinInput("right", right, spec.keys.right, spec.max_rows)
        self.paged_state = PagedRows(
            {
                "left": PagedTable(self._left.table, keeps_ms=spec.interval.last_ms),
                "right": PagedTable(self._right.table, keeps_ms=-spec.interval.first_ms),
            }
        )

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return self._columns.schema

    @property
    def output_delay_ms(self) -> int:
        """Return how many milliseconds output rows can be behind the watermark before the cut."""
        left = max(0, self.spec.interval.last_ms) if self.spec.kind.keeps_left else 0
        right = max(0, -self.spec.interval.first_ms) if self.spec.kind.keeps_right else 0
        return max(left, right)

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        self._expire(time.watermark_ms)  # what was loaded and had been dropped
        left, right = (s.admit(r, time.watermark_ms) for s, r in zip(self._sides, inputs, strict=True))
        output = [self._add_and_pair(left.rows, right.rows), *self._outer(left.keyless, right.keyless)]
        dropped = self._expire(time.next_watermark_ms)
        if self.spec.kind is not JoinKind.INNER:
            output += self._outer(*(_unmatched_rows(s.table, p) for s, p in zip(self._sides, dropped, strict=True)))
        return {
            MAIN: pl.concat(output),
            LATE: self._columns.late(left.late, right.late, time.watermark_ms),
            REJECTED: self._columns.rejected_rows(left.rejected, right.rejected),
        }

    def tables(self) -> Mapping[str, StateTable]:
        return {side.name: side.table for side in self._sides}

    def on_state_loaded(self) -> None:
        """Do nothing: the first step drops expired rows again."""

    def metrics(self) -> Mapping[str, int]:
        return {**self._left.metrics(), **self._right.metrics()}

    @property
    def _sides(self) -> tuple[JoinInput, JoinInput]:
        return self._left, self._right

    def _add_and_pair(self, new_left: pl.DataFrame, new_right: pl.DataFrame) -> pl.DataFrame:
        """Add the new rows to the tables, mark the rows that have found a partner, and return the new pairs.

        The pairs are in order of arrival on the left, then on the right.
        """
        left, right, interval = self._left.table, self._right.table, self.spec.interval
        left_run, right_run = left.to_run(new_left), right.to_run(new_right)
        found_right = right.find(left_run, interval.first_ms, interval.last_ms)
        left_base, right_base = left.add(left_run), right.add(right_run)
        found_left = left.find(right_run, -interval.last_ms, -interval.first_ms)
        left_places = np.concatenate([left_base[found_right.rows], found_left.places])
        right_places = np.concatenate([found_right.places, right_base[found_left.rows]])
        if self.spec.kind.keeps_left:
            left.mark(left_places)
        if self.spec.kind.keeps_right:
            right.mark(right_places)
        order = np.lexsort((right.numbers(right_places), left.numbers(left_places)))
        return self._columns.pairs(left.frame(left_places[order]), right.frame(right_places[order]))

    def _expire(self, watermark_ms: int) -> tuple[Ints, Ints]:
        """Drop the rows that no row after the watermark can join. Return their places."""
        left = self._left.table.expire(watermark_ms - self.spec.interval.last_ms)
        return left, self._right.table.expire(watermark_ms + self.spec.interval.first_ms)

    def _outer(self, left: pl.DataFrame, right: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the rows without a partner that an outer join emits."""
        rows = []
        if self.spec.kind.keeps_left:
            rows.append(self._columns.left_only(left))
        if self.spec.kind.keeps_right:
            rows.append(self._columns.right_only(right))
        return rows


def _unmatched_rows(table: RowTable, places: Ints) -> pl.DataFrame:
    """Return the dropped rows that were never marked as matched, in order of arrival."""
    places = places[table.states(places) & MARKED == 0]
    return table.frame(places[np.argsort(table.numbers(places))])
