"""The late lane of sessions on a real broker: its events are sent again, each once, and are then in their sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from conftest import NewTopic
from headgate.main import run
from headgate_sessions.app import build_app
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire import lanes
from tests.harness.apps.sessions_app import START_MS, new_settings

pytestmark = pytest.mark.kafka

HOUR_MS = 3_600_000
FIELDS = {"at": "timestamp not null", "user": "string", "id": "string"}


def event(number: int, at_ms: int) -> bytes:
    return json.dumps({"at": START_MS + at_ms, "user": f"u{number % 5}", "id": f"e{number}"}).encode()


ON_TIME = [event(n, 2_000 * n) for n in range(100)]
#: After it the others are late; after the last one every session is final, however late its events may be.
END, LAST = event(1_000, 9 * HOUR_MS), event(1_001, 30 * HOUR_MS)
LATE = [event(200 + n, 1_000 + 2_000 * n) for n in range(40)]


def sessions(folder: Path, records: Sequence[Record], lateness_ms: int) -> list[lanes.Record]:
    """Return the output of the app for the records of its topic and ``LAST``; ``END`` and ``LAST`` end a cut."""
    file = folder / "clicks.yaml"
    file.write_text(yaml.safe_dump({"name": "clicks", "event_time": "at", "keys": [["user"]], "fields": FIELDS}))
    settings = new_settings(
        stream={"schema_file": str(file), "topic": "clicks"},
        fields={"user": "user", "event_id": "id"},
        derive={},
        columns={},
        funnel=[],
        gap={"gap_ms": 60_000},
        lateness_ms=lateness_ms,
        deduplicate_ms=10 * HOUR_MS,
    )
    app = InProcessApp(build_app(settings))
    values = [record.value for record in records]
    split = values.index(END) + 1
    output: list[lanes.Record] = []
    cuts: list[list[bytes | None]] = [values[:split], values[split:], [LAST]]
    for number, part in enumerate(cuts):
        raw = [RawRecord(0, 0, offset + number * split, value, b"key") for offset, value in enumerate(part)]
        output += app.cut(raw, START_MS + 40 * HOUR_MS + number)
    return output


def final(output: Sequence[lanes.Record]) -> list[tuple[object, ...]]:
    """Return user, start, end and events of each final session that is not deleted."""
    rows = [json.loads(record.value or b"") for record in output if record.lane == "sessions"]
    newest = {row["session_id"]: row for row in sorted(rows, key=lambda row: int(row["revision"]))}
    kept = [row for row in newest.values() if not row["is_deleted"]]
    return sorted(tuple(row[name] for name in ("user_id", "started_at", "ended_at", "events")) for row in kept)


def test_late_events_are_replayed_to_their_topic_and_join_their_sessions(
    kafka: KafkaSettings, new_topic: NewTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clicks, late = new_topic("clicks", 1), new_topic("late", 1)
    producer = clients.producer(kafka)
    for value in (*ON_TIME, END, *LATE):
        producer.produce(clicks, value, b"key", 0)
    producer.flush()
    before = read_topic(kafka, clicks)
    output = sessions(tmp_path, before, lateness_ms=1_000)
    found = [record for record in output if record.lane == lanes.LATE]
    assert sorted(record.value or b"" for record in found) == sorted(LATE)
    for record in found:
        headers = [(name, clicks.encode() if name == "source_topic" else value) for name, value in record.headers]
        producer.produce(late, record.value, record.key, 0, headers=headers)
    producer.flush()

    command = ["deadletters", "replay", "--topic", late, "--bootstrap", kafka.bootstrap]
    for _ in range(2):
        assert run(command) == 0, capsys.readouterr().err
    after = read_topic(kafka, clicks)
    again = after[len(before) :]
    assert {record.key for record in again} == {b"key"}
    assert sorted(record.value or b"" for record in again) == sorted(LATE), "each once"
    assert {record.header("replayed_from") for record in again} == {f"{late}/0/{n}".encode() for n in range(len(LATE))}

    patient = sessions(tmp_path, after, lateness_ms=10 * HOUR_MS)
    assert {record.lane for record in patient} == {"sessions"}, "no event is late"
    in_order = sorted((*ON_TIME, *LATE), key=lambda value: int(json.loads(value)["at"]))
    whole = [Record(clicks, 0, n, 0, b"key", value) for n, value in enumerate((*in_order, END))]
    assert final(patient) == final(sessions(tmp_path, whole, lateness_ms=10 * HOUR_MS)) != final(output)
