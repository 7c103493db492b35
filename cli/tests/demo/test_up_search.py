"""`headgate up search`: a run with a number of events on servers of its own, and a run that continues from there.

All tests share the runs, because a start of Spark is slow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.local.java import Java
from headgate.local.processes import command_line
from streamcore.kafka.readers import end_offsets
from streamcore.kafka.settings import KafkaSettings
from tests.harness.servers.command import CompletedCommand, run_up

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.opensearch,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
]

#: All products are there after 5,000, and change, go and come back after that.
FIRST, SECOND = 7_000, 3_000


@dataclass(frozen=True, slots=True)
class Runs:
    """Both runs."""

    folder: Path
    first: CompletedCommand
    second: CompletedCommand


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaSettings, java: Java) -> Runs:
    folder = tmp_path_factory.mktemp("up") / "search"
    return Runs(folder, *(run_up(folder, kafka, n, "search") for n in (FIRST, SECOND)))


def test_a_run_with_a_count_gives_exactly_the_expected_documents(runs: Runs) -> None:
    assert runs.first.code == 0, runs.first.err
    found = runs.first.document
    assert found["events"] == FIRST
    assert found["produced"] == found["expected"] > 4_000
    assert (found["missing"], found["unexpected"], found["wrong"]) == (0, 0, 0)
    assert found["dead_letters"] > 0


def test_the_next_run_continues_with_the_same_index(runs: Runs) -> None:
    assert runs.second.code == 0, runs.second.err
    found = runs.second.document
    assert (found["events"], found["details"]["total"]["events"]) == (SECOND, FIRST + SECOND)
    assert found["produced"] == found["expected"]
    assert (found["missing"], found["unexpected"], found["wrong"]) == (0, 0, 0)
    assert "continuing with workspace" in runs.second.err


def test_the_app_reads_both_topics(runs: Runs, kafka: KafkaSettings) -> None:
    app = json.loads((runs.folder / "workspace.json").read_text(encoding="utf-8"))["app"]
    changes = sum(end_offsets(kafka, [f"{app}.products"]).values())
    assert changes == runs.second.document["details"]["total"]["changes"] > 5_000


def test_the_command_prints_a_query_and_stops_app_and_server_in_order(runs: Runs) -> None:
    for words in ("_search?q=name:lantern", "search app: stopping at a batch boundary", "opensearch: stopping"):
        assert words in runs.first.err
    assert "by force" not in runs.first.err


def test_no_process_is_left_behind(runs: Runs) -> None:
    mark = str(runs.folder)
    lines = [command_line(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")]
    assert [line for line in lines if mark in line] == []
