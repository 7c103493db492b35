"""Processes on copies of one checkpoint are suspended, resumed and started again; the broker is a real one.

``test_suspended_owners`` draws many more schedules, against a broker in memory.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.harness.servers.processes import wait_until

if TYPE_CHECKING:
    from tests.kafka.conftest import NewTopics, Topics

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
APP = Path(__file__).with_name("endless_app.py")
RUNS = int(os.environ.get("HEADGATE_OWNER_RUNS", "1"))
_ENDED = 3


class Owners:
    """The processes by the folder of their checkpoint. Every process is suspended by SIGSTOP, resumed by SIGCONT."""

    def __init__(self, kafka: KafkaSettings, topics: Topics, folder: Path) -> None:
        self._kafka, self._topics, self._folder = kafka, topics, folder
        self.processes: dict[Path, subprocess.Popen[str]] = {}
        self.messages: list[str] = []

    def start(self, name: str) -> Path:
        """Start a process on a checkpoint and return its folder."""
        folder = self._folder / name
        command = [sys.executable, str(APP), self._kafka.bootstrap, self._topics.app, self._topics.out]
        command += [self._topics.markers, str(folder)]
        self.processes[folder] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return folder

    def copy(self, original: Path, name: str) -> Path:
        """Copy a checkpoint, as a snapshot of its volume, and start a process on the copy."""
        shutil.copytree(original, self._folder / name)
        return self.start(name)

    def send(self, folder: Path, number: signal.Signals) -> None:
        """Send a signal to a process that has not ended."""
        if self.processes[folder].poll() is None:
            self.processes[folder].send_signal(number)

    def restart_ended(self) -> None:
        """Start those that ended once more, and keep their messages. Raise if one ended without a message of ours."""
        for folder, process in [*self.processes.items()]:
            if process.poll() is not None:
                assert process.returncode == _ENDED
                self.messages += [process.communicate()[0]]
                self.start(folder.name)

    def kill(self) -> None:
        """Kill every process."""
        for process in self.processes.values():
            process.kill()
            process.communicate()


def count_written(kafka: KafkaSettings, topics: Topics) -> int:
    """Return the number of committed records."""
    return len(read_topic(kafka, topics.out))


@pytest.mark.timeout(900)
def test_suspending_either_of_two_copies_neither_loses_nor_repeats_a_number(
    kafka: KafkaSettings, new_topics: NewTopics, tmp_path: Path
) -> None:
    messages = []
    for seed in range(RUNS):
        draw, topics = random.Random(seed), new_topics(kafka)
        owners = Owners(kafka, topics, tmp_path / str(seed))
        try:
            first = owners.start("first")
            wait_until(lambda topics=topics: count_written(kafka, topics) > 10, "the first numbers", 60)  # type: ignore[misc]
            owners.send(first, signal.SIGSTOP)
            copy = owners.copy(first, "copy")
            time.sleep(draw.uniform(1, 5))
            owners.send(copy, signal.SIGSTOP)
            owners.send(first, signal.SIGCONT)
            time.sleep(draw.uniform(0.2, 4))
            owners.send(copy, signal.SIGCONT)
            time.sleep(draw.uniform(1, 4))
            owners.restart_ended()
            time.sleep(3)
            before = count_written(kafka, topics)
            wait_until(lambda topics=topics, before=before: count_written(kafka, topics) > before, "more numbers", 60)  # type: ignore[misc]
        finally:
            for folder in owners.processes:
                owners.send(folder, signal.SIGCONT)
            owners.kill()
        time.sleep(1)
        numbers = sorted(int(record.value or b"") for record in read_topic(kafka, topics.out))
        assert numbers == list(range(len(numbers))), f"seed {seed}"
        messages += owners.messages
    assert messages, "one of two copies ends"
    for message in messages:
        assert message.startswith(("Fenced: ", "ConfigError: ")), message
        assert "another copy of th" in message or "another process of this app" in message, message
