"""Posts an event to a server that takes OpenLineage."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPException

from streamcore.errors import Permanent, Retryable
from streamcore.lineage.settings import LineageSettings

#: Answers by which the server rejects the event itself; it would do so again.
_REJECTED = (400, 413, 422)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without the event, so a redirect is a failure."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


class LineageClient:
    """Posts events, one request each."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._opener = urllib.request.build_opener(_NoRedirect)

    def post(self, body: bytes) -> None:
        """Post one event. ``Retryable`` if the server may not have it; ``Permanent`` if it rejects it."""
        headers = {"Content-Type": "application/json"}
        key = self._settings.api_key()
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._settings.address, body, headers, method="POST")  # noqa: S310 - http only, see the settings
        try:
            with self._opener.open(request, timeout=self._settings.timeout_ms / 1000) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in _REJECTED:
                raise Permanent(f"it rejects an event with status {error.code}") from None
            raise Retryable(f"it answers with status {error.code}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Retryable(f"{reason}") from None
