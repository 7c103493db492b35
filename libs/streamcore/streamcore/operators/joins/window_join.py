"""The window join: joins every left row to every right row that has its key and window.

A pair is emitted once per common window, so sliding windows can emit it several times. The kind of join decides whether
rows without a partner in their window are emitted. ``EVENT_MS`` of the output is the last millisecond of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.columnar.grouping import expand_counts
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.joins.output_columns import JoinKind, Schema
from streamcore.operators.joins.window_closing import WindowedRows
from streamcore.operators.joins.window_matching import WindowedInputs, WindowedSpec, WindowMatches, check_names
from streamcore.schema import EVENT_MS
from streamcore.state.sorted_run import Ints, Mask
from streamcore.state.table import StateTable

#: The bounds of the window, UTC, in every row of the output.
WINDOW_START = "window_start"
WINDOW_END = "window_end"
_TIME = pl.Datetime("ms", "UTC")


class WindowJoin:
    """The operator of a window join. Its inputs are the left and the right stream."""

    def __init__(self, spec: WindowedSpec, kind: JoinKind, left: Schema, right: Schema) -> None:
        self._sides = WindowedInputs(spec, left, right)
        check_names(self._sides.columns.schema, (WINDOW_START, WINDOW_END))
        self._kind = kind
        self.output_delay_ms = spec.allowed_lateness_ms

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return pl.Schema({**self._sides.columns.schema, WINDOW_START: _TIME, WINDOW_END: _TIME})

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        admitted = self._sides.admit(inputs, time)
        output = [
            in_windows(rows, windows.starts, windows.ends)
            for rows, windows in self._outer(
                *(self._sides.closing.open_windows(side.keyless, time.watermark_ms) for side in admitted)
            )
        ]
        output += self._join_matches(self._sides.close(time))
        return {MAIN: pl.concat(output, how="vertical"), **self._sides.side_outputs(admitted, time)}

    def tables(self) -> Mapping[str, StateTable]:
        return self._sides.tables()

    def on_state_loaded(self) -> None:
        """Do nothing: the first step drops the rows of windows that closed before."""

    def metrics(self) -> Mapping[str, int]:
        return self._sides.metrics()

    def _join_matches(self, matches: WindowMatches) -> list[pl.DataFrame]:
        """Return the pairs, and then the rows without a partner.

        The pairs are ordered by match, then by arrival of the left row, then by arrival of the right row.
        """
        of_left, of_right = (
            np.bincount(s.match_index, minlength=len(matches.ends)) for s in (matches.left, matches.right)
        )
        partners = of_right[matches.left.match_index]
        left = np.repeat(np.arange(len(partners)), partners)
        right = expand_counts((np.cumsum(of_right) - of_right)[matches.left.match_index], partners)
        match_index = matches.left.match_index[left]
        pairs = self._sides.columns.pairs(matches.left.rows[left], matches.right.rows[right])
        without_partner = (
            _rows_where(matches, matches.left.rows, matches.left.match_index, partners == 0),
            _rows_where(
                matches, matches.right.rows, matches.right.match_index, of_left[matches.right.match_index] == 0
            ),
        )
        return [
            in_windows(pairs, matches.starts[match_index], matches.ends[match_index]),
            *(in_windows(rows, windows.starts, windows.ends) for rows, windows in self._outer(*without_partner)),
        ]

    def _outer(self, left: WindowedRows, right: WindowedRows) -> list[tuple[pl.DataFrame, WindowedRows]]:
        """Return the rows without a partner that this kind of join emits, with the columns of the output."""
        rows = []
        if self._kind.keeps_left:
            rows.append((self._sides.columns.left_only(left.rows), left))
        if self._kind.keeps_right:
            rows.append((self._sides.columns.right_only(right.rows), right))
        return rows


def _rows_where(matches: WindowMatches, rows: pl.DataFrame, match_index: Ints, mask: Mask) -> WindowedRows:
    places = np.flatnonzero(mask)
    return WindowedRows(rows[places], matches.starts[match_index[places]], matches.ends[match_index[places]])


def in_windows(rows: pl.DataFrame, starts: Ints, ends: Ints) -> pl.DataFrame:
    """Return the rows with the bounds of their windows."""
    bounds = [pl.Series(WINDOW_START, starts).cast(_TIME), pl.Series(WINDOW_END, ends).cast(_TIME)]
    return rows.with_columns(pl.Series(EVENT_MS, ends - 1), *bounds)
