"""What a windowed operator was asked for, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from streamcore.operators.windows.aggregate_set import AggregateSet
from streamcore.operators.windows.general.pane_values import PaneFunction
from streamcore.operators.windows.output_columns import OutputSchema
from streamcore.windowing.spec import WindowSpec


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """``schema``: the input's columns without EVENT_MS; ``keys``: those of them that are the key. The values of a pane
    come from ``function``, or else from the aggregates of ``aggregate_set``. ``max_windows``: beyond it no window
    begins."""

    spec: WindowSpec
    keys: Mapping[str, pl.DataType]
    schema: Mapping[str, pl.DataType]
    aggregate_set: AggregateSet
    function: PaneFunction | None
    max_windows: int

    @property
    def keeps_elements(self) -> bool:
        """Return whether partials do not suffice."""
        return self.function is not None or self.spec.evictor is not None

    @property
    def output(self) -> OutputSchema:
        """Return the columns of the outputs."""
        values = self.function.schema if self.function else self.aggregate_set.results
        return OutputSchema(self.spec.assigner, self.keys, values)
