"""Windows over a keyed stream: which windows, when they fire, the contents of a pane, how late is too late, and the
output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from streamcore.aggregates.base import Aggregate
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, Operator
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

if TYPE_CHECKING:
    from streamcore.operators.windows.general.pane_values import PaneFunction, PaneRows, WindowView


@dataclass(frozen=True, eq=False)
class WindowedStream:
    """A keyed stream cut into windows. Each method but ``aggregate`` and ``apply`` gives a changed copy.

    Without a trigger a window fires at its end, and again for each late element while lateness is allowed.
    """

    keyed: KeyedInput
    assigner: Assigner
    when: Trigger | None = None
    accumulation: Accumulation = Accumulation.ACCUMULATING
    lateness_ms: int = 0
    evictor: Evictor | None = None
    late_lane: str | None = None

    def trigger(self, trigger: Trigger) -> WindowedStream:
        """When panes fire."""
        return replace(self, when=trigger)

    def accumulating(self) -> WindowedStream:
        """Make each pane hold the rows of the panes before it, too (the default)."""
        return replace(self, accumulation=Accumulation.ACCUMULATING)

    def discarding(self) -> WindowedStream:
        """Make each pane hold only the rows that arrived since the pane before it."""
        return replace(self, accumulation=Accumulation.DISCARDING)

    def retracting(self) -> WindowedStream:
        """As accumulating, and each pane first takes back the one before it."""
        return replace(self, accumulation=Accumulation.RETRACTING)

    def allowed_lateness(self, lateness_ms: int) -> WindowedStream:
        """How long after its end, by the watermark, a window takes late elements."""
        return replace(self, lateness_ms=lateness_ms)

    def evict(self, evictor: Evictor) -> WindowedStream:
        """Which elements of a pane are seen."""
        return replace(self, evictor=evictor)

    def late_to(self, lane: str) -> WindowedStream:
        """Name the lane of elements that no window takes any more, with the reason and how late they are. They are
        the side
        output ``late`` then too; otherwise they are counted only."""
        return replace(self, late_lane=lane)

    @property
    def spec(self) -> WindowSpec:
        """As one value; ``ConfigError`` for a combination that makes no sense."""
        late = AfterCount(1) if self.lateness_ms else None
        when = self.when or AfterWatermark(late=late)
        return WindowSpec(self.assigner, when, self.accumulation, self.lateness_ms, self.evictor)

    def aggregate(self, name: str = "", /, **aggregates: Aggregate) -> Stream:
        """Emit a row for each pane: the key, the window, the pane, and each aggregate in a column of its name.

        ``name``: the name of the step.
        """
        if not aggregates:
            raise ConfigError("aggregate: name at least one, such as orders=Count()")
        return self._operate(name, {c for one in aggregates.values() for c in one.inputs}, aggregates=aggregates)

    def revise(self, policy: RevisionPolicy, name: str = "", /, **aggregates: Aggregate) -> Stream:
        """Emit a row for each revision of a window, in place of the one before
        (``streamcore.operators.windows.revised_operator``): sessions that
        keep their name while they grow and merge, and windows that are emitted before they are over.

        For sessions and tumbling windows; ``policy`` decides when they are emitted, instead of a trigger.
        """
        from streamcore.operators.windows.revised_operator import RevisedWindows

        if not aggregates:
            raise ConfigError("revise: name at least one aggregate, such as orders=Count()")
        if self.when or self.evictor or self.accumulation is not Accumulation.ACCUMULATING:
            raise ConfigError("revise: records replace each other; leave out trigger, evictor and accumulation")
        columns, schema = self._columns({c for one in aggregates.values() for c in one.inputs})
        late = self.late_lane is not None
        make = partial(RevisedWindows, self.spec, policy, self.keyed.key, schema, aggregates, late_lane=late)
        return self._operation(name, "revise", make, columns)

    def apply(self, compute: Callable[[WindowView], PaneRows], schema: Schema, *, name: str = "") -> Stream:
        """Rows that a function makes of all elements of a pane; ``schema``: their columns. It must be pure, and
        windows keep every element for it: where an aggregate can express it, an aggregate is cheaper."""
        from streamcore.operators.windows.general.pane_values import PaneFunction

        return self._operate(name, set(self.keyed.port.schema), function=PaneFunction(compute, schema))

    def _operate(
        self,
        name: str,
        reads: set[str],
        aggregates: Mapping[str, Aggregate] | None = None,
        function: PaneFunction | None = None,
    ) -> Stream:
        from streamcore.operators.windows.operator import WindowOperator

        columns, schema = self._columns(reads)
        make = partial(
            WindowOperator,
            self.spec,
            self.keyed.key,
            schema,
            aggregates,
            function=function,
            late_lane=self.late_lane is not None,
        )
        return self._operation(name, "window", make, columns)

    def _columns(self, reads: set[str]) -> tuple[tuple[str, ...] | None, Schema]:
        """Return the columns that the operator gets, None for all, and their types."""
        before = self.keyed.port.schema
        reads = reads | {*self.keyed.key, *self._own_columns()}
        columns = None if self.late_lane else tuple(column for column in before if column in reads)
        return columns, {column: dtype for column, dtype in before.items() if columns is None or column in columns}

    def _operation(self, name: str, what: str, make: Callable[[], Operator], columns: tuple[str, ...] | None) -> Stream:
        return operate(
            [KeyedStream(replace(self.keyed, columns=columns))],
            what,
            make,
            name=name,
            about=describe_windows(self.assigner),
            side_lanes={LATE: self.late_lane} if self.late_lane else None,
        )

    def _own_columns(self) -> set[str]:
        """Return the columns that the windows themselves read of an element: missing ones are refused by the
        operator."""
        flags = {one.flag for one in walk(self.spec.trigger) if isinstance(one, OnPunctuation)}
        fields = {getattr(self.assigner, "gap_field", None), getattr(self.evictor, "field", None)}
        return flags | {name for name in fields if name is not None}
