"""The window join: every row of the left with every row of the right of the same key and window.

A pair is there once a window, so sliding windows give it several times. Rows without a partner in their window come out
as the kind of join says. ``EVENT_MS`` is the window's last millisecond, as it is of every result of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from streamcore.operators.joins.closing import Windowed
from streamcore.operators.joins.columns import JoinKind, Schema
from streamcore.operators.joins.meeting import Meetings, WindowedSides, WindowedSpec, check_names
from streamcore.operators.operator import MAIN, Ports, StepTime
from streamcore.schema import EVENT_MS
from streamcore.state.run import Ints, Mask
from streamcore.state.table import StateTable
from streamcore.windows.runs import expand

#: The bounds of the window, UTC, in every row of the output.
WINDOW_START = "window_start"
WINDOW_END = "window_end"
_TIME = pl.Datetime("ms", "UTC")


class WindowJoin:
    """The operator. Inputs: left, right."""

    def __init__(self, spec: WindowedSpec, kind: JoinKind, left: Schema, right: Schema) -> None:
        self._sides = WindowedSides(spec, left, right)
        check_names(self._sides.columns.schema, (WINDOW_START, WINDOW_END))
        self._kind = kind
        self.output_delay_ms = spec.allowed_lateness_ms

    @property
    def schema(self) -> pl.Schema:
        """The columns of the output."""
        return pl.Schema({**self._sides.columns.schema, WINDOW_START: _TIME, WINDOW_END: _TIME})

    def step(self, inputs: Sequence[pl.DataFrame], time: StepTime) -> Ports:
        admitted = self._sides.admit(inputs, time)
        output = [
            _in_windows(rows, windows.starts, windows.ends)
            for rows, windows in self._outer(
                *(self._sides.closing.open_windows(one.keyless, time.watermark_ms) for one in admitted)
            )
        ]
        output += self._joined(self._sides.close(time))
        return {MAIN: pl.concat(output, how="vertical"), **self._sides.side_outputs(admitted, time)}

    def tables(self) -> Mapping[str, StateTable]:
        return self._sides.tables()

    def loaded(self) -> None:
        """Nothing to do: windows that had closed close again, unseen, with the first step."""

    def metrics(self) -> Mapping[str, int]:
        return self._sides.metrics()

    def _joined(self, met: Meetings) -> list[pl.DataFrame]:
        """The pairs, by meeting, then by arrival on the left, then on the right; then the rows without a partner."""
        of_left, of_right = (np.bincount(s.meeting, minlength=len(met.ends)) for s in (met.left, met.right))
        partners = of_right[met.left.meeting]
        left = np.repeat(np.arange(len(partners)), partners)
        right = expand((np.cumsum(of_right) - of_right)[met.left.meeting], partners)
        meeting = met.left.meeting[left]
        pairs = self._sides.columns.pairs(met.left.rows[left], met.right.rows[right])
        alone = (
            _some(met, met.left.rows, met.left.meeting, partners == 0),
            _some(met, met.right.rows, met.right.meeting, of_left[met.right.meeting] == 0),
        )
        return [
            _in_windows(pairs, met.starts[meeting], met.ends[meeting]),
            *(_in_windows(rows, windows.starts, windows.ends) for rows, windows in self._outer(*alone)),
        ]

    def _outer(self, left: Windowed, right: Windowed) -> list[tuple[pl.DataFrame, Windowed]]:
        """Rows without a partner in the columns of the output, as far as they go out."""
        rows = []
        if self._kind is not JoinKind.INNER:
            rows.append((self._sides.columns.left_only(left.rows), left))
        if self._kind is JoinKind.FULL:
            rows.append((self._sides.columns.right_only(right.rows), right))
        return rows


def _some(met: Meetings, rows: pl.DataFrame, meeting: Ints, mask: Mask) -> Windowed:
    places = np.flatnonzero(mask)
    return Windowed(rows[places], met.starts[meeting[places]], met.ends[meeting[places]])


def _in_windows(rows: pl.DataFrame, starts: Ints, ends: Ints) -> pl.DataFrame:
    """Rows with their windows."""
    bounds = [pl.Series(WINDOW_START, starts).cast(_TIME), pl.Series(WINDOW_END, ends).cast(_TIME)]
    return rows.with_columns(pl.Series(EVENT_MS, ends - 1), *bounds)
