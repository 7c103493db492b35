"""The processes of one session, from /proc: a Spark app is a driver, a JVM, a daemon and its Python workers.

They share the session that the driver was started in, though not its process group (Spark's daemon makes its own), so
they are found by the session. The functions end only the processes that they are given.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from streamcore.spark.java_command import GATEWAY

_DAEMON = "-m streamcore.spark.worker_daemon "
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """One live process."""

    pid: int
    parent: int
    command: str


def members(session: int) -> list[Process]:
    """Return the live processes of a session; zombies are not among them."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # The second field is the program's name in parentheses, which may hold blanks and parentheses.
                state, parent, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(its_session) == session and state != "Z":
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append(Process(int(folder.name), int(parent), command))
    return found


def python_workers(session: int) -> list[Process]:
    """Return Spark's Python workers, the forks of its daemon."""
    forks = daemon_and_workers(session)
    daemons = {p.pid for p in forks}
    return [p for p in forks if p.parent in daemons]


def daemon_and_workers(session: int) -> list[Process]:
    """Return Spark's Python daemon and workers."""
    return [p for p in members(session) if _DAEMON in p.command]


def jvm(session: int) -> Process:
    """Return Spark's JVM."""
    (process,) = jvms(session)
    return process


def jvms(session: int) -> list[Process]:
    """Return Spark's JVM; none before the driver has started it."""
    return [p for p in members(session) if GATEWAY in p.command.split()]


def kill(pid: int) -> None:
    """Kill a process (SIGKILL); one that has ended is no error."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_session(session: int, mark: str = "", limit_s: float = 60) -> None:
    """Kill all processes of a session (SIGKILL); with a ``mark``, only those whose command has it."""

    def none_left() -> bool:
        left = [p for p in members(session) if mark in p.command]
        for process in left:
            kill(process.pid)
        return not left

    wait_until(none_left, f"the end of session {session}", limit_s)


@contextmanager
def suspended(targets: Sequence[Process]) -> Iterator[None]:
    """Suspend processes within the context (SIGSTOP, SIGCONT); one that has ended is no error."""
    for process in targets:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in targets:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)


def wait_until(condition: Callable[[], bool], what: str, limit_s: float) -> None:
    """Return when the condition holds; ``AssertionError`` after ``limit_s``."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"waited {limit_s} s in vain for {what}"
        time.sleep(_PAUSE_S)
