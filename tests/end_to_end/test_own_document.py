"""A settings document of one's own, run on the real broker: the rows are those that ``try`` shows without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import yaml

from conftest import NewTopic
from headgate.errors import InputError
from headgate.main import run
from headgate.programs.local_run import raise_missing_topics
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

EVENTS = Path(__file__).parents[2] / "examples/events"


def test_run_writes_what_try_shows(
    tmp_path: Path, kafka: KafkaSettings, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, sample = new_topic(), EVENTS / "samples/okta.jsonl"
    records = [line for line in sample.read_bytes().splitlines() if line]
    sent = tmp_path / "sent.jsonl"
    sent.write_bytes(b"\n".join([*records, b"{}"]))
    document = yaml.safe_load((EVENTS / "etl/okta.yaml").read_text())
    document["inputs"][0] |= {"schema_file": str(EVENTS / "streams/okta.yaml"), "topic": topic}
    app = f"okta-{topic}"
    own = {"app": app, "kafka": {"bootstrap": kafka.bootstrap}, "checkpoint": str(tmp_path / "checkpoint")}
    file = tmp_path / "okta.yaml"
    file.write_text(yaml.safe_dump(document | own | {"jars": "/nowhere", "ending_offsets": "latest"}))
    command = [str(Path(sys.executable).with_name("headgate")), "etl", "run", str(file), "--send", str(sent)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert f"{topic}: sent {len(records) + 1} records" in done.stderr
    assert "jars: /nowhere has no jars on this machine; those of headgate jars are used" in done.stderr
    written = [orjson.loads(record.value or b"") for record in read_topic(kafka, f"{app}.events")]
    assert run(["etl", "try", str(file), "--topic", topic, "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["rows"]["events"]) == len(records)
    assert sorted(written, key=str) == sorted(shown["rows"]["events"], key=str)
    (letter,) = read_topic(kafka, f"{app}.deadletters")
    assert [dict(letter.headers)["reason"].decode()] == [one["reason"] for one in shown["dead_letters"]]


def test_a_missing_topic_elsewhere_is_one_sentence(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic = new_topic()
    raise_missing_topics(kafka, [topic])
    with pytest.raises(InputError, match=r"^topic nowhere: does not exist at .*; correct the name in the settings"):
        raise_missing_topics(kafka, [topic, "nowhere"])
