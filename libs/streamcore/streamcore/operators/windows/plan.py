"""What a windowed operator was asked for, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from streamcore.operators.windows.bundle import Bundle
from streamcore.operators.windows.columns import Shape
from streamcore.operators.windows.values import PaneFunction
from streamcore.windowing.spec import WindowSpec


@dataclass(frozen=True, slots=True)
class Plan:
    """``schema``: the input's columns without EVENT_MS; ``keys``: those of them that are the key. What a pane is is
    said by ``function``, or else by the aggregates of ``bundle``. ``max_windows``: beyond it no window begins."""

    spec: WindowSpec
    keys: Mapping[str, pl.DataType]
    schema: Mapping[str, pl.DataType]
    bundle: Bundle
    function: PaneFunction | None
    max_windows: int

    @property
    def keeps_elements(self) -> bool:
        """Whether partials do not suffice."""
        return self.function is not None or self.spec.evictor is not None

    @property
    def shape(self) -> Shape:
        """The columns of the outputs."""
        values = self.function.schema if self.function else self.bundle.results
        return Shape(self.spec.assigner, self.keys, values)
