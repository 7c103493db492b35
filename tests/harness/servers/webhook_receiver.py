"""An HTTP server that keeps the requests of a webhook, and answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """A request as it came."""

    headers: dict[str, str]
    body: bytes

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows."""
        rows: list[dict[str, Any]] = json.loads(self.body)
        return rows

    @property
    def ids(self) -> list[int]:
        """The ids of the rows."""
        return [row["id"] for row in self.rows]


@dataclass
class WebhookReceiver:
    """Keeps every request, and answers as ``answer`` says: a status, or None to close the connection."""

    answer: Callable[[WebhookRequest], int | None] = lambda _: 204
    requests: list[WebhookRequest] = field(default_factory=list)
    url: str = ""

    @property
    def accepted(self) -> list[int]:
        """The ids of the rows that were answered 2xx."""
        return [i for request in self.requests if (self.answer(request) or 0) // 100 == 2 for i in request.ids]

    def rows_by_message(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows as a receiver stores them that keeps the ids of requests: each request once."""
        return {request.headers["webhook-id"]: request.rows for request in self.requests}


@contextmanager
def run_receiver() -> Iterator[WebhookReceiver]:
    """Serve on a free port within the context."""
    found = WebhookReceiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else the body waits 40 ms for the acknowledgement of the headers

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = WebhookRequest(dict(self.headers.items()), body)
            found.requests.append(request)
            status = found.answer(request)
            if status is None:
                self.close_connection = True
                return
            text = b"" if status == 204 else b"the amount of a row is odd"
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_address[1]}/hook?a=b"
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
