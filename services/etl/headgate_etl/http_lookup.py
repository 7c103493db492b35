"""Looks up fields by HTTP: one request per key, GET or POST, answered with a JSON object.

The requests run on a thread pool, with persistent ``http.client`` connections; the number of threads limits the
requests in flight. 404 means an unknown key. 429 and 5xx are retried. Other statuses, redirections and responses that
are not a JSON object fail at once. Each worker reads the token and the secret headers from their files.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from urllib.parse import quote, urlsplit

import orjson

from headgate_etl.documents import KEY
from streamcore.enrich import Answer, Key
from streamcore.errors import Permanent, Retryable

_OK, _NOT_FOUND, _TOO_MANY_REQUESTS, _SERVER_ERROR = 200, 404, 429, 500


@dataclass
class JsonOverHttp:
    """The ``streamcore.enrich.LookupClient`` of the lookup. ``url`` or ``body`` has the placeholder ``{key}``."""

    url: str
    threads: int
    timeout_ms: int
    max_response_bytes: int
    token_file: Path | None = None
    ca_file: Path | None = None
    body: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, Path] = field(default_factory=dict)
    _idle: SimpleQueue[http.client.HTTPConnection] = field(default_factory=SimpleQueue, repr=False)

    async def open(self) -> None:
        """Read the token and start the threads. Connections are opened by the first requests."""
        token = None if self.token_file is None else _read(self.token_file)
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._headers |= {} if self.body is None else {"Content-Type": "application/json"}
        self._headers |= dict(self.headers) | {name: _read(path) for name, path in self.secret_headers.items()}
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="lookup")

    async def get(self, key: Key) -> Answer:
        """Return the JSON object of the key, or None for an unknown key. Raise ``Retryable`` or ``Permanent``."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._get_on_thread, str(key))

    async def close(self) -> None:
        """Close the idle connections. Requests in progress end by their timeout at the latest."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while (connection := self._take_connection()) is not None:
            connection.close()

    def _get_on_thread(self, key: str) -> Answer:
        """Send the request on an idle connection; if that fails, for the server may have closed it, on a new one."""
        connection = self._take_connection()
        if connection is not None:
            try:
                return self._exchange(connection, key)
            except (http.client.HTTPException, OSError):
                connection.close()
        fresh = self._new_connection()
        try:
            return self._exchange(fresh, key)
        except http.client.HTTPException as error:
            fresh.close()
            raise Retryable(f"{self._url_parts.netloc}: {type(error).__name__}: {error}") from error
        except OSError:
            fresh.close()
            raise

    def _exchange(self, connection: http.client.HTTPConnection, key: str) -> Answer:
        """Send the request, read the response, and keep the connection for the next request if it is still open."""
        parts = self._url_parts
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        path = path.replace(KEY, quote(key, safe="")) or "/"
        body = None if self.body is None else self.body.replace(KEY, json.dumps(key)).encode()
        connection.request("GET" if body is None else "POST", path, body, self._headers)
        response = connection.getresponse()
        body = response.read(self.max_response_bytes + 1)
        if response.isclosed():
            self._idle.put(connection)
        else:
            connection.close()
        return self._to_answer(response.status, body)

    def _to_answer(self, status: int, body: bytes) -> Answer:
        if status == _NOT_FOUND:
            return None
        if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
            raise Retryable(f"{self._url_parts.netloc} answered {status}")
        if status != _OK:
            raise Permanent(f"{self._url_parts.netloc} answered {status}")
        if len(body) > self.max_response_bytes:
            raise Permanent(f"{self._url_parts.netloc}: the response has more than {self.max_response_bytes} bytes")
        document = orjson.loads(body)
        if not isinstance(document, dict):
            raise Permanent(f"{self._url_parts.netloc} answered no JSON object")
        values: Mapping[str, object] = document
        return values

    @property
    def _url_parts(self) -> _UrlParts:
        return _UrlParts.of(self.url)

    def _take_connection(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.get_nowait()
        except Empty:
            return None

    def _new_connection(self) -> http.client.HTTPConnection:
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


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
