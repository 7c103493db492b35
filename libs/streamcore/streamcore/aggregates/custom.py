"""Aggregates that users define.

The state of such an aggregate for a group is a plain Python value with a declared Arrow type. After every creation and
merge all states are converted to that type and back. So they can be stored without pickle, storing them changes
nothing, and user code that changes a value changes its own copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from streamcore.aggregates.base import Aggregate, Array, Ints, Partials, Schema
from streamcore.aggregates.list_columns import object_array
from streamcore.arguments import check_type
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import Element, Result


class Accumulator(ABC):
    """A user's aggregate, written over one frame for each group.

    The methods are pure functions: they read no clock and no random number, and keep nothing in the object. ``merge``
    must be associative, and merging with ``create()`` must change nothing. The state and the values of rows are Python
    values: a list column gives lists, a struct column dicts. ``RowAccumulator`` adds rows one at a time.
    """

    #: The columns that the accumulator reads, in the order in which ``add`` receives them, and their types.
    columns: ClassVar[Mapping[str, pl.DataType]]
    #: The type in which the state of a group is stored.
    state: ClassVar[pl.DataType]
    #: The type of the result.
    returns: ClassVar[pl.DataType]

    @abstractmethod
    def create(self) -> Any:
        """Return the state of no rows."""

    @abstractmethod
    def add(self, state: Any, rows: pl.DataFrame) -> Any:
        """Return the state with these rows added: ``columns`` and ``EVENT_MS``, in order of arrival, nulls included."""

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any:
        """Return the state for the rows of both states. Their order of arrival is unknown."""

    def subtract(self, total: Any, part: Any) -> Any:
        """Return the state whose merge with ``part`` is ``total``, exactly.

        Optional. Rolling totals need it, and sliding windows are faster with it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no subtract")

    @abstractmethod
    def result(self, state: Any) -> Any:
        """Return the result for a state: a value of type ``returns``, or None."""


class RowAccumulator(Accumulator):
    """An accumulator that adds one row at a time: simple to write, slow for many rows."""

    @abstractmethod
    def add_row(self, state: Any, *values: Any) -> Any:
        """Return the state with one row added; ``values`` in the order of ``columns``."""

    def add(self, state: Any, rows: pl.DataFrame) -> Any:
        for values in rows.select(list(self.columns)).iter_rows():
            state = self.add_row(state, *values)
        return state


@dataclass(frozen=True)
class Custom(Aggregate):
    """The aggregate of an accumulator, which must be picklable (a class on the top level of a module)."""

    accumulator: Accumulator

    def __post_init__(self) -> None:
        check_type("Custom", self.accumulator, Accumulator, "write a class that extends it, and give its instance")

    def __str__(self) -> str:
        return f"Custom({type(self.accumulator).__name__})"

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self.accumulator.columns)

    def check(self, schema: Schema) -> pl.DataType:
        for column, expected in self.accumulator.columns.items():
            if (dtype := self.column_type(schema, column)) != expected:
                raise self.type_error(column, dtype, str(expected))
        return self.accumulator.returns

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:  # noqa: ARG002 - the accumulator declares it
        return {"state": self.accumulator.state}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        order = np.argsort(group, kind="stable")
        sorted_rows = rows.select(*self.inputs, EVENT_MS)[order]
        ends = np.cumsum(np.bincount(group, minlength=groups)).tolist()
        starts = [0, *ends[:-1]]
        pieces = (sorted_rows[start:end] for start, end in zip(starts, ends, strict=True))
        return self._store_states(self._add_rows(piece) for piece in pieces)

    def merge(self, left: Partials, right: Partials) -> Partials:
        return self._combine_pairs(self.accumulator.merge, left, right)

    def can_subtract(self, schema: Schema) -> bool:  # noqa: ARG002 - the accumulator decides
        return type(self.accumulator).subtract is not Accumulator.subtract

    def subtract(self, total: Partials, part: Partials) -> Partials:
        return self._combine_pairs(self.accumulator.subtract, total, part)

    def result(self, partials: Partials, schema: Schema) -> pl.Series:  # noqa: ARG002
        results = [self.accumulator.result(state) for state in self._copy_states(partials)]
        return pl.Series(results, dtype=self.accumulator.returns)

    def load(self, columns: Sequence[pl.Series], schema: Schema) -> Partials:  # noqa: ARG002
        return {"state": object_array(columns[0].to_list())}

    def reference(self, elements: Sequence[Element]) -> Result:
        rows = [{EVENT_MS: element.event_ms} | dict(element.value) for element in elements]
        frame = pl.DataFrame(rows, schema=dict(self.accumulator.columns) | {EVENT_MS: pl.Int64()})
        value = self.accumulator.result(self._add_rows(frame))
        return tuple(value) if isinstance(value, list) else value

    def _add_rows(self, rows: pl.DataFrame) -> Any:
        state = self.accumulator.create()
        return self.accumulator.add(state, rows) if rows.height else state

    def _combine_pairs(self, combine: Callable[[Any, Any], Any], left: Partials, right: Partials) -> Partials:
        pairs = zip(self._copy_states(left), self._copy_states(right), strict=True)
        return self._store_states(combine(left_state, right_state) for left_state, right_state in pairs)

    def _store_states(self, states: Iterable[Any]) -> dict[str, Array]:
        return {"state": object_array(pl.Series(list(states), dtype=self.accumulator.state).to_list())}

    def _copy_states(self, partials: Partials) -> list[Any]:
        """Return copies of the states, which the accumulator may change."""
        return pl.Series(partials["state"].tolist(), dtype=self.accumulator.state).to_list()
