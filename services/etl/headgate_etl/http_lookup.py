"""Look-ups by HTTP: one GET a key, answered with a JSON object.

Plain ``http.client`` on threads of its own, with connections that are kept: no package is needed for that, and the
number of threads is the number of calls in flight. 404 means an unknown key; 429 and 5xx are tried again; other
statuses, redirections and answers that are not an object fail at once. The worker reads the token from its file.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import quote, urlsplit

import orjson
import polars as pl

from headgate_etl.documents import LookupDocument, OnMissing
from streamcore.enrich import Answer, Caching, Enrichment, Key, LookupRetries, OnFailure
from streamcore.errors import Permanent, Retryable

_FOUND, _UNKNOWN, _BUSY, _BROKEN = 200, 404, 429, 500


@dataclass
class JsonOverHttp:
    """A client (``streamcore.enrich.LookupClient``)."""

    url: str
    threads: int
    timeout_ms: int
    answer_bytes: int
    token_file: Path | None = None
    ca_file: Path | None = None
    _free: SimpleQueue[http.client.HTTPConnection] = field(default_factory=SimpleQueue, repr=False)

    async def open(self) -> None:
        """Nothing is connected yet."""
        token = None if self.token_file is None else self.token_file.read_text(encoding="utf-8").strip()
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="lookup")

    async def get(self, key: Key) -> Answer:
        """Return the object under the key."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._get_on_thread, str(key))

    async def close(self) -> None:
        """Let go of the connections; calls under way end by their time-out."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while (connection := self._take_connection()) is not None:
            connection.close()

    def _get_on_thread(self, key: str) -> Answer:
        """On a thread. A kept connection may have been closed by the server, so it gets a second chance, a new one."""
        connection = self._take_connection()
        if connection is not None:
            try:
                return self._exchange(connection, key)
            except (http.client.HTTPException, OSError):
                connection.close()
        fresh = self._connection()
        try:
            return self._exchange(fresh, key)
        except http.client.HTTPException as error:
            fresh.close()
            raise Retryable(f"{self._url_parts.netloc}: {type(error).__name__}: {error}") from error
        except OSError:
            fresh.close()
            raise

    def _exchange(self, connection: http.client.HTTPConnection, key: str) -> Answer:
        parts = self._url_parts
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path.replace("{key}", quote(key, safe="")) or "/", headers=self._headers)
        response = connection.getresponse()
        body = response.read(self.answer_bytes + 1)
        if response.isclosed():
            self._free.put(connection)
        else:
            connection.close()
        return self._answer(response.status, body)

    def _answer(self, status: int, body: bytes) -> Answer:
        if status == _UNKNOWN:
            return None
        if status == _BUSY or status >= _BROKEN:
            raise Retryable(f"{self._url_parts.netloc} answered {status}")
        if status != _FOUND:
            raise Permanent(f"{self._url_parts.netloc} answered {status}")
        if len(body) > self.answer_bytes:
            raise Permanent(f"{self._url_parts.netloc}: the answer has more than {self.answer_bytes} bytes")
        found = orjson.loads(body)
        if not isinstance(found, dict):
            raise Permanent(f"{self._url_parts.netloc} answered no JSON object")
        answer: Mapping[str, object] = found
        return answer

    @property
    def _url_parts(self) -> _UrlParts:
        return _UrlParts.of(self.url)

    def _take_connection(self) -> http.client.HTTPConnection | None:
        try:
            return self._free.get_nowait()
        except Empty:
            return None

    def _connection(self) -> http.client.HTTPConnection:
        parts, seconds = self._url_parts, self.timeout_ms / 1000
        if parts.secure:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
            return http.client.HTTPSConnection(parts.netloc, timeout=seconds, context=context)
        return http.client.HTTPConnection(parts.netloc, timeout=seconds)


@dataclass(frozen=True, slots=True)
class _UrlParts:
    secure: bool
    netloc: str
    path: str
    query: str

    @classmethod
    def of(cls, url: str) -> _UrlParts:
        parts = urlsplit(url)
        return cls(parts.scheme == "https", parts.netloc, parts.path, parts.query)


def enrichment(document: LookupDocument, adds: Mapping[str, pl.DataType]) -> Enrichment:
    """Build the engine's look-up. ``adds``: the fields and their types."""
    client = partial(
        JsonOverHttp,
        document.url,
        document.concurrency,
        document.timeout_ms,
        document.answer_bytes,
        document.token_file,
        document.ca_file,
    )
    return Enrichment(
        "lookup",
        client,
        key=(document.key,),
        columns=adds,
        concurrency=document.concurrency,
        timeout_ms=document.timeout_ms,
        retries=LookupRetries(document.attempts, document.pause_ms),
        cache=Caching(document.cache_entries, document.cache_ms, document.missing_cache_ms),
        on_failure=OnFailure.LANE if document.failed is OnMissing.DEAD_LETTER else OnFailure.NULL_COLUMNS,
    )
