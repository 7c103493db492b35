"""Joins of keyed streams: near in time, in one window, or with the rows of a table.

::

    orders.key_by("id").join(payments.key_by("order_id")).within(0, 3_600_000)
    views.key_by("user").join(clicks.key_by("user")).window(Tumbling(60_000)).pairs()
    orders.key_by("currency").join(rates.key_by("currency")).as_of_event_time()
    products.key_by("id").join(figures.key_by("product_id")).latest(deleted="gone")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from streamcore.operators.base import LATE
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REFUSED
from streamcore.operators.joins.output_columns import JoinKeys, JoinKind
from streamcore.topology.labels import describe_windows, format_duration
from streamcore.topology.nodes import KeyedInput, Schema
from streamcore.topology.stream import KeyedStream, Stream
from streamcore.topology.stream import operate as operate_on

if TYPE_CHECKING:
    from streamcore.operators.base import Operator
    from streamcore.operators.joins import WindowedSpec
    from streamcore.operators.joins.cogroup import CoGroupFunction
    from streamcore.windowing import Assigner


@dataclass(frozen=True, eq=False)
class JoinedStream:
    """Two keyed streams. The last methods define how they meet; those before give a changed copy.

    ``suffix``: for a right column with the name of a left one. ``max_rows``: the rows that a shard keeps of a side.
    """

    left: KeyedInput
    right: KeyedInput
    kind: JoinKind = JoinKind.INNER
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS
    late_lane: str | None = None
    refused_lane: str | None = None

    def left_outer(self) -> JoinedStream:
        """Left rows without a partner come out too."""
        return replace(self, kind=JoinKind.LEFT)

    def full_outer(self) -> JoinedStream:
        """Rows of both sides without a partner come out too."""
        return replace(self, kind=JoinKind.FULL)

    def late_to(self, lane: str) -> JoinedStream:
        """Name the lane of rows that come too late to be joined; without it they are counted only."""
        return replace(self, late_lane=lane)

    def refused_to(self, lane: str) -> JoinedStream:
        """Name the lane of rows for which a shard has no room."""
        return replace(self, refused_lane=lane)

    def within(self, lower_ms: int, upper_ms: int, *, name: str = "") -> Stream:
        """Right rows from ``lower_ms`` to ``upper_ms`` after the left row, both included."""
        from streamcore.operators.joins import IntervalJoin, IntervalJoinSpec, JoinInterval

        spec = IntervalJoinSpec(self.keys, JoinInterval(lower_ms, upper_ms), self.kind, self.suffix, self.max_rows)
        return self.operate(
            name,
            f"{format_duration(lower_ms)} to {format_duration(upper_ms)}",
            partial(IntervalJoin, spec, *self._schemas),
        )

    def as_of_event_time(self, *, deleted: str | None = None, name: str = "") -> Stream:
        """Join the values that the right, a stream of changes, had for the key at the left row's event time.

        A row waits until the watermark proves that no earlier change can come. ``deleted``: the column of a change that
        marks the deletion of its key.
        """
        from streamcore.operators.joins import LookupSpec, TemporalJoin

        spec = LookupSpec(self.keys, self.kind, deleted, self.suffix, self.max_rows)
        return self.operate(name, "as of event time", partial(TemporalJoin, spec, *self._schemas))

    def as_of_arrival(self, *, deleted: str | None = None, name: str = "") -> Stream:
        """Join the values that the right, a stream of changes, has for the key when the left row arrives, its own
        cut included."""
        from streamcore.operators.joins import LookupJoin, LookupSpec

        spec = LookupSpec(self.keys, self.kind, deleted, self.suffix, self.max_rows)
        return self.operate(name, "as of arrival", partial(LookupJoin, spec, *self._schemas))

    def latest(
        self,
        *,
        deleted: str | None = None,
        right_deleted: str | None = None,
        order: tuple[str, ...] = (),
        refresh_ms: int = 0,
        name: str = "",
    ) -> Stream:
        """Join the rows of two changing tables by key, whenever one of them changes (``operators.joins.latest``).

        Of the left the latest change by event time and ``order`` holds, of the right the last to arrive.
        ``refresh_ms``: how often a key's row comes again for changes of the right alone, by the clock.
        """
        from streamcore.operators.joins import TableTableJoin, TableTableSpec

        spec = TableTableSpec(self.keys, deleted, right_deleted, order, refresh_ms, self.suffix, self.max_rows)
        return self.operate(name, "latest of both", partial(TableTableJoin, spec, *self._schemas))

    def window(self, assigner: Assigner, *, allowed_lateness_ms: int = 0) -> WindowedJoin:
        """Rows that fall into the same window."""
        return WindowedJoin(self, assigner, allowed_lateness_ms)

    @property
    def keys(self) -> JoinKeys:
        """The columns that must be equal."""
        return JoinKeys(self.left.key, self.right.key)

    @property
    def _schemas(self) -> tuple[Schema, Schema]:
        return self.left.schema, self.right.schema

    def operate(self, name: str, about: str, make: Callable[[], Operator], *, keeps_key: bool = True) -> Stream:
        """Add the join to the topology as a step."""
        wanted = {LATE: self.late_lane, REFUSED: self.refused_lane}
        lanes = {port: lane for port, lane in wanted.items() if lane is not None}
        inputs = [KeyedStream(self.left), KeyedStream(self.right)]
        return operate_on(inputs, "join", make, name=name, about=about, keeps_key=keeps_key, side_lanes=lanes)


@dataclass(frozen=True, eq=False)
class WindowedJoin:
    """Two keyed streams whose rows meet in windows, which fire once, at their end."""

    joined: JoinedStream
    assigner: Assigner
    allowed_lateness_ms: int

    def pairs(self, *, name: str = "") -> Stream:
        """All pairs of a key and window, and by the kind of the join the rows without a partner."""
        from streamcore.operators.joins import WindowJoin

        joined = self.joined
        make = partial(WindowJoin, self._spec, joined.kind, joined.left.schema, joined.right.schema)
        return joined.operate(name, describe_windows(self.assigner), make)

    def apply(self, function: CoGroupFunction, schema: Schema, *, name: str = "") -> Stream:
        """Rows that a function makes of all rows of both sides; ``schema``: their columns."""
        from streamcore.operators.joins import CoGroup

        joined = self.joined
        make = partial(CoGroup, self._spec, function, schema, joined.left.schema, joined.right.schema)
        return joined.operate(name, describe_windows(self.assigner), make, keeps_key=False)

    @property
    def _spec(self) -> WindowedSpec:
        from streamcore.operators.joins import WindowedSpec

        joined = self.joined
        return WindowedSpec(joined.keys, self.assigner, self.allowed_lateness_ms, joined.suffix, joined.max_rows)
