"""The values of emitted panes in columns: results of aggregates, or the rows of a full window function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.operators.windows.aggregate_set import AggregateSet
from streamcore.operators.windows.general.contents import View
from streamcore.operators.windows.general.live_window import PaneFiring
from streamcore.operators.windows.general.partial_store import NOTHING, PartialStore
from streamcore.operators.windows.general.window_table import bounds
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import Element, Timing


@dataclass(frozen=True, slots=True)
class WindowView:
    """What a full window function sees. ``key``: its columns' values; ``first`` and ``end``: the window's bounds, in
    epoch milliseconds or numbers of elements; ``elements``: the input's columns, in order of arrival."""

    key: tuple[object, ...]
    first: int
    end: int
    pane: int
    timing: Timing
    elements: pl.DataFrame


#: A pane's rows: a frame, or a mapping a row.
PaneRows = pl.DataFrame | Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class PaneFunction:
    """A function of all elements of a pane, and the columns of the rows that it returns.

    It must be pure, because a retraction is computed again from the contents of the pane.
    """

    compute: Callable[[WindowView], PaneRows]
    schema: Mapping[str, pl.DataType]


class PaneValues(Protocol):
    """How the values of panes are computed."""

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        """Return rows of values, and the pane of each. ``keys``: the key of each pane."""
        ...


class AggregateValues:
    """Aggregates over nodes."""

    def __init__(self, partial_store: PartialStore, metrics: WindowMetrics) -> None:
        self.partial_store = partial_store
        self.metrics = metrics

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        nodes = [one.view if isinstance(one.view, int) else NOTHING for one in fired]
        partials = self.partial_store.partials(np.asarray(nodes, dtype=np.int64))
        self.metrics.truncated += self.partial_store.aggregate_set.count_truncated(partials)
        return np.arange(len(fired)), self.partial_store.aggregate_set.values(partials)


class RecomputedValues:
    """Aggregates over the elements that an evictor has left."""

    def __init__(self, aggregate_set: AggregateSet, metrics: WindowMetrics) -> None:
        self.aggregate_set = aggregate_set
        self.metrics = metrics

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        views = [_elements(one.view) for one in fired]
        every = [element for view in views for element in view]
        numbers = np.array([element.number for element in every], dtype=np.int64)
        group = np.repeat(np.arange(len(views)), [len(view) for view in views])
        partials = self.aggregate_set.aggregate_groups(
            to_frame(every, self.aggregate_set.schema), numbers, group, len(views)
        )
        self.metrics.truncated += self.aggregate_set.count_truncated(partials)
        return np.arange(len(fired)), self.aggregate_set.values(partials)


class FunctionValues:
    """A full window function."""

    def __init__(self, function: PaneFunction, schema: Mapping[str, pl.DataType]) -> None:
        self.function = function
        self.schema = schema

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        named = keys.rows() if keys.width else [()] * len(fired)
        parts = [self._rows(one, key) for one, key in zip(fired, named, strict=True)]
        pane = np.repeat(np.arange(len(parts)), [part.height for part in parts])
        empty = pl.DataFrame(schema=self.function.schema)
        return pane, pl.concat([empty, *parts]).get_columns()

    def _rows(self, one: PaneFiring, key: tuple[object, ...]) -> pl.DataFrame:
        elements = to_frame(_elements(one.view), self.schema)
        answer = self.function.compute(WindowView(key, *bounds(one.window), one.pane, one.timing, elements))
        if not isinstance(answer, pl.DataFrame):
            return pl.DataFrame(list(answer), schema=self.function.schema, orient="row")
        return answer.select(pl.col(name).cast(dtype) for name, dtype in self.function.schema.items())


def to_frame(elements: Sequence[Element], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return elements as rows again."""
    columns = [pl.Series(n, [e.value[n] for e in elements], dtype=dtype) for n, dtype in schema.items()]
    return pl.DataFrame([*columns, pl.Series(EVENT_MS, [e.event_ms for e in elements], dtype=pl.Int64)])


def _elements(view: View) -> tuple[Element, ...]:
    return () if isinstance(view, int) else view
