"""Provides a measurement with the benchmark's own broker and folder, and with topics that are filled once and
reused."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka as ck
import orjson

from bench.harness.events import SCHEMA, EventSet, batches
from headgate.console.messages import Print
from headgate.local import cache, jars
from headgate.local import java as java_runtime
from headgate.local.class_archive import ClassArchive
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import end_offsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, describe, ensure_topics

_KEEP = (("retention.ms", "-1"), ("retention.bytes", "-1"))
APPEND_TIME = (("message.timestamp.type", "LogAppendTime"),)


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a measurement. ``folder``: for settings and checkpoints; ``jars``: the folder of
    Spark's jars."""

    broker: EmbeddedBroker
    kafka: KafkaSettings
    folder: Path
    jars: Path
    java: java_runtime.Java
    print_message: Print

    @property
    def broker_pid(self) -> int:
        """The process id of the broker; 0 if it does not run."""
        broker = self.broker.running
        return 0 if broker is None else broker.pid

    def new_name(self, workload: str) -> str:
        """Return an app name that no checkpoint or topic has yet."""
        return f"bench-{workload}-{secrets.token_hex(3)}"

    def run_folder(self, name: str) -> Path:
        """Create an empty folder for a run; remove those of earlier runs of the workload."""
        runs = self.folder / "runs"
        for old in runs.glob(f"{name.rsplit('-', 1)[0]}-*"):
            shutil.rmtree(old, ignore_errors=True)
        (runs / name).mkdir(parents=True)
        return runs / name

    def schema_file(self, entries: Mapping[str, object] | None = None) -> Path:
        """Write the stream file of the synthetic events, and return its path. ``entries``: those that it has beside
        ``SCHEMA``, or instead of it."""
        document = orjson.dumps({**SCHEMA, **(entries or {})})
        path = self.folder / f"stream-{hashlib.blake2b(document, digest_size=4).hexdigest()}.yaml"
        path.write_bytes(document)
        return path

    def fill_topic(self, wanted: EventSet) -> str:
        """Return the topic of these events; write the events unless an earlier run has done so."""
        if self._count_events(wanted.topic) == wanted.events:
            return wanted.topic
        self.print_message(f"bench: writing {wanted.events:,} events to {wanted.topic}")
        delete_topics(self.kafka, [wanted.topic])
        create_topic(self.kafka, TopicSpec(wanted.topic, wanted.partitions, config=_KEEP))
        with closing(Load(self.kafka, wanted.topic)) as load:
            for partitions, keys, values in batches(wanted.columns(), with_context=wanted.with_context):
                load.send(partitions, keys, values)
        if self._count_events(wanted.topic) != wanted.events:
            raise RuntimeError(f"topic {wanted.topic} does not have the number of events that were written to it")
        return wanted.topic

    def _count_events(self, topic: str) -> int:
        if topic not in describe(self.kafka, [topic]):
            return -1
        return sum(end_offsets(self.kafka, [topic]).values())


class Load:
    """Writes events to given partitions of one topic. ``close`` waits until the broker has acknowledged them."""

    def __init__(self, kafka: KafkaSettings, topic: str, linger_ms: int = 20) -> None:
        self.topic = topic
        self.failures: list[ck.KafkaError] = []
        self._producer = clients.producer(kafka, linger_ms=linger_ms)

    def _on_delivery(self, error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            self.failures.append(error)

    def send(self, partitions: Iterable[int], keys: Iterable[str], values: Iterable[str]) -> None:
        """Hand events to the Kafka client; block while its queue is full."""
        produce, topic, on_delivery = self._producer.produce, self.topic, self._on_delivery
        for number, (partition, key, value) in enumerate(zip(partitions, keys, values, strict=True)):
            while True:
                try:
                    produce(topic, value, key, partition, on_delivery=on_delivery)
                    break
                except BufferError:
                    self._producer.poll(0.05)
            if number % 10_000 == 0:
                self._producer.poll(0)
        self._producer.poll(0)

    def close(self) -> None:
        """Wait for all acknowledgements. Raises ``RuntimeError`` if an event was not written."""
        left = self._producer.flush(120)
        if left or self.failures:
            raise RuntimeError(f"{left} records were not written to {self.topic}: {self.failures[:3]}")


def publish_rules(kafka: KafkaSettings, topic: str, rules: Iterable[tuple[str, bytes]]) -> int:
    """Write the control records of rules, and return their number."""
    producer, count = clients.producer(kafka), 0
    for rule_id, value in rules:
        producer.produce(topic, value, rule_id, 0)
        count += 1
    if producer.flush(60):
        raise RuntimeError(f"not all rules were written to {topic}")
    return count


def create_topic(kafka: KafkaSettings, spec: TopicSpec) -> None:
    """Create the topic; retry for 10 s, because Kafka may still be deleting a topic of this name."""
    for _ in range(50):
        try:
            ensure_topics(kafka, [spec])
            return
        except Exception:
            time.sleep(0.2)
    ensure_topics(kafka, [spec])


def open_environment(print_message: Print, *, fresh: bool) -> Environment:
    """Start the benchmark's broker, or use it if it runs, and have Spark use an archive of its classes. ``fresh``:
    begin with an empty folder."""
    java = java_runtime.ensure(print_message)
    java_runtime.activate(java)
    folder = cache.root() / "bench"
    broker = EmbeddedBroker(BrokerSettings(folder / "broker"), java, print_message)
    if fresh:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    bootstrap = broker.start()
    library = jars.ensure(jars.JarSet.SPARK, java, print_message)
    if archive := ClassArchive.of(java):
        archive.build(print_message)
        archive.use()
    return Environment(broker, KafkaSettings(bootstrap, client_id="bench"), folder, library, java, print_message)
