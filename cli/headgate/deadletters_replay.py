"""Sends repaired dead letters to the topics that they came from, each once.

A letter that was sent is remembered under its place in a compacted topic, ``<letters>.replayed``, in the transaction
that sends it (``streamcore.kafka.once``): neither a second run, nor two at the same time, nor one that is killed sends
it twice. The record goes to the partition that it came from, with its own key, and says in its headers which letter it
was. If it fails again, that is a new letter with a place of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import orjson

from headgate.deadletters import Letter, Repair, Wanted, letter_of
from headgate.errors import InputError
from streamcore.kafka.once import OnceSender, Parcel, remembered
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe
from streamcore.writer import WriterId

REPLAYED_FROM, REPLAYED_CODE = "replayed_from", "replayed_code"
_BATCH = 1_000


def read_letters(kafka: KafkaSettings, topic: str, wanted: Wanted) -> Iterator[Letter]:
    """Those that are meant, in order within a partition; ``InputError`` when there is no such topic."""
    if not describe(kafka, [topic]):
        raise InputError(f"topic {topic}: does not exist at {kafka.bootstrap}; is --app or --topic the right one?")
    for record in scan_topic(kafka, topic):
        letter = letter_of(record)
        if wanted.fits(letter):
            yield letter


def memory_of(topic: str) -> str:
    """The topic of what was replayed."""
    return f"{topic}.replayed"


def already(kafka: KafkaSettings, topic: str) -> set[str]:
    """The places of letters that were sent."""
    memory = memory_of(topic)
    return remembered(kafka, memory) if describe(kafka, [memory]) else set()


def plan(letters: Sequence[Letter], repair: Repair, topic: str) -> list[Parcel]:
    """What would be sent: every letter that says where it came from, with its repaired value."""
    return [_parcel(letter, letter.source.topic, repair, topic) for letter in letters if letter.source is not None]


def _parcel(letter: Letter, target: str, repair: Repair, topic: str) -> Parcel:
    assert letter.source is not None
    value = repair.value(letter)
    headers = ((REPLAYED_FROM, f"{topic}/{letter.place}".encode()), (REPLAYED_CODE, letter.code.encode()))
    said = {"topic": target, "partition": letter.source.partition, "repaired": value != letter.value}
    return Parcel(letter.place, orjson.dumps(said), target, letter.source.partition, letter.key, value, headers)


def replay(
    kafka: KafkaSettings, topic: str, parcels: Sequence[Parcel], told: Callable[[int], None] = lambda _: None
) -> int:
    """Send what was not sent before; how many. ``told`` hears how many are through."""
    sent = 0
    with OnceSender(kafka, _writer(topic), memory_of(topic)) as sender:
        for start in range(0, len(parcels), _BATCH):
            sent += sender.send(parcels[start : start + _BATCH])
            told(min(len(parcels), start + _BATCH))
    return sent


def _writer(topic: str) -> WriterId:
    """The one that replays the letters of a topic; two whose names differ in signs only would wait for each other."""
    return WriterId(re.sub(r"[^A-Za-z0-9_-]", "-", topic)[:100], 1, "replay")


def check_targets(kafka: KafkaSettings, parcels: Sequence[Parcel]) -> None:
    """``InputError`` when a topic or partition that a letter came from is not there any more."""
    names = sorted({parcel.topic for parcel in parcels})
    found = describe(kafka, names)
    for parcel in parcels:
        state = found.get(parcel.topic)
        if state is None or parcel.partition >= state.partitions:
            raise InputError(
                f"letter {parcel.name}: topic {parcel.topic} partition {parcel.partition} is not there; make it"
            )
