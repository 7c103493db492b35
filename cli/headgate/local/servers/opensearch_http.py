"""An HTTP client for OpenSearch from the standard library, for the command's own requests and for verification.

Verification reads an index with code that shares nothing with the sink that wrote it. The password is read when a
client is created, and no error message contains it.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from headgate.errors import OpenSearchError
from streamcore.sinks.opensearch.settings import ClientSettings

_TIMEOUT_S: Final = 30.0
_PAGE: Final = 5_000
_POLL_S: Final = 0.5


class OpenSearchHttp:
    """A client of one node. Responses are JSON documents; numbers with a decimal point become ``Decimal``."""

    def __init__(self, login: ClientSettings) -> None:
        self.url = login.hosts[0].rstrip("/")
        password = login.password()
        self._headers = {"content-type": "application/json"}
        if password is not None:
            token = base64.b64encode(f"{login.user}:{password}".encode()).decode()
            self._headers["authorization"] = f"Basic {token}"
        self._tls = ssl.create_default_context(cafile=login.ca_file) if login.tls else None

    def request(self, method: str, path: str, body: object = None) -> Mapping[str, Any]:
        """Send a request and return the response. Raises ``OpenSearchError`` if there is none, or if it is an error."""
        document = self._request(method, path, body)
        if document is None:
            raise OpenSearchError(f"opensearch {self.url}: {method} {path}: not found")
        return document

    def find(self, path: str) -> Mapping[str, Any]:
        """Return the resource at ``path``; empty when it does not exist."""
        return self._request("GET", path, None) or {}

    def delete(self, path: str) -> bool:
        """Delete the resource at ``path``; return whether it existed."""
        return self._request("DELETE", path, None) is not None

    def await_ready(self, limit_s: float) -> None:
        """Wait until the server answers; raise ``OpenSearchError`` with the reason if it does not within ``limit_s``
        seconds."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                self.request("GET", "/")
            except OpenSearchError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def documents(self, index: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the id and the source of each document of an index or alias; none if there is no index."""
        if not self.find(f"/{index}/_alias"):
            return
        self.request("POST", f"/{index}/_refresh")
        page = self.request("POST", f"/{index}/_search?scroll=1m", {"size": _PAGE, "sort": ["_doc"]})
        while hits := page["hits"]["hits"]:
            yield from ((hit["_id"], hit["_source"]) for hit in hits)
            page = self.request("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
        self.request("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]})

    def _request(self, method: str, path: str, body: object) -> Mapping[str, Any] | None:
        content = None if body is None else json.dumps(body).encode()
        http_request = urllib.request.Request(self.url + path, content, self._headers, method=method)  # noqa: S310 - checked
        try:
            with urllib.request.urlopen(http_request, timeout=_TIMEOUT_S, context=self._tls) as response:  # noqa: S310
                document = json.loads(response.read(), parse_float=Decimal)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise OpenSearchError(f"opensearch {self.url}: {method} {path}: {error.code} {_reason(error)}") from None
        except (OSError, ValueError) as error:
            raise OpenSearchError(f"opensearch {self.url}: {method} {path}: {error}; does it run?") from None
        assert isinstance(document, dict)
        return document


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read().decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"]["reason"])[:300]
    except (ValueError, KeyError, TypeError):
        return text[:300] or str(error.reason)
