"""Looks up the distinct keys of one frame, in the cache and then in the store, within the limits of the enrichment.

Runs on the event loop. Works on keys and answers; ``streamcore.enrich.enricher`` handles the frames.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamcore.enrich.cache import AnswerCache, Values
from streamcore.enrich.client import LookupFailed, LookupFailure, Store, error_text
from streamcore.enrich.failure_budget import FailureBudget
from streamcore.enrich.spec import Enrichment, Key
from streamcore.enrich.type_check import AnswerTypeMismatch, coercion_for


@dataclass(slots=True)
class LookupResults:
    """The outcome of each key, by its index, and the indexes in the order of completion."""

    by_key: list[Values | LookupFailure]
    completion_order: list[int] = field(default_factory=list)

    def complete(self, index: int, result: Values | LookupFailure) -> None:
        """Record the outcome of one key."""
        self.by_key[index] = result
        self.completion_order.append(index)


class InFlightLimit:
    """Limits the rows that wait for the store. Only one task at a time may call ``enter``."""

    def __init__(self, limit: int, counts: Counter[str]) -> None:
        self._limit, self._counts, self._inside = limit, counts, 0
        self._has_left = asyncio.Event()

    async def enter(self, rows: int) -> None:
        """Wait until ``rows`` more are within the limit. More rows than the limit enter alone."""
        while self._inside and self._inside + rows > self._limit:
            self._has_left.clear()
            await self._has_left.wait()
        self._inside += rows
        self._counts["rows_in_flight_peak"] = max(self._counts["rows_in_flight_peak"], self._inside)

    def leave(self, rows: int) -> None:
        """Free the room of ``rows`` rows."""
        self._inside -= rows
        self._has_left.set()


class LookupExecutor:
    """Looks up keys; keeps the store's client and the cache between frames. Create it on the event loop."""

    def __init__(self, spec: Enrichment, now_ms: Callable[[], int]) -> None:
        self.spec = spec
        self.counts: Counter[str] = Counter()
        self.cache = AnswerCache(spec.cache)
        self._store = Store(spec, self.counts)
        self._now_ms = now_ms
        #: Whether the store used up the budget of the last frame without an answer: the circuit is open.
        self._is_silent = False
        self._coercions = {name: coercion_for(dtype) for name, dtype in spec.columns.items()}
        self._current_task: asyncio.Task[object] | None = None

    async def look_up(self, keys: Sequence[Key], rows_per_key: Sequence[int]) -> LookupResults:
        """Return the outcome of each key. ``rows_per_key``: the rows that wait for each. Do not call concurrently."""
        self._current_task = asyncio.current_task()
        try:
            results = LookupResults([None] * len(keys))
            pending = self._look_up_in_cache(keys, results)
            if pending:
                await self._look_up_in_store(keys, rows_per_key, pending, results)
            return results
        finally:
            self._current_task = None

    async def cancel(self) -> None:
        """Cancel the running lookups, and wait until all have ended."""
        task = self._current_task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        """Cancel the running lookups and close the client."""
        await self.cancel()
        await self._store.close()

    def _look_up_in_cache(self, keys: Sequence[Key], results: LookupResults) -> list[int]:
        """Complete the keys that are in the cache; return the indexes of the others."""
        now_ms, pending = self._now_ms(), []
        for index, key in enumerate(keys):
            cached = self.cache.get(key, now_ms)
            if cached is None:
                pending.append(index)
            else:
                results.complete(index, cached.values)
        self.counts["hits"] += len(results.completion_order)
        self.counts["lookups"] += len(pending)
        return pending

    async def _look_up_in_store(
        self, keys: Sequence[Key], rows_per_key: Sequence[int], pending: Sequence[int], results: LookupResults
    ) -> None:
        budget = FailureBudget(self.spec.failure_budget_ms, self.spec.concurrency)
        try:
            await self._store.open(budget)
        except LookupFailed as failed:
            failure = failed.failure
            self._complete_with_failure(
                pending, LookupFailure(f"the store does not open: {failure.reason}", failure.attempts), results
            )
            return
        limit, keys_per_call = InFlightLimit(self.spec.rows_in_flight, self.counts), self._store.keys_per_call
        calls = [pending[start : start + keys_per_call] for start in range(0, len(pending), keys_per_call)]
        if self._is_silent:
            # One call shows whether the store is back; if not, no other call of this frame begins.
            await self._fetch_answers(keys, calls.pop(0), results, budget)
            if not budget.answered:
                budget.use_up()
        async with asyncio.TaskGroup() as group:
            for indexes in calls:
                row_count = sum(rows_per_key[index] for index in indexes)
                await limit.enter(row_count)
                group.create_task(self._fetch_within_limit(keys, indexes, results, limit, row_count, budget))
        self._is_silent = budget.is_used_up and not budget.answered

    async def _fetch_within_limit(
        self,
        keys: Sequence[Key],
        indexes: Sequence[int],
        results: LookupResults,
        limit: InFlightLimit,
        row_count: int,
        budget: FailureBudget,
    ) -> None:
        try:
            await self._fetch_answers(keys, indexes, results, budget)
        finally:
            limit.leave(row_count)

    async def _fetch_answers(
        self, keys: Sequence[Key], indexes: Sequence[int], results: LookupResults, budget: FailureBudget
    ) -> None:
        """Look up the keys of these indexes with one call and its retries, and record their outcomes."""
        try:
            answers, attempts = await self._store.fetch([keys[index] for index in indexes], budget)
        except LookupFailed as failed:
            self._complete_with_failure(indexes, failed.failure, results)
            return
        for index, answer in zip(indexes, answers, strict=True):
            try:
                values = self._coerce_answer(answer)
            except BaseException as error:  # an answer is an object of the client's code
                reason = str(error) if isinstance(error, AnswerTypeMismatch) else error_text(error)
                self._complete_with_failure([index], LookupFailure(reason, attempts), results)
                continue
            self.counts["not_found"] += values is None
            self.counts["cache_evicted"] += self.cache.put(keys[index], values, self._now_ms())
            results.complete(index, values)

    def _complete_with_failure(self, indexes: Sequence[int], failure: LookupFailure, results: LookupResults) -> None:
        self.counts["failures"] += len(indexes)
        for index in indexes:
            results.complete(index, failure)

    def _coerce_answer(self, answer: object) -> Values:
        """Return the values of the added columns in order, or None. ``AnswerTypeMismatch`` names the field."""
        if answer is None:
            return None
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, Mapping):
            raise AnswerTypeMismatch(
                f"the store answered {type(answer).__name__} where a mapping of fields or None was expected"
            )
        return tuple(self._coerce_field(name, answer.get(name)) for name in self._coercions)

    def _coerce_field(self, name: str, value: object) -> object:
        try:
            return self._coercions[name](value)
        except AnswerTypeMismatch as mismatch:
            raise AnswerTypeMismatch(f"{name}: {mismatch}") from None
