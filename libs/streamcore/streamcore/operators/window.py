"""The windowed operator: rows in, panes out, as ``streamcore.windowing`` says.

Equal to ``ReferenceWindows`` fed with the clock of a cut, then its rows one by one, then its next watermark. Two paths
lie behind it: one in columns, for what most windows are, and a general one. Which of them serves is decided by the
spec alone, and their outputs have the same meaning; between keys the order of panes is fixed, whatever the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.aggregates.aggregate import Aggregate
from streamcore.errors import ConfigError
from streamcore.operators.operator import LATE, LATE_REASON, LATENESS_MS, MAIN, Ports, StepTime
from streamcore.operators.windows.assigning import fields_of
from streamcore.operators.windows.bundle import Bundle
from streamcore.operators.windows.columns import (
    IS_FINAL,
    IS_RETRACTION,
    PANE,
    TIMING,
    WINDOW_END,
    WINDOW_FIRST,
    WINDOW_START,
    WINDOW_STOP,
)
from streamcore.operators.windows.one_by_one import OneByOne
from streamcore.operators.windows.paned import Paned, fires_at_end
from streamcore.operators.windows.paning import paning_of
from streamcore.operators.windows.plan import Plan
from streamcore.operators.windows.session_windows import SessionWindows
from streamcore.operators.windows.tally import Tally
from streamcore.operators.windows.values import PaneFunction
from streamcore.schema import EVENT_MS
from streamcore.state.table import StateTable
from streamcore.windowing.assigners import Session
from streamcore.windowing.spec import WindowSpec

#: How many windows of a shard may live at a time, unless it is said otherwise.
MAX_WINDOWS = 10_000_000


class WindowOperator:
    """Windows per key over rows of ``schema`` (all columns but EVENT_MS). An ``Operator``.

    ``aggregates``: what a pane is, by the names of its columns; or ``function``: a function of all its elements.
    MAIN: the key's columns, ``window_start`` and ``window_end`` (UTC; null for the global window; for count windows
    ``window_first`` and ``window_stop``, numbers of elements), ``pane``, ``timing``, ``is_final``, ``is_retraction``,
    the values, and EVENT_MS: the last millisecond of the window, or, of global and count windows, the latest event
    time that the window has taken. ``(key, window, pane)`` is a row's unique name where ``aggregates`` are given.
    LATE, unless ``late_lane`` is off: the input's columns, LATE_REASON, LATENESS_MS and the window's columns, a row a
    window that did not take the element. ``max_windows``: beyond so many live ones (or pieces of shared ones) none
    begins, and what would have gone into it is counted as ``refused``.
    """

    def __init__(
        self,
        spec: WindowSpec,
        keys: tuple[str, ...],
        schema: Mapping[str, pl.DataType],
        aggregates: Mapping[str, Aggregate] | None = None,
        *,
        function: PaneFunction | None = None,
        late_lane: bool = True,
        max_windows: int = MAX_WINDOWS,
    ) -> None:
        bundle = Bundle(dict(aggregates or {}), dict(schema))
        _check(keys, schema, bundle, function, max_windows)
        fields_of(spec, schema)
        plan = Plan(spec, {key: schema[key] for key in keys}, dict(schema), bundle, function, max_windows)
        self.schema = plan.shape.main
        self.late_lane = late_lane
        self._tally = Tally()
        self._path = _path(plan, self._tally)

    @property
    def output_delay_ms(self) -> int:
        """None: a pane on time is never before the watermark that it met."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: StepTime) -> Ports:
        """Process a cut."""
        main, late = self._path.step(inputs[0], time)
        return {MAIN: main, LATE: late} if self.late_lane else {MAIN: main}

    def tables(self) -> Mapping[str, StateTable]:
        """All state."""
        return self._path.tables()

    def loaded(self) -> None:
        """Take what was loaded."""
        self._path.settle()

    def metrics(self) -> Mapping[str, int]:
        """As ``windowing.Counts``; ``refused`` by ``max_windows``; ``truncated`` by limits of aggregates."""
        return self._tally.take()


def _path(plan: Plan, tally: Tally) -> Paned | SessionWindows | OneByOne:
    """Columns where they can do it."""
    spec, assigner = plan.spec, plan.spec.assigner
    if fires_at_end(spec.trigger) and not plan.keeps_elements:
        paning = paning_of(assigner)
        if paning is not None:
            return Paned(plan, tally, paning)
        if isinstance(assigner, Session) and spec.allowed_lateness_ms == 0:
            return SessionWindows(plan, tally, assigner)
    return OneByOne(plan, tally)


def _check(
    keys: Sequence[str],
    schema: Mapping[str, pl.DataType],
    bundle: Bundle,
    function: PaneFunction | None,
    max_windows: int,
) -> None:
    if bool(bundle.aggregates) == (function is not None):
        raise ConfigError("a pane is said either by aggregates or by a function: give one of them")
    if max_windows < 1:
        raise ConfigError(f"max_windows must be positive, not {max_windows}")
    missing = [key for key in keys if key not in schema]
    if missing:
        raise ConfigError(f"key {missing[0]!r} is no column of the input: {', '.join(schema)}")
    bounds = [WINDOW_START, WINDOW_END, WINDOW_FIRST, WINDOW_STOP]
    values = function.schema if function else bundle.aggregates
    _once("the output", [*keys, *bounds, PANE, TIMING, IS_FINAL, IS_RETRACTION, *values, EVENT_MS])
    _once("late rows", [*schema, *bounds, LATE_REASON, LATENESS_MS, EVENT_MS])


def _once(where: str, names: Sequence[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"column {twice[0]!r} would stand twice in {where}: rename it")
