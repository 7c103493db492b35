"""Runs the tests in the settings document of an etl app, each with an app of its own, in this process.

Look-ups are answered by the test and no server is called; the clock is far in the future, as for the tests of rules.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final  # a settings document is made of anything

import orjson

from headgate.documents.list_entries import to_records
from headgate.documents.lookup_answers import check_answers
from headgate.documents.opened import OpenedDocument, opened
from headgate.documents.trial import TrialInput, TrialResult
from headgate.errors import InputError
from headgate.streams.sample import SampleRecord
from rulecore.testing.rule_tests import compare
from streamcore.decode.scalar import StreamRecord
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from headgate_etl.documents import MappingTestDocument
    from streamcore.app import App

_CLOCK_MS: Final = 4_102_444_800_000  # 2100-01-01
_STREAM, _TEXT, _KAFKA = "_stream", "_text", "_kafka"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)\Z")


@dataclass(frozen=True, slots=True)
class MappingTestResult:
    """The result of one test. ``diff``: lines that show the differences, empty if the test passed."""

    name: str
    diff: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all rows and dead letters were the expected ones."""
        return not self.diff


def run_mapping_tests(file: Path) -> list[MappingTestResult]:
    """Run the tests of a document. ``ConfigError`` lists everything that is wrong in it."""
    with opened("etl", file, {}) as document:
        tests: Sequence[MappingTestDocument] = getattr(document.settings, "tests", ())
        own = [test for test in tests if not test.lookup]
        results = {test.name: _run(document, test) for test in own}
    for test in tests:
        if test.lookup:
            with opened("etl", file, check_answers(test.lookup, f"{test.name}: lookup")) as document:
                results[test.name] = _run(document, test)
    return [MappingTestResult(test.name, results[test.name]) for test in tests]


def _run(document: OpenedDocument, test: MappingTestDocument) -> tuple[str, ...]:
    try:
        lists = [
            record
            for name, entries in test.lists.items()
            for record in to_records(name, entries, document.document, f"lists.{name}")
        ]
        result = document.run(TrialInput(_records(document.app, test.records), lists, clock_ms=_CLOCK_MS))
    except InputError as error:
        return (f"the test cannot run: {error}",)
    return _differences(test, result)


def _records(app: App, records: Sequence[Any]) -> dict[str, list[SampleRecord]]:
    """Return the records by stream. The place of a record is its number, from 1."""
    names = [source.schema.name for source in app.sources]
    found: dict[str, list[SampleRecord]] = {}
    for number, record in enumerate(records, 1):
        named = dict(record) if isinstance(record, dict) else {}
        name = named.pop(_STREAM, names[0] if len(names) == 1 else None)
        if name not in names:
            raise InputError(f"record {number}: {_STREAM}: name its input, {' or '.join(names)}")
        kafka = named.pop(_KAFKA, {})
        content = named[_TEXT] if [*named] == [_TEXT] else named if isinstance(record, dict) else record
        value = content.encode() if isinstance(content, str) else orjson.dumps(content, default=str)
        found.setdefault(str(name), []).append(_sample(number, value, kafka))
    return found


def _sample(number: int, value: bytes, kafka: object) -> SampleRecord:
    """Return a record with what a test says of it in Kafka: ``timestamp``, ``key`` and ``headers``."""
    path = f"record {number}: {_KAFKA}"
    if not isinstance(kafka, dict) or not {*kafka} <= {"timestamp", "key", "headers"}:
        raise InputError(f"{path}: a mapping with timestamp, key and headers is needed")
    headers = kafka.get("headers", {})
    if not isinstance(headers, dict):
        raise InputError(f"{path}.headers: a mapping of names to texts is needed")
    key = None if kafka.get("key") is None else str(kafka["key"]).encode()
    named = {str(name): str(text).encode() for name, text in headers.items()}
    time_ms = _time_ms(kafka.get("timestamp"), f"{path}.timestamp")
    return SampleRecord(str(number), StreamRecord(value, key, named, time_ms))


def _time_ms(value: object, path: str) -> int | None:
    """Return a time in epoch milliseconds; ``InputError`` if it is none."""
    if value is None:
        return None
    try:
        found = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"{path}: no time such as 2026-11-02T09:00:00Z: {value!r}") from None
    zoned = found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
    return round(zoned.timestamp() * 1000)


def _differences(test: MappingTestDocument, result: TrialResult) -> tuple[str, ...]:
    letters = [
        {"code": one.code, "record": int(one.place) if one.place else None, "reason": one.reason}
        for one in result.letters
    ]
    lanes: Mapping[str, Sequence[Mapping[str, Any]]] = {**result.rows, DEAD_LETTERS: letters}
    lines: list[str] = []
    for lane in dict.fromkeys((*lanes, *test.expect)):
        expected = [_with_times(row) for row in test.expect.get(lane, ())]
        found = [_with_times(row) for row in lanes.get(lane, ())]
        lines += [f"{lane}: {line}" for line in compare(expected, found, None, ("reason",))]
    return tuple(lines)


def _with_times(value: Any) -> Any:
    """Return a value with all its times in one form, so that equal times are equal texts."""
    if isinstance(value, dict):
        return {name: _with_times(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_times(each) for each in value]
    if isinstance(value, str) and _TIME.match(value):
        value = datetime.datetime.fromisoformat(value)
    if isinstance(value, datetime.datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return zoned.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, datetime.date) else value
