"""The checked plan of a windowed operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from streamcore.operators.failures import PaneFailures
from streamcore.operators.windows.aggregate_set import AggregateSet
from streamcore.operators.windows.general.pane_values import PaneFunction
from streamcore.operators.windows.output_columns import OutputSchema
from streamcore.windowing.spec import WindowSpec


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The checked settings of a windowed operator, with the types of its columns.

    ``schema``: the input columns without ``EVENT_MS``. ``keys``: the key columns among them. ``function`` computes the
    values of a pane; if it is None, the aggregates of ``aggregate_set`` do. ``max_windows``: how many live windows a
    shard has at most; the operator rejects elements that need another one.
    """

    spec: WindowSpec
    keys: Mapping[str, pl.DataType]
    schema: Mapping[str, pl.DataType]
    aggregate_set: AggregateSet
    function: PaneFunction | None
    max_windows: int

    @property
    def keeps_elements(self) -> bool:
        """Return whether windows keep their elements, because partials do not suffice."""
        return self.function is not None or self.spec.evictor is not None

    @property
    def failures(self) -> PaneFailures | None:
        """Return the columns of failed panes; None if no code of the user computes values."""
        if self.function or self.spec.calls_user_code:
            return PaneFailures({"": self.schema})
        return self.aggregate_set.failures

    @property
    def output(self) -> OutputSchema:
        """Return the schema of the panes and of the late rows."""
        values = self.function.schema if self.function else self.aggregate_set.results
        return OutputSchema(self.spec.assigner, self.keys, values)
