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
    """The argument of a full window function: one pane.

    ``key``: the values of the key columns. ``first`` and ``end``: the bounds of the window, in epoch milliseconds or,
    for count windows, in numbers of elements; ``end`` is exclusive. ``pane``: the number of the pane in its window,
    from 0. ``elements``: the input rows of the pane, in order of arrival.
    """

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
    """Computes the values of the panes of a cut."""

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        """Return, for each output row, the index of its pane in ``fired``, and the columns of values.

        ``keys``, of shape (panes,): the keys of the panes.
        """
        ...


class AggregateValues:
    """Computes aggregates from partials."""

    def __init__(self, partial_store: PartialStore, metrics: WindowMetrics) -> None:
        self.partial_store = partial_store
        self.metrics = metrics

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        nodes = [firing.view if isinstance(firing.view, int) else NOTHING for firing in fired]
        partials = self.partial_store.partials(np.asarray(nodes, dtype=np.int64))
        self.metrics.truncated += self.partial_store.aggregate_set.count_truncated(partials)
        return np.arange(len(fired)), self.partial_store.aggregate_set.values(partials)


class RecomputedValues:
    """Computes aggregates from the elements that the evictor keeps."""

    def __init__(self, aggregate_set: AggregateSet, metrics: WindowMetrics) -> None:
        self.aggregate_set = aggregate_set
        self.metrics = metrics

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        views = [_elements(firing.view) for firing in fired]
        elements = [element for view in views for element in view]
        numbers = np.array([element.number for element in elements], dtype=np.int64)
        group = np.repeat(np.arange(len(views)), [len(view) for view in views])
        partials = self.aggregate_set.aggregate_groups(
            to_frame(elements, self.aggregate_set.schema), numbers, group, len(views)
        )
        self.metrics.truncated += self.aggregate_set.count_truncated(partials)
        return np.arange(len(fired)), self.aggregate_set.values(partials)


class FunctionValues:
    """Computes the rows of a full window function."""

    def __init__(self, function: PaneFunction, schema: Mapping[str, pl.DataType]) -> None:
        self.function = function
        self.schema = schema

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        key_rows = keys.rows() if keys.width else [()] * len(fired)
        frames = [self._rows(firing, key) for firing, key in zip(fired, key_rows, strict=True)]
        pane = np.repeat(np.arange(len(frames)), [frame.height for frame in frames])
        empty = pl.DataFrame(schema=self.function.schema)
        return pane, pl.concat([empty, *frames]).get_columns()

    def _rows(self, firing: PaneFiring, key: tuple[object, ...]) -> pl.DataFrame:
        elements = to_frame(_elements(firing.view), self.schema)
        rows = self.function.compute(WindowView(key, *bounds(firing.window), firing.pane, firing.timing, elements))
        if not isinstance(rows, pl.DataFrame):
            return pl.DataFrame(list(rows), schema=self.function.schema, orient="row")
        return rows.select(pl.col(name).cast(dtype) for name, dtype in self.function.schema.items())


def to_frame(elements: Sequence[Element], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the elements as a frame, with their event times."""
    columns = [pl.Series(n, [e.value[n] for e in elements], dtype=dtype) for n, dtype in schema.items()]
    return pl.DataFrame([*columns, pl.Series(EVENT_MS, [e.event_ms for e in elements], dtype=pl.Int64)])


def _elements(view: View) -> tuple[Element, ...]:
    return () if isinstance(view, int) else view
