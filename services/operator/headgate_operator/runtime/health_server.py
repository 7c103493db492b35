"""Endpoints of the operator: ``/healthz``, the health of its loop (``liveness``), and ``/metrics``.

The metrics of each app: its phase, readiness, number of restarts in a row, and the duration of its last upgrade. Each
phase is a series of its own while the app is in it, so alerts can select one by name.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate_operator.resources import Phase, Status
from headgate_operator.resources.status import Upgrade
from headgate_operator.runtime import liveness
from headgate_operator.runtime.informer_cache import Key
from headgate_operator.runtime.metrics import Counters

Apps = Callable[[], Mapping[Key, Status]]
#: Seconds between two looks of the server whether it is shut down.
_POLL_S = 0.1
_APP = ("namespace", "app")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric of the operator. ``name``: as scraped, without the suffix ``_total`` of a counter."""

    name: str
    description: str
    labels: tuple[str, ...]
    family: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily

    def empty(self) -> CounterMetricFamily | GaugeMetricFamily:
        """Return the metric without samples."""
        return self.family(self.name, self.description, labels=self.labels)


#: The metric of each count in ``Counters``, by its name there.
COUNTED = {
    "api_calls": MetricDefinition(
        "headgate_operator_api_calls", "Requests to the API server.", ("call",), CounterMetricFamily
    ),
    "traces": MetricDefinition(
        "headgate_operator_traces",
        "Traces of upgrades: `sent`, or `dropped` because the endpoint did not take them.",
        ("result",),
        CounterMetricFamily,
    ),
    "reconciles": MetricDefinition(
        "headgate_operator_reconciles",
        "Reconciliations: `all` of them, and those that are repeated, by reason: `StaleRead` or `NotExclusive`.",
        ("result",),
        CounterMetricFamily,
    ),
}
PHASE = MetricDefinition("headgate_app_phase", "1 for the phase that the app is in.", (*_APP, "phase"))
READY = MetricDefinition("headgate_app_ready", "1 if the condition Ready of the app is True, otherwise 0.", _APP)
RESTARTS = MetricDefinition(
    "headgate_app_restarts", "Restarts of the app's driver without a healthy time in between.", _APP
)
UPGRADE_PHASES = MetricDefinition(
    "headgate_app_upgrade_phase_seconds",
    "Time that each finished phase of the last upgrade took, in seconds.",
    (*_APP, "phase"),
)
METRICS = (PHASE, READY, RESTARTS, UPGRADE_PHASES, *COUNTED.values())


class OperatorCollector(Collector):
    """Collects the metrics of the operator and its apps at each scrape."""

    def __init__(self, counters: Counters, apps: Apps) -> None:
        self._counters, self._apps = counters, apps

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._counter_families()
        phase, ready, restarts, upgrade = (metric.empty() for metric in (PHASE, READY, RESTARTS, UPGRADE_PHASES))
        for key, status in self._apps().items():
            phase.add_metric((*key, status.phase.value), 1)
            ready.add_metric(key, any(c.type == "Ready" and c.status == "True" for c in status.conditions))
            restarts.add_metric(key, status.restarts)
            for name, ms in phases_ms(status.upgrade).items():
                upgrade.add_metric((*key, name), ms / 1_000)
        yield from (phase, ready, restarts, upgrade)

    def _counter_families(self) -> Iterator[Metric]:
        families = {count: metric.empty() for count, metric in COUNTED.items()}
        for (count, label), value in self._counters.read().items():
            families[count].add_metric((label,), value)
        yield from families.values()


def phases_ms(upgrade: Upgrade | None) -> dict[Phase, int]:
    """Return the total milliseconds in each finished phase. A rollback goes through some phases a second time."""
    durations_ms: dict[Phase, int] = {}
    for entered, following in pairwise(upgrade.phases if upgrade is not None else ()):
        durations_ms[entered.phase] = durations_ms.get(entered.phase, 0) + following.at - entered.at
    return durations_ms


def serve(port: int, counters: Counters, apps: Apps) -> ThreadingHTTPServer:
    """Serve on all addresses, in threads that end with the process. Port 0: any free port."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OperatorCollector(counters, apps))
    server = ThreadingHTTPServer(("", port), _handler(registry))
    threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="serving", daemon=True).start()
    return server


def _handler(registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._respond(HTTPStatus.OK, generate_latest(registry))
            elif self.path != "/healthz":
                self._respond(HTTPStatus.NOT_FOUND, b"")
            elif liveness.is_alive(time.time()):
                self._respond(HTTPStatus.OK, b"alive\n")
            else:
                self._respond(HTTPStatus.SERVICE_UNAVAILABLE, b"the reconcile loop made no progress\n")

        def _respond(self, status: HTTPStatus, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
