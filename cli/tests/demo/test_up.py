"""`headgate up` as people run it: a counted run, a live one that Ctrl-C ends, a counted one that goes on from there.

One story on one data folder, for a start of Spark is slow; each test claims one thing about it.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.local.java import Java
from headgate.local.processes import command_line
from streamcore.kafka.readers import end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.harness.servers.command import WAIT_S, CompletedCommand, run_up, up_command

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

FIRST, SECOND, RATE = 3_000, 2_000, 200
# Makes the terminal on its standard input the controlling one, so that Ctrl-C is a signal to the foreground group.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class Story:
    """The three runs, and the event topic's length after each."""

    folder: Path
    first: CompletedCommand
    live: CompletedCommand
    second: CompletedCommand
    events: tuple[int, int, int]


def _app(folder: Path) -> str:
    return str(json.loads((folder / "workspace.json").read_text(encoding="utf-8"))["app"])


def _events(folder: Path, kafka: KafkaSettings) -> int:
    return sum(end_offsets(kafka, [_app(folder)]).values())


def _alerts(folder: Path, kafka: KafkaSettings) -> int:
    return sum(end_offsets(kafka, [f"{_app(folder)}.alerts"]).values())


def _live_until_ctrl_c(folder: Path, kafka: KafkaSettings) -> CompletedCommand:
    """In a terminal of its own; Ctrl-C is typed once alerts have come."""
    before = _alerts(folder, kafka)
    terminal, inside = os.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    with (folder / "live.err").open("wb") as errors:
        command = [sys.executable, "-c", _TAKE_TERMINAL, *up_command(folder, kafka, "--rate", str(RATE))]
        process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=errors, start_new_session=True)
    os.close(inside)
    shown: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(terminal, shown), daemon=True)
    reader.start()
    try:
        deadline = time.monotonic() + WAIT_S
        while _alerts(folder, kafka) <= before and time.monotonic() < deadline and process.poll() is None:
            time.sleep(1)
        os.write(terminal, b"\x03")
        code = process.wait(WAIT_S)
    finally:
        process.kill()
        process.wait()
    reader.join(10)
    os.close(terminal)
    return CompletedCommand(
        code, b"".join(shown).decode(errors="replace"), (folder / "live.err").read_text(encoding="utf-8")
    )


def _drain(terminal: int, shown: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            return
        shown.append(data)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaSettings, java: Java) -> Story:
    folder = tmp_path_factory.mktemp("up") / "shop"
    first = run_up(folder, kafka, FIRST)
    after_first = _events(folder, kafka) if first.code == 0 else 0
    live = _live_until_ctrl_c(folder, kafka)
    after_live = _events(folder, kafka)
    second = run_up(folder, kafka, SECOND)
    return Story(folder, first, live, second, (after_first, after_live, _events(folder, kafka)))


def test_a_run_with_a_count_gives_exactly_the_expected_alerts(story: Story) -> None:
    assert story.first.code == 0, story.first.err
    found = story.first.document
    assert (found["events"], story.events[0]) == (FIRST, FIRST)
    assert found["produced"] == found["expected"] > 0
    assert (found["missing"], found["duplicated"], found["unexpected"]) == (0, 0, 0)
    assert found["dead_letters"] > 0
    assert found["details"]["run"]["late"] > 0


def test_stdout_holds_one_json_object_and_stderr_the_progress(story: Story) -> None:
    assert len(story.first.out.splitlines()) == 1
    assert "rules: 0 were there" in story.first.err
    assert f"sending {FIRST:,} events" in story.first.err


def test_ctrl_c_stops_the_live_view_at_a_batch_boundary(story: Story) -> None:
    assert story.live.code == 0, story.live.err
    assert "rules app: stopping at a batch boundary" in story.live.err
    assert "by force" not in story.live.err
    assert story.events[1] > story.events[0]


def test_the_view_shows_rules_and_alerts(story: Story) -> None:
    for text in ("latest alerts", "large-payment", "watermark", "dead letters"):
        assert text in story.live.out


def test_the_next_run_continues_where_ctrl_c_stopped(story: Story) -> None:
    assert story.second.code == 0, story.second.err
    found = json.loads(story.second.out)
    assert found["events"] == SECOND
    assert found["details"]["total"]["events"] == story.events[2] == story.events[1] + SECOND
    assert (found["missing"], found["duplicated"], found["unexpected"]) == (0, 0, 0)
    assert found["details"]["total"]["alerts"] == found["details"]["total"]["expected"]["alerts"]
    assert "17 were there, 0 published" in story.second.err


def test_no_process_is_left_behind(story: Story) -> None:
    mark = str(story.folder)
    lines = [command_line(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")]
    assert [line for line in lines if mark in line and "headgate" in line] == []


def test_every_alert_names_the_topic_of_its_event(story: Story, kafka: KafkaSettings) -> None:
    app = _app(story.folder)
    alerts = [json.loads(r.value or b"") for r in read_topic(kafka, f"{app}.alerts")]
    assert {a["source"]["topic"] for a in alerts if a["source"]} == {app}
