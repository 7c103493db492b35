"""Timers: a function's wish to be called for a key when event time or the clock has come to a point.

One timer a key, domain and time, as in Flink: setting it again changes nothing. Timers fire in the order of their
times, and at the same time in the order in which they were set.

Waiting timers of a domain are a heap. A deleted one stays in the heap until it comes up or until such leftovers
outnumber the rest, so a key that moves its timer with each event costs no more than its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from streamcore.columnar.timer_queue import TimerQueue
from streamcore.keyed.call_scope import CallScope, TimeDomain
from streamcore.keyed.key_registry import KeyRegistry
from streamcore.windowing.model import END_OF_TIME_MS

_CLOCK = "__clock"
_AT_MS = "__at_ms"
_ORDER = "__order"
#: Rebuilding a heap is not worth it for fewer leftovers than this.
_FEW = 1_000


class DomainTimers:
    """The timers of one domain. ``waiting``: of each slot that has any, the order number of each time."""

    def __init__(self) -> None:
        self.waiting: dict[int, dict[int, int]] = {}
        self._queue: TimerQueue[tuple[int, int, int]] = TimerQueue()  # time, order, slot
        self._count = 0

    def add(self, slot: int, at_ms: int, order: int) -> None:
        """Add a timer that is not there yet."""
        self.waiting.setdefault(slot, {})[at_ms] = order
        self._queue.put((at_ms, order, slot))
        self._count += 1

    def remove(self, slot: int, at_ms: int) -> int:
        """Take out a timer that is there; its order number."""
        times = self.waiting[slot]
        order = times.pop(at_ms)
        if not times:
            del self.waiting[slot]
        self._count -= 1
        return order

    def next_due(self, until_ms: int) -> tuple[int, int, int] | None:
        """Return time, order and slot of the first timer up to that time. ``remove`` it or give it to ``defer``."""
        while (timer := self._queue.pop_due(until_ms)) is not None:
            at_ms, order, slot = timer
            if self.waiting.get(slot, _NONE).get(at_ms) == order:
                return timer
        return None

    def defer(self, timers: Sequence[tuple[int, int, int]]) -> None:
        """Put timers back among the waiting ones."""
        for timer in timers:
            self._queue.put(timer)

    def compact(self) -> None:
        """Once a cut: throw out the leftovers of deleted timers where they are the larger part."""
        if len(self._queue) > 2 * self._count + _FEW:
            self._queue = TimerQueue((at, n, slot) for slot, times in self.waiting.items() for at, n in times.items())


class TimerTable:
    """All timers of a function, and the table that makes them durable: a row a timer; without its order, it is gone."""

    def __init__(self, keys: KeyRegistry, scope: CallScope, most: int) -> None:
        self._keys = keys
        self._scope = scope
        self._most = most
        self.queues = {domain: DomainTimers() for domain in TimeDomain}
        self.next_order = 0
        self._dirty: dict[tuple[TimeDomain, int, int], None] = {}

    # --- the current key ----------------------------------------------------------------------------------------

    def set(self, at_ms: int, domain: TimeDomain) -> None:
        """Set a timer of the current key; one that is there stays as it is."""
        _check(at_ms)
        slot, queue = self._slot(), self.queues[domain]
        times = queue.waiting.get(slot, _NONE)
        if at_ms in times:
            return
        if len(times) >= self._most:
            raise OverflowError(f"a key may have {self._most} timers in {domain} time and has them all")
        self._add(domain, slot, at_ms, self.next_order)
        self.next_order += 1
        self._scope.journal.append((self._remove, domain, slot, at_ms))

    def delete(self, at_ms: int, domain: TimeDomain) -> None:
        """Delete a timer of the current key; one that is not there is no error."""
        _check(at_ms)
        slot = self._slot()
        if at_ms in self.queues[domain].waiting.get(slot, _NONE):
            order = self._remove(domain, slot, at_ms)
            self._scope.journal.append((self._add, domain, slot, at_ms, order))

    def clear(self, domain: TimeDomain) -> None:
        """Delete all timers of the current key in that domain."""
        for at_ms in list(self.queues[domain].waiting.get(self._slot(), _NONE)):
            self.delete(at_ms, domain)

    def _slot(self) -> int:
        return self._scope.slot.__index__()

    def _add(self, domain: TimeDomain, slot: int, at_ms: int, order: int) -> None:
        self.queues[domain].add(slot, at_ms, order)
        self._dirty[domain, slot, at_ms] = None

    def _remove(self, domain: TimeDomain, slot: int, at_ms: int) -> int:
        self._dirty[domain, slot, at_ms] = None
        self._scope.emptied.add(slot)
        return self.queues[domain].remove(slot, at_ms)

    # --- all keys -----------------------------------------------------------------------------------------------

    def due(self, domain: TimeDomain, until_ms: int, chain: ChainedTimerLimit) -> Iterator[tuple[int, int]]:
        """Return slot and time of the timers up to that time, each taken out; also of those set meanwhile.

        Of these no more than the chain has left; the rest wait for the next cut.
        """
        queue, deferred = self.queues[domain], []
        while (first := queue.next_due(until_ms)) is not None:
            at_ms, order, slot = first
            if order >= chain.begin and not chain.take():
                deferred.append(first)
                continue
            self._remove(domain, slot, at_ms)
            yield slot, at_ms
        queue.defer(deferred)

    def holds(self, slot: int) -> bool:
        """Return whether the key has a timer."""
        return any(slot in queue.waiting for queue in self.queues.values())

    def unwritten(self) -> Iterator[tuple[int, int]]:
        """Return slot and time of the timers that came or went since ``changes``."""
        return ((slot, at_ms) for _, slot, at_ms in self._dirty)

    def compact(self) -> None:
        """Once a cut."""
        for queue in self.queues.values():
            queue.compact()

    def changes(self) -> pl.DataFrame:
        dirty, self._dirty = self._dirty, {}
        return self._frame([(d, s, at, self.queues[d].waiting.get(s, _NONE).get(at)) for d, s, at in dirty])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        slots = self._keys.in_bucket(bucket, buckets)
        return self._frame(
            [
                (domain, slot, at_ms, order)
                for domain, queue in self.queues.items()
                for slot in slots
                for at_ms, order in queue.waiting.get(slot, _NONE).items()
            ]
        )

    def load(self, rows: pl.DataFrame) -> None:
        slots = self._keys.restore(rows, "timers")
        columns = (rows[name].to_list() for name in (_CLOCK, _AT_MS, _ORDER))
        for slot, clock, at_ms, order in zip(slots, *columns, strict=True):
            queue = self.queues[TimeDomain.CLOCK if clock else TimeDomain.EVENT]
            if at_ms in queue.waiting.get(slot, _NONE):
                queue.remove(slot, at_ms)
            if order is not None:
                queue.add(slot, at_ms, order)
                self.next_order = max(self.next_order, order + 1)

    def _frame(self, timers: Sequence[tuple[TimeDomain, int, int, int | None]]) -> pl.DataFrame:
        if not timers:
            return pl.DataFrame()
        columns = self._keys.stored_columns([slot for _, slot, _, _ in timers])
        clock = [domain is TimeDomain.CLOCK for domain, _, _, _ in timers]
        times = [at_ms for _, _, at_ms, _ in timers]
        orders = [order for _, _, _, order in timers]
        columns += [pl.Series(_CLOCK, clock), pl.Series(_AT_MS, times, pl.Int64), pl.Series(_ORDER, orders, pl.Int64)]
        return pl.DataFrame(columns)


class ChainedTimerLimit:
    """How many timers may still fire in this cut that were set by timers of this cut: an end to endless chains.

    ``begin``: the order number from which on timers were set by timers. ``deferred``: those that were one too many.
    """

    def __init__(self, left: int) -> None:
        self.begin = 0
        self.deferred = 0
        self._left = left

    def take(self) -> bool:
        """Use one; False when there is none left."""
        self._left -= 1
        self.deferred += self._left < 0
        return self._left >= 0


def _check(at_ms: object) -> None:
    if type(at_ms) is not int or abs(at_ms) > END_OF_TIME_MS:
        raise ValueError(f"a timer's time is in epoch milliseconds, not {at_ms!r}")


_NONE: dict[int, int] = {}
