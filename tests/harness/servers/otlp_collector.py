"""A collector that accepts OTLP over HTTP and stores the requests."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(http.server.BaseHTTPRequestHandler):
    """A collector; only one can run at a time. ``taken``: path and body of each request."""

    taken: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).taken.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    @classmethod
    def spans(cls) -> list[Span]:
        """Return all received spans in order."""
        requests = [ExportTraceServiceRequest.FromString(body) for path, body in cls.taken if path == "/v1/traces"]
        return [
            span
            for one in requests
            for part in one.resource_spans
            for scope in part.scope_spans
            for span in scope.spans
        ]


@contextlib.contextmanager
def collecting() -> Iterator[str]:
    """Run a collector within the context; yield its address."""
    Collector.taken = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
