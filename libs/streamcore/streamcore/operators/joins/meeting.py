"""Rows of two inputs brought together by key and window: what co-group and window join share.

A *meeting* is one key in one window, with at least one row of either input. Meetings are in order of the window's end,
then its start, then the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.joins.closing import Windowed, changes, closing
from streamcore.operators.joins.columns import JoinColumns, JoinKeys, Schema
from streamcore.operators.joins.sides import DEFAULT_MAX_ROWS, REFUSED, Admitted, Side
from streamcore.operators.operator import LATE, StepTime
from streamcore.state.rows import RowTable
from streamcore.state.run import Ints
from streamcore.state.table import StateTable
from streamcore.windowing.assigners import Assigner


@dataclass(frozen=True, slots=True)
class WindowedSpec:
    """What meets: rows of equal ``keys`` in one window. Windows close once the watermark has passed their end and
    ``allowed_lateness_ms``.

    ``max_rows``: rows of either side that a shard keeps; those that find no room are refused (port ``REFUSED``).
    ``suffix``: for a right column with the name of a left one, where both are side by side.
    """

    keys: JoinKeys
    assigner: Assigner
    allowed_lateness_ms: int = 0
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS


@dataclass(frozen=True, slots=True)
class Met:
    """One side of all meetings: its rows by meeting, then in order of arrival, and the meeting of each."""

    rows: pl.DataFrame
    meeting: Ints


@dataclass(frozen=True, slots=True)
class Meetings:
    """``keys``: the key of each meeting, by the names of the left."""

    keys: pl.DataFrame
    starts: Ints
    ends: Ints
    left: Met
    right: Met


class WindowedSides:
    """Both inputs with their tables, and the windows that close."""

    def __init__(self, spec: WindowedSpec, left: Schema, right: Schema) -> None:
        self.columns = JoinColumns.of(left, right, spec.keys, spec.suffix)
        self.closing = closing(spec.assigner, spec.allowed_lateness_ms)
        self.keys = spec.keys
        self._sides = (
            Side("left", left, spec.keys.left, spec.max_rows),
            Side("right", right, spec.keys.right, spec.max_rows),
        )

    def admit(self, inputs: Sequence[pl.DataFrame], time: StepTime) -> list[Admitted]:
        """Keep what takes part."""
        self.closing.settle(self._tables, time.watermark_ms)
        late_before_ms = self.closing.late_before_ms(time.watermark_ms)
        admitted = [s.admit(rows, late_before_ms) for s, rows in zip(self._sides, inputs, strict=True)]
        for table, one in zip(self._tables, admitted, strict=True):
            table.add(table.sort(one.rows))
        return admitted

    def close(self, time: StepTime) -> Meetings:
        """The meetings that the watermark ends, and their rows."""
        left, right = self.closing.close(self._tables, time)
        return meetings(left, right, self.keys)

    def side_outputs(self, admitted: Sequence[Admitted], time: StepTime) -> dict[str, pl.DataFrame]:
        """The rows that were late or refused."""
        left, right = admitted
        return {
            LATE: self.columns.late(left.late, right.late, time.watermark_ms),
            REFUSED: self.columns.refused(left.refused, right.refused),
        }

    def tables(self) -> dict[str, StateTable]:
        """By the name of the side."""
        return {side.name: side.table for side in self._sides}

    def metrics(self) -> dict[str, int]:
        """Of both sides."""
        return {name: count for side in self._sides for name, count in side.metrics().items()}

    @property
    def _tables(self) -> list[RowTable]:
        return [side.table for side in self._sides]


def meetings(left: Windowed, right: Windowed, keys: JoinKeys) -> Meetings:
    """Bring together the rows of two sides."""
    ends, starts = "__end", "__start"
    sides = [
        side.rows.select(
            pl.col(theirs).alias(ours) for theirs, ours in zip(names, keys.left, strict=True)
        ).with_columns(pl.Series(ends, side.ends), pl.Series(starts, side.starts))
        for side, names in ((left, keys.left), (right, keys.right))
    ]
    order = [ends, starts, *keys.left]
    every = pl.concat(sides).with_row_index("__row").sort(order)
    first = changes(every, order)
    meeting = np.empty(every.height, np.int64)
    meeting[every["__row"].to_numpy()] = np.cumsum(first) - 1
    heads = every.filter(pl.Series(first))
    split = left.rows.height
    return Meetings(
        heads.select(keys.left),
        heads[starts].to_numpy(),
        heads[ends].to_numpy(),
        _met(left.rows, meeting[:split]),
        _met(right.rows, meeting[split:]),
    )


def _met(rows: pl.DataFrame, meeting: Ints) -> Met:
    order = np.argsort(meeting, kind="stable")
    return Met(rows[order], meeting[order])


def check_names(schema: Schema, added: Sequence[str]) -> None:
    """``ConfigError`` where an output would have two columns of one name."""
    if taken := [name for name in added if name in schema]:
        raise ConfigError(f"the output has columns of its own: {list(added)}; rename {taken}")
