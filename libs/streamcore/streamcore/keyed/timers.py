"""The timers of a keyed function: a call for a key when event time or the clock reaches a given time.

There is one timer per key, time domain and time, as in Flink: setting it again changes nothing. Timers fire in the
order of their times, and at equal times in the order in which they were set.

The timers of a domain are in a heap. A deleted timer stays in the heap until it is popped, or until deleted timers
outnumber the others, so a key that moves its timer with each event costs no more than its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from streamcore.columnar.timer_queue import TimerQueue
from streamcore.keyed.call_scope import CallScope, TimeDomain
from streamcore.keyed.key_registry import KeyRegistry
from streamcore.state.cold.paged_state import Deadlines
from streamcore.state.table import HASH
from streamcore.windowing.model import END_OF_TIME_MS

_CLOCK = "__clock"
_AT_MS = "__at_ms"
_ORDER = "__order"
#: A heap is not rebuilt while it has fewer deleted timers than this.
_MIN_LEFTOVERS = 1_000


class DomainTimers:
    """The timers of one time domain.

    ``waiting``: by key slot, the order number of each timer by its time. ``count``: how many timers there are.
    """

    def __init__(self) -> None:
        self.waiting: dict[int, dict[int, int]] = {}
        self._queue: TimerQueue[tuple[int, int, int]] = TimerQueue()  # time, order, key slot
        self.count = 0

    def add(self, key_slot: int, at_ms: int, order: int) -> None:
        """Add a timer that does not exist yet. ``order``: at equal times, the lower number fires first."""
        self.waiting.setdefault(key_slot, {})[at_ms] = order
        self._queue.put((at_ms, order, key_slot))
        self.count += 1

    def remove(self, key_slot: int, at_ms: int) -> int:
        """Remove an existing timer and return its order number."""
        times = self.waiting[key_slot]
        order = times.pop(at_ms)
        if not times:
            del self.waiting[key_slot]
        self.count -= 1
        return order

    def next_due(self, until_ms: int) -> tuple[int, int, int] | None:
        """Pop time, order and key slot of the first timer up to ``until_ms``; None if there is none.

        The caller must ``remove`` the timer, or give it to ``defer``.
        """
        while (timer := self._queue.pop_due(until_ms)) is not None:
            at_ms, order, key_slot = timer
            if self.waiting.get(key_slot, _NO_TIMES).get(at_ms) == order:
                return timer
        return None

    def defer(self, timers: Sequence[tuple[int, int, int]]) -> None:
        """Put popped timers back into the heap."""
        for timer in timers:
            self._queue.put(timer)

    def forget(self, key_slot: int) -> None:
        """Forget the timers of a key."""
        self.count -= len(self.waiting.pop(key_slot, _NO_TIMES))

    def compact(self) -> None:
        """Rebuild the heap without deleted timers if they are the larger part. Call it once per cut."""
        if len(self._queue) > 2 * self.count + _MIN_LEFTOVERS:
            self._queue = TimerQueue(
                (at, n, key_slot) for key_slot, times in self.waiting.items() for at, n in times.items()
            )


class TimerTable:
    """All timers of a function, and their state table: one row per timer; a row without an order is a tombstone."""

    def __init__(self, keys: KeyRegistry, scope: CallScope, max_timers: int) -> None:
        self._keys = keys
        self._scope = scope
        self._max_timers = max_timers
        self.queues = {domain: DomainTimers() for domain in TimeDomain}
        self.next_order = 0
        self._dirty: dict[tuple[TimeDomain, int, int], None] = {}

    # --- the current key ----------------------------------------------------------------------------------------

    def set(self, at_ms: int, domain: TimeDomain) -> None:
        """Set a timer of the current key; an existing timer keeps its order. ``OverflowError`` at the limit per key."""
        _check_time(at_ms)
        key_slot, queue = self._current_key_slot(), self.queues[domain]
        times = queue.waiting.get(key_slot, _NO_TIMES)
        if at_ms in times:
            return
        if len(times) >= self._max_timers:
            raise OverflowError(f"the key has reached the limit of {self._max_timers} timers in {domain} time")
        self._add(domain, key_slot, at_ms, self.next_order)
        self.next_order += 1
        self._scope.journal.append((self._remove, domain, key_slot, at_ms))

    def delete(self, at_ms: int, domain: TimeDomain) -> None:
        """Delete a timer of the current key, if it exists."""
        _check_time(at_ms)
        key_slot = self._current_key_slot()
        if at_ms in self.queues[domain].waiting.get(key_slot, _NO_TIMES):
            order = self._remove(domain, key_slot, at_ms)
            self._scope.journal.append((self._add, domain, key_slot, at_ms, order))

    def clear(self, domain: TimeDomain) -> None:
        """Delete all timers of the current key in that domain."""
        for at_ms in list(self.queues[domain].waiting.get(self._current_key_slot(), _NO_TIMES)):
            self.delete(at_ms, domain)

    def _current_key_slot(self) -> int:
        return self._scope.key_slot.__index__()

    def _add(self, domain: TimeDomain, key_slot: int, at_ms: int, order: int) -> None:
        self.queues[domain].add(key_slot, at_ms, order)
        self._dirty[domain, key_slot, at_ms] = None

    def _remove(self, domain: TimeDomain, key_slot: int, at_ms: int) -> int:
        self._dirty[domain, key_slot, at_ms] = None
        self._scope.emptied.add(key_slot)
        return self.queues[domain].remove(key_slot, at_ms)

    # --- all keys -----------------------------------------------------------------------------------------------

    def take_due(self, domain: TimeDomain, until_ms: int, limit: ChainedTimerLimit) -> Iterator[tuple[int, int]]:
        """Remove the timers up to ``until_ms``, one by one, and yield key slot and time of each.

        Timers that are set meanwhile are included, as many as ``limit`` permits; the rest wait for the next cut.
        """
        queue, deferred = self.queues[domain], []
        while (timer := queue.next_due(until_ms)) is not None:
            at_ms, order, key_slot = timer
            if order >= limit.first_chained_order and not limit.try_fire():
                deferred.append(timer)
                continue
            self._remove(domain, key_slot, at_ms)
            yield key_slot, at_ms
        queue.defer(deferred)

    @property
    def count(self) -> int:
        """Return the number of timers in memory."""
        return sum(queue.count for queue in self.queues.values())

    def forget(self, key_slots: Iterable[int]) -> None:
        """Forget the timers of these keys."""
        for queue in self.queues.values():
            if queue.waiting:
                for key_slot in key_slots:
                    queue.forget(key_slot)

    def has_timers(self, key_slot: int) -> bool:
        """Return whether the key has a timer."""
        return any(key_slot in queue.waiting for queue in self.queues.values())

    def unwritten(self) -> Iterator[tuple[int, int]]:
        """Yield key slot and time of the timers that were set or removed since the last ``changes``."""
        return ((key_slot, at_ms) for _, key_slot, at_ms in self._dirty)

    def compact(self) -> None:
        """Rebuild heaps that hold mostly deleted timers. Call it once per cut."""
        for queue in self.queues.values():
            queue.compact()

    def changes(self) -> pl.DataFrame:
        dirty, self._dirty = self._dirty, {}
        return self._frame([(d, s, at, self.queues[d].waiting.get(s, _NO_TIMES).get(at)) for d, s, at in dirty])

    def skip_orders(self, rows: pl.DataFrame) -> None:
        """Give no timer that is set from now on an order number up to those of these stored timers."""
        latest = rows[_ORDER].max()
        if isinstance(latest, int):
            self.next_order = max(self.next_order, latest + 1)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self.rows_for(self._keys.in_bucket(bucket, buckets))

    def rows_for(self, key_slots: Sequence[int]) -> pl.DataFrame:
        """Return the timers of these keys."""
        return self._frame(
            [
                (domain, key_slot, at_ms, order)
                for domain, queue in self.queues.items()
                for key_slot in key_slots
                for at_ms, order in queue.waiting.get(key_slot, _NO_TIMES).items()
            ]
        )

    def load(self, rows: pl.DataFrame) -> None:
        key_slots = self._keys.restore(rows, "timers")
        columns = (rows[name].to_list() for name in (_CLOCK, _AT_MS, _ORDER))
        for key_slot, clock, at_ms, order in zip(key_slots, *columns, strict=True):
            queue = self.queues[TimeDomain.CLOCK if clock else TimeDomain.EVENT]
            if at_ms in queue.waiting.get(key_slot, _NO_TIMES):
                queue.remove(key_slot, at_ms)
            if order is not None:
                queue.add(key_slot, at_ms, order)
        self.skip_orders(rows)

    def _frame(self, timers: Sequence[tuple[TimeDomain, int, int, int | None]]) -> pl.DataFrame:
        if not timers:
            return pl.DataFrame()
        columns = self._keys.stored_columns([key_slot for _, key_slot, _, _ in timers])
        clock = [domain is TimeDomain.CLOCK for domain, _, _, _ in timers]
        times = [at_ms for _, _, at_ms, _ in timers]
        orders = [order for _, _, _, order in timers]
        columns += [pl.Series(_CLOCK, clock), pl.Series(_AT_MS, times, pl.Int64), pl.Series(_ORDER, orders, pl.Int64)]
        return pl.DataFrame(columns)


def stored_deadlines(rows: pl.DataFrame) -> tuple[Deadlines, Deadlines]:
    """Return the times of stored timers by event time and by the clock."""
    live = rows.filter(pl.col(_ORDER).is_not_null())
    event, clock = live.filter(~pl.col(_CLOCK)), live.filter(pl.col(_CLOCK))
    return tuple(Deadlines(one[HASH].to_numpy(), one[_AT_MS].to_numpy()) for one in (event, clock))  # type: ignore[return-value]  # two


class ChainedTimerLimit:
    """The limit on timers that fire in the cut in which a timer set them, so that a chain of timers ends.

    ``first_chained_order``: timers with this order number or a higher one were set by timers of this cut.
    ``deferred``: how many timers the limit moved to the next cut.
    """

    def __init__(self, max_firings: int) -> None:
        self.first_chained_order = 0
        self.deferred = 0
        self._left = max_firings

    def try_fire(self) -> bool:
        """Count one firing; return False if the limit is reached."""
        self._left -= 1
        self.deferred += self._left < 0
        return self._left >= 0


def _check_time(at_ms: object) -> None:
    if type(at_ms) is not int or abs(at_ms) > END_OF_TIME_MS:
        raise ValueError(f"a timer's time must be a whole number of epoch milliseconds, not {at_ms!r}")


_NO_TIMES: dict[int, int] = {}
