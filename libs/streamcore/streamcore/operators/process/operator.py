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

A ``CoProcessFunction`` has two inputs of events with one key: ``process1`` and ``process2`` use the same states.

A cut has these steps, in this order:

1. Control records, in order of arrival (``process_control``; no key). Each is followed by the functions that it applies
   to all keys (``context.apply_to_keyed_state``): for each function, the keys with state or timers in an order of the
   keys alone.
2. The clock becomes ``clock_ms``: clock timers up to it fire.
3. The events, in order of arrival, or of two inputs as ``streamcore.operators.process.inputs`` merges them, at
   ``watermark_ms``. A late event (before the watermark) is processed like any other, with ``context.is_late`` true, as
   in Flink: only the function knows what lateness means to its state.
4. The watermark becomes ``next_watermark_ms``: event-time timers up to it fire, and each sees its own time as the
   watermark. Then clock timers fire that were set meanwhile for a time already reached, and so on until none is due.

In steps 2 and 4 timers fire in the order of their times, then in the order in which they were set. A timer that is set
for a time already reached fires in the same cut. An output row has the ``EVENT_MS`` of the event or control record, or
the timer's time.

A call (for an event, a timer, a control record, or a key that a function is applied to) is atomic. If it raises, or
emits a row that does not fit its port, its changes to state, timers and outputs are undone, and the row goes to port
``FAILED`` with ``FAILED_REASON``. (A row of the second input goes to ``FAILED_SECOND``, a control record to
``FAILED_CONTROL``; a timer or a key becomes a row of the key and nulls.) A timer whose call failed does not fire again.
Processing continues.

Every shard makes the calls for control records. They see no key, so they have the same outcome in every shard; shard 0
alone emits their rows and counts. What is applied to all keys, each shard does for its own keys.

Data that a function holds outside its states is lost with the process and differs between shards; it must be constant.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.calls import CALL_ERRORS, failure_reason, get_call_name
from streamcore.errors import ConfigError
from streamcore.keyed.broadcast import declared_broadcast_states
from streamcore.keyed.call_records import InputRows, PortBuffer, Schema, check_schema, row_class
from streamcore.keyed.call_scope import NO_KEY, CallScope, TimeDomain
from streamcore.keyed.function import CoProcessFunction, KeyedFunction, ProcessContext, ProcessFunction, Rows
from streamcore.keyed.keyed_store import KeyedLimits, KeyedStore
from streamcore.keyed.migration import Row
from streamcore.keyed.paging import PagedKeys
from streamcore.keyed.runtime_context import RuntimeContext
from streamcore.keyed.state_tables import build_tables
from streamcore.keyed.states import declared_states
from streamcore.keyed.timers import ChainedTimerLimit
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.operators.failures import FAILED, FAILED_REASON
from streamcore.operators.process.checks import check_function
from streamcore.operators.process.inputs import ArrivingRow, EventInput, merge_rows, without_origin
from streamcore.operators.process.key_check import KeyCheckedPort
from streamcore.schema import EVENT_MS
from streamcore.state.row_versions import Versions
from streamcore.state.table import StateTable
from streamcore.wire.lanes import DeadLetterCode
from streamcore.wire.raw import ORIGIN

#: The number of a failed event's row in its cut; null for a timer.
_ROW = "__row"
#: The port of rows of the second input whose call failed: their columns and ``FAILED_REASON``.
FAILED_SECOND = "failed_second"
#: The port of control records whose call failed: their columns and ``FAILED_REASON``.
FAILED_CONTROL = DeadLetterCode.FAILED_CONTROL.value
_RESERVED = frozenset({FAILED, FAILED_SECOND, FAILED_CONTROL})


@dataclass(frozen=True, slots=True)
class SecondInput:
    """The second input of a ``CoProcessFunction``: its columns without ``EVENT_MS``, and the names of its key columns.

    The key has the types of the first input's, in the same order.
    """

    events: Schema
    key: tuple[str, ...]


