"""The look-ups of one frame: every key once, from the cache or the store, as many at a time as the limits allow.

Runs on the event loop. Knows keys and answers, and nothing of frames.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamcore.enrich.cache import Cache, Values
from streamcore.enrich.fit import Misfit, fit_for
from streamcore.enrich.store import Failed, Failure, Store, reason_of
from streamcore.enrich.values import Enrichment, Key


@dataclass(slots=True)
class Outcomes:
    """For every key its values or its failure, and the keys' numbers in the order in which they ended."""

    of: list[Values | Failure]
    ended: list[int] = field(default_factory=list)

    def end(self, number: int, outcome: Values | Failure) -> None:
        """The key of this number has its outcome."""
        self.of[number] = outcome
        self.ended.append(number)


class RowLimit:
    """Lets rows in until so many are inside. One task waits at the door."""

    def __init__(self, limit: int, counts: Counter[str]) -> None:
        self._limit, self._counts, self._inside = limit, counts, 0
        self._left = asyncio.Event()

    async def enter(self, rows: int) -> None:
        """Wait until there is room; more rows than the limit wait until nobody is inside."""
        while self._inside and self._inside + rows > self._limit:
            self._left.clear()
            await self._left.wait()
        self._inside += rows
        self._counts["rows_in_flight_peak"] = max(self._counts["rows_in_flight_peak"], self._inside)

    def leave(self, rows: int) -> None:
        """So many are done."""
        self._inside -= rows
        self._left.set()


class Asking:
    """Keeps the store's client and the cache from frame to frame. Made on the event loop."""

    def __init__(self, spec: Enrichment, now_ms: Callable[[], int]) -> None:
        self.spec = spec
        self.counts: Counter[str] = Counter()
        self.cache = Cache(spec.cache)
        self._store = Store(spec, self.counts)
        self._now_ms = now_ms
        self._fits = {name: fit_for(dtype) for name, dtype in spec.adds.items()}
        self._running: asyncio.Task[object] | None = None

    async def look_up(self, keys: Sequence[Key], rows: Sequence[int]) -> Outcomes:
        """Find the outcome of each key; ``rows``: how many rows wait for it. One call at a time."""
        self._running = asyncio.current_task()
        try:
            outcomes = Outcomes([None] * len(keys))
            asked = self._from_cache(keys, outcomes)
            if asked:
                await self._from_store(keys, rows, asked, outcomes)
            return outcomes
        finally:
            self._running = None

    async def cancel(self) -> None:
        """Cancel what runs, and wait until nothing of it does."""
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.wait([running])

    async def close(self) -> None:
        """Cancel what runs and close the client."""
        await self.cancel()
        await self._store.close()

    def _from_cache(self, keys: Sequence[Key], outcomes: Outcomes) -> list[int]:
        """The numbers of the keys that are not in the cache."""
        now_ms, asked = self._now_ms(), []
        for number, key in enumerate(keys):
            kept = self.cache.get(key, now_ms)
            if kept is None:
                asked.append(number)
            else:
                outcomes.end(number, kept.values)
        self.counts["hits"] += len(outcomes.ended)
        self.counts["look_ups"] += len(asked)
        return asked

    async def _from_store(
        self, keys: Sequence[Key], rows: Sequence[int], asked: Sequence[int], outcomes: Outcomes
    ) -> None:
        try:
            await self._store.open()
        except Failed as failed:
            why = failed.failure
            self._fail(asked, Failure(f"the store does not open: {why.reason}", why.attempts), outcomes)
            return
        limit, size = RowLimit(self.spec.rows_in_flight, self.counts), self._store.keys_per_call
        async with asyncio.TaskGroup() as group:
            for start in range(0, len(asked), size):
                part = asked[start : start + size]
                waiting = sum(rows[number] for number in part)
                await limit.enter(waiting)
                group.create_task(self._ask_inside(keys, part, outcomes, limit, waiting))

    async def _ask_inside(
        self, keys: Sequence[Key], part: Sequence[int], outcomes: Outcomes, limit: RowLimit, waiting: int
    ) -> None:
        try:
            await self._ask(keys, part, outcomes)
        finally:
            limit.leave(waiting)

    async def _ask(self, keys: Sequence[Key], part: Sequence[int], outcomes: Outcomes) -> None:
        """One call, its retries included, for the keys of these numbers."""
        try:
            answers, attempts = await self._store.ask([keys[number] for number in part])
        except Failed as failed:
            self._fail(part, failed.failure, outcomes)
            return
        for number, answer in zip(part, answers, strict=True):
            try:
                values = self._fit(answer)
            except BaseException as error:  # an answer is somebody else's object and may do anything
                reason = str(error) if isinstance(error, Misfit) else reason_of(error)
                self._fail([number], Failure(reason, attempts), outcomes)
                continue
            self.counts["not_found"] += values is None
            self.counts["cache_evicted"] += self.cache.put(keys[number], values, self._now_ms())
            outcomes.end(number, values)

    def _fail(self, part: Sequence[int], failure: Failure, outcomes: Outcomes) -> None:
        self.counts["failures"] += len(part)
        for number in part:
            outcomes.end(number, failure)

    def _fit(self, answer: object) -> Values:
        """The added columns' values in order. ``Misfit`` says which does not fit."""
        if answer is None:
            return None
        if not isinstance(answer, Mapping):
            raise Misfit(f"the store answered {type(answer).__name__} where fields by name or None were due")
        return tuple(self._fit_field(name, answer.get(name)) for name in self._fits)

    def _fit_field(self, name: str, value: object) -> object:
        try:
            return self._fits[name](value)
        except Misfit as misfit:
            raise Misfit(f"{name}: {misfit}") from None
