"""A store behind its client: opened when first needed, asked with a limit, a time-out and retries.

Runs on the event loop. Whatever a client raises becomes ``LookupFailed`` with its reason, even a ``BaseException``: a
client that calls ``sys.exit`` must not end a worker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from streamcore.enrich.spec import Answer, BatchLookupClient, Enrichment, Key, LookupClient

T = TypeVar("T")

_REASON_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class LookupFailure:
    """Why there is no answer, and how often the store was asked."""

    reason: str
    attempts: int


class LookupFailed(Exception):
    """There is no answer."""

    def __init__(self, failure: LookupFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class _CallError(Exception):
    """One call failed. ``again``: another may go through."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class Store:
    """One client and its calls. ``counts``: retries, time-outs and the peak of calls in flight are noted there."""

    def __init__(self, spec: Enrichment, counts: Counter[str]) -> None:
        self.spec = spec
        self.counts = counts
        self._client: LookupClient | BatchLookupClient | None = None
        self._free = asyncio.Semaphore(spec.concurrency)
        self._calls = 0

    @property
    def keys_per_call(self) -> int:
        """Return how many keys one call may have, of the client that is open."""
        return self.spec.batch_keys if isinstance(self._client, BatchLookupClient) else 1

    async def open(self) -> None:
        """Make and open the client, unless it is open."""
        if self._client is None:
            self._client, _ = await self._with_retries(self._open_client)

    async def fetch(self, keys: Sequence[Key]) -> tuple[Sequence[Answer], int]:
        """Return the answer for each key, and the attempts that it took. The store must be open."""
        client = self._client
        assert client is not None
        return await self._with_retries(lambda: _answers(client, keys))

    async def close(self) -> None:
        """Close the client and ignore its errors."""
        client, self._client = self._client, None
        if client is not None:
            await self._close(client)

    async def _open_client(self) -> LookupClient | BatchLookupClient:
        client = self.spec.look_up()
        try:
            await client.open()
        except BaseException:
            await self._close(client)
            raise
        return client

    async def _close(self, client: LookupClient | BatchLookupClient) -> None:
        with suppress(_CallError):
            await self._once(client.close)

    async def _with_retries(self, call: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Return the result and the attempts that it took."""
        retries = self.spec.retries
        attempts = 1
        while True:
            try:
                async with self._free:
                    return await self._call_counted(call), attempts
            except _CallError as error:
                if not error.again or attempts >= retries.attempts:
                    raise LookupFailed(LookupFailure(error.reason, attempts)) from error
            self.counts["retries"] += 1
            await asyncio.sleep(retries.pause_s(attempts))
            attempts += 1

    async def _call_counted(self, call: Callable[[], Awaitable[T]]) -> T:
        self._calls += 1
        self.counts["in_flight_peak"] = max(self.counts["in_flight_peak"], self._calls)
        try:
            return await self._once(call)
        finally:
            self._calls -= 1

    async def _once(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return one call within its time; whatever it raises is a ``_CallError``, but for our own cancellation."""
        timeout_ms = self.spec.timeout_ms
        deadline = asyncio.timeout(timeout_ms / 1000)
        try:
            async with deadline:
                return await call()
        except GeneratorExit:
            raise
        except BaseException as error:
            if _is_cancelled(error):
                raise
            if deadline.expired():
                self.counts["timeouts"] += 1
                raise _CallError(f"no answer within {timeout_ms} ms", again=True) from None
            raise _CallError(error_text(error), again=isinstance(error, self.spec.retries.on)) from error


def _is_cancelled(error: BaseException) -> bool:
    """Return whether it is we who are cancelled; a client's own ``CancelledError`` is just another failure of its."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def _answers(client: LookupClient | BatchLookupClient, keys: Sequence[Key]) -> Sequence[Answer]:
    if not isinstance(client, BatchLookupClient):
        return [await client.get(key) for key in keys]  # one: see ``keys_per_call``
    answers = await client.get_many(keys)
    if not isinstance(answers, Mapping):
        raise TypeError(f"the store answered {type(answers).__name__} where answers by key were due")
    return [answers.get(key) for key in keys]


def error_text(error: BaseException) -> str:
    """Return the error as one line of at most 500 characters."""
    try:
        text = str(error)
    except Exception:  # the user's __str__
        text = ""
    text = text.encode(errors="replace").decode()  # a lone surrogate has no place in a column
    return f"{type(error).__name__}: {text}"[:_REASON_CHARACTERS] if text else type(error).__name__
