"""Calls a store's client, with a limit on concurrent calls, a timeout and retries. The first lookup opens the client.

Runs on the event loop. Every exception of a client becomes ``LookupFailed`` with its reason, even a ``BaseException``:
a client that calls ``sys.exit`` must not end a worker.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from streamcore.enrich.failure_budget import FailureBudget
from streamcore.enrich.spec import Answer, BatchLookupClient, Enrichment, Key, LookupClient
from streamcore.errors import StreamError

T = TypeVar("T")

_MAX_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class LookupFailure:
    """The reason why a lookup failed, and the number of calls that were attempted."""

    reason: str
    attempts: int


class LookupFailed(Exception):
    """A lookup failed, all retries included."""

    def __init__(self, failure: LookupFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class _CallError(Exception):
    """One call failed. ``retryable``: another attempt may succeed."""

    def __init__(self, reason: str, *, retryable: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable


class Store:
    """The client of one enrichment. ``counts`` receives retries, timeouts and the peak of calls in flight."""

    def __init__(self, spec: Enrichment, counts: Counter[str]) -> None:
        self.spec = spec
        self.counts = counts
        self._client: LookupClient | BatchLookupClient | None = None
        self._call_slots = asyncio.Semaphore(spec.concurrency)
        self._calls_in_flight = 0

    @property
    def keys_per_call(self) -> int:
        """Return the maximum of keys per call of the open client: 1 unless it is a ``BatchLookupClient``."""
        return self.spec.batch_keys if isinstance(self._client, BatchLookupClient) else 1

    async def open(self, budget: FailureBudget) -> None:
        """Create and open the client, unless it is open."""
        if self._client is None:
            self._client, _ = await self._with_retries(self._open_client, budget)

    async def fetch(self, keys: Sequence[Key], budget: FailureBudget) -> tuple[Sequence[Answer | Exception], int]:
        """Return the answer for each key, and the number of attempts. The client must be open."""
        client = self._client
        assert client is not None
        answers = await self._with_retries(lambda: _call_client(client, keys), budget)
        budget.answered = True
        return answers

    async def close(self) -> None:
        """Close the client and ignore its errors."""
        client, self._client = self._client, None
        if client is not None:
            await self._close(client)

    async def _open_client(self) -> LookupClient | BatchLookupClient:
        client = self.spec.create_client()
        try:
            await client.open()
        except BaseException:
            await self._close(client)
            raise
        return client

    async def _close(self, client: LookupClient | BatchLookupClient) -> None:
        with suppress(_CallError):
            await self._call_with_timeout(client.close)

    async def _with_retries(self, call: Callable[[], Awaitable[T]], budget: FailureBudget) -> tuple[T, int]:
        """Return the result of a call and the number of attempts.

        Raises ``LookupFailed`` after the last attempt, or when the budget of the frame is used up.
        """
        retries = self.spec.retries
        attempts = 1
        while True:
            try:
                async with self._call_slots:
                    if budget.is_used_up:
                        self.counts["not_asked"] += 1
                        raise LookupFailed(LookupFailure(budget.reason, attempts - 1))
                    return await self._call_within_budget(call, budget), attempts
            except _CallError as error:
                if not error.retryable or attempts >= retries.attempts:
                    raise LookupFailed(LookupFailure(error.reason, attempts)) from error
            self.counts["retries"] += 1
            await asyncio.sleep(retries.pause_s(attempts))
            attempts += 1

    async def _call_within_budget(self, call: Callable[[], Awaitable[T]], budget: FailureBudget) -> T:
        """Make one call; a failure that may pass counts against the budget of the frame."""
        started_s = time.monotonic()
        try:
            return await self._call_counted(call)
        except _CallError as error:
            if error.retryable:
                budget.fail(time.monotonic() - started_s, error.reason)
            raise

    async def _call_counted(self, call: Callable[[], Awaitable[T]]) -> T:
        self._calls_in_flight += 1
        self.counts["in_flight_peak"] = max(self.counts["in_flight_peak"], self._calls_in_flight)
        try:
            return await self._call_with_timeout(call)
        finally:
            self._calls_in_flight -= 1

    async def _call_with_timeout(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of one call. Timeouts and exceptions become ``_CallError``; cancellation by us does not."""
        timeout_ms = self.spec.timeout_ms
        deadline = asyncio.timeout(timeout_ms / 1000)
        try:
            async with deadline:
                return await call()
        except GeneratorExit:
            raise
        except BaseException as error:
            if _is_our_cancellation(error):
                raise
            if deadline.expired():
                self.counts["timeouts"] += 1
                raise _CallError(f"no answer within {timeout_ms} ms", retryable=True) from None
            raise _CallError(error_text(error), retryable=isinstance(error, self.spec.retries.on)) from error


def _is_our_cancellation(error: BaseException) -> bool:
    """Return whether our task is cancelled. A ``CancelledError`` that the client itself raises is a failed call."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def _call_client(client: LookupClient | BatchLookupClient, keys: Sequence[Key]) -> Sequence[Answer | Exception]:
    if not isinstance(client, BatchLookupClient):
        return [await client.get(key) for key in keys]  # one key: see ``keys_per_call``
    answers = await client.get_many(keys)
    if not isinstance(answers, Mapping):
        raise TypeError(
            f"the store answered {type(answers).__name__} where a mapping from keys to answers was expected"
        )
    return [answers.get(key) for key in keys]


def error_text(error: BaseException) -> str:
    """Return the message of an error, at most 500 characters; with its class, unless it is one of streamcore's."""
    try:
        text = str(error)
    except Exception:  # the user's __str__
        text = ""
    text = text.encode(errors="replace").decode()  # a column cannot hold a lone surrogate
    if isinstance(error, StreamError) and text:
        return text[:_MAX_REASON_CHARACTERS]
    return f"{type(error).__name__}: {text}"[:_MAX_REASON_CHARACTERS] if text else type(error).__name__
