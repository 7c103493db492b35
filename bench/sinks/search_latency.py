"""``python -m bench.sinks.search_latency``: how long until a search finds what was sent, with the app at half its load.

Runs what ``headgate up search`` runs. First the shop sends so fast that some events always wait, until app and server
have been running for a while: in the first minute their compilers cost more than what they compile. The later half of
the cuts says what load the app can take. When all is processed, half of that load, and after some seconds products of
our own beside it, each looked for with searches until it is found, and then viewed once until a search finds it viewed.
By this process's clock, from before a record is handed to the producer until the answer that has it; so the time of a
search, and up to a pause between two, is in it.
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

#: Ten searches a second: they share the machine with what is measured.
_BETWEEN_SEARCHES_S = 0.1
_EVERY_S = 0.25
_WAIT_S = 300.0
_SETTLE_S = 30.0
#: At half the load, before anything is measured.
_EASE_S = 15.0
#: That the load is found with.
_LEAST_CUTS = 8


@dataclass
class Probes:
    """Sends products and views, and measures when a search finds them.

    ``sent`` and ``viewed``: products that the search does not find yet, or not with views, with the monotonic clock at
    sending, in seconds.
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

    def look(self) -> None:
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
        assert newest_ms is not None, "the shop has sent something"
        return newest_ms

    def _produce(self, topic: str, key: str, document: object) -> None:
        self.producer.produce(topic, orjson.dumps(document), key)
        self.producer.poll(0)


def main() -> int:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m bench.sinks.search_latency", description=__doc__)
    parser.add_argument(
        "--load", type=int, default=60_000, help="events that wait, at the least, while the load is found"
    )
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds of that")
    parser.add_argument("--seconds", type=float, default=60.0, help="of measuring")
    parser.add_argument("--port", type=int, default=local_broker.DEFAULT_PORT, help="of the broker")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate-search-latency-") as folder:
        settings = StackSettings(Path(folder) / "shop", Path(folder) / "broker", arguments.port, seed=1, fresh=True)
        settings.folder.mkdir()
        stack = DemoStack(SearchService(), settings, to_stderr, Timeline(to_stderr))
        try:
            stack.start()
            show(_measured(stack, arguments))
        finally:
            stack.stop(threading.Event())
    return 0


def _measured(stack: DemoStack, arguments: argparse.Namespace) -> Result:
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
            probes.look()
            cuts.note()
            stack.check()
            time.sleep(_BETWEEN_SEARCHES_S)
        rate = (stack.app.metrics.processed - before) / (time.monotonic() - began)
    settled = time.monotonic() + _SETTLE_S
    while (probes.sent or probes.viewed) and time.monotonic() < settled:
        probes.look()
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
    """Collects the durations of the cuts that end, in milliseconds. Call ``note`` at least once per hundred cuts."""

    def __init__(self, stack: DemoStack) -> None:
        self._stack = stack
        self._seen = stack.app.metrics.cuts
        self.ms: list[float] = []

    def note(self) -> None:
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
        stack.check()
        time.sleep(0.05)
    _wait(lambda: stack.generator.done and stack.app.metrics.processed >= stack.generator.sent, stack)
    warm = ends[len(ends) // 2 :]
    return (warm[-1][1] - warm[0][1]) / (warm[-1][0] - warm[0][0])


def _wait(until: Callable[[], bool], stack: DemoStack) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not until():
        stack.check()
        if time.monotonic() > deadline:
            raise TimeoutError("the app does not get on")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
