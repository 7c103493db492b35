"""A function over one key at a time, with state and timers: for logic that no window, join or aggregate expresses.

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

A cut goes through these moments, in this order:

1. Control records, in order of arrival (``process_control``; no key, no output).
2. The clock becomes ``clock_ms``: clock timers up to it fire.
3. The events, in order of arrival, at ``watermark_ms``. A late one (before the watermark) is delivered like any other
   and ``context.is_late`` is true: only the function knows what lateness means to its state, and it can send the event
   to a port of its own. So does Flink.
4. The watermark passes to ``next_watermark_ms``: event-time timers up to it fire, and each sees a watermark that has
   just come to its time. Then clock timers that were set meanwhile for a time already reached, and so on until none
   is due.

Within 2 and 4 the order is that of the timers' times, then that in which they were set; a timer that is set for a time
already reached fires in the same cut. An output row's ``EVENT_MS`` is that of the event, or the timer's time.

A call (an event, a timer, a control record) happens whole or not at all. When it raises, or gives a row that does not
fit its port, state, timers and outputs are as before the call, and the row goes to port ``FAILED`` with
``FAILED_REASON`` (a control record to ``FAILED_CONTROL``; a timer as a row of its key and nulls). A timer that failed
has fired. The stream goes on.

Data that a function keeps outside its states is lost with the process and differs between shards; it must be constant.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.call_records import InputRows, PortBuffer, Schema, check_schema, row_class
from streamcore.keyed.call_scope import NO_KEY, CallScope, TimeDomain
from streamcore.keyed.function import ProcessContext, ProcessFunction
from streamcore.keyed.keyed_store import KeyedLimits, KeyedStore
from streamcore.keyed.migration import Row
from streamcore.keyed.state_tables import build_tables
from streamcore.keyed.states import declared_states
from streamcore.keyed.timers import ChainedTimerLimit
from streamcore.keyed.value_codec import describe
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.state.row_versions import Versions
from streamcore.state.table import StateTable
from streamcore.wire.lanes import DeadLetterCode

#: The port of events whose call failed: their columns and why.
FAILED = DeadLetterCode.FAILED.value
#: The same for control records.
FAILED_CONTROL = DeadLetterCode.FAILED_CONTROL.value
#: Text: which method of which function failed, and how.
FAILED_REASON = "failed_reason"

_ADDRESS = re.compile("0x[0-9a-f]{6,}")


class ProcessOperator:
    """Runs a function over the events of one shard, and over control records where it has a second input.

    ``key``: columns of ``events``. ``events``, ``control``: the columns of the inputs without ``EVENT_MS``. The
    function is copied, so one may be given to many operators.
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
        self._name = type(function).__name__
        self._events = check_schema(events, f"{self._name}: events")
        self._control = None if control is None else check_schema(control, f"{self._name}: control")
        _check_function(function, self._name, control)
        self._key = _key(key, self._events, self._name)
        versions: Versions[Row] = Versions(self._name, function.version, function.migrations)
        states = declared_states(type(function))
        self._store = KeyedStore(self._name, self._key, states, versions, limits or KeyedLimits())
        self._scope: CallScope = self._store.scope
        self._ports = _ports(function, self._name, self._scope)
        self._failed = PortBuffer(FAILED, {**self._events, FAILED_REASON: pl.String()}, self._scope)
        self._failed_control = PortBuffer(
            FAILED_CONTROL, {**(self._control or {}), FAILED_REASON: pl.String()}, self._scope
        )
        self._context = ProcessContext(self._store, self._ports)
        self._function = copy.copy(function)
        for storage in self._store.all_states:
            states[storage.name].attach(self._function, storage)
        self._event_row = row_class(self._events, "Event")
        self._control_row = row_class(self._control or {}, "Control")
        self._tables = build_tables(self._store)

    # --- Operator -----------------------------------------------------------------------------------------------

    @property
    def output_delay_ms(self) -> int:
        """Return 0: a row has the time of its event or timer."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process a cut: the events, and the control records where there is such an input."""
        scope, store = self._scope, self._store
        store.sweep()
        scope.clock_ms, scope.watermark_ms = time.clock_ms, time.watermark_ms
        scope.now_ms = scope.event_ms = time.watermark_ms
        store.start_expiry()
        chain = ChainedTimerLimit(store.limits.chained_timers)
        if self._control is not None:
            self._take_control(inputs[1])
        chain.begin = store.timers.next_order
        self._fire(TimeDomain.CLOCK, time.clock_ms, chain)
        self._take_events(inputs[0])
        chain.begin = store.timers.next_order
        fired = True
        while fired:
            self._fire(TimeDomain.EVENT, time.next_watermark_ms, chain)
            scope.watermark_ms = time.next_watermark_ms
            fired = self._fire(TimeDomain.CLOCK, time.clock_ms, chain)
        scope.now_ms = time.next_watermark_ms
        scope.slot = NO_KEY  # type: ignore[assignment]  # between two cuts there is no key
        store.timers.compact()
        if chain.deferred:
            scope.counts["timers_deferred"] += chain.deferred
        return self._take_ports()

    def tables(self) -> Mapping[str, StateTable]:
        """Return all state, by the table names of ``streamcore.keyed.state_tables``."""
        return self._tables

    def on_state_loaded(self) -> None:
        """Migrate state that older versions of the function stored."""
        self._store.on_state_loaded()

    def metrics(self) -> Mapping[str, int]:
        """Return the counts since the last call."""
        counts = dict(self._scope.counts)
        self._scope.counts.clear()
        return counts

    # --- the moments of a cut -----------------------------------------------------------------------------------

    def _take_control(self, frame: pl.DataFrame) -> None:
        assert self._control is not None, "asked for with a control input only"
        scope = self._scope
        records = InputRows.from_frame(frame, self._control, f"{self._name}: control")
        scope.slot, scope.in_control = NO_KEY, True  # type: ignore[assignment]  # control records have no key
        for record, scope.event_ms in zip(records.rows(self._control_row), records.times, strict=True):
            try:
                self._function.process_control(record, self._context)
            except Exception as error:
                self._fail(self._failed_control, record, "process_control", error)
            scope.journal.clear()
        scope.in_control = False

    def _take_events(self, frame: pl.DataFrame) -> None:
        events = InputRows.from_frame(frame, self._events, f"{self._name}: events")
        slots = self._store.admit(frame)
        scope, context, main, watermark_ms = self._scope, self._context, self._ports[MAIN], self._scope.watermark_ms
        process, journal = self._function.process, scope.journal
        for event, slot, event_ms in zip(events.rows(self._event_row), slots, events.times, strict=True):
            scope.slot, scope.event_ms = slot, event_ms
            scope.now_ms = event_ms if event_ms > watermark_ms else watermark_ms
            try:
                if slot < 0:
                    self._refuse_key()
                given = process(event, context)
                if given is not None:
                    for row in given:
                        main.add(row)
            except Exception as error:
                self._fail(self._failed, event, "process", error)
            journal.clear()
        scope.now_ms = watermark_ms

    def _refuse_key(self) -> None:
        self._scope.counts["keys_refused"] += 1
        raise OverflowError(f"the limit of {self._store.limits.keys} keys is reached")

    def _fire(self, domain: TimeDomain, until_ms: int, chain: ChainedTimerLimit) -> bool:
        """Fire the timers that are due in that domain; whether anything was."""
        scope, context, main = self._scope, self._context, self._ports[MAIN]
        fired = False
        context.domain = domain
        for scope.slot, scope.event_ms in self._store.timers.due(domain, until_ms, chain):
            fired = True
            if domain is TimeDomain.EVENT:
                scope.watermark_ms = max(scope.watermark_ms, scope.event_ms)
            scope.now_ms = scope.watermark_ms
            scope.counts["timers_fired"] += 1
            try:
                given = self._function.on_timer(scope.event_ms, context)
                if given is not None:
                    for row in given:
                        main.add(row)
            except Exception as error:
                self._fail(self._failed, self._timer_row(), "on_timer", error)
            scope.journal.clear()
        return fired

    def _fail(self, port: PortBuffer, row: object, method: str, error: Exception) -> None:
        """Return the call never was; the row goes to its lane."""
        if isinstance(error, MemoryError):
            raise error  # a matter of the machine, not of the data: the cut must run again
        self._scope.undo()
        self._scope.counts["failed"] += 1
        reason = f"{self._name}.{method}: {_error_text(error)}"
        values = row if isinstance(row, dict) else dict(zip(self._columns_for(port), row, strict=True))  # type: ignore[call-overload]
        port.add({**values, FAILED_REASON: reason})

    def _columns_for(self, port: PortBuffer) -> Iterable[str]:
        return self._events if port is self._failed else self._control or {}

    def _timer_row(self) -> dict[str, object]:
        key = self._context.key
        values = (key,) if len(self._key) == 1 else key
        return {**dict.fromkeys(self._events), **dict(zip(self._key, values, strict=True))}

    def _take_ports(self) -> dict[str, pl.DataFrame]:
        ports = {name: port.take() for name, port in self._ports.items()}
        ports[FAILED] = self._failed.take()
        if self._control is not None:
            ports[FAILED_CONTROL] = self._failed_control.take()
        return ports


