"""Runs the ``headgate`` command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamcore.kafka.settings import KafkaSettings

WAIT_S = 600
HEADGATE = (sys.executable, "-c", "from headgate.main import main; main()")


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Return the one line of JSON that the command printed."""
        (line,) = self.out.splitlines()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


def run_command(command: Sequence[str]) -> CompletedCommand:
    """Run a command to its end."""
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    return CompletedCommand(completed.returncode, completed.stdout, completed.stderr)


def up_command(folder: Path, kafka: KafkaSettings, *more: str, service: str = "rules") -> list[str]:
    """Return the command line of ``headgate up`` on a data folder, always with the same generator."""
    return [*HEADGATE, "up", service, "--data", str(folder), "--bootstrap", kafka.bootstrap, "--seed", "4", *more]


def run_up(folder: Path, kafka: KafkaSettings, events: int, service: str = "rules", *more: str) -> CompletedCommand:
    """Run ``headgate up`` with a number of events to its end; ``more``: further options."""
    command = up_command(folder, kafka, "--events", str(events), "--json", *more, service=service)
    return run_command(command)
