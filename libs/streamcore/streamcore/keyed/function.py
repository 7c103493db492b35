"""The parts that the author of a keyed function writes and is given: the base class, the context of a call, timers.

``streamcore.operators.process`` defines how and when the methods are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from streamcore.keyed.broadcast import BroadcastState
from streamcore.keyed.call_records import PortBuffer, Schema
from streamcore.keyed.call_scope import TimeDomain
from streamcore.keyed.keyed_store import KeyedStore
from streamcore.keyed.migration import Migration
from streamcore.keyed.timers import TimerTable
from streamcore.keyed.value_codec import ValueTypeMismatch

Rows = Iterable[object] | None


class ProcessFunction:
    """The base of a keyed function. States are declared on the class (``streamcore.keyed``).

    ``outputs``: the columns of every port; ``EVENT_MS`` is added. ``version`` counts up when the stored values change
    their meaning, and ``migrations`` lead there: ``migrations[1]`` turns the values that version 1 kept for a key into
    those of version 2 (``streamcore.keyed.migration``).
    """

    outputs: Mapping[str, Schema] = {}
    version: ClassVar[int] = 1
    migrations: ClassVar[Mapping[int, Migration]] = {}

    def process(self, event: Any, context: ProcessContext) -> Rows:
        """Return one event: an object with its columns as attributes. Gives rows for ``MAIN``: mappings, or the
        event."""
        raise NotImplementedError

    def on_timer(self, at_ms: int, context: ProcessContext) -> Rows:
        """Return one timer has come to its time."""
        raise NotImplementedError

    def process_control(self, record: Any, context: ProcessContext) -> None:
        """Return one control record, on every shard: change ``context.broadcast``. Gives no rows."""
        raise NotImplementedError


class Timers:
    """The timers of the current key. Times are epoch milliseconds."""

    __slots__ = ("_rows",)

    def __init__(self, rows: TimerTable) -> None:
        self._rows = rows

    def set(self, at_ms: int, domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Fire at that time, once; a timer of the same time that is there already is the same timer."""
        self._rows.set(at_ms, domain)

    def delete(self, at_ms: int, domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Do not fire at that time."""
        self._rows.delete(at_ms, domain)

    def clear(self, domain: TimeDomain = TimeDomain.EVENT) -> None:
        """Delete all timers of the key in that domain."""
        self._rows.clear(domain)


class ProcessContext:
    """The context of a call, besides the event. Valid during the call."""

    __slots__ = ("_keys", "_ports", "_scope", "broadcast", "domain", "timers")

    def __init__(self, store: KeyedStore, ports: Mapping[str, PortBuffer]) -> None:
        self._scope = store.scope
        self._keys = store.keys
        self._ports = ports
        self.timers = Timers(store.timers)
        #: The values that control records have set.
        self.broadcast: BroadcastState = store.broadcast
        #: In ``on_timer``: what kind of timer fired.
        self.domain = TimeDomain.EVENT

    @property
    def key(self) -> Any:
        """Return the key: a value, or a tuple for a key of several columns."""
        return self._keys.keys[self._scope.slot]

    @property
    def event_ms(self) -> int:
        """Return the event's time, or the timer's."""
        return self._scope.event_ms

    @property
    def watermark_ms(self) -> int:
        """Return no event earlier than this was expected any more."""
        return self._scope.watermark_ms

    @property
    def clock_ms(self) -> int:
        """Processing time: the clock of the cut."""
        return self._scope.clock_ms

    @property
    def is_late(self) -> bool:
        """Return whether the event came after the watermark had passed it."""
        return self._scope.event_ms < self._scope.watermark_ms

    def side(self, port: str, row: object) -> None:
        """Give a row to a side output."""
        if port not in self._ports:
            raise ValueTypeMismatch(f"no port {port!r}: declared are {sorted(self._ports)}")
        self._ports[port].add(row)
