"""The operator of keyed functions: user code with state and timers per key, for logic beyond windows and joins.

::

    class Velocity(ProcessFunction):
        outputs = {MAIN: {"user": pl.String, "total": pl.Decimal(18, 2)}, "quiet": {"user": pl.String}}
        total = ValueState(pl.Decimal(18, 2), default=Decimal(0))

        def process(self, event, context):
            self.total += event.amount
            context.timers.clear()
            context.timers.set(context.event_ms + 3_600_000)
            yield {"user": event.user, "total": self.total}

        def on_timer(self, at_ms, context):
            context.side("quiet", {"user": context.key})
            del self.total

    operator = ProcessOperator(Velocity(), key=["user"], events={"user": pl.String, "amount": pl.Decimal(12, 2)})

A cut has these steps, in this order:

1. Control records, in order of arrival (``process_control``; no key, no output).
2. The clock becomes ``clock_ms``: clock timers up to it fire.
3. The events, in order of arrival, at ``watermark_ms``. A late event (before the watermark) is processed like
   any other, with ``context.is_late`` true, as in Flink: only the function knows what lateness means to its state.
4. The watermark becomes ``next_watermark_ms``: event-time timers up to it fire, and each sees its own time as the
   watermark. Then clock timers fire that were set meanwhile for a time already reached, and so on until none is due.

In steps 2 and 4 timers fire in the order of their times, then in the order in which they were set. A timer that is set
for a time already reached fires in the same cut. An output row has the ``EVENT_MS`` of the event, or the timer's time.

A call (for an event, a timer or a control record) is atomic. If it raises, or emits a row that does not fit its port,
its changes to state, timers and outputs are undone, and the row goes to port ``FAILED`` with ``FAILED_REASON``. (A
control record goes to ``FAILED_CONTROL``; a timer becomes a row of its key and nulls.) A timer whose call failed does
not fire again. Processing continues.

Every shard makes the calls for control records. They see no key, so they have the same outcome in every shard; shard 0
alone emits the failed ones and counts.

Data that a function holds outside its states is lost with the process and differs between shards; it must be constant.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from streamcore.arguments import check_type
from streamcore.calls import CALL_ERRORS, failure_reason
from streamcore.errors import ConfigError
from streamcore.keyed.call_records import InputRows, PortBuffer, Schema, check_schema, row_class
from streamcore.keyed.call_scope import NO_KEY, CallScope, TimeDomain
from streamcore.keyed.function import ProcessContext, ProcessFunction
from streamcore.keyed.keyed_store import KeyedLimits, KeyedStore
from streamcore.keyed.migration import Row
from streamcore.keyed.paging import PagedKeys
from streamcore.keyed.state_tables import build_tables
from streamcore.keyed.states import declared_states
from streamcore.keyed.timers import ChainedTimerLimit
from streamcore.keyed.value_codec import describe
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.failures import FAILED, FAILED_REASON
from streamcore.schema import EVENT_MS
from streamcore.state.row_versions import Versions
from streamcore.state.table import StateTable
from streamcore.wire.lanes import DeadLetterCode
from streamcore.wire.raw import ORIGIN

#: The number of a failed event's row in its cut; null for a timer.
_ROW = "__row"
#: The port of control records whose call failed: their columns and ``FAILED_REASON``.
FAILED_CONTROL = DeadLetterCode.FAILED_CONTROL.value


class ProcessOperator:
    """Calls a keyed function for each event of one shard, and for each control record if there is a second input.

    ``key``: names of columns of ``events``. ``events``, ``control``: the columns of the inputs without ``EVENT_MS``.
    The function is copied, so several operators can share one.
    """

    def __init__(
        self,
        function: ProcessFunction,
        *,
        key: Sequence[str],
        events: Schema,
        control: Schema | None = None,
        limits: KeyedLimits | None = None,
    ) -> None:
        check_type("process", function, ProcessFunction, "write a class that extends it, and give its instance")
        self._function_name = type(function).__name__
        self._event_schema = check_schema(_without_origin(events), f"{self._function_name}: events")
        self._control_schema = (
            None if control is None else check_schema(_without_origin(control), f"{self._function_name}: control")
        )
        _check_function(function, self._function_name, control)
        self._key_columns = _key_columns(key, self._event_schema, self._function_name)
        versions: Versions[Row] = Versions(self._function_name, function.version, function.migrations)
        states = declared_states(type(function))
        self._store = KeyedStore(self._function_name, self._key_columns, states, versions, limits or KeyedLimits())
        self._scope: CallScope = self._store.scope
        self._output_ports = _output_ports(function, self._function_name, self._scope)
        self._failed = PortBuffer(
            FAILED, {**self._event_schema, FAILED_REASON: pl.String(), _ROW: pl.Int64()}, self._scope
        )
        self._failed_control = pl.DataFrame()
        self._context = ProcessContext(self._store, self._output_ports)
        self._function = copy.copy(function)
        for storage in self._store.all_states:
            states[storage.name].attach(self._function, storage)
        self._event_row = row_class(self._event_schema, "Event")
        self._control_row = row_class(self._control_schema or {}, "Control")
        self._tables = build_tables(self._store)
        self.paged_state = PagedKeys(self._store)

    # --- Operator -----------------------------------------------------------------------------------------------

    @property
    def output_delay_ms(self) -> int:
        """Return 0: an output row has the time of its event or timer."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process a cut: the events, and the control records where there is such an input."""
        scope, store = self._scope, self._store
        store.sweep()
        scope.clock_ms, scope.watermark_ms = time.clock_ms, time.watermark_ms
        scope.now_ms = scope.event_ms = time.watermark_ms
        store.start_expiry()
        timer_limit = ChainedTimerLimit(store.limits.chained_timers)
        if self._control_schema is not None:
            self._process_control_records(inputs[1], reports=time.shard == 0)
        timer_limit.first_chained_order = store.timers.next_order
        self._fire_timers(TimeDomain.CLOCK, time.clock_ms, timer_limit)
        self._process_events(inputs[0])
        timer_limit.first_chained_order = store.timers.next_order
        fired = True
        while fired:
            self._fire_timers(TimeDomain.EVENT, time.next_watermark_ms, timer_limit)
            scope.watermark_ms = time.next_watermark_ms
            fired = self._fire_timers(TimeDomain.CLOCK, time.clock_ms, timer_limit)
        scope.now_ms = time.next_watermark_ms
        scope.key_slot = NO_KEY  # type: ignore[assignment]  # no current key between two cuts
        store.timers.compact()
        if timer_limit.deferred:
            scope.counts["timers_deferred"] += timer_limit.deferred
        return self._take_output(inputs[0])

    def tables(self) -> Mapping[str, StateTable]:
        """Return the state tables by the names of ``streamcore.keyed.state_tables``."""
        return self._tables

    def on_state_loaded(self) -> None:
        """Migrate state that older versions of the function stored."""
        self._store.on_state_loaded()

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call."""
        counts = dict(self._scope.counts)
        self._scope.counts.clear()
        return counts

    # --- the steps of a cut -------------------------------------------------------------------------------------

    def _process_control_records(self, frame: pl.DataFrame, *, reports: bool) -> None:
        """Call the function for each record. ``reports``: whether failures and counts go to the output.

        A call sees no key, so it has the same outcome in every shard, and one shard reports for all.
        """
        assert self._control_schema is not None, "called only with a control input"
        scope = self._scope
        counts_before = scope.counts.copy()
        failed: dict[int, str] = {}
        records = InputRows.from_frame(frame, self._control_schema, f"{self._function_name}: control")
        scope.key_slot, scope.in_control = NO_KEY, True  # type: ignore[assignment]  # control records have no key
        for n, (record, scope.event_ms) in enumerate(zip(records.rows(self._control_row), records.times, strict=True)):
            try:
                self._function.process_control(record, self._context)
            except CALL_ERRORS as error:
                failed[n] = self._undo_call("process_control", error)
            scope.journal.clear()
        scope.in_control = False
        if not reports:
            failed = {}
            scope.counts.clear()
            scope.counts.update(counts_before)
        reasons = pl.Series(FAILED_REASON, [*failed.values()], dtype=pl.String)
        origin = [name for name in ORIGIN if name in frame.columns]
        self._failed_control = frame[[*failed]].select(*self._control_schema, *origin, reasons, EVENT_MS)

    def _process_events(self, frame: pl.DataFrame) -> None:
        events = InputRows.from_frame(frame, self._event_schema, f"{self._function_name}: events")
        key_slots = self._store.admit(frame)
        scope, context, main = self._scope, self._context, self._output_ports[MAIN]
        watermark_ms = scope.watermark_ms
        process, journal = self._function.process, scope.journal
        arriving = zip(events.rows(self._event_row), key_slots, events.times, strict=True)
        for n, (event, key_slot, event_ms) in enumerate(arriving):
            scope.key_slot, scope.event_ms = key_slot, event_ms
            scope.now_ms = event_ms if event_ms > watermark_ms else watermark_ms
            try:
                if key_slot < 0:
                    self._raise_key_limit()
                output_rows = process(event, context)
                if output_rows is not None:
                    for row in output_rows:
                        main.add(row)
            except CALL_ERRORS as error:
                reason = self._undo_call("process", error)
                values = dict(zip(self._event_schema, event, strict=True))
                self._failed.add({**values, FAILED_REASON: reason, _ROW: n})
            journal.clear()
        scope.now_ms = watermark_ms

    def _raise_key_limit(self) -> None:
        self._scope.counts["keys_rejected"] += 1
        raise OverflowError(f"the limit of {self._store.limits.keys} keys is reached")

    def _fire_timers(self, domain: TimeDomain, until_ms: int, timer_limit: ChainedTimerLimit) -> bool:
        """Call the function for the timers up to ``until_ms``; return whether any timer fired."""
        scope, context, main = self._scope, self._context, self._output_ports[MAIN]
        fired = False
        context.domain = domain
        for scope.key_slot, scope.event_ms in self._store.timers.take_due(domain, until_ms, timer_limit):
            fired = True
            if domain is TimeDomain.EVENT:
                scope.watermark_ms = max(scope.watermark_ms, scope.event_ms)
            scope.now_ms = scope.watermark_ms
            scope.counts["timers_fired"] += 1
            try:
                output_rows = self._function.on_timer(scope.event_ms, context)
                if output_rows is not None:
                    for row in output_rows:
                        main.add(row)
            except CALL_ERRORS as error:
                reason = self._undo_call("on_timer", error)
                self._failed.add({**self._timer_row(), FAILED_REASON: reason, _ROW: None})
            scope.journal.clear()
        return fired

    def _undo_call(self, method: str, error: BaseException) -> str:
        """Undo the call, and return why it failed."""
        reason = failure_reason(f"{self._function_name}.{method}", error)
        self._scope.undo()
        self._scope.counts["failed"] += 1
        return reason

    def _timer_row(self) -> dict[str, object]:
        key = self._context.key
        values = (key,) if len(self._key_columns) == 1 else key
        return {**dict.fromkeys(self._event_schema), **dict(zip(self._key_columns, values, strict=True))}

    def _take_output(self, events: pl.DataFrame) -> dict[str, pl.DataFrame]:
        ports = {name: port.take_rows() for name, port in self._output_ports.items()}
        failed = self._failed.take_rows()
        records = events.select(pl.col(name).gather(failed[_ROW]) for name in ORIGIN if name in events.columns)
        ports[FAILED] = failed.drop(_ROW).hstack(records)
        if self._control_schema is not None:
            ports[FAILED_CONTROL] = self._failed_control
        return ports


def _without_origin(schema: Schema) -> Schema:
    """Return the columns that the function sees: not those of the records, which the failed rows have again."""
    return {name: dtype for name, dtype in schema.items() if name not in ORIGIN}


def _check_function(function: ProcessFunction, function_name: str, control: Schema | None) -> None:
    """Raise ``ConfigError`` for mistakes that are visible before the first event."""
    methods: Mapping[str, Callable[..., object]] = {"process": type(function).process}
    if control is not None:
        methods = {**methods, "process_control": type(function).process_control}
    for method, implementation in methods.items():
        if implementation is getattr(ProcessFunction, method):
            raise ConfigError(f"{function_name}: define a method {method}")
    if inspect.isgeneratorfunction(type(function).process_control):
        raise ConfigError(
            f"{function_name}.process_control must not yield rows, because every shard would; store values in "
            "context.broadcast"
        )
    if not isinstance(function.version, int):
        raise ConfigError(
            f"{function_name}: version is {describe(function.version)}; it must be a whole number, not a state"
        )


def _key_columns(key: Sequence[str], events: Mapping[str, pl.DataType], function_name: str) -> dict[str, pl.DataType]:
    columns = (key,) if isinstance(key, str) else tuple(key)
    if unknown := [column for column in columns if column not in events]:
        raise ConfigError(
            f"{function_name}: the key has columns {unknown} that the events do not have: {sorted(events)}"
        )
    if rejected := [f"{column} ({events[column]})" for column in columns if not _can_be_key(events[column])]:
        raise ConfigError(
            f"{function_name}: {rejected} cannot be a key; use text, booleans, times, whole numbers or decimal numbers "
            "of up to 18 digits"
        )
    return {column: events[column] for column in columns}


def _can_be_key(dtype: pl.DataType) -> bool:
    """Return whether equal values of the type always have equal, stable hashes."""
    if isinstance(dtype, pl.Decimal):
        return (dtype.precision or 38) - dtype.scale <= 18
    return not dtype.is_float() and dtype != pl.UInt64


def _output_ports(function: ProcessFunction, function_name: str, scope: CallScope) -> dict[str, PortBuffer]:
    if reserved := sorted({FAILED, FAILED_CONTROL}.intersection(function.outputs)):
        raise ConfigError(f"{function_name}: port names {reserved} are reserved for the operator; choose other names")
    outputs = {MAIN: {}, **function.outputs}
    return {
        port: PortBuffer(port, check_schema(schema, f"{function_name}: port {port}"), scope)
        for port, schema in outputs.items()
    }
