"""What the operator says on a port: ``/healthz``, whether its loop is alive (``canary``), and ``/metrics``.

Of each app: its phase, whether it is ready, how often in a row it was restarted. Every name of a phase is an app's
series for as long as it is in it, so alerts can ask for one by name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate_operator.resources import Status
from headgate_operator.shell import canary
from headgate_operator.shell.cache import Key
from headgate_operator.shell.counters import Counters

Apps = Callable[[], Mapping[Key, Status]]
_APP = ("namespace", "app")
_COUNTED = {
    "api_calls": ("headgate_operator_api_calls", "requests to the API server", "call"),
    "turns": ("headgate_operator_turns", "looks at an app, and those that have to be repeated", "what"),
}


class Said(Collector):
    """Counts and apps, as metrics, at the moment when somebody asks."""

    def __init__(self, counters: Counters, apps: Apps) -> None:
        self._counters, self._apps = counters, apps

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._counts()
        phase = GaugeMetricFamily("headgate_app_phase", "1 for the phase that the app is in", labels=(*_APP, "phase"))
        ready = GaugeMetricFamily("headgate_app_ready", "1: it runs as asked", labels=_APP)
        restarts = GaugeMetricFamily("headgate_app_restarts", "restarts in a row of its driver", labels=_APP)
        for key, status in self._apps().items():
            phase.add_metric((*key, status.phase.value), 1)
            ready.add_metric(key, any(one.type == "Ready" and one.status == "True" for one in status.conditions))
            restarts.add_metric(key, status.restarts)
        yield from (phase, ready, restarts)

    def _counts(self) -> Iterator[Metric]:
        families = {
            of: CounterMetricFamily(name, what, labels=(label,)) for of, (name, what, label) in _COUNTED.items()
        }
        for (of, label), count in self._counters.read().items():
            families[of].add_metric((label,), count)
        yield from families.values()


def serve(port: int, counters: Counters, apps: Apps) -> ThreadingHTTPServer:
    """On all addresses, in threads that end with the process. Port 0: a free one."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Said(counters, apps))
    server = ThreadingHTTPServer(("", port), _handler(registry))
    threading.Thread(target=server.serve_forever, name="serving", daemon=True).start()
    return server


def _handler(registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._say(HTTPStatus.OK, generate_latest(registry))
            elif self.path != "/healthz":
                self._say(HTTPStatus.NOT_FOUND, b"")
            elif canary.is_alive(time.time()):
                self._say(HTTPStatus.OK, b"alive\n")
            else:
                self._say(HTTPStatus.SERVICE_UNAVAILABLE, b"the loop has not come around\n")

        def _say(self, status: HTTPStatus, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes ask every few seconds: no line each."""

    return Handler
