"""A service under faults: its input is sent all the time, and its final output is compared with an oracle.

The input is a list with a fixed order and one partition a topic, so the expected output is known beforehand, whatever
the cuts and the faults.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka as ck

from streamcore.kafka.readers import Record, end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.faults.services.servers import Server

ROOT = Path(__file__).parents[4]
WHOLE = os.environ.get("HEADGATE_RETAIL")
#: The file of invoice lines: a sample, or the one that `HEADGATE_RETAIL` names.
LINES = Path(WHOLE or ROOT / "tests" / "data" / "retail_sample.parquet")
#: Less than the shortest time by which the late lines of the oracles are late.
PER_CUT = 20_000 if WHOLE else 1_500
#: How late those are.
LATE_DAYS = 60 if WHOLE else 4
#: Values that every decoder rejects, for services whose oracle has no invalid records of its own.
GARBAGE = (None, b"", b"{", b"\xff\xfe", b"[]", b'{"id": 1}')
GARBAGE_EVERY = 500
#: The largest record of the input topics and of the producer.
_MOST_BYTES = 32 * 1024 * 1024
_READ_MS = 120_000
_LIMIT_S = 600.0
_TICK_S = 0.1

#: Topic (its last name), key, value.
Input = tuple[str, bytes | None, bytes | None]


def with_garbage(records: Sequence[Input]) -> list[Input]:
    """Return the records, with invalid ones between them."""
    mixed: list[Input] = []
    for number, record in enumerate(records):
        mixed.append(record)
        if number % GARBAGE_EVERY == 0:
            mixed.append((record[0], b"bad", GARBAGE[number // GARBAGE_EVERY % len(GARBAGE)]))
    return mixed


class Feeder:
    """Sends records in their order, from a thread at a rate, and at once with ``burst`` and ``finish``.

    The thread sends half of them at most, so that records are left for each ``burst``, however slow the machine.
    """

    def __init__(self, kafka: KafkaSettings, app: str, records: Sequence[Input]) -> None:
        self._records = records
        self._app = app
        options: dict[str, str | int | bool] = {"enable.idempotence": True, "message.max.bytes": _MOST_BYTES}
        self._client = ck.Producer({"bootstrap.servers": kafka.bootstrap, **options})
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.sent = 0

    @contextmanager
    def send_at(self, per_second: float) -> Iterator[None]:
        """Send at this rate within the context."""
        thread = threading.Thread(target=self._run, args=(per_second,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self, per_second: float) -> None:
        due, left = 0.0, len(self._records) // 2
        while left > 0 and not self._stop.wait(_TICK_S):
            due += per_second * _TICK_S
            self.burst(int(due))
            left -= int(due)
            due -= int(due)

    def burst(self, count: int) -> None:
        """Send the next ``count`` records at once."""
        with self._lock:
            for topic, key, value in self._records[self.sent : self.sent + count]:
                while not self._enqueue(topic, key, value):
                    self._client.poll(0.1)
                self.sent += 1
            self._client.poll(0)

    def _enqueue(self, topic: str, key: bytes | None, value: bytes | None) -> bool:
        try:
            self._client.produce(f"{self._app}.{topic}", value, key, partition=0)
        except BufferError:
            return False
        return True

    def finish(self) -> None:
        """Send the rest, and wait for its acknowledgement."""
        self.burst(len(self._records))
        assert self._client.flush(120) == 0


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """A service: its module, settings (without those of the scene), input and server, and a check of its output."""

    entry: Sequence[str]
    settings: dict[str, object]
    records: Sequence[Input]
    server: Server
    check: Callable[[ServiceScene], None]


@dataclass(slots=True)
class ServiceScene:
    """A service with its topics and feeder. ``unprotected``: without its protections against repeated cuts."""

    kafka: KafkaSettings
    app: AppUnderTest
    plan: ServicePlan
    feeder: Feeder
    unprotected: bool = False
    topics: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.topics = tuple(sorted({f"{self.app.name}.{topic}" for topic, *_ in self.plan.records}))

    def start(self) -> None:
        """Start the process of the service on its checkpoint."""
        before = ("-m", "tests.harness.faults.unprotected_writers") if self.unprotected else ("-m",)
        self.app.start((*before, *self.plan.entry))

    def send_and_wait(self, records: int) -> None:
        """Send records at once, and wait for a cut with events."""
        before = self._cuts_with_events()
        self.feeder.burst(records)
        self.wait_for_events(before + 1)

    def wait_for_events(self, cuts: int = 1) -> None:
        """Wait until this start has had ``cuts`` cuts with events."""
        self.app.wait_for(lambda: self._cuts_with_events() >= cuts, f"{cuts} cuts with events", _LIMIT_S)

    def _cuts_with_events(self) -> int:
        return sum(cut.events > 0 for cut in self.app.this_start)

    def settle(self, pause_s: float = 3.0) -> None:
        """Wait until all input is committed, and for output that depends on the clock."""
        ends = {topic: end for (topic, _), end in end_offsets(self.kafka, self.topics).items()}

        def done() -> bool:
            cuts = self.app.this_start
            return bool(cuts) and {t: p.get("0", 0) for t, p in cuts[-1].offsets.items() if t in ends} == ends

        self.app.wait_for(done, "the end of the input", _LIMIT_S)
        cuts, end = len(self.app.this_start), time.monotonic() + pause_s
        self.app.wait_for(lambda: len(self.app.this_start) >= cuts + 2 and time.monotonic() > end, "two cuts more")

    def read(self, lane: str) -> list[Record]:
        """Return the committed records of a lane."""
        return read_topic(self.kafka, f"{self.app.name}.{lane}", limit_ms=_READ_MS)

    def check(self) -> None:
        """Check that the output is the expected one.

        Reports of cuts are not counted: a kill may come between a commit and its report.
        """
        taken = sum(self.app.this_start[-1].offsets[topic]["0"] for topic in self.topics)
        assert taken == len(self.plan.records) == self.feeder.sent
        self.plan.check(self)


def new_service_scene(folder: Path, kafka: KafkaSettings, jars: Path, name: str, plan: ServicePlan) -> ServiceScene:
    """Create topics and settings; nothing is started."""
    settings: dict[str, object] = {
        "app": name,
        "kafka": {"bootstrap": kafka.bootstrap},
        "checkpoint": str(folder / "checkpoint"),
        "jars": str(jars),
        "local_dir": str(folder / "tmp"),
        "shards": 2,
        "parallelism": 1,
        "events_per_cut": PER_CUT,
        "idle_timeout_ms": 10**12,
        **plan.settings,
    }
    scene = ServiceScene(kafka, AppUnderTest(folder, settings), plan, Feeder(kafka, name, plan.records))
    large = (("max.message.bytes", str(_MOST_BYTES)),)
    ensure_topics(kafka, [TopicSpec(topic, 1, config=large) for topic in scene.topics])
    return scene
