"""One run of the ``headgate`` command, from the interpreter's start, and what it took."""

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
class Ended:
    """Its exit code and output, and its seconds: by the clock, and of CPU."""

    code: int
    output: bytes
    wall_s: float
    cpu_s: float


def headgate(*arguments: str) -> Ended:
    """To its end, with ``-o json``. Bytecode may be written, as on a machine of a user's: a first run is for that."""
    command: Sequence[str] = [sys.executable, "-c", _COMMAND, *arguments, "-o", "json"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ended(done.returncode, done.stdout, wall_s, cpu_s)
