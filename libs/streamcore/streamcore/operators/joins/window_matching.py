"""Rows of two inputs brought together by key and window: what co-group and window join share.

A *match* is one key in one window, with at least one row, from one input or from both. Matches are in order of
the window's end, then its start, then the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, CutTime
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REJECTED, AdmittedRows, JoinInput
from streamcore.operators.joins.output_columns import JoinColumns, JoinKeys, Schema
from streamcore.operators.joins.window_closing import WindowedRows, changes, closing
from streamcore.state.row_table import RowTable
from streamcore.state.sorted_run import Ints
from streamcore.state.table import StateTable
from streamcore.windowing.assigners import Assigner


@dataclass(frozen=True, slots=True)
class WindowedSpec:
    """The settings of a co-group or window join: it matches rows of equal ``keys`` in one window.

    Windows close once the watermark has passed their end and ``allowed_lateness_ms``.

    ``max_rows``: rows of either side that a shard keeps; those that find no room are rejected (port ``REJECTED``).
    ``suffix``: for a right column with the name of a left one, where both are side by side.
    """

    keys: JoinKeys
    assigner: Assigner
    allowed_lateness_ms: int = 0
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS


@dataclass(frozen=True, slots=True)
class MatchedSide:
    """The rows of one input that belong to the matches, ordered by match, then by arrival.

    ``match_index``: the index of each row's match in ``WindowMatches.keys``.
    """

    rows: pl.DataFrame
    match_index: Ints


@dataclass(frozen=True, slots=True)
class WindowMatches:
    """The matches of a cut: a match is a key and a window that closes, with its rows from one input or both.

    ``keys``: the key of each match, in columns named as in the left input. ``starts`` and ``ends`` have shape
    (matches,): the bounds of the windows in milliseconds.
    """

    keys: pl.DataFrame
    starts: Ints
    ends: Ints
    left: MatchedSide
    right: MatchedSide


class WindowedInputs:
    """Both inputs of a window join or co-group, with their tables."""

    def __init__(self, spec: WindowedSpec, left: Schema, right: Schema) -> None:
        self.columns = JoinColumns.build(left, right, spec.keys, spec.suffix)
        self.closing = closing(spec.assigner, spec.allowed_lateness_ms)
        self.keys = spec.keys
        self._sides = (
            JoinInput("left", left, spec.keys.left, spec.max_rows),
            JoinInput("right", right, spec.keys.right, spec.max_rows),
        )

    def admit(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> list[AdmittedRows]:
        """Drop expired rows, split the rows of the cut into admitted, late and rejected, and store the admitted
        ones."""
        self.closing.drop_expired(self._tables, time.watermark_ms)
        late_before_ms = self.closing.late_before_ms(time.watermark_ms)
        admitted = [s.admit(rows, late_before_ms) for s, rows in zip(self._sides, inputs, strict=True)]
        for table, side_rows in zip(self._tables, admitted, strict=True):
            table.add(table.to_run(side_rows.rows))
        return admitted

    def close(self, time: CutTime) -> WindowMatches:
        """Return the matches whose windows close in this cut, and remove rows without an open window."""
        left, right = self.closing.close(self._tables, time)
        return match_windows(left, right, self.keys)

    def side_outputs(self, admitted: Sequence[AdmittedRows], time: CutTime) -> dict[str, pl.DataFrame]:
        """Return the rows that were late or rejected."""
        left, right = admitted
        return {
            LATE: self.columns.late(left.late, right.late, time.watermark_ms),
            REJECTED: self.columns.rejected_rows(left.rejected, right.rejected),
        }

    def tables(self) -> dict[str, StateTable]:
        """Return the tables by the name of their input."""
        return {side.name: side.table for side in self._sides}

    def metrics(self) -> dict[str, int]:
        """Return the counters of both inputs."""
        return {name: count for side in self._sides for name, count in side.metrics().items()}

    @property
    def _tables(self) -> list[RowTable]:
        return [side.table for side in self._sides]


def match_windows(left: WindowedRows, right: WindowedRows, keys: JoinKeys) -> WindowMatches:
    """Group the rows of both sides by key and window."""
    ends, starts = "__end", "__start"
    sides = [
        side.rows.select(
            pl.col(name).alias(left_name) for name, left_name in zip(names, keys.left, strict=True)
        ).with_columns(pl.Series(ends, side.ends), pl.Series(starts, side.starts))
        for side, names in ((left, keys.left), (right, keys.right))
    ]
    order = [ends, starts, *keys.left]
    all_rows = pl.concat(sides).with_row_index("__row").sort(order)
    is_first = changes(all_rows, order)
    match_index = np.empty(all_rows.height, np.int64)
    match_index[all_rows["__row"].to_numpy()] = np.cumsum(is_first) - 1
    first_rows = all_rows.filter(pl.Series(is_first))
    split = left.rows.height
    return WindowMatches(
        first_rows.select(keys.left),
        first_rows[starts].to_numpy(),
        first_rows[ends].to_numpy(),
        _sort_by_match(left.rows, match_index[:split]),
        _sort_by_match(right.rows, match_index[split:]),
    )


def _sort_by_match(rows: pl.DataFrame, match_index: Ints) -> MatchedSide:
    order = np.argsort(match_index, kind="stable")
    return MatchedSide(rows[order], match_index[order])


def check_names(schema: Schema, added: Sequence[str]) -> None:
    """Raise ``ConfigError`` where an output would have two columns of one name."""
    if clashes := [name for name in added if name in schema]:
        raise ConfigError(f"the output has columns of its own: {list(added)}; rename {clashes}")
