"""The values of emitted panes in columns: results of aggregates, or the rows of a full window function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.calls import CALL_ERRORS, check_times, failure_reason, get_call_name
from streamcore.columnar.hash_table import Ints
from streamcore.errors import ConfigError
from streamcore.operators.failures import FailedCall, PaneFailures
from streamcore.operators.windows.aggregate_set import AggregateSet
from streamcore.operators.windows.general.contents import FailedView, View
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
    from 0. ``elements``: the input rows of the pane, in order of arrival. ``is_final``: no pane of the window follows.
    """

    key: tuple[object, ...]
    first: int
    end: int
    pane: int
    timing: Timing
    elements: pl.DataFrame
    is_final: bool = False


#: A pane's rows: a frame, or a mapping a row.
PaneRows = pl.DataFrame | Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class PaneFunction:
    """A function of all elements of a pane, and the columns of the rows that it returns.

    It must be pure, because a retraction is computed again from the contents of the pane. If it raises, or returns rows
    that do not fit ``schema``, the pane is a failed one (``streamcore.operators.failures``), and has no retraction.
    """

    compute: Callable[[WindowView], PaneRows]
    schema: Mapping[str, pl.DataType]

    @property
    def name(self) -> str:
        """Return the function's name for messages."""
        return get_call_name(self.compute)

    def rows(self, view: WindowView) -> pl.DataFrame:
        """Call the function, and return its rows with the columns of ``schema``."""
        rows: object = self.compute(view)
        if isinstance(rows, pl.DataFrame):
            return check_times(rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items()))
        if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Mapping):
            raise ConfigError(f"it returns {type(rows).__name__}; return a frame, or a mapping for each row")
        return pl.DataFrame(self._columns(list(rows)))

    def _columns(self, rows: Sequence[object]) -> list[pl.Series]:
        mappings = [row for row in rows if isinstance(row, Mapping) and row.keys() == self.schema.keys()]
        if len(mappings) < len(rows):
            raise ConfigError(f"it returns a row that is no mapping with the columns {[*self.schema]}")
        return [pl.Series(name, [row[name] for row in mappings], dtype=dtype) for name, dtype in self.schema.items()]


class PaneValues(Protocol):
    """Computes the values of the panes of a cut."""

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        """Return, for each output row, the index of its pane in ``fired``, and the columns of values.

        ``keys``, of shape (panes,): the keys of the panes.
        """
        ...


class AggregateValues:
    """Computes aggregates from partials."""

    def __init__(self, partial_store: PartialStore, metrics: WindowMetrics, failures: PaneFailures | None) -> None:
        self.partial_store = partial_store
        self.metrics = metrics
        self.failures = failures

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        nodes = [firing.view if isinstance(firing.view, int) else NOTHING for firing in fired]
        partials = self.partial_store.partials(np.asarray(nodes, dtype=np.int64))
        self.metrics.truncated += self.partial_store.aggregate_set.count_truncated(partials)
        failed = {n: FailedCall(f.view.reason) for n, f in enumerate(fired) if isinstance(f.view, FailedView)}
        return np.arange(len(fired)), self.partial_store.aggregate_set.values(partials, self.failures, failed)


class RecomputedValues:
    """Computes aggregates from the elements that the evictor keeps."""

    def __init__(self, aggregate_set: AggregateSet, metrics: WindowMetrics, failures: PaneFailures | None) -> None:
        self.aggregate_set = aggregate_set
        self.metrics = metrics
        self.failures = failures

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        views = [() if isinstance(firing.view, FailedView) else _elements(firing.view) for firing in fired]
        failed = {
            n: FailedCall(firing.view.reason, (to_frame(firing.view.elements, self.aggregate_set.schema),))
            for n, firing in enumerate(fired)
            if isinstance(firing.view, FailedView)
        }
        elements = [element for view in views for element in view]
        numbers = np.array([element.number for element in elements], dtype=np.int64)
        group = np.repeat(np.arange(len(views)), [len(view) for view in views])
        partials = self.aggregate_set.aggregate_groups(
            to_frame(elements, self.aggregate_set.schema), numbers, group, len(views)
        )
        self.metrics.truncated += self.aggregate_set.count_truncated(partials)
        return np.arange(len(fired)), self.aggregate_set.values(partials, self.failures, failed)


class FunctionValues:
    """Computes the rows of a full window function. A pane on which it fails is a row of nulls with the failure."""

    def __init__(self, function: PaneFunction, schema: Mapping[str, pl.DataType], failures: PaneFailures) -> None:
        self.function = function
        self.schema = schema
        self.failures = failures
        self._nulls = pl.DataFrame(schema=function.schema).clear(1)

    def compute(self, fired: Sequence[PaneFiring], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        key_rows = keys.rows() if keys.width else [()] * len(fired)
        frames: list[pl.DataFrame] = [self._nulls.clear()]
        failed: dict[int, FailedCall] = {}
        height = 0
        for firing, key in zip(fired, key_rows, strict=True):
            rows = self._rows(firing, key)
            if isinstance(rows, FailedCall):
                failed[height] = rows
                rows = self._nulls
            frames.append(rows)
            height += rows.height
        pane = np.repeat(np.arange(len(fired)), [frame.height for frame in frames[1:]])
        return pane, [*pl.concat(frames).get_columns(), *self.failures.series(height, failed)]

    def _rows(self, firing: PaneFiring, key: tuple[object, ...]) -> pl.DataFrame | FailedCall:
        elements = to_frame(_elements(firing.view), self.schema)
        if isinstance(firing.view, FailedView):
            return FailedCall(firing.view.reason, (elements,))
        view = WindowView(
            key, *bounds(firing.window), firing.pane, firing.timing, elements.clone(), is_final=firing.final
        )
        try:
            return self.function.rows(view)
        except CALL_ERRORS as error:
            return FailedCall(failure_reason(self.function.name, error), (elements,))


def to_frame(elements: Sequence[Element], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the elements as a frame, with their event times."""
    columns = [pl.Series(n, [e.value[n] for e in elements], dtype=dtype) for n, dtype in schema.items()]
    return pl.DataFrame([*columns, pl.Series(EVENT_MS, [e.event_ms for e in elements], dtype=pl.Int64)])


def _elements(view: View) -> tuple[Element, ...]:
    if isinstance(view, FailedView):
        return view.elements
    return () if isinstance(view, int) else view
