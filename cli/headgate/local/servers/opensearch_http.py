"""An HTTP client for OpenSearch from the standard library, for the command's own requests and for verification.

Verification reads an index with code that shares nothing with the sink that wrote it. The password is read when a
client is made, and is in no error. Does not know the content of the indexes.
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
    """One node of a cluster. Answers are JSON documents, with numbers that have a point as ``Decimal``."""

    def __init__(self, login: ClientSettings) -> None:
        self.url = login.hosts[0].rstrip("/")
        password = login.password()
        self._headers = {"content-type": "application/json"}
        if password is not None:
            token = base64.b64encode(f"{login.user}:{password}".encode()).decode()
            self._headers["authorization"] = f"Basic {token}"
        self._tls = ssl.create_default_context(cafile=login.ca_file) if login.tls else None

    def ask(self, method: str, path: str, body: object = None) -> Mapping[str, Any]:
        """Send a request and return the response; ``OpenSearchError`` when there is none, or a refusal."""
        found = self._ask(method, path, body)
        if found is None:
            raise OpenSearchError(f"opensearch {self.url}: {method} {path}: there is no such thing")
        return found

    def find(self, path: str) -> Mapping[str, Any]:
        """Return the resource at ``path``; empty when it does not exist."""
        return self._ask("GET", path, None) or {}

    def delete(self, path: str) -> bool:
        """Delete it, if it is there; whether it was."""
        return self._ask("DELETE", path, None) is not None

    def await_ready(self, limit_s: float) -> None:
        """Wait until the server answers; raise ``OpenSearchError`` with the reason if it does not in time."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                self.ask("GET", "/")
            except OpenSearchError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
            else:
                return

    def documents(self, index: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """All of an index or alias as they are now, page by page: id and source. None when there is no index."""
        if not self.find(f"/{index}/_alias"):
            return
        self.ask("POST", f"/{index}/_refresh")
        page = self.ask("POST", f"/{index}/_search?scroll=1m", {"size": _PAGE, "sort": ["_doc"]})
        while hits := page["hits"]["hits"]:
            yield from ((hit["_id"], hit["_source"]) for hit in hits)
            page = self.ask("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
        self.ask("DELETE", "/_search/scroll", {"scroll_id": page["_scroll_id"]})

    def _ask(self, method: str, path: str, body: object) -> Mapping[str, Any] | None:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, self._headers, method=method)  # noqa: S310 - checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
                found = json.loads(answer.read(), parse_float=Decimal)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise OpenSearchError(f"opensearch {self.url}: {method} {path}: {error.code} {_reason(error)}") from None
        except (OSError, ValueError) as error:
            raise OpenSearchError(f"opensearch {self.url}: {method} {path}: {error}; does it run?") from None
        assert isinstance(found, dict)
        return found


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read().decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"]["reason"])[:300]
    except (ValueError, KeyError, TypeError):
        return text[:300] or str(error.reason)
