"""The interface for windows over a keyed stream: assigner, trigger, accumulation, lateness, and the output step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from streamcore.aggregates.base import Aggregate
from streamcore.arguments import check_function, check_type
from streamcore.durations import Duration, duration_ms
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN, Operator
from streamcore.operators.failures import FAILED, FAILED_PANE
from streamcore.topology.labels import describe_windows
from streamcore.topology.nodes import KeyedInput, Schema
from streamcore.topology.stream import KeyedStream, Stream, operate
from streamcore.windowing import (
    Accumulation,
    AfterCount,
    AfterWatermark,
    Assigner,
    Evictor,
    OnPunctuation,
    Trigger,
    WindowSpec,
)
from streamcore.windowing.revisions import RevisionPolicy
from streamcore.windowing.triggers import walk
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.keyed import KeyedLimits
    from streamcore.operators.windows.general.pane_values import PaneFunction, PaneRows, WindowView
    from streamcore.operators.windows.process_operator import ProcessWindowFunction


@dataclass(frozen=True, eq=False)
class WindowedStream:
    """A keyed stream with windows. ``aggregate``, ``revise`` and ``apply`` add the step; others return a changed copy.

    Without a trigger a window fires at its end, and again for each late element within the allowed lateness.
    """

    keyed: KeyedInput
    assigner: Assigner
    when: Trigger | None = None
    accumulation: Accumulation = Accumulation.ACCUMULATING
    lateness_ms: int = 0
    evictor: Evictor | None = None
    late_lane: str | None = None
    failed_lane: str = DEAD_LETTERS
    failed_panes_lane: str = DEAD_LETTERS

    def __post_init__(self) -> None:
        check_type("window", self.assigner, Assigner, "write such as Tumbling('1m')")
        if self.when is not None:
            check_type("trigger", self.when, Trigger, "write such as AfterWatermark(early=AfterCount(10))")
        if self.evictor is not None:
            check_type("evict", self.evictor, Evictor, "write such as KeepCount(10)")

    def trigger(self, trigger: Trigger) -> WindowedStream:
        """Set when panes fire."""
        return replace(self, when=trigger)

    def accumulating(self) -> WindowedStream:
        """Make each pane hold the rows of the panes before it, too (the default)."""
        return replace(self, accumulation=Accumulation.ACCUMULATING)

    def discarding(self) -> WindowedStream:
        """Make each pane hold only the rows that arrived since the pane before it."""
        return replace(self, accumulation=Accumulation.DISCARDING)

    def retracting(self) -> WindowedStream:
        """Accumulate, and emit a retraction of the previous pane before each pane."""
        return replace(self, accumulation=Accumulation.RETRACTING)

    def allowed_lateness(self, lateness_ms: Duration) -> WindowedStream:
        """Set how long after its end, by the watermark, a window accepts late elements."""
        return replace(self, lateness_ms=duration_ms("allowed_lateness", lateness_ms))

    def evict(self, evictor: Evictor) -> WindowedStream:
        """Set which elements of a pane are left out of its result."""
        return replace(self, evictor=evictor)

    def late_to(self, lane: str) -> WindowedStream:
        """Set the lane of elements that a window does not take any more, with the reason and their lateness.

        An element is on the lane once for each of its windows that does not take it; other sliding windows may still
        take it. (Flink: only elements that no window takes, once.) Elements on the lane are also the side output
        ``late``. Without a lane they are only counted. Of a source with ``raw=True`` the lane gets the records
        themselves in the form of dead letters, so that ``headgate deadletters replay --topic`` sends them again.
        """
        return replace(self, late_lane=lane)

    def failed_to(self, lane: str) -> WindowedStream:
        """Set the lane of elements on which the user's code fails: ``add`` of an accumulator, an assigner, a trigger.

        They have the reason, and are also the side output ``failed``. Without this call they are dead letters.
        """
        return replace(self, failed_lane=lane)

    def failed_panes_to(self, lane: str) -> WindowedStream:
        """Set the lane of panes on which a function fails, an evictor, or ``merge`` or ``result`` of an accumulator.

        A row has the key, the window and the reason (``streamcore.operators.failures``): other columns than failed
        elements have. It is also the side output ``failed_pane``. Without this call failed panes are dead letters.
        """
        return replace(self, failed_panes_lane=lane)

    @property
    def spec(self) -> WindowSpec:
        """The specification of the windows; ``ConfigError`` if its parts contradict each other."""
        late = AfterCount(1) if self.lateness_ms else None
        when = self.when or AfterWatermark(late=late)
        return WindowSpec(self.assigner, when, self.accumulation, self.lateness_ms, self.evictor)

    def aggregate(self, name: str = "", /, **aggregates: Aggregate) -> Stream:
        """Emit a row for each pane: the key, the window, the pane, and each aggregate in a column of its name.

        ``name``: the name of the step.
        """
        if not aggregates:
            raise ConfigError("aggregate: give at least one aggregate, such as orders=Count()")
        return self._add_window_operator(name, self._inputs("aggregate", aggregates), aggregates=aggregates)

    def revise(self, policy: RevisionPolicy, name: str = "", /, **aggregates: Aggregate) -> Stream:
        """Emit one row per revision of a window, which replaces the row of the previous revision.

        For sessions, which keep their identity while they grow and merge, and for tumbling windows. ``policy`` decides
        when a revision is emitted; there is no trigger. See ``streamcore.operators.windows.revised_operator``.
        """
        from streamcore.operators.windows.revised_operator import RevisedWindows

        if not aggregates:
            raise ConfigError("revise: give at least one aggregate, such as orders=Count()")
        if self.when or self.evictor or self.accumulation is not Accumulation.ACCUMULATING:
            raise ConfigError("revise: each row replaces the one before; leave out trigger, evictor and accumulation")
        check_type("revise", policy, RevisionPolicy, "write such as RevisionPolicy(at_end=True)")
        columns, schema = self._columns(self._inputs("revise", aggregates))
        late = self.late_lane is not None
        create_operator = partial(RevisedWindows, self.spec, policy, self.keyed.key, schema, aggregates, late_lane=late)
        return self._add_operator(name, "revise", create_operator, columns, aggregates)

    def apply(self, compute: Callable[[WindowView], PaneRows], schema: Schema, *, name: str = "") -> Stream:
        """Emit the rows that a function returns for all elements of a pane. ``schema``: the columns of these rows.

        ``compute`` must be pure. A pane on which it fails goes to the lane of ``failed_panes_to``. The windows keep
        every element for it, so an aggregate is cheaper if it suffices.
        """
        from streamcore.operators.windows.general.pane_values import PaneFunction

        check_function("apply", compute, "write a function of a WindowView")
        return self._add_window_operator(name, set(self.keyed.port.schema), function=PaneFunction(compute, schema))

    def process(self, function: ProcessWindowFunction, *, name: str = "", limits: KeyedLimits | None = None) -> Stream:
        """Call a function for each pane, with state per key and per window, and side outputs.

        As ``apply`` otherwise (``streamcore.operators.windows.process_operator``). ``limits``: of its state.
        """
        from streamcore.operators.windows.process_operator import ProcessWindows

        columns, schema = self._columns(set(self.keyed.port.schema))
        late = self.late_lane is not None
        create_operator = partial(
            ProcessWindows, function, self.spec, self.keyed.key, schema, late_lane=late, limits=limits
        )
        side_ports = frozenset(getattr(function, "outputs", {})) - {MAIN}
        return self._add_operator(name, "window", create_operator, columns, None, unkeyed_ports=side_ports)

    def _add_window_operator(
        self,
        name: str,
        needed: set[str],
        aggregates: Mapping[str, Aggregate] | None = None,
        function: PaneFunction | None = None,
    ) -> Stream:
        from streamcore.operators.windows.operator import WindowOperator

        columns, schema = self._columns(needed)
        create_operator = partial(
            WindowOperator,
            self.spec,
            self.keyed.key,
            schema,
            aggregates,
            function=function,
            late_lane=self.late_lane is not None,
        )
        return self._add_operator(name, "window", create_operator, columns, aggregates)

    def _inputs(self, method: str, aggregates: Mapping[str, Aggregate]) -> set[str]:
        """Return the columns that the aggregates read: all, where a row that fails must be whole."""
        from streamcore.operators.windows.aggregate_set import check_aggregate

        for name, aggregate in aggregates.items():
            check_aggregate(f"{method} {name}", aggregate)
        if _call_user_code(aggregates):
            return set(self.keyed.port.schema)
        return {column for aggregate in aggregates.values() for column in aggregate.inputs}

    def _columns(self, needed: set[str]) -> tuple[tuple[str, ...] | None, Schema]:
        """Return the columns that are sent to the operator (None: all), and their types."""
        schema_before = self.keyed.port.schema
        needed = needed | {*self.keyed.key, *self._window_columns()}
        columns = None if self.late_lane else tuple(column for column in schema_before if column in needed)
        return columns, {
            column: dtype for column, dtype in schema_before.items() if columns is None or column in columns
        }

    def _add_operator(
        self,
        name: str,
        kind: str,
        create_operator: Callable[[], Operator],
        columns: tuple[str, ...] | None,
        aggregates: Mapping[str, Aggregate] | None,
        unkeyed_ports: frozenset[str] = frozenset(),
    ) -> Stream:
        """Add the operator. ``columns``: those that are sent to it. ``aggregates``: None if a function takes panes.

        ``unkeyed_ports``: whose rows need not have the key of their window.
        """
        lanes = {LATE: self.late_lane} if self.late_lane else {}
        if self.spec.calls_user_code or (aggregates is not None and _call_user_code(aggregates)):
            lanes |= {FAILED: self.failed_lane, FAILED_PANE: self.failed_panes_lane}
        elif aggregates is None:
            lanes |= {FAILED_PANE: self.failed_panes_lane}
        return operate(
            [KeyedStream(replace(self.keyed, columns=columns))],
            kind,
            create_operator,
            name=name,
            about=describe_windows(self.assigner),
            side_lanes=lanes,
            unkeyed_ports=unkeyed_ports,
        )

    def _window_columns(self) -> set[str]:
        """Return the columns that assigner, trigger and evictor read. The operator rejects missing ones."""
        if self.spec.calls_user_code:
            return set(self.keyed.port.schema)
        flags = {part.flag for part in walk(self.spec.trigger) if isinstance(part, OnPunctuation)}
        fields = {getattr(self.assigner, "gap_field", None), getattr(self.evictor, "field", None)}
        return flags | {name for name in fields if name is not None}


def _call_user_code(aggregates: Mapping[str, Aggregate]) -> bool:
    return any(aggregate.calls_user_code for aggregate in aggregates.values())
