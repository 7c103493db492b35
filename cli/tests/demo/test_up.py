"""`headgate up`: a live run that Ctrl-C ends, and a run with a number of events that continues from there.

All tests share the runs, because a start of Spark is slow.
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
from streamcore.errors import StreamError
from streamcore.kafka.readers import end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.harness.servers.command import WAIT_S, CompletedCommand, run_up, up_command

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_800)]

COUNT, RATE = 3_000, 200
# Makes the terminal on its standard input the controlling one, so that Ctrl-C is a signal to the foreground group.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Both runs, and the length of the event topic after each."""

    folder: Path
    live: CompletedCommand
    counted: CompletedCommand
    events: tuple[int, int]


def _app(folder: Path) -> str:
    return str(json.loads((folder / "workspace.json").read_text(encoding="utf-8"))["app"])


def _events(folder: Path, kafka: KafkaSettings) -> int:
    return sum(end_offsets(kafka, [_app(folder)]).values())


def _has_alert(folder: Path, kafka: KafkaSettings) -> bool:
    """Return whether there is an alert. The topic is made after the workspace."""
    try:
        return sum(end_offsets(kafka, [f"{_app(folder)}.alerts"]).values()) > 0
    except (FileNotFoundError, StreamError):
        return False


def _live_until_ctrl_c(folder: Path, kafka: KafkaSettings) -> CompletedCommand:
    """Run the live view in a terminal of its own, and type Ctrl-C after the first alert."""
    terminal, inside = os.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    with (folder.parent / "live.err").open("wb") as errors:
        command = [sys.executable, "-c", _TAKE_TERMINAL, *up_command(folder, kafka, "--rate", str(RATE))]
        process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=errors, start_new_session=True)
    os.close(inside)
    shown: list[bytes] = []
    reader = threading.Thread(target=_drain, args=(terminal, shown), daemon=True)
    reader.start()
    try:
        deadline = time.monotonic() + WAIT_S
        while not _has_alert(folder, kafka) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(1)
        os.write(terminal, b"\x03")
        code = process.wait(WAIT_S)
    finally:
        process.kill()
        process.wait()
    reader.join(10)
    os.close(terminal)
    return CompletedCommand(
        code, b"".join(shown).decode(errors="replace"), (folder.parent / "live.err").read_text(encoding="utf-8")
    )


def _drain(terminal: int, shown: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            return
        shown.append(data)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaSettings, java: Java) -> Runs:
    folder = tmp_path_factory.mktemp("up") / "shop"
    live = _live_until_ctrl_c(folder, kafka)
    after_live = _events(folder, kafka)
    counted = run_up(folder, kafka, COUNT)
    return Runs(folder, live, counted, (after_live, _events(folder, kafka)))


def test_a_run_with_a_count_gives_exactly_the_expected_alerts(runs: Runs) -> None:
    assert runs.counted.code == 0, runs.counted.err
    found = runs.counted.document
    assert (found["events"], runs.events[1] - runs.events[0]) == (COUNT, COUNT)
    assert found["produced"] == found["expected"] > 0
    assert (found["missing"], found["duplicated"], found["unexpected"]) == (0, 0, 0)
    assert found["dead_letters"] > 0
    assert found["details"]["run"]["late"] > 0


def test_stdout_holds_one_json_object_and_stderr_the_progress(runs: Runs) -> None:
    assert len(runs.counted.out.splitlines()) == 1
    assert "rules: 0 were there" in runs.live.err
    assert f"sending {COUNT:,} events" in runs.counted.err


def test_ctrl_c_stops_the_live_view_at_a_batch_boundary(runs: Runs) -> None:
    assert runs.live.code == 0, runs.live.err
    assert "rules app: stopping at a batch boundary" in runs.live.err
    assert "by force" not in runs.live.err
    assert runs.events[0] > 0


def test_the_view_shows_rules_and_alerts(runs: Runs) -> None:
    for text in ("latest alerts", "large-payment", "watermark", "dead letters"):
        assert text in runs.live.out


def test_the_next_run_continues_where_ctrl_c_stopped(runs: Runs) -> None:
    found = runs.counted.document
    assert found["details"]["total"]["events"] == runs.events[1]
    assert (found["missing"], found["duplicated"], found["unexpected"]) == (0, 0, 0)
    assert found["details"]["total"]["alerts"] == found["details"]["total"]["expected"]["alerts"]
    assert "17 were there, 0 published" in runs.counted.err


def test_no_process_is_left_behind(runs: Runs) -> None:
    mark = str(runs.folder)
    lines = [command_line(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")]
    assert [line for line in lines if mark in line and "headgate" in line] == []


def test_every_alert_names_the_topic_of_its_event(runs: Runs, kafka: KafkaSettings) -> None:
    app = _app(runs.folder)
    alerts = [json.loads(r.value or b"") for r in read_topic(kafka, f"{app}.alerts")]
    assert {a["source"]["topic"] for a in alerts if a["source"]} == {app}
