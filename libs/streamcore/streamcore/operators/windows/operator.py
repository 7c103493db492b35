"""The windowed operator: rows in, panes out, as ``streamcore.windowing`` defines them.

Equal to ``ReferenceWindows`` fed with the clock of a cut, then its rows one by one, then its next watermark. Several
paths lie behind it: three in columns, for what most windows are, and a general one, which takes one element at a time.
Which of them serves is decided by the specification and the aggregates alone, and their outputs have the same meaning;
between keys the order of panes is fixed, whatever the process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.aggregates.base import Aggregate
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime, Ports
from streamcore.operators.failures import ELEMENT_COUNT, ELEMENTS, FAILED, FAILED_PANE, FAILED_REASON
from streamcore.operators.windows.aggregate_set import AggregateSet
from streamcore.operators.windows.element_fields import fields_for
from streamcore.operators.windows.general.pane_values import PaneFunction
from streamcore.operators.windows.general.path import TriggeredWindows
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.operators.windows.output_columns import (
    IS_FINAL,
    IS_RETRACTION,
    PANE,
    TIMING,
    WINDOW_END,
    WINDOW_FIRST,
    WINDOW_START,
    WINDOW_STOP,
)
from streamcore.operators.windows.sessions.paging import PagedSessions
from streamcore.operators.windows.sessions.path import SessionWindows
from streamcore.operators.windows.sliced.paging import PagedSlices
from streamcore.operators.windows.sliced.path import SlicedWindows, fires_at_end
from streamcore.operators.windows.sliced.slicing import slicing_for
from streamcore.operators.windows.triggered.path import ColumnarTriggeredWindows, has_columnar_form
from streamcore.schema import EVENT_MS
from streamcore.state.cold.paged_state import PagedState
from streamcore.state.table import StateTable
from streamcore.windowing.assigners import Session, Sliding
from streamcore.windowing.spec import WindowSpec

#: The default limit of the live windows of a shard.
MAX_WINDOWS = 10_000_000


class WindowOperator:
    """The operator of windows per key, over rows of ``schema`` (all columns except EVENT_MS).

    ``aggregates``: the value columns of a pane by name; or ``function``: a function of all its elements.
    MAIN: the key's columns, ``window_start`` and ``window_end`` (UTC; null for the global window; for count windows
    ``window_first`` and ``window_stop``, numbers of elements), ``pane``, ``timing``, ``is_final``, ``is_retraction``,
    the values, and EVENT_MS: the last millisecond of the window, or, of global and count windows, the latest event
    time of the window's elements. ``(key, window, pane)`` identifies a row if ``aggregates`` are given.
    FAILED, FAILED_PANE, where code of the user computes the values: the rows and the panes for which a call fails
    (``streamcore.operators.failures``); a pane without its values.
    LATE, unless ``late_lane`` is off: the input's columns, LATE_REASON, LATENESS_MS and the window's columns, one row
    per window that dropped the element. ``max_windows``: the maximum of live windows (or slices of overlapping ones);
    elements of further windows are counted as ``rejected``.
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
        aggregate_set = AggregateSet(dict(aggregates or {}), dict(schema))
        _check(keys, schema, aggregate_set, function, max_windows)
        fields_for(spec, schema)
        plan = WindowPlan(spec, {key: schema[key] for key in keys}, dict(schema), aggregate_set, function, max_windows)
        self.schema = plan.output.main
        self.late_lane = late_lane
        self._aggregate_set = aggregate_set
        self._failures = plan.failures
        self._assigner = spec.assigner
        self._calls_user_code = spec.calls_user_code
        self._values = list(plan.output.values)
        self._metrics = WindowMetrics()
        self._path = _path(plan, self._metrics)
        if isinstance(self._path, SlicedWindows):
            self.paged_state: PagedState = PagedSlices(self._path)
        elif isinstance(self._path, SessionWindows):
            self.paged_state = PagedSessions(self._path)

    @property
    def output_delay_ms(self) -> int:
        """Return 0: a pane on time is never behind the watermark of its cut."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process a cut."""
        rows = self._in_windows(inputs[0])
        ports = {}
        if self._aggregate_set.failures is not None:
            rows, ports[FAILED] = self._aggregate_set.split_failing(rows)
            self._metrics.failed += ports[FAILED].height
        main, late = self._path.step(rows, time)
        if self._calls_user_code and isinstance(self._path, TriggeredWindows):
            failed = self._path.failed_rows(rows)
            self._metrics.failed += failed.height
            ports[FAILED] = pl.concat([ports[FAILED], failed]) if FAILED in ports else failed
        if self.late_lane:
            ports[LATE] = late
        if self._failures is None:
            return {MAIN: main, **ports}
        main, failed = self._failures.split(main, self._values)
        failed = failed.filter(~pl.col(IS_RETRACTION)).drop(IS_RETRACTION)  # a failed pane has nothing to retract
        self._metrics.failed += failed.height
        return {MAIN: main, FAILED_PANE: failed, **ports}

    def _in_windows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows without those between two windows that are samples."""
        assigner = self._assigner
        if not isinstance(assigner, Sliding) or assigner.slide_ms <= assigner.size_ms:
            return rows
        in_windows = rows.filter((pl.col(EVENT_MS) - assigner.offset_ms) % assigner.slide_ms < assigner.size_ms)
        self._metrics.elements += rows.height - in_windows.height
        return in_windows

    def tables(self) -> Mapping[str, StateTable]:
        """Return all state."""
        return self._path.tables()

    def on_state_loaded(self) -> None:
        """Take the loaded rows."""
        self._path.apply_loaded()

    def metrics(self) -> Mapping[str, int]:
        """Return the counts of ``windowing.WindowCounts``; ``rejected`` by ``max_windows``; ``truncated`` by limits of
        aggregates."""
        return self._metrics.take()


def _path(
    plan: WindowPlan, metrics: WindowMetrics
) -> SlicedWindows | SessionWindows | ColumnarTriggeredWindows | TriggeredWindows:
    """Return columns where they can do it."""
    spec, assigner = plan.spec, plan.spec.assigner
    if fires_at_end(spec.trigger) and not plan.keeps_elements and not spec.calls_user_code:
        slicing = slicing_for(assigner)
        if slicing is not None:
            return SlicedWindows(plan, metrics, slicing)
        if isinstance(assigner, Session) and spec.allowed_lateness_ms == 0:
            return SessionWindows(plan, metrics, assigner)
    if has_columnar_form(plan):
        return ColumnarTriggeredWindows(plan, metrics)
    return TriggeredWindows(plan, metrics)


def _check(
    keys: Sequence[str],
    schema: Mapping[str, pl.DataType],
    aggregate_set: AggregateSet,
    function: PaneFunction | None,
    max_windows: int,
) -> None:
    if bool(aggregate_set.aggregates) == (function is not None):
        raise ConfigError("the values of a pane come either from aggregates or from a function: give one of them")
    if max_windows < 1:
        raise ConfigError(f"max_windows must be positive, not {max_windows}")
    missing = [key for key in keys if key not in schema]
    if missing:
        raise ConfigError(f"key {missing[0]!r} is no column of the input: {', '.join(schema)}")
    bounds = [WINDOW_START, WINDOW_END, WINDOW_FIRST, WINDOW_STOP]
    values = function.schema if function else aggregate_set.aggregates
    _once("the output", [*keys, *bounds, PANE, TIMING, IS_FINAL, IS_RETRACTION, *values, EVENT_MS])
    _once("failed panes", [*keys, *bounds, PANE, TIMING, IS_FINAL, ELEMENT_COUNT, ELEMENTS, FAILED_REASON, EVENT_MS])
    _once("late rows", [*schema, *bounds, LATE_REASON, LATENESS_MS, EVENT_MS])


def _once(where: str, names: Sequence[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"column {twice[0]!r} would stand twice in {where}: rename it")
