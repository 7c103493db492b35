"""`headgate up` of the services with servers and tables of their own, as people run it: everything comes out, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.local.java import Java
from streamcore.kafka.settings import KafkaSettings
from tests.harness.command import counted_run

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

EVENTS = 3_000


def verdict(service: str, folder: Path, kafka: KafkaSettings) -> tuple[dict[str, Any], str]:
    """The verdict of a counted run, and what was said."""
    ended = counted_run(folder, kafka, EVENTS, service)
    assert ended.code == 0, ended.out + ended.err
    return ended.document, ended.err


def test_sessions_are_all_in_postgresql_and_none_is_wrong(tmp_path: Path, kafka: KafkaSettings, java: Java) -> None:
    found, said = verdict("sessions", tmp_path / "sessions", kafka)
    assert (found["events"], found["late"], found["dead_letters"]) == (EVENTS, 6, 15)
    assert (found["lost"], found["wrong"], found["unexpected"], found["duplicated"], found["behind"]) == (0,) * 5
    assert found["sessions"] >= found["final"] > 100
    assert "final_session" in said
    password = (tmp_path / "sessions" / "postgres" / "password").read_text(encoding="utf-8").strip()
    assert password not in said
    assert password not in (tmp_path / "sessions" / "settings.json").read_text(encoding="utf-8")


def test_clean_rows_are_all_in_topic_and_delta_table_once(tmp_path: Path, kafka: KafkaSettings, java: Java) -> None:
    found, _ = verdict("etl", tmp_path / "etl", kafka)
    assert found["events"] == EVENTS == found["rows"] + found["duplicates"] + found["dead_letters"]
    assert found["table_rows"] == found["rows"]
    assert (found["lost"], found["wrong"], found["unexpected"], found["repeated"]) == (0,) * 4
    assert found["duplicates"] > 0
    assert found["dead_letters"] > 10
