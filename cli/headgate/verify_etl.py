"""The etl app's clean rows, as its topic and its table hold them, and its dead letters, against what must come.

The expectation (``headgate.local.shop.expected_rows``) shares no code with the product. Promises: every row is found
right, wrong, repeated or unexpected; every dead letter is known by the record that it was.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.local.shop.expected_rows import COLUMNS, ExpectedRows, Place, Row, RowsExpectation
from headgate.local.shop.formats import ENCODINGS
from headgate.local.shop.stream import records
from headgate.local.workspace import PARTITIONS, Names, Workspace
from headgate.output import Json
from streamcore.kafka.readers import Record, end_offsets, read_topic
from streamcore.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.kafka.settings import KafkaSettings

_READ_LIMIT_MS: Final = 600_000
_LETTER: Final = ("source_topic", "source_partition", "source_offset", "reason_code")

T = TypeVar("T", str, Place)

#: Reads the rows of the table.
Table = Callable[[], tuple[Row, ...]]


@dataclass(frozen=True, slots=True)
class Mark:
    """How much there was at some moment. ``rows``: of the topic; ``duplicates``: events that are neither row nor dead
    letter."""

    events: int
    rows: int
    table_rows: int
    duplicates: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class Found:
    """What topics and table hold, in any order."""

    events: int
    rows: tuple[Row, ...]
    table: tuple[Row, ...]
    letters: tuple[tuple[Place, str], ...]

    @property
    def mark(self) -> Mark:
        """The numbers."""
        rest = self.events - len(self.rows) - len(self.letters)
        return Mark(self.events, len(self.rows), len(self.table), rest, len(self.letters))


@dataclass(frozen=True, slots=True)
class Differences:
    """``lost``: must be there; ``wrong``: there, and says something else; ``repeated``: how often there once more than
    once."""

    lost: int
    wrong: int
    unexpected: int
    repeated: int


@dataclass(frozen=True, slots=True)
class EtlVerdict:
    """``run`` counts what this run added, ``total`` everything since the shop was made. ``reasons``: the codes of all
    dead letters."""

    run: Mark
    total: Mark
    expected: Mark
    topic: Differences
    table: Differences
    letters: Differences
    reasons: Mapping[str, int]

    @property
    def good(self) -> bool:
        """Every record is a row, a duplicate or a dead letter, once and rightly."""
        found = (self.topic, self.table, self.letters)
        return self.total == self.expected and not any(any(asdict(one).values()) for one in found)

    def document(self) -> dict[str, Json]:
        """For programs."""
        sums = Counter[str]()
        for one in (self.topic, self.table, self.letters):
            sums.update(asdict(one))
        return {
            **asdict(self.run),
            **sums,
            "differences": {
                "topic": asdict(self.topic),
                "table": asdict(self.table),
                "dead_letters": asdict(self.letters),
            },
            "reasons": dict(sorted(self.reasons.items())),
            "total": {**asdict(self.total), "expected": asdict(self.expected)},
        }


class EtlCheck:
    """What was there before, and in the end."""

    def __init__(self, kafka: KafkaSettings, shop: Workspace, table: Table, key_file: Path) -> None:
        self._kafka = kafka
        self._shop = shop
        self._table = table
        self._key_file = key_file
        self._before = read(kafka, shop.names, table)

    def processed(self) -> None:
        """Everything is read when the app has stopped."""

    def verdict(self) -> EtlVerdict:
        """Read everything again, and compare."""
        after = read(self._kafka, self._shop.names, self._table)
        expectation = expectation_of(self._shop.names, self._key_file.read_bytes().strip())
        for record in records(self._shop.shop, 0, after.events):
            expectation.add(record)
        return judge(self._before, after, expectation.result())


def expectation_of(names: Names, key: bytes) -> RowsExpectation:
    """Of an app with these topics."""
    topics = {None: names.events} | {way: names.input(way) for way in ENCODINGS}
    return RowsExpectation(PARTITIONS, topics, key)


def read(kafka: KafkaSettings, names: Names, table: Table) -> Found:
    """Everything that topics and table hold now, as far as it is committed."""
    return Found(
        events=sum(end_offsets(kafka, names.read).values()),
        rows=tuple(row_of(json.loads(one.value or b"")) for one in _all(kafka, names.lane("clean"))),
        table=table(),
        letters=tuple(letter_of(one) for one in _all(kafka, names.lane(DEAD_LETTERS))),
    )


def _all(kafka: KafkaSettings, topic: str) -> Sequence[Record]:
    return read_topic(kafka, topic, limit_ms=_READ_LIMIT_MS)


def row_of(body: Mapping[str, object]) -> Row:
    """A record of the topic."""
    at_ms = round(datetime.fromisoformat(str(body["at"])).timestamp() * 1000)
    named = {**body, "at_ms": at_ms}
    return tuple(value if isinstance(value, int) else _text(value) for value in (named[name] for name in COLUMNS))


def letter_of(record: Record) -> tuple[Place, str]:
    """Which record it was, and its code."""
    said = {name: (record.header(name) or b"").decode() for name in _LETTER}
    place = (said["source_topic"], int(said["source_partition"]), int(said["source_offset"]))
    return place, said["reason_code"]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def judge(before: Found, after: Found, expected: ExpectedRows) -> EtlVerdict:
    """The verdict on everything, with the numbers of what came between the two readings."""
    was, now = asdict(before.mark), asdict(after.mark)
    count = len(expected.rows)
    return EtlVerdict(
        run=Mark(**{name: now[name] - was[name] for name in now}),
        total=after.mark,
        expected=Mark(expected.records, count, count, expected.duplicates, len(expected.letters)),
        topic=_rows(expected.rows, after.rows),
        table=_rows(expected.rows, after.table),
        letters=_letters(expected.letters, after.letters),
        reasons=Counter(code for _, code in after.letters),
    )


def _rows(expected: Mapping[str, Row], rows: Sequence[Row]) -> Differences:
    found = Counter(str(row[0]) for row in rows)
    right = {str(row[0]) for row in rows if expected.get(str(row[0])) == row}
    return _differences(expected.keys(), found, right)


def _letters(expected: Mapping[Place, str | None], letters: Sequence[tuple[Place, str]]) -> Differences:
    found = Counter(place for place, _ in letters)
    right = {place for place, code in letters if place in expected and expected[place] in (None, code)}
    return _differences(expected.keys(), found, right)


def _differences(expected: Iterable[T], found: Mapping[T, int], right: set[T]) -> Differences:
    wanted = set(expected)
    return Differences(
        lost=len(wanted - found.keys()),
        wrong=len((wanted & found.keys()) - right),
        unexpected=len(found.keys() - wanted),
        repeated=sum(count - 1 for count in found.values()),
    )
