"""Runs the ``headgate`` command once in a new process, and measures its time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

_COMMAND = "import sys; from headgate.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command, its duration and its CPU time in seconds."""

    code: int
    output: bytes
    wall_s: float
    cpu_s: float


def headgate(*arguments: str) -> CommandResult:
    """Run the command with ``-o json``. Python may write bytecode, as on a user's machine, so do not measure the first
    run."""
    command: Sequence[str] = [sys.executable, "-c", _COMMAND, *arguments, "-o", "json"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return CommandResult(process.returncode, process.stdout, wall_s, cpu_s)
