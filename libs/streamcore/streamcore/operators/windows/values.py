"""From what panes said to columns: results of aggregates, or the rows of a full window function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.operators.windows.arena import NOTHING, Arena
from streamcore.operators.windows.bundle import Bundle
from streamcore.operators.windows.contents import View
from streamcore.operators.windows.live import Fired
from streamcore.operators.windows.table import Ints
from streamcore.operators.windows.tables import bounds
from streamcore.operators.windows.tally import Tally
from streamcore.schema import EVENT_MS
from streamcore.windowing.values import Element, Timing


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
    """A function of all elements of a pane, and the columns of the rows that it answers. It must be pure: a retraction
    is computed anew from what the pane said."""

    compute: Callable[[WindowView], PaneRows]
    schema: Mapping[str, pl.DataType]


class Values(Protocol):
    """How the values of panes are computed."""

    def of(self, fired: Sequence[Fired], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        """Rows of values, and the pane of each. ``keys``: the key of each pane."""
        ...


class Results:
    """Aggregates over nodes."""

    def __init__(self, arena: Arena, tally: Tally) -> None:
        self.arena = arena
        self.tally = tally

    def of(self, fired: Sequence[Fired], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        nodes = [one.view if isinstance(one.view, int) else NOTHING for one in fired]
        partials = self.arena.partials(np.asarray(nodes, dtype=np.int64))
        self.tally.truncated += self.arena.bundle.truncated(partials)
        return np.arange(len(fired)), self.arena.bundle.values(partials)


class Recomputed:
    """Aggregates over the elements that an evictor has left."""

    def __init__(self, bundle: Bundle, tally: Tally) -> None:
        self.bundle = bundle
        self.tally = tally

    def of(self, fired: Sequence[Fired], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:  # noqa: ARG002
        views = [_elements(one.view) for one in fired]
        every = [element for view in views for element in view]
        numbers = np.array([element.number for element in every], dtype=np.int64)
        group = np.repeat(np.arange(len(views)), [len(view) for view in views])
        partials = self.bundle.group(frame_of(every, self.bundle.schema), numbers, group, len(views))
        self.tally.truncated += self.bundle.truncated(partials)
        return np.arange(len(fired)), self.bundle.values(partials)


class Called:
    """A full window function."""

    def __init__(self, function: PaneFunction, schema: Mapping[str, pl.DataType]) -> None:
        self.function = function
        self.schema = schema

    def of(self, fired: Sequence[Fired], keys: pl.DataFrame) -> tuple[Ints, list[pl.Series]]:
        named = keys.rows() if keys.width else [()] * len(fired)
        parts = [self._rows(one, key) for one, key in zip(fired, named, strict=True)]
        pane = np.repeat(np.arange(len(parts)), [part.height for part in parts])
        empty = pl.DataFrame(schema=self.function.schema)
        return pane, pl.concat([empty, *parts]).get_columns()

    def _rows(self, one: Fired, key: tuple[object, ...]) -> pl.DataFrame:
        elements = frame_of(_elements(one.view), self.schema)
        answer = self.function.compute(WindowView(key, *bounds(one.window), one.pane, one.timing, elements))
        if not isinstance(answer, pl.DataFrame):
            return pl.DataFrame(list(answer), schema=self.function.schema, orient="row")
        return answer.select(pl.col(name).cast(dtype) for name, dtype in self.function.schema.items())


def frame_of(elements: Sequence[Element], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Elements as rows again."""
    columns = [pl.Series(n, [e.value[n] for e in elements], dtype=dtype) for n, dtype in schema.items()]
    return pl.DataFrame([*columns, pl.Series(EVENT_MS, [e.event_ms for e in elements], dtype=pl.Int64)])


def _elements(view: View) -> tuple[Element, ...]:
    return () if isinstance(view, int) else view
