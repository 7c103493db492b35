"""Inspects and signals other processes by their id.

The system reuses ids. So a process is identified by its id together with a text (``mark``) that its command line must
contain. Works with /proc and, without it (macOS), with ``ps``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

_PAUSE_SECONDS = 0.02


def is_running(pid: int, mark: str) -> bool:
    """Return whether process ``pid`` is alive and ``mark`` is part of its command line."""
    return mark in command_line(pid)


def command_line(pid: int) -> str:
    """Return the command line, arguments separated by spaces; empty if the process has ended."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def children(pid: int) -> list[int]:
    """Return the ids of the child processes."""
    process = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
    pairs = (line.split() for line in process.stdout.splitlines())
    return [int(child) for child, parent in pairs if int(parent) == pid]


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; do nothing if the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_for_end(pid: int, mark: str, timeout_ms: int) -> bool:
    """Wait until a process, which need not be a child, has ended. Return False if it still runs after
    ``timeout_ms``."""
    end = time.monotonic() + timeout_ms / 1000
    while is_running(pid, mark):
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True