class ProcessOperator:
    """Calls a keyed function for each event of one shard, and for each control record if there is such an input.

    ``key``: names of columns of ``events``. ``events``, ``control``: the columns of the inputs without ``EVENT_MS``.
    ``second``: for a ``CoProcessFunction``. ``keeps_key``: rows of ports that have the key columns have the key of
    their call in them; a call that emits another key fails. The function is copied, so several operators can share one.
    """

    def __init__(
        self,
        function: KeyedFunction,
        *,
        key: Sequence[str],
        events: Schema,
        second: SecondInput | None = None,
        control: Schema | None = None,
        limits: KeyedLimits | None = None,
        keeps_key: bool = False,
    ) -> None:
        base = ProcessFunction if second is None else CoProcessFunction
        methods = ["process"] if second is None else ["process1", "process2"]
        check_function(function, base, methods if control is None else [*methods, "process_control"])
        self._function_name = type(function).__name__
        self._inputs = [EventInput.build(methods[0], events, key, self._function_name, "events")]
        if second is not None:
            name = "events of the second stream"
            self._inputs.append(EventInput.build(methods[1], second.events, second.key, self._function_name, name))
        self._key_columns = self._inputs[0].key
        self._control_schema = (
            None if control is None else check_schema(without_origin(control), f"{self._function_name}: control")
        )
        versions: Versions[Row] = Versions(self._function_name, function.version, function.migrations)
        states = declared_states(type(function))
        self._store = KeyedStore(self._function_name, self._key_columns, states, versions, limits or KeyedLimits())
        self._scope: CallScope = self._store.scope
        self._output_ports = self._create_ports(function, keeps_key=keeps_key)
        self._failed = [
            PortBuffer(port, {**one.schema, FAILED_REASON: pl.String(), _ROW: pl.Int64()}, self._scope)
            for port, one in zip((FAILED, FAILED_SECOND), self._inputs, strict=False)
        ]
        self._failed_control = pl.DataFrame()
        self._context = ProcessContext(self._store, self._output_ports)
        self._function = copy.copy(function)
        for storage in self._store.all_states:
            states[storage.name].attach(self._function, storage)
        for broadcast_state in declared_broadcast_states(type(function)).values():
            broadcast_state.attach(self._function, self._store.broadcast)
        self._calls = [getattr(self._function, one.method) for one in self._inputs]
        self._control_row = row_class(self._control_schema or {}, "Control")
        self._tables = build_tables(self._store)
        self.paged_state = PagedKeys(self._store)

    def _create_ports(self, function: KeyedFunction, *, keeps_key: bool) -> dict[str, PortBuffer]:
        name = self._function_name
        if reserved := sorted(_RESERVED.intersection(function.outputs)):
            raise ConfigError(f"{name}: port names {reserved} are reserved for the operator; choose other names")
        outputs = {MAIN: {}, **function.outputs}
        schemas = {port: check_schema(schema, f"{name}: port {port}") for port, schema in outputs.items()}
        if not keeps_key:
            return {port: PortBuffer(port, schema, self._scope) for port, schema in schemas.items()}
        if missing := [column for column, dtype in self._key_columns.items() if schemas[MAIN].get(column) != dtype]:
            raise ConfigError(f"{name}: keeps_key: port {MAIN} must have the key columns {missing}, with their types")
        return {port: KeyCheckedPort(port, schema, self._store) for port, schema in schemas.items()}

    # --- Operator -----------------------------------------------------------------------------------------------

    @property
    def output_delay_ms(self) -> int:
        """Return 0: an output row has the time of its event or timer."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Process a cut: the events of each input, then the control records where there is such an input."""
        events = inputs[: len(self._inputs)]
        scope, store = self._scope, self._store
        store.sweep()
        scope.clock_ms, scope.watermark_ms = time.clock_ms, time.watermark_ms
        scope.now_ms = scope.event_ms = time.watermark_ms
        store.start_expiry()
        timer_limit = ChainedTimerLimit(store.limits.chained_timers)
        if self._control_schema is not None:
            self._process_control_records(inputs[-1], emits=time.shard == 0)
        timer_limit.first_chained_order = store.timers.next_order
        self._fire_timers(TimeDomain.CLOCK, time.clock_ms, timer_limit)
        self._process_events(events)
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
        return self._take_output(events)

    def open(self, context: RuntimeContext) -> None:
        """Open the function, before the first step of this process. What a failed call counts is taken back."""
        context.undo_in(self._scope.journal)
        self._function.open(context)

    def close(self) -> None:
        """Close the function."""
        self._function.close()

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

    def _process_control_records(self, frame: pl.DataFrame, *, emits: bool) -> None:
        """Call the function for each record. ``emits``: whether rows, failures and counts of the calls are kept.

        A call sees no key, so it has the same outcome in every shard, and one shard emits for all.
        """
        assert self._control_schema is not None, "called only with a control input"
        scope = self._scope
        failed: dict[int, str] = {}
        records = InputRows.from_frame(frame, self._control_schema, f"{self._function_name}: control")
        for n, (record, event_ms) in enumerate(zip(records.rows(self._control_row), records.times, strict=True)):
            counts_before = scope.counts.copy()
            rows_before = {name: len(port) for name, port in self._output_ports.items()}
            scope.key_slot, scope.event_ms, scope.in_control = NO_KEY, event_ms, True  # type: ignore[assignment]  # no key
            try:
                self._emit(self._function.process_control(record, self._context))  # type: ignore[attr-defined]  # checked
            except CALL_ERRORS as error:
                failed[n] = self._undo_call("process_control", error)
                self._context.for_all_keys.clear()
            scope.journal.clear()
            scope.in_control = False
            if not emits:
                self._drop_rows(rows_before, counts_before)
            self._apply_to_all_keys(event_ms)
        reasons = pl.Series(FAILED_REASON, [*failed.values()] if emits else [], dtype=pl.String)
        origin = [name for name in ORIGIN if name in frame.columns]
        failed_rows = frame[[*failed] if emits else []]
        self._failed_control = failed_rows.select(*self._control_schema, *origin, reasons, EVENT_MS)

    def _drop_rows(self, rows: Mapping[str, int], counts: Counter[str]) -> None:
        """Drop the rows and counts after these numbers: those of a control record that another shard emits."""
        for name, port in self._output_ports.items():
            port.truncate(rows[name])
        self._scope.counts.clear()
        self._scope.counts.update(counts)

    def _apply_to_all_keys(self, event_ms: int) -> None:
        """Call the functions that the control record has applied to all keys."""
        functions, self._context.for_all_keys = self._context.for_all_keys, []
        scope = self._scope
        if functions:
            self._store.recall_all()
        for function in functions:
            for scope.key_slot in self._store.live_key_slots():
                scope.event_ms = event_ms
                try:
                    self._emit(function(self._context))
                except CALL_ERRORS as error:
                    self._fail_key(get_call_name(function), error)
                scope.journal.clear()

    def _process_events(self, frames: Sequence[pl.DataFrame]) -> None:
        if len(self._inputs) == 1:
            self._process_rows(0, self._inputs[0].read(frames[0], self._store.admit(frames[0])))
            return
        keys = [
            frame.select(pl.col(own).alias(name) for own, name in zip(one.key, self._key_columns, strict=True))
            for one, frame in zip(self._inputs, frames, strict=True)
        ]
        key_slots = self._store.admit(pl.concat(keys)) if self._key_columns else self._store.admit(_keyless(frames))
        divided = key_slots[: frames[0].height], key_slots[frames[0].height :]
        for one, rows in merge_rows(self._inputs, frames, divided):
            self._process_rows(self._inputs.index(one), rows)

    def _process_rows(self, number: int, rows: Iterable[ArrivingRow]) -> None:
        """Call the function for rows of the input with this number, in this order."""
        scope, context, main = self._scope, self._context, self._output_ports[MAIN]
        watermark_ms = scope.watermark_ms
        process, journal = self._calls[number], scope.journal
        for n, event, key_slot, event_ms in rows:
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
                reason = self._undo_call(self._inputs[number].method, error)
                values = dict(zip(self._inputs[number].schema, event, strict=True))
                self._failed[number].add({**values, FAILED_REASON: reason, _ROW: n})
            journal.clear()
        scope.now_ms = watermark_ms

    def _raise_key_limit(self) -> None:
        self._scope.counts["keys_rejected"] += 1
        raise OverflowError(f"the limit of {self._store.limits.keys} keys is reached")

    def _fire_timers(self, domain: TimeDomain, until_ms: int, timer_limit: ChainedTimerLimit) -> bool:
        """Call the function for the timers up to ``until_ms``; return whether any timer fired."""
        scope, context = self._scope, self._context
        fired = False
        context.domain = domain
        for scope.key_slot, scope.event_ms in self._store.timers.take_due(domain, until_ms, timer_limit):
            fired = True
            if domain is TimeDomain.EVENT:
                scope.watermark_ms = max(scope.watermark_ms, scope.event_ms)
            scope.now_ms = scope.watermark_ms
            scope.counts["timers_fired"] += 1
            try:
                self._emit(self._function.on_timer(scope.event_ms, context))
            except CALL_ERRORS as error:
                self._fail_key("on_timer", error)
            scope.journal.clear()
        return fired

    def _emit(self, rows: Rows) -> None:
        """Add the rows that a call returned to port ``MAIN``."""
        if rows is not None:
            main = self._output_ports[MAIN]
            for row in rows:
                main.add(row)

    def _undo_call(self, method: str, error: BaseException) -> str:
        """Undo the call, and return why it failed."""
        reason = failure_reason(f"{self._function_name}.{method}", error)
        self._scope.undo()
        self._scope.counts["failed"] += 1
        return reason

    def _fail_key(self, method: str, error: BaseException) -> None:
        """Undo a call that has no event, and add a row of its key and nulls to port ``FAILED``."""
        reason = self._undo_call(method, error)
        key = self._context.key
        values = (key,) if len(self._key_columns) == 1 else key
        row = {**dict.fromkeys(self._inputs[0].schema), **dict(zip(self._key_columns, values, strict=True))}
        self._failed[0].add({**row, FAILED_REASON: reason, _ROW: None})

    def _take_output(self, events: Sequence[pl.DataFrame]) -> dict[str, pl.DataFrame]:
        ports = {name: port.take_rows() for name, port in self._output_ports.items()}
        for port, frame in zip(self._failed, events, strict=True):
            failed = port.take_rows()
            records = frame.select(pl.col(name).gather(failed[_ROW]) for name in ORIGIN if name in frame.columns)
            ports[port.name] = failed.drop(_ROW).hstack(records)
        if self._control_schema is not None:
            ports[FAILED_CONTROL] = self._failed_control
        return ports


def _keyless(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return as many rows as all frames have, for a key without columns."""
    return pl.concat(frame.select(EVENT_MS) for frame in frames)
