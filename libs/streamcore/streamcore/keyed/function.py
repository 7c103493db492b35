"""The interface of a keyed function: the base class that users extend, and the context and timers that a call receives.

``streamcore.operators.process`` defines when the methods are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from streamcore.durations import Duration, duration_ms
from streamcore.keyed.broadcast import BroadcastTable
from streamcore.keyed.call_records import PortBuffer, Schema
from streamcore.keyed.call_scope import CallScope, TimeDomain
from streamcore.keyed.keyed_store import KeyedStore
from streamcore.keyed.migration import Migration
from streamcore.keyed.runtime_context import RuntimeContext
from streamcore.keyed.timers import TimerTable
from streamcore.keyed.value_codec import ValueTypeMismatch

Rows = Iterable[object] | None
#: A function of the key of the context; it returns rows as ``ProcessFunction.process`` does.
KeyFunction = Callable[["ProcessContext"], Rows]


class UserFunction:
    """What all functions have that keep state. Subclasses declare states on the class (``streamcore.keyed.states``).

    ``outputs``: the columns of each output port; the operator adds ``EVENT_MS``. ``version``: raise it when the stored
    values change their meaning. ``migrations[1]`` turns the values that version 1 stored for a key into those of
    version 2 (``streamcore.keyed.migration``).

    Only declared states are stored. An attribute that a call sets on ``self`` is lost without an error at the next
    restart, differs between shards, and is not undone when a call fails. So attributes must not change after
    ``open``.
    """

    outputs: Mapping[str, Schema] = {}
    version: ClassVar[int] = 1
    migrations: ClassVar[Mapping[int, Migration]] = {}

    def open(self, context: RuntimeContext) -> None:
        """Prepare for calls: once in each process that runs a shard of the step, before its first call.

        For counters and gauges (``self.alarms = context.counter("alarms")``), and for what cannot be pickled, such as a
        compiled model. Attributes that are set here are no state: they are not stored, and made again after a restart.
        """

    def close(self) -> None:
        """Release the resources that ``open`` has taken. Not called after a crash, nor when Spark kills a worker."""


class KeyedFunction(UserFunction):
    """What all functions have that are called for each event of a key."""

    def on_timer(self, at_ms: int, context: ProcessContext) -> Rows:
        """Process a timer of the key that was set for ``at_ms``. Return or yield rows, as ``process`` does."""
        raise NotImplementedError


class ProcessFunction(KeyedFunction):
    """The base class of a function of one stream, with a key or without one, and of a broadcast stream if there is one.

    Without a key the function has no states and no timers (``streamcore.operators.process.keyless``).
    """

    def process(self, event: Any, context: ProcessContext) -> Rows:
        """Process one event, an object with its columns as attributes. Return or yield the rows for port ``MAIN``.

        A row is a mapping from columns to values, or the event itself.
        """
        raise NotImplementedError

    def process_control(self, record: Any, context: ProcessContext) -> Rows:
        """Process one control record: change broadcast state. Return or yield rows, as ``process`` does.

        Called on every shard, without a key; the rows are emitted once. ``context.apply_to_keyed_state`` reaches the
        states of all keys.
        """
        raise NotImplementedError


class CoProcessFunction(KeyedFunction):
    """The base class of a function of two streams with one key: both methods use the same states and timers."""

    def process1(self, event: Any, context: ProcessContext) -> Rows:
        """Process one event of the first stream, as ``ProcessFunction.process`` does."""
        raise NotImplementedError

    def process2(self, event: Any, context: ProcessContext) -> Rows:
        """Process one event of the second stream, as ``ProcessFunction.process`` does."""
        raise NotImplementedError


class Timers:
    """The timers of the current key. Times are epoch milliseconds."""

    __slots__ = ("_scope", "_table")

    def __init__(self, table: TimerTable, scope: CallScope) -> None:
        self._table = table
        self._scope = scope

    def set(self, at_ms: int, domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Set a timer that fires once at ``at_ms``. Nothing changes if the key has a timer for this time."""
        self._table.set(at_ms, domain)

    def after(self, delay: Duration, domain: TimeDomain = TimeDomain.EVENT) -> int:
        """Set a timer that fires ``delay`` after this call, and return its time.

        A call's time is that of its event or timer, or the clock of the cut with ``TimeDomain.CLOCK``.
        """
        scope = self._scope
        at_ms = (scope.event_ms if domain is TimeDomain.EVENT else scope.clock_ms) + duration_ms("after", delay)
        self._table.set(at_ms, domain)
        return at_ms

    def delete(self, at_ms: int, domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Delete the timer for ``at_ms``, if the key has one."""
        self._table.delete(at_ms, domain)

    def clear(self, domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Delete all timers of the key in that domain."""
        self._table.clear(domain)


class ProcessContext:
    """The key, times, timers, broadcast state and side outputs of a call. Valid during the call."""

    __slots__ = ("_keys", "_ports", "_scope", "broadcast", "domain", "for_all_keys", "timers")

    def __init__(self, store: KeyedStore, ports: Mapping[str, PortBuffer]) -> None:
        self._scope = store.scope
        self._keys = store.keys
        self._ports = ports
        self.timers = Timers(store.timers, store.scope)
        #: The values that ``process_control`` has stored, beside those of declared ``BroadcastState``s.
        self.broadcast: BroadcastTable = store.broadcast
        #: The functions that this call of ``process_control`` applies to all keys.
        self.for_all_keys: list[KeyFunction] = []
        #: In ``on_timer``: the time domain of the timer that fired.
        self.domain = TimeDomain.EVENT

    @property
    def key(self) -> Any:
        """Return the key: a value, or a tuple for a key of several columns."""
        return self._keys.keys[self._scope.key_slot]

    @property
    def event_ms(self) -> int:
        """Return the event time of the event or control record, or the time of the timer."""
        return self._scope.event_ms

    @property
    def watermark_ms(self) -> int:
        """Return the watermark: events before it are late."""
        return self._scope.watermark_ms

    @property
    def clock_ms(self) -> int:
        """Return the processing time: the clock of the cut."""
        return self._scope.clock_ms

    @property
    def is_late(self) -> bool:
        """Return whether the event is late: its time is before the watermark."""
        return self._scope.event_ms < self._scope.watermark_ms

    def side(self, port: str, row: object) -> None:
        """Emit a row on a side output; ``ValueTypeMismatch`` if the port or its columns do not exist."""
        if port not in self._ports:
            raise ValueTypeMismatch(f"no port {port!r}: declared are {sorted(self._ports)}")
        self._ports[port].add(row)

    def apply_to_keyed_state(self, function: KeyFunction) -> None:
        """Call a function for each key of all shards that has state or timers, after ``process_control`` has returned.

        It gets this context with the key, and its rows are those of the key. So it can be a method that reads and
        changes states and sets timers. A call that fails is undone for its key. ``PermissionError`` outside of
        ``process_control``.
        """
        if not self._scope.in_control:
            raise PermissionError("only process_control may apply a function to all keys")
        self.for_all_keys.append(function)
