"""`headgate up search` as people run it: a counted run on servers of its own, another one that goes on from there.

One story on one data folder, for a start of Spark is slow; each test claims one thing about it.
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
class Story:
    """Both runs."""

    folder: Path
    first: CompletedCommand
    second: CompletedCommand


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaSettings, java: Java) -> Story:
    folder = tmp_path_factory.mktemp("up") / "search"
    return Story(folder, *(run_up(folder, kafka, n, "search") for n in (FIRST, SECOND)))


def test_a_run_with_a_count_gives_exactly_the_expected_documents(story: Story) -> None:
    assert story.first.code == 0, story.first.err
    found = story.first.document
    assert found["events"] == FIRST
    assert found["produced"] == found["expected"] > 4_000
    assert (found["missing"], found["unexpected"], found["wrong"]) == (0, 0, 0)
    assert found["dead_letters"] > 0


def test_the_next_run_continues_with_the_same_index(story: Story) -> None:
    assert story.second.code == 0, story.second.err
    found = story.second.document
    assert (found["events"], found["details"]["total"]["events"]) == (SECOND, FIRST + SECOND)
    assert found["produced"] == found["expected"]
    assert (found["missing"], found["unexpected"], found["wrong"]) == (0, 0, 0)
    assert "continuing with workspace" in story.second.err


def test_the_app_reads_both_topics(story: Story, kafka: KafkaSettings) -> None:
    app = json.loads((story.folder / "workspace.json").read_text(encoding="utf-8"))["app"]
    changes = sum(end_offsets(kafka, [f"{app}.products"]).values())
    assert changes == story.second.document["details"]["total"]["changes"] > 5_000


def test_the_command_prints_a_query_and_stops_app_and_server_in_order(story: Story) -> None:
    for words in ("_search?q=name:lantern", "search app: stopping at a batch boundary", "opensearch: stopping"):
        assert words in story.first.err
    assert "by force" not in story.first.err


def test_no_process_is_left_behind(story: Story) -> None:
    mark = str(story.folder)
    lines = [command_line(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")]
    assert [line for line in lines if mark in line] == []
