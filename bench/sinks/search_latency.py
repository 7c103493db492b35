"""Measures the time until a search finds a change, with the app at half its load.

Run it with ``python -m bench.sinks.search_latency``. It starts the app and servers of ``headgate up search``. First,
the shop sends events so fast that some always wait, for a minute or more, because the JVM compilers take most of the
CPU time at the start. The rate of the later half of these cuts is the app's load limit. After the app has processed all
events, the shop sends at half this rate, and the benchmark sends products of its own. It searches for each product
until a search finds it, sends one view of it, and searches until its view count is above zero. Times are by the clock
of this process, from before a record is passed to the producer to the search response with the change. They include the
time of a search and up to one pause between two searches.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from bench.harness.result import Result, show, spread
from bench.harness.yardstick import Yardstick
from headgate.console.messages import to_stderr
from headgate.console.timeline import Timeline
from headgate.demo.generator import GeneratorSettings
from headgate.demo.services.search import SearchService, alias_for
from headgate.demo.stack import DemoStack, StackSettings
from headgate.local.servers import kafka as local_broker
from headgate.local.servers.opensearch_http import OpenSearchHttp
from streamcore.kafka import data_clients as clients

if TYPE_CHECKING:
    import confluent_kafka as ck

#: Seconds between two searches, which run on the same machine as the app.
_BETWEEN_SEARCHES_S = 0.1
#: Seconds between two products that the benchmark sends.
_EVERY_S = 0.25
_WAIT_S = 300.0
_SETTLE_S = 30.0
#: Seconds at half the load before the measurement.
_EASE_S = 15.0
#: The fewest cuts from which the load limit is computed.
_LEAST_CUTS = 8


@dataclass
class Probes:
    """Sends products and views, and measures when a search finds them.

    ``sent``: products that no search has found yet. ``viewed``: products whose view no search has found yet. Values are
    the times of sending, in seconds of the monotonic clock.
    """

    stack: DemoStack
    http: OpenSearchHttp
    producer: ck.Producer
    sent: dict[str, float] = field(default_factory=dict)
    viewed: dict[str, float] = field(default_factory=dict)
    changes_ms: list[float] = field(default_factory=list)
    views_ms: list[float] = field(default_factory=list)

    def send(self, number: int) -> None:
        """Send a new product."""
        name = f"probe{number}"
        change = {"product_id": name, "op": "upsert", "name": "Probe", "price": 1.0, "updated_at": self._now_ms()}
        self.sent[name] = time.monotonic()
        self._produce(self.stack.workspace.names.input("products"), name, change)

    def search(self) -> None:
        """Search once for the sent products, and for the viewed products whose views have been counted."""
        viewed = {"bool": {"filter": [{"terms": {"id": [*self.viewed]}}, {"range": {"views_1d": {"gt": 0}}}]}}
        query = {"bool": {"should": [{"terms": {"id": [*self.sent]}}, viewed]}}
        body = {"size": 1_000, "_source": False, "query": query}
        hits = self.http.request("POST", f"/{alias_for(self.stack.workspace.names)}/_search", body)["hits"]["hits"]
        now = time.monotonic()
        for name in (hit["_id"] for hit in hits):
            (self._on_product_found if name in self.sent else self._on_view_found)(name, now)

    def _on_product_found(self, name: str, now: float) -> None:
        self.changes_ms.append((now - self.sent.pop(name)) * 1_000)
        event = {"event_id": name, "ts": self._now_ms(), "type": "view", "user_id": name, "product_id": name}
        self.viewed[name] = time.monotonic()
        self._produce(self.stack.workspace.names.events, name, event)

    def _on_view_found(self, name: str, now: float) -> None:
        self.views_ms.append((now - self.viewed.pop(name)) * 1_000)

    def _now_ms(self) -> int:
        newest_ms = self.stack.generator.newest_event_ms
        assert newest_ms is not None, "the shop has sent events"
        return newest_ms

    def _produce(self, topic: str, key: str, document: object) -> None:
        self.producer.produce(topic, orjson.dumps(document), key)
        self.producer.poll(0)


def main() -> int:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.sinks.search_latency", description=__doc__)
    parser.add_argument(
        "--load", type=int, default=60_000, help="lowest number of waiting events while the load limit is measured"
    )
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds of the measurement of the load limit")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of the measurement")
    parser.add_argument("--port", type=int, default=local_broker.DEFAULT_PORT, help="port of the broker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-search-latency-") as folder:
        settings = StackSettings(Path(folder) / "shop", Path(folder) / "broker", arguments.port, seed=1, fresh=True)
        settings.folder.mkdir()
        stack = DemoStack(SearchService(), settings, to_stderr, Timeline(to_stderr))
        try:
            stack.start()
            show(_measure(stack, arguments))
        finally:
            stack.stop(threading.Event())
    return 0


def _measure(stack: DemoStack, arguments: argparse.Namespace) -> Result:
    capacity = _max_rate(stack, arguments.load, arguments.warm_up)
    stack.generate(GeneratorSettings(None, capacity / 2))
    service = stack.service
    assert isinstance(service, SearchService)
    probes = Probes(stack, OpenSearchHttp(service.opensearch.login), clients.producer(stack.kafka, linger_ms=5))
    time.sleep(_EASE_S)
    cuts = _Cuts(stack)
    with Yardstick() as yardstick:
        before, began, number = stack.app.metrics.processed, time.monotonic(), 0
        while time.monotonic() - began < arguments.seconds:
            if time.monotonic() - began > number * _EVERY_S:
                probes.send(number)
                number += 1
            probes.search()
            cuts.add_new()
            stack.raise_if_ended()
            time.sleep(_BETWEEN_SEARCHES_S)
        rate = (stack.app.metrics.processed - before) / (time.monotonic() - began)
    settled = time.monotonic() + _SETTLE_S
    while (probes.sent or probes.viewed) and time.monotonic() < settled:
        probes.search()
        time.sleep(_BETWEEN_SEARCHES_S)
    return {
        "workload": "search-latency",
        "records_per_second_at_most": round(capacity),
        "records_per_second": round(rate),
        "products": number,
        "not_found": len(probes.sent) + len(probes.viewed),
        "change_to_searchable_ms": spread(probes.changes_ms),
        "view_to_searchable_ms": spread(probes.views_ms),
        "cut_ms": spread(cuts.ms),
        **yardstick.figures(),
    }


class _Cuts:
    """Collects the durations of the cuts that end, in milliseconds. Call ``add_new`` at least once per hundred cuts."""

    def __init__(self, stack: DemoStack) -> None:
        self._stack = stack
        self._seen = stack.app.metrics.cuts
        self.ms: list[float] = []

    def add_new(self) -> None:
        """Add the cuts since the last call."""
        figures = self._stack.app.metrics
        new = figures.cuts - self._seen
        self.ms += map(float, figures.cut_ms[len(figures.cut_ms) - new :])
        self._seen = figures.cuts


def _max_rate(stack: DemoStack, load: int, seconds: float) -> float:
    """Return the app's highest rate in records per second, then wait until the app has processed all records.

    For ``seconds``, at least ``load`` records wait. The rate is that of the later half of the cuts in this time,
    counted from the end of one cut to the end of another.
    """
    stack.generate(GeneratorSettings(load, None))
    begun, ends = time.monotonic(), [(0.0, 0)]
    while time.monotonic() - begun < seconds or len(ends) < _LEAST_CUTS:
        processed = stack.app.metrics.processed
        if processed > ends[-1][1]:
            ends.append((time.monotonic() - begun, processed))
        if stack.generator.done and stack.generator.sent - processed < load:
            stack.generate(GeneratorSettings(load, None))
        stack.raise_if_ended()
        time.sleep(0.05)
    _wait(lambda: stack.generator.done and stack.app.metrics.processed >= stack.generator.sent, stack)
    warm = ends[len(ends) // 2 :]
    return (warm[-1][1] - warm[0][1]) / (warm[-1][0] - warm[0][0])


def _wait(until: Callable[[], bool], stack: DemoStack) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not until():
        stack.raise_if_ended()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the app did not process all events within {_WAIT_S:.0f} s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
