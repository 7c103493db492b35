"""`headgate up` of the services with servers and tables of their own: all output is there, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate.local.java import Java
from streamcore.kafka.settings import KafkaSettings
from tests.harness.servers.command import run_up

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

EVENTS = 3_000


def verdict(service: str, folder: Path, kafka: KafkaSettings, *options: str) -> tuple[dict[str, Any], str]:
    """Return the verdict and the progress messages of a run with a number of events."""
    ended = run_up(folder, kafka, EVENTS, service, *options)
    assert ended.code == 0, ended.out + ended.err
    return ended.document, ended.err


def test_all_sessions_are_in_postgresql_and_correct(tmp_path: Path, kafka: KafkaSettings, java: Java) -> None:
    found, progress = verdict("sessions", tmp_path / "sessions", kafka)
    assert (found["events"], found["details"]["run"]["late"], found["dead_letters"]) == (EVENTS, 6, 15)
    assert (found["missing"], found["wrong"], found["unexpected"], found["duplicated"], found["details"]["behind"]) == (
        0,
    ) * 5
    assert found["produced"] >= found["details"]["run"]["final"] > 100
    assert "final_session" in progress
    password = (tmp_path / "sessions" / "postgres" / "password").read_text(encoding="utf-8").strip()
    assert password not in progress
    assert password not in (tmp_path / "sessions" / "settings.json").read_text(encoding="utf-8")


def test_every_clean_row_is_once_in_the_topic_and_once_in_the_delta_table(
    tmp_path: Path, kafka: KafkaSettings, java: Java
) -> None:
    found, _ = verdict("etl", tmp_path / "etl", kafka)
    check_etl(found)


def check_etl(found: dict[str, Any]) -> None:
    assert (
        found["events"]
        == EVENTS
        == found["details"]["run"]["rows"] + found["details"]["run"]["duplicates"] + found["dead_letters"]
    )
    assert found["details"]["run"]["table_rows"] == found["details"]["run"]["rows"]
    assert (found["missing"], found["wrong"], found["unexpected"], found["duplicated"]) == (0,) * 4
    assert found["details"]["run"]["duplicates"] > 0
    assert found["dead_letters"] > 10
