"""Co-group: all rows of both inputs of one key and window, given together to a function.

Rows whose key holds a null equal no other row's, so they take part in no group; they go to the port ``KEYLESS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.joins.output_columns import Schema
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

    ``output``: the columns that the function returns. ``EVENT_MS`` is added: the last millisecond of the window.
    """

    def __init__(
        self, spec: WindowedSpec, function: CoGroupFunction, output: Schema, left: Schema, right: Schema
    ) -> None:
        check_names(output, (EVENT_MS,))
        self._sides = WindowedInputs(spec, left, right)
        self._function = function
        self._output = pl.Schema(output)
        self.output_delay_ms = spec.allowed_lateness_ms

    @property
    def schema(self) -> pl.Schema:
        """Return the columns of the output."""
        return pl.Schema({**self._output, EVENT_MS: pl.Int64()})

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        admitted = self._sides.admit(inputs, time)
        left, right = (one.keyless for one in admitted)
        return {
            MAIN: pl.concat([self.schema.to_frame(), *self._groups(self._sides.close(time))]),
            KEYLESS: self._sides.columns.rejected_rows(left, right),
            **self._sides.side_outputs(admitted, time),
        }

    def tables(self) -> Mapping[str, StateTable]:
        return self._sides.tables()

    def on_state_loaded(self) -> None:
        """Do nothing: the first step closes expired windows again, without output."""

    def metrics(self) -> Mapping[str, int]:
        return self._sides.metrics()

    def _groups(self, matches: WindowMatches) -> list[pl.DataFrame]:
        """Return the function's rows, group by group."""
        edges = np.arange(len(matches.ends) + 1)
        left, right = (np.searchsorted(side.match_index, edges).tolist() for side in (matches.left, matches.right))
        bounds = zip(matches.keys.rows(), matches.starts.tolist(), matches.ends.tolist(), strict=True)
        return [
            self._function(
                key,
                Window(start, end),
                matches.left.rows[left[i] : left[i + 1]],
                matches.right.rows[right[i] : right[i + 1]],
            )
            .select(self._output.names())
            .cast(self._output)
            .with_columns(pl.lit(end - 1, pl.Int64).alias(EVENT_MS))
            for i, (key, start, end) in enumerate(bounds)
        ]
