"""Sends repaired dead letters to their source topics, each exactly once.

The transaction that sends a record also stores the position of the dead letter in a compacted topic, ``<dead-letter
topic>.replayed`` (``streamcore.kafka.idempotent_sender``): neither a second run, nor two runs at the same time, nor a
killed run sends a record twice. The record goes to its source partition with its original key and the headers that the
app reads, and further headers name the dead letter. If the app rejects it again, it writes a new dead letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import orjson

from headgate.dead_letters.model import DeadLetter, DeadLetterFilter, Repair, to_dead_letter
from headgate.errors import InputError
from streamcore.cuts.writer_id import WriterId
from streamcore.kafka.idempotent_sender import IdempotentSender, KeyedRecord, sent_keys
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe, topic_names
from streamcore.wire.lanes import DEAD_LETTERS, DeadLetterCode

REPLAYED_FROM, REPLAYED_CODE = "replayed_from", "replayed_code"
_BATCH = 1_000
_APPS_SHOWN = 10


def read_dead_letters(kafka: KafkaSettings, topic: str, selection: DeadLetterFilter) -> Iterator[DeadLetter]:
    """Yield the dead letters that the filter selects, in order within a partition. Raises ``InputError`` if the topic
    does not exist."""
    if not describe(kafka, [topic]):
        ending = f".{DEAD_LETTERS}"
        apps = sorted(name.removesuffix(ending) for name in topic_names(kafka) if name.endswith(ending))
        known = f"there are dead letters of {', '.join(apps[:_APPS_SHOWN])}: name one with --app" if apps else ""
        raise InputError(
            f"topic {topic}: does not exist at {kafka.bootstrap}; {known or 'no app has dead letters there'}"
        )
    for record in scan_topic(kafka, topic):
        dead_letter = to_dead_letter(record)
        if selection.matches(dead_letter):
            yield dead_letter


def ledger_topic_for(topic: str) -> str:
    """Return the topic with the positions of the dead letters that were sent again."""
    return f"{topic}.replayed"


def read_sent_positions(kafka: KafkaSettings, topic: str) -> set[str]:
    """Read the positions of the dead letters that were sent again."""
    ledger_topic = ledger_topic_for(topic)
    return sent_keys(kafka, ledger_topic) if describe(kafka, [ledger_topic]) else set()


def plan(dead_letters: Sequence[DeadLetter], repair: Repair, topic: str) -> list[KeyedRecord]:
    """Return the records to send: one for each dead letter with a known source, with its repaired value.

    A control record is not sent again: it would replace a later one of its key.
    """
    return [
        _keyed_record(dead_letter, dead_letter.source.topic, repair, topic)
        for dead_letter in dead_letters
        if dead_letter.source is not None and dead_letter.code != DeadLetterCode.FAILED_CONTROL
    ]


def _keyed_record(dead_letter: DeadLetter, target: str, repair: Repair, topic: str) -> KeyedRecord:
    assert dead_letter.source is not None
    value = repair.value(dead_letter)
    origin = ((REPLAYED_FROM, f"{topic}/{dead_letter.position}".encode()), (REPLAYED_CODE, dead_letter.code.encode()))
    headers = (*dead_letter.headers, *origin)
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
    """Send the records that were not sent before, and return their number. ``on_progress`` gets the number handled."""
    sent = 0
    with IdempotentSender(kafka, _writer(topic), ledger_topic_for(topic)) as sender:
        for start in range(0, len(records), _BATCH):
            sent += sender.send(records[start : start + _BATCH])
            on_progress(min(len(records), start + _BATCH))
    return sent


def _writer(topic: str) -> WriterId:
    """Return the writer for a topic's replays; topics whose names differ only in punctuation share one, and
    wait for each other."""
    return WriterId(re.sub(r"[^A-Za-z0-9_-]", "-", topic)[:100], 1, "replay")


def check_targets(kafka: KafkaSettings, records: Sequence[KeyedRecord]) -> None:
    """Raise ``InputError`` if the source topic or partition of a record no longer exists."""
    names = sorted({record.topic for record in records})
    existing = describe(kafka, names)
    for record in records:
        topic = existing.get(record.topic)
        if topic is None or record.partition >= topic.partitions:
            raise InputError(
                f"dead letter {record.dedup_key}: topic {record.topic} has no partition {record.partition}; create it"
            )
