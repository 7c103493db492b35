"""Sends documents in bulk requests until each document is written or rejected.

Promises: a written document is not sent again; a document rejected for its values is returned, not raised. A conflict
of versions counts as written: the index has this version of the document already, or a newer one.

The size of requests follows the server: it is halved when the server reports overload (status 429, for a request or
for one of its documents), and grows by an eighth with each request that succeeds.
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

#: A successful request lets the next one grow by one part in eight.
_GROWTH = 8
_CONFLICT, _NOT_FOUND = 409, 404
#: The error code of a document that the cluster cannot write now, for example because a disk is full.
_BLOCKED = "cluster_block_exception"
_INDEX_GONE = "index_not_found_exception"


@dataclass(frozen=True, slots=True)
class RequestSize:
    """The most documents and bytes that the next request may have."""

    documents: int
    size_bytes: int

    def halve(self, documents: int, size_bytes: int) -> RequestSize:
        """Return at most half the size of a request that overloaded the server. Parallel requests of one size that fail
        together halve it once."""
        return RequestSize(max(1, min(self.documents, documents // 2)), max(1, min(self.size_bytes, size_bytes // 2)))

    def grow(self, limits: BulkLimits) -> RequestSize:
        """Return an eighth more, up to the limits."""
        return RequestSize(
            min(limits.documents, self.documents + max(1, self.documents // _GROWTH)),
            min(limits.size_bytes, self.size_bytes + max(1, self.size_bytes // _GROWTH)),
        )


@dataclass(slots=True)
class BulkCounters:
    """Counts since the sink was created. ``failures``: requests that failed, other than by overload."""

    requests: int = 0
    documents: int = 0
    conflicts: int = 0
    overloads: int = 0
    failures: int = 0


@dataclass(slots=True)
class RejectedDocuments:
    """The rejected rows of one call of ``send``: row index, the server's error code and its reason."""

    by_row: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, row: int, code: str, reason: str) -> None:
        """Add a row."""
        self.by_row.append((row, code, reason))


class BulkSender:
    """Sends the bulk requests of one open sink, ``BulkLimits.in_flight`` in parallel.

    ``pace``: the size of the next request, kept from cut to cut. One thread at a time calls ``send``.
    """

    def __init__(
        self,
        client: SearchClient,
        limits: BulkLimits,
        retry_policy: RetryPolicy,
        hooks: SinkHooks,
        counts: BulkCounters,
    ) -> None:
        self._client = client
        self._limits = limits
        self._retry_policy = retry_policy
        self._hooks = hooks
        self._counts = counts
        self._executor = ThreadPoolExecutor(limits.in_flight, thread_name_prefix="opensearch-bulk")
        self.pace = RequestSize(limits.documents, limits.size_bytes)

    def close(self) -> None:
        """Wait for the requests in flight, and end the threads."""
        self._executor.shutdown()

    def send(self, index: str, lines: BulkLines) -> list[tuple[int, str, str]]:
        """Send all lines to ``index``; return the rejected rows with code and reason.

        Raises the errors of ``Sink.write``.
        """
        waiting = deque([lines] if len(lines) else [])
        in_flight: dict[Future[list[BulkItem] | None], BulkLines] = {}
        retries = RequestRetries(self._retry_policy, self._hooks, self._client.server)
        rejected = RejectedDocuments()
        with self._hooks.outages.attempt(self._client.server, "a bulk request"):
            while waiting or in_flight:
                while waiting and len(in_flight) < self._limits.in_flight:
                    part, rest = waiting.popleft().split(self.pace.documents, self.pace.size_bytes)
                    if len(rest):
                        waiting.appendleft(rest)
                    in_flight[self._executor.submit(self._client.bulk, index, part.body())] = part
                error = self._take_responses(in_flight, waiting, rejected, retries)
                if error is not None:
                    while in_flight:  # send an overloaded server nothing until the pause is over
                        self._take_responses(in_flight, waiting, rejected, retries)
                    retries.wait(error)
        return rejected.by_row

    def _take_responses(
        self,
        in_flight: dict[Future[list[BulkItem] | None], BulkLines],
        waiting: deque[BulkLines],
        rejected: RejectedDocuments,
        retries: RequestRetries,
    ) -> Retryable | None:
        """Wait for a response, and handle all that have arrived; return an error that calls for a pause, or None.

        Documents to send again go to the end of ``waiting``.
        """
        last_error: Retryable | None = None
        completed, _ = wait(in_flight, return_when=FIRST_COMPLETED)
        for future in completed:
            part = in_flight.pop(future)
            self._counts.requests += 1
            try:
                items = future.result()
            except Overloaded as error:
                last_error = self._count_error(error, part)
                waiting.append(part)
                continue
            except RequestRejected as error:
                waiting.extend(_halves(part, error, rejected))
                continue
            again, item_error = self._settle(part, items, rejected)
            if again is not None and item_error is not None:
                waiting.append(again)
                last_error = self._count_error(item_error, part)
            else:
                self.pace = self.pace.grow(self._limits)
            if again is None or len(again) < len(part):
                retries.reset()
            self._hooks.on_step("request")
        return last_error

    def _count_error(self, error: Overloaded, part: BulkLines) -> Overloaded:
        """Count the error, shrink the next requests if it is overload, and return it."""
        if error.trouble is RequestError.OVERLOADED:
            self._counts.overloads += 1
            self.pace = self.pace.halve(len(part), part.size_bytes)
        else:
            self._counts.failures += 1
        return error

    def _settle(
        self, part: BulkLines, items: list[BulkItem] | None, rejected: RejectedDocuments
    ) -> tuple[BulkLines | None, Overloaded | None]:
        """Record the written and rejected documents of a response. ``items``: None if all are written.

        Returns the documents to send again and the last error among them, or None and None.
        """
        again: list[int] = []
        last_error: Overloaded | None = None
        for index, item in enumerate(items or ()):
            if not item.code:
                continue
            if item.status == _CONFLICT:
                self._counts.conflicts += 1
            elif (error := _retryable_error(item)) is not None:
                again.append(index)
                last_error = error
            else:
                rejected.add(int(part.rows[index]), item.code, item.reason)
        self._counts.documents += len(part) - len(again)
        return (part.take(again) if again else None), last_error


def _retryable_error(item: BulkItem) -> Overloaded | None:
    """Return the error of a document to send again; None if the document itself is at fault.

    Raises ``Retryable`` if the index is gone, and ``ConfigError`` if the user may not write to it.
    """
    text = f"{item.code}: {item.reason}"
    if item.status == 429 or item.code == _BLOCKED:
        return Overloaded(RequestError.OVERLOADED, text)
    if item.status >= 500:
        return Overloaded(RequestError.AWAY, text)
    if item.status == _NOT_FOUND and item.code == _INDEX_GONE:
        raise Retryable(f"opensearch: {text}; opening the sink again finds or makes the index")
    if item.status in (401, 403):
        raise ConfigError(f"opensearch: {text}; give the user the right to write that index")
    return None


def _halves(part: BulkLines, error: RequestRejected, rejected: RejectedDocuments) -> list[BulkLines]:
    """Return the halves of a request that was rejected as a whole, for example as too large.

    A single document is added to ``rejected`` instead.
    """
    if error.status == _NOT_FOUND:
        raise Retryable(f"opensearch: {error}; opening the sink again finds or makes the index") from error
    if len(part) == 1:
        rejected.add(int(part.rows[0]), error.code, error.reason or f"HTTP status {error.status}")
        return []
    return list(part.split(len(part) // 2, part.size_bytes))
