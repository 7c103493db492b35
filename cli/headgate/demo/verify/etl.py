"""Compares the etl app's clean rows, in its topic and its table, and its rejected records with the expected output.

The expectation (``headgate.demo.shop.expected_rows``) shares no code with the product. Promises: every row is
correct, wrong, duplicated or unexpected; every rejected record is identified by its source record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.demo.shop.expected_rows import COLUMNS, ExpectedRows, RecordPosition, Row, RowsExpectation
from headgate.demo.shop.formats import ENCODINGS
from headgate.demo.shop.stream import records
from headgate.demo.verify.summary import VerifySummary
from headgate.demo.workspace import PARTITIONS, AppNames, Workspace
from streamcore.kafka.readers import Record, end_offsets, read_topic
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.kafka.settings import KafkaSettings

_READ_LIMIT_MS: Final = 600_000
_DEAD_LETTER_HEADERS: Final = ("source_topic", "source_partition", "source_offset", "reason_code")

T = TypeVar("T", str, RecordPosition)

#: Reads the rows of the table.
ReadTable = Callable[[], tuple[Row, ...]]


@dataclass(frozen=True, slots=True)
class EtlCounts:
    """The counts at one moment. ``rows``: rows of the topic; ``duplicates``: events that became neither a row nor a
    rejected record."""

    events: int
    rows: int
    table_rows: int
    duplicates: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class EtlOutput:
    """The content of the topics and the table. ``dead_letters``: source position and code of each dead letter."""

    events: int
    rows: tuple[Row, ...]
    table: tuple[Row, ...]
    dead_letters: tuple[tuple[RecordPosition, str], ...]

    @property
    def counts(self) -> EtlCounts:
        """The counts of this output."""
        duplicates = self.events - len(self.rows) - len(self.dead_letters)
        return EtlCounts(self.events, len(self.rows), len(self.table), duplicates, len(self.dead_letters))


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """``missing``: expected rows that do not exist; ``wrong``: rows with other values than expected; ``unexpected``:
    rows without an expected one; ``duplicated``: copies beyond the first."""

    missing: int
    wrong: int
    unexpected: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class EtlVerifyResult:
    """``run`` counts the output of this run, ``total`` everything since the shop was created. ``reasons``: the codes of
    all rejected records."""

    run: EtlCounts
    total: EtlCounts
    expected: EtlCounts
    topic: RowDifferences
    table: RowDifferences
    dead_letters: RowDifferences
    reasons: Mapping[str, int]

    @property
    def passed(self) -> bool:
        """Whether each input record became exactly one correct row, duplicate or rejected record."""
        parts = (self.topic, self.table, self.dead_letters)
        return self.total == self.expected and not any(any(asdict(part).values()) for part in parts)

    def summary(self) -> VerifySummary:
        """Return the result in the schema of all services."""
        parts = {"topic": self.topic, "table": self.table, "dead_letters": self.dead_letters}
        sums = Counter[str]()
        for differences in parts.values():
            sums.update(asdict(differences))
        return VerifySummary(
            passed=self.passed,
            events=self.run.events,
            produced=self.total.rows + self.total.table_rows,
            expected=self.expected.rows + self.expected.table_rows,
            missing=sums["missing"],
            unexpected=sums["unexpected"],
            duplicated=sums["duplicated"],
            wrong=sums["wrong"],
            dead_letters=self.total.dead_letters,
            details={
                "run": asdict(self.run),
                "total": {**asdict(self.total), "expected": asdict(self.expected)},
                "differences": {name: asdict(differences) for name, differences in parts.items()},
                "reasons": dict(sorted(self.reasons.items())),
            },
        )


class EtlVerifier:
    """Verifies the etl service: reads topics and table before the run and at its end."""

    def __init__(self, kafka: KafkaSettings, shop: Workspace, table: ReadTable, key_file: Path) -> None:
        self._kafka = kafka
        self._shop = shop
        self._table = table
        self._key_file = key_file
        self._before = read(kafka, shop.names, table)

    def on_events_processed(self) -> None:
        """Do nothing: all output is read after the app has stopped."""

    def compare(self) -> EtlVerifyResult:
        """Read topics and table again, and compare their content with the expected rows."""
        after = read(self._kafka, self._shop.names, self._table)
        expectation = rows_expectation(self._shop.names, self._key_file.read_bytes().strip())
        for record in records(self._shop.shop, 0, after.events):
            expectation.add(record)
        return judge(self._before, after, expectation.result())


def rows_expectation(names: AppNames, key: bytes) -> RowsExpectation:
    """Return a new expectation for an app with these topics. ``key``: the key of the pseudonyms."""
    topics = {None: names.events} | {way: names.input(way) for way in ENCODINGS}
    return RowsExpectation(PARTITIONS, topics, key)


def read(kafka: KafkaSettings, names: AppNames, table: ReadTable) -> EtlOutput:
    """Read the committed content of topics and table."""
    return EtlOutput(
        events=sum(end_offsets(kafka, names.read).values()),
        rows=tuple(to_row(json.loads(record.value or b"")) for record in _read_topic(kafka, names.lane("clean"))),
        table=table(),
        dead_letters=tuple(to_rejection(record) for record in _read_topic(kafka, names.lane(DEAD_LETTERS))),
    )


def _read_topic(kafka: KafkaSettings, topic: str) -> Sequence[Record]:
    return read_topic(kafka, topic, limit_ms=_READ_LIMIT_MS)


def to_row(body: Mapping[str, object]) -> Row:
    """Convert the JSON object of a record of the topic to a row."""
    at_ms = round(datetime.fromisoformat(str(body["at"])).timestamp() * 1000)
    named = {**body, "at_ms": at_ms}
    return tuple(value if isinstance(value, int) else _text(value) for value in (named[name] for name in COLUMNS))


def to_rejection(record: Record) -> tuple[RecordPosition, str]:
    """Return the source position of a dead letter, and its code."""
    headers = {name: (record.header(name) or b"").decode() for name in _DEAD_LETTER_HEADERS}
    position = (headers["source_topic"], int(headers["source_partition"]), int(headers["source_offset"]))
    return position, headers["reason_code"]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def judge(before: EtlOutput, after: EtlOutput, expected: ExpectedRows) -> EtlVerifyResult:
    """Compare the output with the expected rows, and count the output of this run."""
    counts_before, counts = asdict(before.counts), asdict(after.counts)
    row_count = len(expected.rows)
    return EtlVerifyResult(
        run=EtlCounts(**{name: counts[name] - counts_before[name] for name in counts}),
        total=after.counts,
        expected=EtlCounts(expected.records, row_count, row_count, expected.duplicates, len(expected.dead_letters)),
        topic=_row_differences(expected.rows, after.rows),
        table=_row_differences(expected.rows, after.table),
        dead_letters=_dead_letter_differences(expected.dead_letters, after.dead_letters),
        reasons=Counter(code for _, code in after.dead_letters),
    )


def _row_differences(expected: Mapping[str, Row], rows: Sequence[Row]) -> RowDifferences:
    actual = Counter(str(row[0]) for row in rows)
    correct = {str(row[0]) for row in rows if expected.get(str(row[0])) == row}
    return _differences(expected.keys(), actual, correct)


def _dead_letter_differences(
    expected: Mapping[RecordPosition, str | None], dead_letters: Sequence[tuple[RecordPosition, str]]
) -> RowDifferences:
    actual = Counter(position for position, _ in dead_letters)
    correct = {
        position for position, code in dead_letters if position in expected and expected[position] in (None, code)
    }
    return _differences(expected.keys(), actual, correct)


def _differences(expected: Iterable[T], actual: Mapping[T, int], correct: set[T]) -> RowDifferences:
    expected_ids = set(expected)
    return RowDifferences(
        missing=len(expected_ids - actual.keys()),
        wrong=len((expected_ids & actual.keys()) - correct),
        unexpected=len(actual.keys() - expected_ids),
        duplicated=sum(count - 1 for count in actual.values()),
    )
