"""Sends single requests to OpenSearch; raises errors of ``streamcore.errors``. Only this module imports opensearchpy.

Of the client library it uses the transport alone: TLS, login, several hosts, open connections. The library's retries
are off, because each retry must check first who owns the app (``retries``).
"""

from __future__ import annotations

import enum
import logging
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from streamcore.errors import ConfigError, Permanent, Retryable
from streamcore.sinks.opensearch.settings import ClientSettings, Json
from streamcore.sinks.sink import sink_dependency

if TYPE_CHECKING:
    from opensearchpy import Transport

_NDJSON = {"content-type": "application/x-ndjson"}
_JSON = {"content-type": "application/json"}


class RequestError(enum.StrEnum):
    """Why a request failed that may succeed later: the server did not respond properly, or has too much to do."""

    AWAY = "away"
    OVERLOADED = "overloaded"


class Overloaded(Retryable):
    """The request failed for now (``trouble``); ``RequestRetries`` sends it again."""

    def __init__(self, trouble: RequestError, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


class RequestRejected(Permanent):
    """The server rejected the request, and would again.

    ``status``: the HTTP status. ``code`` and ``reason``: the server's error type and message.
    """

    def __init__(self, status: int, code: str, reason: str, where: str) -> None:
        super().__init__(f"{where}: {status} {code}: {reason}")
        self.status = status
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BulkItem:
    """The response to one document of a bulk request: HTTP status, and the server's error type and message.

    ``code`` is empty if the document was written.
    """

    status: int
    code: str
    reason: str


class SearchClient:
    """A client of one cluster. As many threads as ``ClientSettings.connections`` may use it.

    ``server``: the cluster, for reports of outages.
    """

    def __init__(self, login: ClientSettings) -> None:
        self._login = login
        self._transport = _transport(login)
        self.server = sink_dependency(f"OpenSearch {', '.join(login.hosts)}")

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def request(
        self,
        method: str,
        path: str,
        body: Json = None,
        params: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[str, Any]:
        """Send a request; return the JSON object of the response.

        Raises ``Overloaded``, ``RequestRejected``, and ``ConfigError`` if the user may not send this request.
        """
        content = None if body is None else orjson.dumps(body)
        response = self._perform(method, path, content, params or {}, _JSON, timeout_ms)
        assert isinstance(response, dict)
        return response

    def find(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """Return the resource at ``path``, or None if it does not exist."""
        try:
            return self.request("GET", path, params=params)
        except RequestRejected as rejection:
            if rejection.status == 404:
                return None
            raise

    def bulk(self, index: str, body: bytes) -> list[BulkItem] | None:
        """Send a bulk request; return an item for each document, or None if all were written."""
        params = {
            "timeout": f"{self._login.request_timeout_ms}ms",
            "filter_path": "errors,items.*.status,items.*.error.type,items.*.error.reason,"
            "items.*.error.caused_by.reason",
        }
        response = self._perform("POST", f"/{index}/_bulk", body, params, _NDJSON, None)
        if not response["errors"]:
            return None
        return [_item(next(iter(item.values()))) for item in response["items"]]

    def _perform(
        self,
        method: str,
        path: str,
        body: bytes | None,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        timeout_ms: int | None,
    ) -> Any:
        from opensearchpy.exceptions import ConnectionError as TransportConnectionError
        from opensearchpy.exceptions import OpenSearchException, TransportError

        timeout = (timeout_ms or self._login.request_timeout_ms) / 1000
        try:
            return self._transport.perform_request(method, path, params, body, timeout, headers=headers)
        except TransportConnectionError as error:
            raise Overloaded(RequestError.AWAY, f"{method} {path}: {_cause(error)}") from error
        except TransportError as error:
            raise _request_error(error, f"{method} {path}") from error
        except OpenSearchException as error:
            raise Permanent(f"{method} {path}: {error}") from error


def _request_error(error: Any, where: str) -> Retryable | ConfigError | RequestRejected:
    """Return our error for a response with an error status. ``where``: method and path."""
    status = error.status_code
    code, reason = _error_reason(error)
    if status == 429:
        return Overloaded(RequestError.OVERLOADED, f"{where}: {code}: {reason}")
    if status == 408 or status >= 500:
        return Overloaded(RequestError.AWAY, f"{where}: {status} {code}: {reason}")
    if status in (401, 403):
        return ConfigError(f"opensearch: {where}: {status} {reason}; give the user that right, or name another")
    return RequestRejected(status, code, reason, where)


def _error_reason(error: Any) -> tuple[str, str]:
    """Return the server's error type and message; type ``error`` if the response, for example of a proxy, has none."""
    body = error.info.get("error") if isinstance(error.info, dict) else None
    if isinstance(body, dict):
        return str(body.get("type", "error")), _reason_with_cause(body)
    return "error", str(body or error.error)[:300]


def _cause(error: Any) -> str:
    """Return the innermost message of a connection error."""
    return str(error.error).split("(Caused by")[-1].strip(" )")[:300]


def _item(answer: Mapping[str, Any]) -> BulkItem:
    error = answer.get("error")
    if error is None:
        return BulkItem(answer["status"], "", "")
    return BulkItem(answer["status"], error["type"], _reason_with_cause(error))


def _reason_with_cause(error: Mapping[str, Any]) -> str:
    """Return the reason of an error, and that of its innermost cause, which names what is wrong."""
    cause = error
    while isinstance(inner := cause.get("caused_by"), dict):
        cause = inner
    reason, innermost = str(error.get("reason", "")), cause.get("reason")
    return reason if cause is error or innermost is None else f"{reason}: {innermost}"


class _JsonSerializer:
    """The transport's serializer: parses responses with orjson. Request bodies are bytes already."""

    mimetype = "application/json"

    def loads(self, s: str) -> Any:
        return orjson.loads(s)

    def dumps(self, data: Any) -> Any:
        return data


class _TextSerializer(_JsonSerializer):
    """Returns the text of responses that are not JSON."""

    mimetype = "text/plain"

    def loads(self, s: str) -> Any:
        return s


def _transport(login: ClientSettings) -> Transport:
    """Return a transport without retries of its own."""
    from opensearchpy import Transport, Urllib3HttpConnection

    secret = login.password()
    logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # each failure is raised with its message
    readers: Collection[_JsonSerializer] = (_JsonSerializer(), _TextSerializer())
    tls: dict[str, Any] = {"use_ssl": True, "ssl_context": _tls(login)} if login.tls else {}
    return Transport(
        [_host(host) for host in login.hosts],
        connection_class=Urllib3HttpConnection,
        serializer=_JsonSerializer(),  # type: ignore[arg-type]
        serializers={reader.mimetype: reader for reader in readers},  # type: ignore[misc]
        max_retries=0,
        pool_maxsize=login.connections,
        http_auth=None if secret is None else (login.user, secret),
        **tls,
    )


def _tls(login: ClientSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=login.ca_file)
        if login.cert_file is not None:
            context.load_cert_chain(login.cert_file, login.key_file)
    except OSError as error:
        raise ConfigError(f"opensearch TLS files: {error}; they must be PEM and readable") from error
    return context


def _host(url: str) -> dict[str, Any]:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 9200)
    return {"host": parts.hostname, "port": port, "url_prefix": parts.path.strip("/")}
