"""Aggregates that users define.

The state of such an aggregate for a group is a plain Python value with a declared Arrow type. After every creation and
merge all states are converted to that type and back. So they can be stored without pickle, storing them changes
nothing, and user code that changes a value changes its own copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from streamcore.aggregates.base import Aggregate, Ints, Mask, Partials, Schema
from streamcore.aggregates.list_columns import object_array
from streamcore.arguments import check_type
from streamcore.calls import CALL_ERRORS, failure_reason
from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import Element, Result

Function = Callable[..., Any]
#: Makes the arguments of several calls anew, as copies.
Arguments = Callable[[], Iterable[tuple[Any, ...]]]


class Accumulator(ABC):
    """A user's aggregate, written over one frame for each group.

    The methods are pure functions: they read no clock and no random number, and keep nothing in the object. ``merge``
    must be associative, and merging with ``create()`` must change nothing. The state and the values of rows are Python
    values: a list column gives lists, a struct column dicts. ``RowAccumulator`` adds rows one at a time.

    An exception, or a value of a wrong type, is a dead letter. If ``add`` fails on a row alone, added to ``create()``,
    the row is left out as if it had not arrived. If another call fails, its pane (the total of its key) is not emitted.
    Whether a call fails must depend on its arguments alone. ``add`` is called once more for each row, to find this out.
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
    """The aggregate of an accumulator, which must be picklable (a class on the top level of a module).

    A row on which ``add`` fails by itself is left out (``failing_rows``). If another call fails, or returns a value of
    a wrong type, the partial has failed: ``failed`` is the reason. It passes to every partial that is made of this one,
    and their result is null.
    """

    calls_user_code = True

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
        try:
            self._to_state(self.accumulator.create())
        except CALL_ERRORS as error:
            raise ConfigError(f"{self}: {self._reason('create', error)}") from error
        return self.accumulator.returns

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:  # noqa: ARG002 - the accumulator declares it
        return {"state": self.accumulator.state, "failed": pl.String()}

    def failing_rows(self, rows: pl.DataFrame) -> Mapping[int, str]:
        """Return the rows on which ``add`` fails, each added alone to the state of no rows."""
        failed: dict[int, str] = {}
        if rows.height:
            self._find_failing(rows.select(*self.inputs, EVENT_MS), 0, failed)
        return failed

    def _find_failing(self, rows: pl.DataFrame, first: int, failed: dict[int, str]) -> None:
        """Search halves of the rows, down to those that fail. ``first``: the number of the first row."""
        try:
            self._to_state(self._add_rows(rows))
        except CALL_ERRORS as error:
            reason = self._reason("add", error)
            if rows.height == 1:
                failed[first] = reason
                return
            half = rows.height // 2
            self._find_failing(rows[:half], first, failed)
            self._find_failing(rows[half:], first + half, failed)

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        order = np.argsort(group, kind="stable")
        sorted_rows = rows.select(*self.inputs, EVENT_MS)[order]
        counts = np.bincount(group, minlength=groups)
        ends = np.cumsum(counts)
        starts = ends - counts

        def pieces() -> Iterator[tuple[pl.DataFrame]]:
            return ((sorted_rows[start:end],) for start, end in zip(starts.tolist(), ends.tolist(), strict=True))

        return self._states("add", self._add_rows, pieces, [None] * groups)

    def merge(self, left: Partials, right: Partials) -> Partials:
        return self._combine_pairs("merge", self.accumulator.merge, left, right)

    def can_subtract(self, schema: Schema) -> bool:  # noqa: ARG002 - the accumulator decides
        return type(self.accumulator).subtract is not Accumulator.subtract

    def subtract(self, total: Partials, part: Partials) -> Partials:
        return self._combine_pairs("subtract", self.accumulator.subtract, total, part)

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        return self.try_result(partials, schema)[0]

    def find_failed(self, partials: Partials) -> Mask:
        return np.array([reason is not None for reason in partials["failed"].tolist()], dtype=bool)

    def try_result(self, partials: Partials, schema: Schema) -> tuple[pl.Series, Mapping[int, str]]:  # noqa: ARG002
        failed = partials["failed"].tolist()

        def states() -> Iterator[tuple[Any]]:
            return ((state,) for state in self._copy_states(partials))

        results = self._call_each("result", self.accumulator.result, states, failed, self.accumulator.returns)
        return results, {n: reason for n, reason in enumerate(failed) if reason is not None}

    def load(self, columns: Sequence[pl.Series], schema: Schema) -> Partials:  # noqa: ARG002
        return {"state": object_array(columns[0].to_list()), "failed": object_array(columns[1].to_list())}

    def reference(self, elements: Sequence[Element]) -> Result:
        rows = [{EVENT_MS: element.event_ms} | dict(element.value) for element in elements]
        frame = pl.DataFrame(rows, schema=dict(self.accumulator.columns) | {EVENT_MS: pl.Int64()})
        value = self.accumulator.result(self._add_rows(frame))
        return tuple(value) if isinstance(value, list) else value

    def _add_rows(self, rows: pl.DataFrame) -> Any:
        state = self.accumulator.create()
        return self.accumulator.add(state, rows) if rows.height else state

    def _combine_pairs(
        self, method: str, combine: Callable[[Any, Any], Any], left: Partials, right: Partials
    ) -> Partials:
        """Combine the states pair by pair. What an earlier call failed for stays failed."""

        def pairs() -> Iterator[tuple[Any, Any]]:
            return zip(self._copy_states(left), self._copy_states(right), strict=True)

        failed = [mine or other for mine, other in zip(left["failed"].tolist(), right["failed"].tolist(), strict=True)]
        return self._states(method, combine, pairs, failed)

    def _states(self, method: str, function: Function, arguments: Arguments, failed: list[str | None]) -> Partials:
        states = self._call_each(method, function, arguments, failed, self.accumulator.state)
        return {"state": object_array(states.to_list()), "failed": object_array(failed)}

    def _call_each(
        self, method: str, function: Function, arguments: Arguments, failed: list[str | None], dtype: pl.DataType
    ) -> pl.Series:
        """Return the function's result for each tuple of arguments, null where ``failed`` has a reason.

        A call that fails, or returns no value of ``dtype``, puts its reason there. All values are converted at once;
        only if that fails, each call is made again, with new copies of its arguments, and its value converted alone.
        """
        if not any(failed):
            with suppress(*CALL_ERRORS):
                return pl.Series([function(*values) for values in arguments()], dtype=dtype)
        results: list[Any] = []
        for n, values in enumerate(arguments()):
            result = None
            if failed[n] is None:
                try:
                    result = pl.Series([function(*values)], dtype=dtype).to_list()[0]
                except CALL_ERRORS as error:
                    failed[n] = self._reason(method, error)
            results.append(result)
        return pl.Series(results, dtype=dtype)

    def _reason(self, method: str, error: BaseException) -> str:
        return failure_reason(f"{type(self.accumulator).__name__}.{method}", error)

    def _to_state(self, value: Any) -> pl.Series:
        return pl.Series([value], dtype=self.accumulator.state)

    def _copy_states(self, partials: Partials) -> list[Any]:
        """Return copies of the states, which the accumulator may change."""
        return pl.Series(partials["state"].tolist(), dtype=self.accumulator.state).to_list()
