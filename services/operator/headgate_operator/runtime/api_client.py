"""The client of the API server: requests with JSON, and watches. The only module that imports the Kubernetes library.

The models of the library are not used: the operator reads few fields, and parsing all fields of a pod would cost more
than the rest of a reconciliation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any  # JSON of any content
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration

from headgate_operator.runtime.metrics import Counters
from headgate_operator.runtime.rate_limiter import RateLimiter
from streamcore.environment import EnvironmentVariable, Reader

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
MANAGER = "headgate-operator"
#: Statuses of an ``ApiError``: the object does not exist; it exists already, or has changed.
GONE, CONFLICT = 404, 409
KUBECONFIG = EnvironmentVariable(
    "KUBECONFIG",
    "File with address and login of the API server, outside of a cluster.",
    Reader.OPERATOR,
    default="the service account of the pod",
)
#: Timeouts for the connection and the response, and the length of a watch, in seconds.
_TIMEOUT_S = (5.0, 30.0)
_WATCH_S = 300
#: Limits of the requests of one operator process.
CALLS_PER_SECOND, BURST = 50.0, 200


class ApiError(Exception):
    """The API server rejected the request, or did not answer (``status`` 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@contextmanager
def gone_is_fine() -> Iterator[None]:
    """Leave the block without an error if the API server answers that an object does not exist."""
    try:
        yield
    except ApiError as error:
        if error.status != GONE:
            raise


class Rest:
    """Requests to the API server, with one connection pool for all threads. ``timeout_s``: for the connection and the
    response. ``ApiError`` 0 if there is no login."""

    def __init__(self, kubeconfig: str | None, counters: Counters, timeout_s: tuple[float, float] = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        configuration = Configuration()
        try:
            if kubeconfig:
                config.load_kube_config(kubeconfig, client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except config.ConfigException as error:
            raise ApiError(0, f"no login: {error}") from error
        configuration.connection_pool_maxsize = 16
        configuration.retries = False
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self._counters = counters
        self._limiter = RateLimiter(CALLS_PER_SECOND, BURST)

    def get(self, path: str, **query: str) -> Json:
        """Return one object or a list."""
        return self._call("GET", path, query=query)

    def post(self, path: str, body: Json) -> Json:
        """Create an object and return it."""
        return self._call("POST", path, body)

    def put(self, path: str, body: Json) -> Json:
        """Replace an object and return it.

        ``ApiError`` 409 if ``body`` has a resource version that is not the newest.
        """
        return self._call("PUT", path, body)

    def merge(self, path: str, body: Json) -> Json:
        """Change entries of an object and return it (merge patch). ``ApiError`` 409 if ``body`` has another uid or
        resource version than the object.
        """
        return self._call("PATCH", path, body, content=MERGE)

    def apply(self, path: str, body: Json) -> Json:
        """Create an object, or change it to ``body``, and return it (server-side apply)."""
        return self._call("PATCH", path, body, content=APPLY, query={"fieldManager": MANAGER, "force": "true"})

    def delete(self, path: str, uid: str) -> Json:
        """Delete the object. If ``uid`` is not empty, only the object with this uid."""
        body = {"preconditions": {"uid": uid}} if uid else {}
        return self._call("DELETE", path, body)

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, Json]]:
        """Yield the type and object of each event after ``version``, until the server ends the watch. The types are
        ``ADDED``, ``MODIFIED``, ``DELETED`` and ``BOOKMARK``. ``ApiError`` 410: the caller must list again.
        """
        parameters = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_S),
        }
        response = self._send("GET", path, None, "", parameters | query, (5.0, float(_WATCH_S + 30)))
        try:
            for line in _lines(response.response):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(int(event["object"].get("code", 0)), str(event["object"].get("message")))
                yield event["type"], event["object"]
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, str(error)) from error
        finally:
            response.response.release_conn()

    def _call(
        self, method: str, path: str, body: Json | None = None, content: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:  # fmt: skip
        response = self._send(method, path, body, content, query or {}, self._timeout_s)
        try:
            parsed = json.loads(response.read() or b"{}")
        except (ValueError, urllib3.exceptions.HTTPError) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error
        return parsed if isinstance(parsed, dict) else {}

    def _send(
        self, method: str, path: str, body: Json | None, content: str,
        query: Mapping[str, str], timeout_s: tuple[float, float],
    ) -> Any:  # fmt: skip
        self._limiter.take()
        self._counters.add("api_calls", f"{'WATCH' if 'watch' in query else method} {_resource(path)}")
        url = f"{self._configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._client.call_api(method, url, self._headers(content), body, _request_timeout=timeout_s)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error
        if response.status >= 400:
            raise ApiError(response.status, f"{method} {path}: {_message(_body(response))}")
        return response

    def _headers(self, content: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": MANAGER}
        if content:
            headers["Content-Type"] = content
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return headers | ({"authorization": token} if token else {})


def _lines(response: Any) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(amt=None, decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line)


def _resource(path: str) -> str:
    """Return the resource in a path, for the counters: ``/api/v1/namespaces/shop/pods/rules-1`` gives ``pods``."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return f"{parts[0]}/{parts[2]}" if len(parts) > 2 else parts[0]


def _body(response: Any) -> bytes:
    return bytes(response.read() or b"")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body).get("message", ""))[:500]
    except (ValueError, AttributeError):
        return body[:200].decode(errors="replace")
