"""``headgate topics`` on a real broker."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from headgate.main import run
from headgate.records.file_rows import Row
from headgate.records.replay import KafkaSink
from streamcore.kafka.readers import Follower
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe

pytestmark = pytest.mark.kafka


def test_create_makes_missing_topics_and_leaves_existing_ones_unchanged(
    kafka: KafkaSettings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_BOOTSTRAP", kafka.bootstrap)
    one, other = f"made-{uuid.uuid4().hex[:8]}", f"made-{uuid.uuid4().hex[:8]}"
    assert run(["topics", "create", f"{one}:3"]) == 0
    assert run(["topics", "create", f"{one}:5", other]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"{one}: 3 partitions", f"{other}: 4 partitions"]
    assert {name: state.partitions for name, state in describe(kafka, [one, other]).items()} == {one: 3, other: 4}


def test_show_begins_at_the_first_record_and_fails_for_an_empty_topic(
    kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"shown-{uuid.uuid4().hex[:8]}"
    assert run(["topics", "create", f"{topic}:1", "--bootstrap", kafka.bootstrap]) == 0
    assert run(["topics", "show", topic, "--wait", "0.5", "--bootstrap", kafka.bootstrap]) == 1
    assert capsys.readouterr().err == f"{topic}: no committed record within 0.5 s\n"
    sink = KafkaSink(kafka, topic)
    for number in range(3):
        sink.send(Row(str(number).encode(), None, 0))
    sink.flush_all()
    capsys.readouterr()
    assert run(["topics", "show", topic, "--count", "2", "--bootstrap", kafka.bootstrap]) == 0
    assert capsys.readouterr().out.splitlines() == ["0", "1"]


def test_send_makes_a_record_of_each_line_with_its_key(
    kafka: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, lines = f"sent-{uuid.uuid4().hex[:8]}", tmp_path / "lines.txt"
    lines.write_bytes(b"names\r\na|1\n\nb|2|3\na|\n")
    command = ["topics", "send", topic, str(lines), "--bootstrap", kafka.bootstrap, "--partitions", "1"]
    assert run([*command, "--skip-first", "--key-separator", "|"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{topic}: sent 3 records"
    with Follower(kafka, [topic]) as follower:
        found = [record for _ in range(40) for record in follower.poll(100)]
    assert [(record.key, record.value) for record in found] == [(b"a", b"1"), (b"b", b"2|3"), (b"a", None)]
    assert run([*command, "--key-separator", "|"]) == 1
    assert "lines.txt:1: the line has no '|' behind a key" in capsys.readouterr().err


@pytest.mark.parametrize("name", [":4", "shop:many", "shop:0", "shop:-1"])
def test_an_invalid_topic_is_a_usage_error(name: str) -> None:
    assert run(["topics", "create", name]) == 2
