"""A co-group whose function keeps state and has side outputs (``streamcore.operators.group_calls``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.arguments import check_type
from streamcore.keyed import KeyedLimits, UserFunction
from streamcore.keyed.function import Rows
from streamcore.keyed.runtime_context import RuntimeContext
from streamcore.operators.base import LATE, MAIN, CutTime, Ports
from streamcore.operators.failures import FAILED_PANE
from streamcore.operators.group_calls import GroupCalls, GroupContext
from streamcore.operators.joins.cogroup import KEYLESS, CoGroup
from streamcore.operators.joins.join_input import REJECTED
from streamcore.operators.joins.output_columns import Schema
from streamcore.operators.joins.window_matching import WindowedSpec
from streamcore.state.table import StateTable
from streamcore.windowing.model import Window


class ProcessCoGroupFunction(UserFunction):
    """The base class of a function of all rows of both sides of a key and window, with the states of the key."""

    def process(
        self, key: tuple[object, ...], window: Window, left: pl.DataFrame, right: pl.DataFrame, context: GroupContext
    ) -> Rows:
        """Process one group, of which one side may be empty. Return or yield the rows for port ``MAIN``."""
        raise NotImplementedError


class ProcessCoGroup:
    """The operator: ``CoGroup`` whose rows are what the function returns, and its side outputs.

    The function is called once for each group; the groups of a key come in the order of their windows.
    """

    def __init__(
        self,
        function: ProcessCoGroupFunction,
        spec: WindowedSpec,
        left: Schema,
        right: Schema,
        *,
        limits: KeyedLimits | None = None,
    ) -> None:
        remedy = "write a class that extends ProcessCoGroupFunction, and give its instance"
        check_type("process", function, ProcessCoGroupFunction, remedy)
        key = {name: left[name] for name in spec.keys.left}
        self._calls = GroupCalls(function, key, (FAILED_PANE, KEYLESS, LATE, REJECTED), limits=limits)
        self._groups = CoGroup(spec, self, self._calls.schemas[MAIN], left, right)

    @property
    def __name__(self) -> str:
        """The name of the function in messages."""
        return self._calls.__name__

    def __call__(
        self, key: tuple[object, ...], window: Window, left: pl.DataFrame, right: pl.DataFrame
    ) -> pl.DataFrame:
        """Call the function for one group."""
        bounds = (window.start_ms, window.end_ms)
        return self._calls.call(key, bounds, window.end_ms - 1, key, window, left, right)

    @property
    def output_delay_ms(self) -> int:
        """Return that of the co-group."""
        return self._groups.output_delay_ms

    def open(self, context: RuntimeContext) -> None:
        """Open the function."""
        self._calls.open(context)

    def close(self) -> None:
        """Close the function."""
        self._calls.close()

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process a cut."""
        self._calls.begin(time)
        ports = self._groups.step(inputs, time)
        return {**ports, **self._calls.end(time.next_watermark_ms)}

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables of the co-group and those of the function."""
        return {**self._groups.tables(), **self._calls.tables()}

    def on_state_loaded(self) -> None:
        """Take the loaded rows."""
        self._groups.on_state_loaded()
        self._calls.on_state_loaded()

    def metrics(self) -> Mapping[str, int]:
        """Return the counts of the co-group."""
        return self._groups.metrics()
