"""`headgate up search`: a run with a number of events on servers of its own. All tests share it.

That a run continues where the last one stopped is tested with the rules service (``test_up``); that the index stays, in
``test_opensearch_server``.
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
EVENTS = 7_000


@dataclass(frozen=True, slots=True)
class SearchRun:
    """The run, and its folder."""

    folder: Path
    ended: CompletedCommand


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaSettings, java: Java) -> SearchRun:
    folder = tmp_path_factory.mktemp("up") / "search"
    return SearchRun(folder, run_up(folder, kafka, EVENTS, "search"))


def test_a_run_with_a_count_gives_exactly_the_expected_documents(search: SearchRun) -> None:
    assert search.ended.code == 0, search.ended.err
    found = search.ended.document
    assert found["events"] == EVENTS
    assert found["produced"] == found["expected"] > 4_000
    assert (found["missing"], found["unexpected"], found["wrong"]) == (0, 0, 0)
    assert found["dead_letters"] > 0


def test_the_app_reads_both_topics(search: SearchRun, kafka: KafkaSettings) -> None:
    app = json.loads((search.folder / "workspace.json").read_text(encoding="utf-8"))["app"]
    changes = sum(end_offsets(kafka, [f"{app}.products"]).values())
    assert changes == search.ended.document["details"]["total"]["changes"] > 5_000


def test_the_command_prints_a_query_and_stops_app_and_server_in_order(search: SearchRun) -> None:
    for words in ("_search?q=name:lantern", "search app: stopping at a batch boundary", "opensearch: stopping"):
        assert words in search.ended.err
    assert "by force" not in search.ended.err


def test_no_process_is_left_behind(search: SearchRun) -> None:
    mark = str(search.folder)
    lines = [command_line(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")]
    assert [line for line in lines if mark in line] == []
