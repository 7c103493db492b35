"""Other processes, by number: is it still the one that was started, and how to end it.

A number alone proves nothing, for it is given again; so every question comes with a text that the process's command
line must hold. Works with /proc and, without it (macOS), with ``ps``.
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
    """Return the command line, arguments separated by spaces; empty when the process has ended, reaped or not."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    asked = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout


def children(pid: int) -> list[int]:
    """Return the live child processes."""
    asked = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
    pairs = (line.split() for line in asked.stdout.splitlines())
    return [int(child) for child, parent in pairs if int(parent) == pid]


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is gone is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_for_end(pid: int, mark: str, timeout_ms: int) -> bool:
    """Wait for a process that may be another process's child; False when it is still there after ``timeout_ms``."""
    end = time.monotonic() + timeout_ms / 1000
    while is_running(pid, mark):
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True
