"""Sends repaired rejected records to the topics that they came from, each exactly once.

The transaction that sends a record also stores its position in a compacted topic, ``<dead-letter topic>.replayed``
(``streamcore.kafka.idempotent_sender``): neither a second run, nor two runs at the same time, nor a killed run sends a
record twice. The record goes to the partition that it came from, with its own key, and its headers identify the
rejected record. If it fails again, the app writes a new rejected record with its own position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import orjson

from headgate.dead_letters.model import DeadLetter, DeadLetterFilter, Repair, to_dead_letter
from headgate.errors import InputError
from streamcore.kafka.idempotent_sender import IdempotentSender, KeyedRecord, sent_keys
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe
from streamcore.writer_id import WriterId

REPLAYED_FROM, REPLAYED_CODE = "replayed_from", "replayed_code"
_BATCH = 1_000


def read_dead_letters(kafka: KafkaSettings, topic: str, wanted: DeadLetterFilter) -> Iterator[DeadLetter]:
    """Those that are meant, in order within a partition; ``InputError`` when there is no such topic."""
    if not describe(kafka, [topic]):
        raise InputError(f"topic {topic}: does not exist at {kafka.bootstrap}; is --app or --topic the right one?")
    for record in scan_topic(kafka, topic):
        dead_letter = to_dead_letter(record)
        if wanted.matches(dead_letter):
            yield dead_letter


def ledger_topic_for(topic: str) -> str:
    """Return the topic that stores which rejected records were replayed."""
    return f"{topic}.replayed"


def read_sent_positions(kafka: KafkaSettings, topic: str) -> set[str]:
    """Read the positions of the rejected records that were sent."""
    ledger_topic = ledger_topic_for(topic)
    return sent_keys(kafka, ledger_topic) if describe(kafka, [ledger_topic]) else set()


def plan(dead_letters: Sequence[DeadLetter], repair: Repair, topic: str) -> list[KeyedRecord]:
    """List the records to send: every rejected record that names its source, with its repaired value."""
    return [
        _keyed_record(dead_letter, dead_letter.source.topic, repair, topic)
        for dead_letter in dead_letters
        if dead_letter.source is not None
    ]


def _keyed_record(dead_letter: DeadLetter, target: str, repair: Repair, topic: str) -> KeyedRecord:
    assert dead_letter.source is not None
    value = repair.value(dead_letter)
    headers = ((REPLAYED_FROM, f"{topic}/{dead_letter.position}".encode()), (REPLAYED_CODE, dead_letter.code.encode()))
    entry = {"topic": target, "partition": dead_letter.source.partition, "repaired": value != dead_letter.value}
    return KeyedRecord(
        dead_letter.position, orjson.dumps(entry), target, dead_letter.source.partition, dead_letter.key, value, headers
    )


def replay(
    kafka: KafkaSettings,
    topic: str,
    records: Sequence[KeyedRecord],
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Send the records that were not sent before and return their number; report the number done to ``on_progress``."""
    sent = 0
    with IdempotentSender(kafka, _writer(topic), ledger_topic_for(topic)) as sender:
        for start in range(0, len(records), _BATCH):
            sent += sender.send(records[start : start + _BATCH])
            on_progress(min(len(records), start + _BATCH))
    return sent


def _writer(topic: str) -> WriterId:
    """Return the writer for a topic's replays; two topics whose names differ in punctuation only share one and wait
    for each other."""
    return WriterId(re.sub(r"[^A-Za-z0-9_-]", "-", topic)[:100], 1, "replay")


def check_targets(kafka: KafkaSettings, records: Sequence[KeyedRecord]) -> None:
    """Raise ``InputError`` when a topic or partition that a rejected record came from no longer exists."""
    names = sorted({record.topic for record in records})
    found = describe(kafka, names)
    for record in records:
        state = found.get(record.topic)
        if state is None or record.partition >= state.partitions:
            raise InputError(
                f"letter {record.dedup_key}: topic {record.topic} partition {record.partition} is not there; make it"
            )
