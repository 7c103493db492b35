"""The interface for joins of keyed streams: within an interval of time, in windows, or with a changing table.

::

    orders.key_by("id").join(payments.key_by("order_id")).within(0, "1h")
    views.key_by("user").join(clicks.key_by("user")).window(Tumbling("1m")).pairs()
    orders.key_by("currency").join(rates.key_by("currency")).as_of_event_time()
    products.key_by("id").join(figures.key_by("product_id")).latest(deleted="gone")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from streamcore.arguments import check_function, check_type
from streamcore.durations import Duration, duration_ms
from streamcore.operators.base import LATE
from streamcore.operators.failures import FAILED_PANE
from streamcore.operators.joins.join_input import DEFAULT_MAX_ROWS, REJECTED
from streamcore.operators.joins.output_columns import JoinKeys, JoinKind
from streamcore.topology.labels import describe_windows, format_duration
from streamcore.topology.nodes import KeyedInput, Schema
from streamcore.topology.stream import KeyedStream, Stream
from streamcore.topology.stream import operate as operate_on
from streamcore.windowing import Assigner
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.keyed import KeyedLimits
    from streamcore.operators.base import Operator
    from streamcore.operators.joins import WindowedSpec
    from streamcore.operators.joins.cogroup import CoGroupFunction
    from streamcore.operators.joins.process_cogroup import ProcessCoGroupFunction


@dataclass(frozen=True, eq=False)
class JoinedStream:
    """Two keyed streams to be joined.

    ``left_outer``, ``right_outer``, ``full_outer``, ``late_to`` and ``rejected_to`` return changed copies; others
    add the join. ``suffix``: appended to a right column that has the name of a left one. ``max_rows``: the maximum of
    rows that a shard keeps per side.
    """

    left: KeyedInput
    right: KeyedInput
    kind: JoinKind = JoinKind.INNER
    suffix: str = "_right"
    max_rows: int = DEFAULT_MAX_ROWS
    late_lane: str | None = None
    rejected_lane: str | None = None
    failed_lane: str = DEAD_LETTERS

    def left_outer(self) -> JoinedStream:
        """Emit left rows without a partner too."""
        return replace(self, kind=JoinKind.LEFT)

    def right_outer(self) -> JoinedStream:
        """Emit right rows without a partner too."""
        return replace(self, kind=JoinKind.RIGHT)

    def full_outer(self) -> JoinedStream:
        """Emit rows of both sides without a partner too."""
        return replace(self, kind=JoinKind.FULL)

    def late_to(self, lane: str) -> JoinedStream:
        """Set the lane of rows that arrive too late to be joined; without a lane they are only counted."""
        return replace(self, late_lane=lane)

    def rejected_to(self, lane: str) -> JoinedStream:
        """Set the lane of rows beyond the ``max_rows`` of a shard."""
        return replace(self, rejected_lane=lane)

    def failed_to(self, lane: str) -> JoinedStream:
        """Set the lane of the groups on which the function of a co-group fails; without this call: dead letters."""
        return replace(self, failed_lane=lane)

    def within(
        self,
        lower_ms: Duration,
        upper_ms: Duration,
        *,
        lower_inclusive: bool = True,
        upper_inclusive: bool = True,
        name: str = "",
    ) -> Stream:
        """Join right rows whose event time is ``lower_ms`` to ``upper_ms`` after that of the left row.

        A function of each pair is the next step: after the join, ``key_by`` with its key and ``process`` need no
        shuffle. (In Flink: ``ProcessJoinFunction``.)
        """
        from streamcore.operators.joins import IntervalJoin, IntervalJoinSpec, JoinInterval

        interval = JoinInterval(lower_ms, upper_ms, lower_inclusive, upper_inclusive)
        spec = IntervalJoinSpec(self.keys, interval, self.kind, self.suffix, self.max_rows)
        return self.operate(
            name,
            f"{format_duration(interval.lower_ms)} to {format_duration(interval.upper_ms)}",
            partial(IntervalJoin, spec, *self._schemas),
        )

    def as_of_event_time(self, *, deleted: str | None = None, name: str = "") -> Stream:
        """Join the values that the right side, a stream of changes, had for the key at the left row's event time.

        A left row waits until the watermark shows that no earlier change can arrive. ``deleted``: the boolean column of
        a change that deletes its key.
        """
        from streamcore.operators.joins import LookupSpec, TemporalJoin

        spec = LookupSpec(self.keys, self.kind, deleted, self.suffix, self.max_rows)
        return self.operate(name, "as of event time", partial(TemporalJoin, spec, *self._schemas))

    def as_of_arrival(self, *, deleted: str | None = None, name: str = "") -> Stream:
        """Join the values that the right side, a stream of changes, has for the key in the cut of the left row.

        Changes of this cut count. ``deleted``: the boolean column of a change that deletes its key.
        """
        from streamcore.operators.joins import LookupJoin, LookupSpec

        spec = LookupSpec(self.keys, self.kind, deleted, self.suffix, self.max_rows)
        return self.operate(name, "as of arrival", partial(LookupJoin, spec, *self._schemas))

    def latest(
        self,
        *,
        deleted: str | None = None,
        right_deleted: str | None = None,
        order: tuple[str, ...] = (),
        right_order: tuple[str, ...] | None = None,
        keeps: tuple[str, ...] = (),
        right_keeps: tuple[str, ...] = (),
        refresh_ms: Duration = 0,
        name: str = "",
    ) -> Stream:
        """Join two changing tables by key, whenever one of them changes (``streamcore.operators.joins.latest``).

        The current row of the left table is its latest change by event time and the columns ``order``; of the right
        table, the last that arrived, or with ``right_order`` the latest, too. ``deleted``, ``right_deleted``: boolean
        columns of changes that delete their key. ``keeps``, ``right_keeps``: columns that keep their value where a
        change has null. ``refresh_ms``: the minimum pause, by the clock, between rows of a key for changes of the right
        table alone.
        """
        from streamcore.operators.joins import TableTableJoin, TableTableSpec

        pause_ms = duration_ms("refresh_ms", refresh_ms)
        spec = TableTableSpec(
            self.keys,
            deleted,
            right_deleted,
            order,
            pause_ms,
            self.suffix,
            self.max_rows,
            right_order,
            keeps,
            right_keeps,
        )
        return self.operate(name, "latest of both", partial(TableTableJoin, spec, *self._schemas))

    def window(self, assigner: Assigner, *, allowed_lateness_ms: Duration = 0) -> WindowedJoin:
        """Join rows of one window. ``allowed_lateness_ms``: by the watermark, after the end of the window."""
        return WindowedJoin(self, assigner, duration_ms("allowed_lateness_ms", allowed_lateness_ms))

    @property
    def keys(self) -> JoinKeys:
        """The key columns of both sides, which must be equal."""
        return JoinKeys(self.left.key, self.right.key)

    @property
    def _schemas(self) -> tuple[Schema, Schema]:
        return self.left.schema, self.right.schema

    def operate(
        self,
        name: str,
        about: str,
        create_operator: Callable[[], Operator],
        *,
        keeps_key: bool = True,
        side_lanes: Mapping[str, str] | None = None,
    ) -> Stream:
        """Add the operator of a join. ``about``: its description in pictures. ``side_lanes``: further lanes by port."""
        optional_lanes = {LATE: self.late_lane, REJECTED: self.rejected_lane}
        lanes = {port: lane for port, lane in optional_lanes.items() if lane is not None} | dict(side_lanes or {})
        inputs = [KeyedStream(self.left), KeyedStream(self.right)]
        return operate_on(
            inputs, "join", create_operator, name=name, about=about, keeps_key=keeps_key, side_lanes=lanes
        )


@dataclass(frozen=True, eq=False)
class WindowedJoin:
    """Two keyed streams that are joined in windows. A window fires once, at its end."""

    joined: JoinedStream
    assigner: Assigner
    allowed_lateness_ms: int

    def __post_init__(self) -> None:
        check_type("window", self.assigner, Assigner, "write such as Tumbling('1m')")

    def pairs(self, *, name: str = "") -> Stream:
        """Emit all pairs per key and window and, in an outer join, rows without a partner."""
        from streamcore.operators.joins import WindowJoin

        joined = self.joined
        create_operator = partial(WindowJoin, self._spec, joined.kind, joined.left.schema, joined.right.schema)
        return joined.operate(name, describe_windows(self.assigner), create_operator)

    def apply(self, function: CoGroupFunction, schema: Schema, *, name: str = "") -> Stream:
        """Emit the rows that a function returns for all rows of both sides. ``schema``: the columns of these rows.

        A group on which it fails goes to the lane of ``failed_to``.
        """
        from streamcore.operators.joins import CoGroup

        check_function("apply", function, "write a function of key, window, left rows and right rows")
        joined = self.joined
        create_operator = partial(CoGroup, self._spec, function, schema, joined.left.schema, joined.right.schema)
        return joined.operate(
            name,
            describe_windows(self.assigner),
            create_operator,
            keeps_key=False,
            side_lanes={FAILED_PANE: joined.failed_lane},
        )

    def process(self, function: ProcessCoGroupFunction, *, name: str = "", limits: KeyedLimits | None = None) -> Stream:
        """Call a function for all rows of both sides of a key and window, with state per key and side outputs.

        As ``apply`` otherwise. ``limits``: of its state.
        """
        from streamcore.operators.joins.process_cogroup import ProcessCoGroup

        joined = self.joined
        create_operator = partial(
            ProcessCoGroup, function, self._spec, joined.left.schema, joined.right.schema, limits=limits
        )
        return joined.operate(
            name,
            describe_windows(self.assigner),
            create_operator,
            keeps_key=False,
            side_lanes={FAILED_PANE: joined.failed_lane},
        )

    @property
    def _spec(self) -> WindowedSpec:
        from streamcore.operators.joins import WindowedSpec

        joined = self.joined
        return WindowedSpec(joined.keys, self.assigner, self.allowed_lateness_ms, joined.suffix, joined.max_rows)
