"""Sends one request to an endpoint over a connection that stays open, and says what its answer means.

Headers and signature are those of Standard Webhooks, for which receivers have libraries: ``webhook-id``, the same
whenever the rows are sent; ``webhook-timestamp``, the time of the attempt in seconds; ``webhook-signature``,
``v1,`` and the base64 of the HMAC-SHA256 of id, time and body, joined by dots.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from streamcore.errors import ConfigError, Retryable

#: Answers about the content of a request: a part of it may be accepted.
_CONTENT: Final = frozenset({400, 413, 422})
_OK, _REDIRECT = 200, 300
_REASON_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class WebhookRejection:
    """An answer about the rows of a request: a part of them may be accepted."""

    status: int
    reason: str


@dataclass
class WebhookClient:
    """A client of one endpoint, for one thread."""

    url: str
    headers: Mapping[str, str]
    signing_key: bytes | None
    timeout_ms: int
    ca_file: Path | None
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def post(self, message_id: str, body: bytes) -> WebhookRejection | None:
        """Send the body once, twice if the server may have closed an idle connection; return None if it is accepted.

        Raises ``Retryable`` if a later attempt may have another result.
        """
        idle = self._connection
        if idle is not None:
            try:
                return self._exchange(idle, message_id, body)
            except (http.client.HTTPException, OSError):
                self.close()
        self._connection = self._connect()
        try:
            return self._exchange(self._connection, message_id, body)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            raise Retryable(f"{self.url}: {_explain(error)}") from error

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _exchange(
        self, connection: http.client.HTTPConnection, message_id: str, body: bytes
    ) -> WebhookRejection | None:
        parts = urlsplit(self.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, self._sign(message_id, body))
        response = connection.getresponse()
        # A long answer is not read to its end, so the connection cannot be used again.
        text = response.read(_REASON_BYTES)
        if not response.isclosed() and response.read(_REASON_BYTES):
            self.close()
        if _OK <= response.status < _REDIRECT:
            return None
        reason = " ".join(text.decode("utf-8", "replace").split())
        said = f"{self.url} answered {response.status} {response.reason}" + (f": {reason}" if reason else "")
        if response.status in _CONTENT:
            return WebhookRejection(response.status, said)
        raise Retryable(said)  # the endpoint is away, busy, or not set up: no fault of the rows

    def _sign(self, message_id: str, body: bytes) -> dict[str, str]:
        now_s = str(int(time.time()))
        headers = {**self.headers, "Content-Type": "application/json"}
        headers |= {"webhook-id": message_id, "webhook-timestamp": now_s}
        if self.signing_key is not None:
            signed = hmac.digest(self.signing_key, f"{message_id}.{now_s}.".encode() + body, hashlib.sha256)
            headers["webhook-signature"] = f"v1,{b64encode(signed).decode()}"
        return headers

    def _connect(self) -> http.client.HTTPConnection:
        parts, seconds = urlsplit(self.url), self.timeout_ms / 1000
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.netloc, timeout=seconds)
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except OSError as error:
            raise ConfigError(f"webhook: cannot use the certificates of {self.ca_file}: {error}") from error
        return http.client.HTTPSConnection(parts.netloc, timeout=seconds, context=context)


def _explain(error: Exception) -> str:
    """Return the reason of a failed request, without the names of classes where the system has words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the server closed the connection without an answer"
    if isinstance(error, http.client.HTTPException):
        return f"the answer is no HTTP: {error}"
    return str(error)
