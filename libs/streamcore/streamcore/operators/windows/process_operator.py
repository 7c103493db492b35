"""Windows whose panes a function of the user processes, with state of its own and side outputs.

::

    class Changes(ProcessWindowFunction):
        outputs = {MAIN: {"n": pl.Int64, "change": pl.Int64}, "large": {"user": pl.String, "n": pl.Int64}}
        before = ValueState(int, default=0)                     # of the key
        panes = per_window(ValueState(int, default=0))          # of the window

        def process(self, window, context):
            n = window.elements.height
            if n > 100:
                context.side("large", {"user": window.key[0], "n": n})
            yield {"n": n, "change": n - self.before}
            self.before = n
            self.panes += 1

The function is called once for each pane, of a key in the order of the panes. So what it gets does not depend on cuts
as far as the panes do not. There are no retractions, because a call may depend on the state before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.arguments import check_type
from streamcore.errors import ConfigError
from streamcore.keyed import KeyedLimits, UserFunction
from streamcore.keyed.function import Rows
from streamcore.keyed.runtime_context import RuntimeContext
from streamcore.operators.base import LATE, MAIN, CutTime, Ports
from streamcore.operators.failures import FAILED, FAILED_PANE
from streamcore.operators.group_calls import GroupCalls, GroupContext
from streamcore.operators.windows.general.pane_values import PaneFunction, WindowView
from streamcore.operators.windows.operator import WindowOperator
from streamcore.schema import EVENT_MS
from streamcore.state.table import StateTable
from streamcore.windowing.model import Accumulation
from streamcore.windowing.spec import WindowSpec


class ProcessWindowFunction(UserFunction):
    """The base class of a function of panes. ``outputs``: of port ``MAIN``, the columns beside key, window and pane."""

    def process(self, window: WindowView, context: GroupContext) -> Rows:
        """Process one pane. Return or yield the rows for port ``MAIN``: mappings from columns to values."""
        raise NotImplementedError


class ProcessWindows:
    """The operator: ``WindowOperator`` whose panes' values are what the function returns, and its side outputs."""

    def __init__(
        self,
        function: ProcessWindowFunction,
        spec: WindowSpec,
        keys: tuple[str, ...],
        schema: Mapping[str, pl.DataType],
        *,
        late_lane: bool = True,
        limits: KeyedLimits | None = None,
    ) -> None:
        remedy = "write a class that extends ProcessWindowFunction, and give its instance"
        check_type("process", function, ProcessWindowFunction, remedy)
        if spec.accumulation is Accumulation.RETRACTING:
            raise ConfigError(
                f"{type(function).__name__}: a retraction would be computed with later state; use accumulating or "
                "discarding panes"
            )
        self._spec = spec
        by_watermark = spec.assigner.in_event_time
        self._calls = GroupCalls(
            function,
            {key: schema[key] for key in keys},
            (FAILED, FAILED_PANE, LATE),
            has_window_state=not spec.assigner.merges,
            lateness_ms=spec.allowed_lateness_ms if by_watermark else None,
            limits=limits,
        )
        compute = _NamedCall(self._compute, self._calls.__name__)
        self._windows = WindowOperator(
            spec, keys, schema, function=PaneFunction(compute, self._calls.schemas[MAIN]), late_lane=late_lane
        )

    @property
    def output_delay_ms(self) -> int:
        """Return that of the windows."""
        return self._windows.output_delay_ms

    def open(self, context: RuntimeContext) -> None:
        """Open the function."""
        self._calls.open(context)

    def close(self) -> None:
        """Close the function."""
        self._calls.close()

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process a cut."""
        self._calls.begin(time)
        ports = self._windows.step(inputs, time)
        return {**ports, **self._calls.end(time.next_watermark_ms)}

    def tables(self) -> Mapping[str, StateTable]:
        """Return the tables of the windows and those of the function."""
        return {**self._windows.tables(), **self._calls.tables()}

    def on_state_loaded(self) -> None:
        """Take the loaded rows."""
        self._windows.on_state_loaded()
        self._calls.on_state_loaded()

    def metrics(self) -> Mapping[str, int]:
        """Return the counts of the windows."""
        return self._windows.metrics()

    def _compute(self, view: WindowView) -> pl.DataFrame:
        assigner = self._spec.assigner
        is_bounded = assigner.in_event_time and assigner.ends
        latest = view.elements[EVENT_MS].max()
        event_ms = view.end - 1 if is_bounded or not isinstance(latest, int) else latest
        window = (view.first, view.end)
        try:
            return self._calls.call(view.key, window, event_ms, view)
        finally:
            if view.is_final:
                self._calls.end_window(view.key, window)


class _NamedCall:
    """A method under the name that messages have."""

    def __init__(self, call: object, name: str) -> None:
        self._call = call
        self.__name__ = name

    def __call__(self, view: WindowView) -> pl.DataFrame:
        rows: pl.DataFrame = self._call(view)  # type: ignore[operator]  # a method of the class above
        return rows
