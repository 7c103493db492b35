"""A server that takes OpenLineage events over HTTP, and can be away, slow or reject them."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class LineageServer:
    """``url``: its address. ``events``: what it took, in order; ``keys``: the login of each request. ``status``: its
    answer. ``taken``: set by each request. ``hold``: a request waits for it, once it is cleared."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    requests: int = 0
    status: int = 201
    hold: threading.Event = field(default_factory=threading.Event)
    news: threading.Condition = field(default_factory=threading.Condition)

    def take(self, path: str, key: str | None, body: bytes) -> int:
        """Take an event unless the status is one of a failure; return the status."""
        self.hold.wait()
        with self.news:
            status = self.status
            self.requests += 1
            if status < 300:
                self.events.append(json.loads(body))
                self.keys.append(key)
                self.paths.append(path)
            self.news.notify_all()
        return status

    def wait_for(self, *, events: int = 0, requests: int = 0) -> None:
        """Wait until there are so many events and requests."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.events) >= events and self.requests >= requests, 30)


@contextlib.contextmanager
def lineage_server() -> Iterator[LineageServer]:
    """Run a server within the context."""
    state = LineageServer()
    state.hold.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(state.take(self.path, self.headers["authorization"], body))
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            """Answer as a page does to which an event is redirected."""
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield state
    finally:
        state.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
