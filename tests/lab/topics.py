"""Sends what a round needs with one client, and reads what came of it with another, which no service writes with.

Events go out chunk by chunk, each acknowledged before the next: so no partition is ahead of another one by more than a
chunk, whatever happens to the broker, and the disorder of the events stays what their generator says.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

import confluent_kafka as ck
import kafka

from tests.lab import rules
from tests.lab.events import Event
from tests.lab.judge import Read
from tests.lab.rules import Control

_CHUNK = 25
_READ_S = 180.0
_CHANGE_S = 1.5


class Sender:
    """A producer that waits for each chunk, however long the broker is away."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        options = {"enable.idempotence": True, "linger.ms": 0, "delivery.timeout.ms": 1_800_000}
        self._client = ck.Producer({"bootstrap.servers": bootstrap, **options, "log_level": 0})
        self._topic = topic
        self._errors: list[str] = []
        #: Acknowledged records by partition: the ends of an input topic, which knows no transactions.
        self.ends: Counter[int] = Counter()

    def send(self, records: Sequence[tuple[int, bytes, bytes | None]]) -> None:
        """Send records (partition, key, value) and wait for their acknowledgement."""
        for partition, key, value in records:
            self._client.produce(self._topic, value, key, partition=partition, on_delivery=self._delivered)
        while self._client.flush(5):
            pass
        assert not self._errors, f"{self._topic}: {self._errors[0]}"

    def _delivered(self, error: object, message: ck.Message) -> None:
        if error is not None:
            self._errors.append(str(error))
        else:
            self.ends[message.partition()] = max(self.ends[message.partition()], message.offset() + 1)


class Work(threading.Thread):
    """A thread that the round asks whether it has failed."""

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        super().__init__(daemon=True)
        self._work = run
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """See ``threading.Thread``."""
        try:
            self._work(self.stopping)
        except BaseException as error:
            self.failure = error

    def finish(self, limit_s: float) -> None:
        """Wait for the end; raise what it failed with."""
        self.join(limit_s)
        if self.failure is not None:
            raise self.failure
        assert not self.is_alive(), f"{self._work} did not end in {limit_s} s"


def feed(sender: Sender, events: Sequence[Event], per_second: float) -> Work:
    """Send the events at this pace, from a thread; an outage is not made up for."""

    def run(stopping: threading.Event) -> None:
        for first in range(0, len(events), _CHUNK):
            due = time.monotonic() + _CHUNK / per_second
            chunk = events[first : first + _CHUNK]
            sender.send([(e.partition, e.user.encode(), e.value) for e in chunk])
            if stopping.wait(max(0.0, due - time.monotonic())):
                return

    work = Work(run)
    work.start()
    return work


def change_rules(sender: Sender) -> Work:
    """Publish a version of ``upd`` all the time, and now and then a version of the list or a bad record."""

    def run(stopping: threading.Event) -> None:
        version = 1
        while not stopping.wait(_CHANGE_S):
            version += 1
            changes: list[Control] = [rules.upd(version)]
            if version % 5 == 0:
                changes.append(rules.bad_ips(version))
            if version % 7 == 0:
                changes.append(rules.bad_records()[version // 7 % 4])
            publish(sender, changes)

    work = Work(run)
    work.start()
    return work


def publish(sender: Sender, records: Sequence[Control]) -> None:
    """Publish control records."""
    sender.send([(0, key.encode(), value) for key, value in records])


def read(bootstrap: str, topic: str) -> list[Read]:
    """Return all committed records of a topic, up to its last record, committed or not."""
    client = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None, enable_auto_commit=False
    )
    ends = _ends(bootstrap, topic)
    client.assign([*ends])
    client.seek_to_beginning(*ends)
    found: list[Read] = []
    limit = time.monotonic() + _READ_S
    try:
        while any(client.position(place) < end for place, end in ends.items()):
            assert time.monotonic() < limit, f"{topic}: a transaction is open, or the end is not reached"
            found += [_read(r) for records in client.poll(500).values() for r in records]
    finally:
        client.close()
    return sorted(found, key=lambda r: (r.partition, r.offset))


def _ends(bootstrap: str, topic: str) -> dict[kafka.TopicPartition, int]:
    client = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    try:
        places = [kafka.TopicPartition(topic, p) for p in sorted(client.partitions_for_topic(topic) or ())]
        ends: dict[kafka.TopicPartition, int] = client.end_offsets(places)
        return ends
    finally:
        client.close()


def _read(record: kafka.consumer.fetcher.ConsumerRecord) -> Read:
    headers = {str(name): value for name, value in record.headers or ()}
    epoch, batch = (int(headers.get(name) or b"0") for name in ("epoch", "batch"))
    return Read(record.partition, record.offset, record.value, epoch, batch)
