"""The look-ups of one frame: every key once, from the cache or the store, as many at a time as the limits allow.

Runs on the event loop. Knows keys and answers, and nothing of frames.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamcore.enrich.cache import AnswerCache, Values
from streamcore.enrich.client import LookupFailed, LookupFailure, Store, error_text
from streamcore.enrich.spec import Enrichment, Key
from streamcore.enrich.type_check import AnswerTypeMismatch, coercion_for


@dataclass(slots=True)
class LookupResults:
    """For every key its values or its failure, and the keys' numbers in the order in which they ended."""

    by_key: list[Values | LookupFailure]
    ended: list[int] = field(default_factory=list)

    def end(self, number: int, result: Values | LookupFailure) -> None:
        """Return the key of this number has its outcome."""
        self.by_key[number] = result
        self.ended.append(number)


class InFlightLimit:
    """Lets rows in until so many are inside. One task waits at the door."""

    def __init__(self, limit: int, counts: Counter[str]) -> None:
        self._limit, self._counts, self._inside = limit, counts, 0
        self._left = asyncio.Event()

    async def enter(self, rows: int) -> None:
        """Wait until there is room; more rows than the limit wait until none are inside."""
        while self._inside and self._inside + rows > self._limit:
            self._left.clear()
            await self._left.wait()
        self._inside += rows
        self._counts["rows_in_flight_peak"] = max(self._counts["rows_in_flight_peak"], self._inside)

    def leave(self, rows: int) -> None:
        """Let so many rows out."""
        self._inside -= rows
        self._left.set()


class LookupExecutor:
    """Keeps the store's client and the cache from frame to frame. Made on the event loop."""

    def __init__(self, spec: Enrichment, now_ms: Callable[[], int]) -> None:
        self.spec = spec
        self.counts: Counter[str] = Counter()
        self.cache = AnswerCache(spec.cache)
        self._store = Store(spec, self.counts)
        self._now_ms = now_ms
        self._coercions = {name: coercion_for(dtype) for name, dtype in spec.columns.items()}
        self._running: asyncio.Task[object] | None = None

    async def look_up(self, keys: Sequence[Key], rows: Sequence[int]) -> LookupResults:
        """Find the outcome of each key; ``rows``: how many rows wait for it. One call at a time."""
        self._running = asyncio.current_task()
        try:
            results = LookupResults([None] * len(keys))
            pending = self._from_cache(keys, results)
            if pending:
                await self._from_store(keys, rows, pending, results)
            return results
        finally:
            self._running = None

    async def cancel(self) -> None:
        """Cancel the running look-ups, and wait until all have ended."""
        running = self._running
        if running is not None:
            running.cancel()
            await asyncio.wait([running])

    async def close(self) -> None:
        """Cancel the running look-ups and close the client."""
        await self.cancel()
        await self._store.close()

    def _from_cache(self, keys: Sequence[Key], results: LookupResults) -> list[int]:
        """Return the numbers of the keys that are not in the cache."""
        now_ms, pending = self._now_ms(), []
        for number, key in enumerate(keys):
            cached = self.cache.get(key, now_ms)
            if cached is None:
                pending.append(number)
            else:
                results.end(number, cached.values)
        self.counts["hits"] += len(results.ended)
        self.counts["look_ups"] += len(pending)
        return pending

    async def _from_store(
        self, keys: Sequence[Key], rows: Sequence[int], pending: Sequence[int], results: LookupResults
    ) -> None:
        try:
            await self._store.open()
        except LookupFailed as failed:
            why = failed.failure
            self._fail(pending, LookupFailure(f"the store does not open: {why.reason}", why.attempts), results)
            return
        limit, size = InFlightLimit(self.spec.rows_in_flight, self.counts), self._store.keys_per_call
        async with asyncio.TaskGroup() as group:
            for start in range(0, len(pending), size):
                part = pending[start : start + size]
                waiting = sum(rows[number] for number in part)
                await limit.enter(waiting)
                group.create_task(self._fetch_within_limit(keys, part, results, limit, waiting))

    async def _fetch_within_limit(
        self, keys: Sequence[Key], part: Sequence[int], results: LookupResults, limit: InFlightLimit, waiting: int
    ) -> None:
        try:
            await self._fetch(keys, part, results)
        finally:
            limit.leave(waiting)

    async def _fetch(self, keys: Sequence[Key], part: Sequence[int], results: LookupResults) -> None:
        """Return one call, its retries included, for the keys of these numbers."""
        try:
            answers, attempts = await self._store.fetch([keys[number] for number in part])
        except LookupFailed as failed:
            self._fail(part, failed.failure, results)
            return
        for number, answer in zip(part, answers, strict=True):
            try:
                values = self._coerce_answer(answer)
            except BaseException as error:  # an answer is the client's object and may do anything
                reason = str(error) if isinstance(error, AnswerTypeMismatch) else error_text(error)
                self._fail([number], LookupFailure(reason, attempts), results)
                continue
            self.counts["not_found"] += values is None
            self.counts["cache_evicted"] += self.cache.put(keys[number], values, self._now_ms())
            results.end(number, values)

    def _fail(self, part: Sequence[int], failure: LookupFailure, results: LookupResults) -> None:
        self.counts["failures"] += len(part)
        for number in part:
            results.end(number, failure)

    def _coerce_answer(self, answer: object) -> Values:
        """Return the added columns' values in order. ``AnswerTypeMismatch`` names the field that does not fit."""
        if answer is None:
            return None
        if not isinstance(answer, Mapping):
            raise AnswerTypeMismatch(
                f"the store answered {type(answer).__name__} where fields by name or None were due"
            )
        return tuple(self._coerce_field(name, answer.get(name)) for name in self._coercions)

    def _coerce_field(self, name: str, value: object) -> object:
        try:
            return self._coercions[name](value)
        except AnswerTypeMismatch as mismatch:
            raise AnswerTypeMismatch(f"{name}: {mismatch}") from None