def _error_text(error: Exception) -> str:
    """Return the error as text that is the same whenever the cut runs again: without addresses of objects."""
    try:
        text = str(error)
    except Exception:  # a message is the user's code too
        text = "(its message cannot be read)"
    return f"{type(error).__name__}: {_ADDRESS.sub('0x...', text)}".encode(errors="replace").decode()


def _check_function(function: ProcessFunction, name: str, control: Schema | None) -> None:
    """Raise ``ConfigError`` for mistakes that are visible before any event."""
    methods: Mapping[str, Callable[..., object]] = {"process": type(function).process}
    if control is not None:
        methods = {**methods, "process_control": type(function).process_control}
    for method, found in methods.items():
        if found is getattr(ProcessFunction, method):
            raise ConfigError(f"{name}: give it a method {method}")
    if inspect.isgeneratorfunction(type(function).process_control):
        raise ConfigError(
            f"{name}.process_control gives rows; every shard would give them. Keep them in context.broadcast"
        )
    if not isinstance(function.version, int):
        raise ConfigError(f"{name}: version is {describe(function.version)}; it is a whole number, not a state")


def _key(key: Sequence[str], events: Mapping[str, pl.DataType], name: str) -> dict[str, pl.DataType]:
    columns = (key,) if isinstance(key, str) else tuple(key)
    if unknown := [column for column in columns if column not in events]:
        raise ConfigError(f"{name}: the key names columns {unknown} that the events do not have: {sorted(events)}")
    if odd := [f"{column} ({events[column]})" for column in columns if not _can_be_key(events[column])]:
        raise ConfigError(
            f"{name}: {odd} cannot be a key; text, booleans, times and whole or decimal numbers of up to 18 digits can"
        )
    return {column: events[column] for column in columns}


def _can_be_key(dtype: pl.DataType) -> bool:
    """Return whether its values equal themselves and have a hash that never changes."""
    if isinstance(dtype, pl.Decimal):
        return (dtype.precision or 38) - dtype.scale <= 18
    return not dtype.is_float() and dtype != pl.UInt64


def _ports(function: ProcessFunction, name: str, scope: CallScope) -> dict[str, PortBuffer]:
    if taken := sorted({FAILED, FAILED_CONTROL}.intersection(function.outputs)):
        raise ConfigError(f"{name}: ports {taken} are the operator's own; give yours other names")
    outputs = {MAIN: {}, **function.outputs}
    return {
        port: PortBuffer(port, check_schema(schema, f"{name}: port {port}"), scope) for port, schema in outputs.items()
    }
