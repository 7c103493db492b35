"""Sends lines as bulk requests of a size that the server can take, until each document is there or refused.

Promises: documents that went through are not sent again; a document refused for its values is an answer, not an error.
    A conflict of versions is success: a newer writer was there, or this very cut.

The size of requests follows the server: halved when the server reports overload (429, for a request or for
items of it), grown by an eighth with each request that goes through.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from streamcore.errors import ConfigError, Retryable
from streamcore.sinks.opensearch.bulk_lines import BulkLines
from streamcore.sinks.opensearch.client import BulkItem, Overloaded, RequestError, RequestRejected, SearchClient
from streamcore.sinks.opensearch.retries import RequestRetries
from streamcore.sinks.opensearch.settings import BulkLimits
from streamcore.sinks.sink import RetryPolicy, SinkHooks

_GROWTH = 8
_CONFLICT, _NOT_FOUND = 409, 404
#: Of the index or the cluster, not of the document: a full disk, for one.
_BLOCKED = "cluster_block_exception"
_INDEX_GONE = "index_not_found_exception"


@dataclass(frozen=True, slots=True)
class RequestSize:
    """How large the next request may be."""

    documents: int
    size_bytes: int

    def halve(self, documents: int, size_bytes: int) -> RequestSize:
        """After a request of this size was too much. Several of one size on their way at once halve it once."""
        return RequestSize(max(1, min(self.documents, documents // 2)), max(1, min(self.size_bytes, size_bytes // 2)))

    def grow(self, limits: BulkLimits) -> RequestSize:
        """After a request went through."""
        return RequestSize(
            min(limits.documents, self.documents + max(1, self.documents // _GROWTH)),
            min(limits.size_bytes, self.size_bytes + max(1, self.size_bytes // _GROWTH)),
        )


@dataclass(slots=True)
class BulkCounters:
    """Since the sink was made."""

    requests: int = 0
    documents: int = 0
    conflicts: int = 0
    overloads: int = 0
    failures: int = 0


@dataclass(slots=True)
class RejectedDocuments:
    """Rows of one call: which, and the server's name of the error and its words."""

    by_row: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, row: int, code: str, reason: str) -> None:
        """One more."""
        self.by_row.append((row, code, reason))


class BulkSender:
    """Of one open sink; the pace is kept from cut to cut. One thread at a time calls ``send``."""

    def __init__(
        self, client: SearchClient, limits: BulkLimits, patience: RetryPolicy, hooks: SinkHooks, counts: BulkCounters
    ) -> None:
        self._client = client
        self._limits = limits
        self._patience = patience
        self._hooks = hooks
        self._counts = counts
        self._threads = ThreadPoolExecutor(limits.in_flight, thread_name_prefix="opensearch-bulk")
        self.pace = RequestSize(limits.documents, limits.size_bytes)

    def close(self) -> None:
        """Wait for the requests on their way, and end the threads."""
        self._threads.shutdown()

    def send(self, index: str, lines: BulkLines) -> list[tuple[int, str, str]]:
        """Until all are settled; answers the refused rows with code and reason. Raises the errors of ``Sink.write``."""
        waiting = deque([lines] if len(lines) else [])
        flying: dict[Future[list[BulkItem] | None], BulkLines] = {}
        attempts, refusals = RequestRetries(self._patience, self._hooks), RejectedDocuments()
        while waiting or flying:
            while waiting and len(flying) < self._limits.in_flight:
                part, rest = waiting.popleft().split(self.pace.documents, self.pace.size_bytes)
                if len(rest):
                    waiting.appendleft(rest)
                flying[self._threads.submit(self._client.bulk, index, part.body())] = part
            trouble = self._land(flying, waiting, refusals, attempts)
            if trouble is not None:
                while flying:  # a server with too much to do gets nothing for a while
                    self._land(flying, waiting, refusals, attempts)
                attempts.wait(trouble)
        return refusals.by_row

    def _land(
        self,
        flying: dict[Future[list[BulkItem] | None], BulkLines],
        waiting: deque[BulkLines],
        refusals: RejectedDocuments,
        attempts: RequestRetries,
    ) -> Retryable | None:
        """Take the answers that have arrived; documents to be sent again wait again."""
        trouble: Retryable | None = None
        done, _ = wait(flying, return_when=FIRST_COMPLETED)
        for future in done:
            part = flying.pop(future)
            self._counts.requests += 1
            try:
                items = future.result()
            except Overloaded as error:
                trouble = self._note(error, part)
                waiting.append(part)
                continue
            except RequestRejected as refusal:
                waiting.extend(_smaller(part, refusal, refusals))
                continue
            again, found = self._settle(part, items, refusals)
            if again is not None and found is not None:
                waiting.append(again)
                trouble = self._note(found, part)
            else:
                self.pace = self.pace.grow(self._limits)
            if again is None or len(again) < len(part):
                attempts.reset()
            self._hooks.on_step("request")
        return trouble

    def _note(self, error: Overloaded, part: BulkLines) -> Overloaded:
        if error.trouble is RequestError.OVERLOADED:
            self._counts.overloads += 1
            self.pace = self.pace.halve(len(part), part.size_bytes)
        else:
            self._counts.failures += 1
        return error

    def _settle(
        self, part: BulkLines, items: list[BulkItem] | None, refusals: RejectedDocuments
    ) -> tuple[BulkLines | None, Overloaded | None]:
        """Count the settled documents; the others, with the reason."""
        again: list[int] = []
        trouble: Overloaded | None = None
        for place, item in enumerate(items or ()):
            if not item.code:
                continue
            if item.status == _CONFLICT:
                self._counts.conflicts += 1
            elif (found := _trouble(item)) is not None:
                again.append(place)
                trouble = found
            else:
                refusals.add(int(part.rows[place]), item.code, item.reason)
        self._counts.documents += len(part) - len(again)
        return (part.take(again) if again else None), trouble


def _trouble(item: BulkItem) -> Overloaded | None:
    """None when the document itself is at fault."""
    words = f"{item.code}: {item.reason}"
    if item.status == 429 or item.code == _BLOCKED:
        return Overloaded(RequestError.OVERLOADED, words)
    if item.status >= 500:
        return Overloaded(RequestError.AWAY, words)
    if item.status == _NOT_FOUND and item.code == _INDEX_GONE:
        raise Retryable(f"opensearch: {words}; opening the sink again finds or makes the index")
    if item.status in (401, 403):
        raise ConfigError(f"opensearch: {words}; give the user the right to write that index")
    return None


def _smaller(part: BulkLines, refusal: RequestRejected, refusals: RejectedDocuments) -> list[BulkLines]:
    """Split a request that was refused as a whole (too large, for one): its halves, until the document at fault is
    alone."""
    if refusal.status == _NOT_FOUND:
        raise Retryable(f"opensearch: {refusal}; opening the sink again finds or makes the index") from refusal
    if len(part) == 1:
        refusals.add(int(part.rows[0]), refusal.code, refusal.reason or f"HTTP status {refusal.status}")
        return []
    return list(part.split(len(part) // 2, part.size_bytes))
