"""The ``headgate`` command as people run it: a process of its own, and how it ended."""

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
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one line of JSON that it printed."""
        (line,) = self.out.splitlines()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found


def ran(command: Sequence[str]) -> Ended:
    """Run a command to its end."""
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
    return Ended(completed.returncode, completed.stdout, completed.stderr)


def up(folder: Path, kafka: KafkaSettings, *more: str, service: str = "rules") -> list[str]:
    """Return the command line of ``headgate up`` on a data folder, always with the same generator."""
    return [*HEADGATE, "up", service, "--data", str(folder), "--bootstrap", kafka.bootstrap, "--seed", "4", *more]


def counted_run(folder: Path, kafka: KafkaSettings, events: int, service: str = "rules", *more: str) -> Ended:
    """``headgate up`` of so many events, to its end; ``more``: further options."""
    command = up(folder, kafka, "--events", str(events), "--json", *more, service=service)
    return ran(command)
