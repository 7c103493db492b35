"""Co-group: all rows of both inputs of one key and window, given together to a function.

Rows whose key holds a null equal no other row's, so they take part in no group; they go to the port ``KEYLESS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.calls import CALL_ERRORS, check_times, failure_reason, get_call_name
from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.failures import FAILED_PANE, FailedCall, PaneFailures
from streamcore.operators.joins.output_columns import Schema
from streamcore.operators.joins.window_join import in_windows
from streamcore.operators.joins.window_matching import WindowedInputs, WindowedSpec, WindowMatches, check_names
from streamcore.schema import EVENT_MS
from streamcore.state.table import StateTable
from streamcore.windowing.model import Window

#: The port of rows whose key holds a null.
KEYLESS = "keyless"


class CoGroupFunction(Protocol):
    """Returns the rows for a group. It must be pure and picklable, and is called once per group."""

    def __call__(
        self, key: tuple[object, ...], window: Window, left: pl.DataFrame, right: pl.DataFrame
    ) -> pl.DataFrame:
        """Return rows with the declared columns. One side can be empty, but not both; rows are in order of arrival."""
        ...


class CoGroup:
    """The operator of a co-group. Inputs: left, right.

    ``output``: the columns that the function returns. ``EVENT_MS`` is added: the last millisecond of the window. If the
    function raises, or returns rows that do not fit ``output``, the group goes to port ``FAILED_PANE``
    (``streamcore.operators.failures``): the key, the window, and the first rows of each side.
    """

    def __init__(
        self, spec: WindowedSpec, function: CoGroupFunction, output: Schema, left: Schema, right: Schema
    ) -> None:
        check_names(output, (EVENT_MS,))
        self._sides = WindowedInputs(spec, left, right)
        self._function = function
        self._output = pl.Schema(output)
        self._failures = PaneFailures({"left_": left, "right_": right})
        self._failed = 0
        self.output_delay_ms = spec.allowed_lateness_ms

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return pl.Schema({**self._output, EVENT_MS: pl.Int64()})

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        admitted = self._sides.admit(inputs, time)
        left, right = (one.keyless for one in admitted)
        main, failed = self._groups(self._sides.close(time))
        self._failed += failed.height
        return {
            MAIN: main,
            FAILED_PANE: failed,
            KEYLESS: self._sides.columns.rejected_rows(left, right),
            **self._sides.side_outputs(admitted, time),
        }

    def tables(self) -> Mapping[str, StateTable]:
        return self._sides.tables()

    def on_state_loaded(self) -> None:
        """Do nothing: the first step closes expired windows again, without output."""

    def metrics(self) -> Mapping[str, int]:
        failed, self._failed = self._failed, 0
        return {**self._sides.metrics(), "failed": failed}

    def _groups(self, matches: WindowMatches) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the function's rows, group by group, and the groups on which it fails."""
        edges = np.arange(len(matches.ends) + 1)
        left, right = (np.searchsorted(side.match_index, edges).tolist() for side in (matches.left, matches.right))
        frames: list[pl.DataFrame] = [self.schema.to_frame()]
        failed: dict[int, FailedCall] = {}
        for i, (key, start, end) in enumerate(zip(matches.keys.rows(), matches.starts, matches.ends, strict=True)):
            sides = (matches.left.rows[left[i] : left[i + 1]], matches.right.rows[right[i] : right[i + 1]])
            try:
                rows = self._rows(key, Window(int(start), int(end)), *(side.clone() for side in sides))
                frames.append(rows.with_columns(pl.lit(end - 1, pl.Int64).alias(EVENT_MS)))
            except CALL_ERRORS as error:
                failed[i] = FailedCall(failure_reason(get_call_name(self._function), error), sides)
        return pl.concat(frames), self._failed_groups(matches, failed)

    def _rows(self, key: tuple[object, ...], window: Window, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        rows = self._function(key, window, left, right)
        if not isinstance(rows, pl.DataFrame):
            raise ConfigError(f"it returns {type(rows).__name__}; return a frame with the columns {[*self._output]}")
        return check_times(rows.select(self._output.names()).cast(self._output))

    def _failed_groups(self, matches: WindowMatches, failed: Mapping[int, FailedCall]) -> pl.DataFrame:
        """Return the failed groups. ``failed``: by the number of the match."""
        numbers = list(failed)
        starts, ends = matches.starts[numbers], matches.ends[numbers]
        groups = in_windows(matches.keys[numbers], starts, ends).with_columns(pl.Series(EVENT_MS, ends - 1))
        columns = self._failures.series(len(numbers), dict(enumerate(failed.values())))
        return self._failures.split(groups.hstack(columns), ())[1]
