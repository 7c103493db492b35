"""Reads the CPU time of the processes of a session from /proc, including processes that have ended.

A child process leads its own session. All processes that it starts have this session id, also in process groups of
their own. Linux adds the CPU time of an ended process to the figures of the parent that waited for it.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU-seconds since the start: the driver's Python, the JVM, the Python workers."""

    driver: float = 0.0
    jvm: float = 0.0
    workers: float = 0.0

    @property
    def total(self) -> float:
        """Return the CPU-seconds of all components together."""
        return self.driver + self.jvm + self.workers

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.driver - other.driver, self.jvm - other.jvm, self.workers - other.workers)

    def per_million(self, events: int) -> dict[str, float]:
        """Return the CPU-seconds per million events, by component."""
        parts = {"total": self.total, "driver": self.driver, "jvm": self.jvm, "workers": self.workers}
        return {name: round(seconds * 1e6 / max(1, events), 2) for name, seconds in parts.items()}


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    session: int
    name: str
    own: float
    reaped: float


def _read(pid: int) -> _Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    own, reaped = int(rest[11]) + int(rest[12]), int(rest[13]) + int(rest[14])
    return _Process(pid, int(rest[1]), int(rest[3]), name, own / _TICKS, reaped / _TICKS)


def _session_processes(session: int) -> list[_Process]:
    all_processes = [_read(int(p.name)) for p in _PROC.iterdir() if p.name.isdigit()]
    return [p for p in all_processes if p is not None and p.session == session]


class SessionMeter:
    """Reads the CPU time of one session of processes, repeatedly.

    Spark's Python daemon does not wait for its workers, so the CPU time of an ended worker is in no other process. The
    meter stores the CPU time of each worker from the last reading.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self._workers: dict[int, float] = {}

    def read(self) -> Cpu:
        """Return CPU-seconds by component: the leader is the driver, ``java`` its JVM, any other Python a worker."""
        driver = jvm = 0.0
        for process in _session_processes(self.session):
            if process.pid == self.session:
                driver += process.own
                jvm += process.reaped
            elif process.name.startswith("python"):
                self._workers[process.pid] = process.own + process.reaped
            else:
                jvm += process.own + process.reaped
        return Cpu(driver, jvm, sum(self._workers.values()))


def process_cpu_s(pid: int) -> float:
    """Return the CPU-seconds of one process, without its children; 0 if it does not exist."""
    found = _read(pid)
    return 0.0 if found is None else found.own


def kill_session(session: int) -> None:
    """Kill every process of the session with SIGKILL."""
    for process in _session_processes(session):
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def load_average() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)
