"""Warns that memory is nearly used up, before the system ends a process: at once, every minute, and when it is over.
Reports each process that the system ends all the same, for its exit code does not tell why it ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from streamcore.memory.memory_use import MemoryUse, ProcessMemory
from streamcore.outages import LastingWarning

#: The share of the limit at which memory is nearly used up, and the share below which it is not any more.
WARN_SHARE: Final = 0.8
OVER_SHARE: Final = 0.75
_CHECK_S: Final = 2.0
_SHOWN: Final = 4  # processes in a message
_MB: Final = 1_000_000
_REMEDY: Final = "Give the app more memory, or let it keep less state"


class MemoryWarning:
    """Reads memory every two seconds in a thread of its own, from ``start`` to the end of the context.

    ``latest``: the last use that was read, None without a limit. ``now_s``: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        log: logging.Logger,
        read: Callable[[], MemoryUse | None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._log = log
        self._warning = LastingWarning(log, now_s)
        self._ended = threading.Event()
        self.latest: MemoryUse | None = None

    def start(self) -> None:
        """Start the thread, if there is a limit."""
        self.check()
        if self.latest is not None:
            threading.Thread(target=self._check_until_end, name="memory", daemon=True).start()

    def __enter__(self) -> MemoryWarning:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()

    def check(self) -> None:
        """Read the memory, and log what is due."""
        before, self.latest = self.latest, self._read()
        if (use := self.latest) is None:
            return
        if before is not None and use.kills > before.kills:
            self._log.warning(_describe_kill(before, use))
        if self._warning.lasts and use.used < OVER_SHARE * use.limit:
            self._warning.end(f"memory: enough again after {self._warning.seconds:.0f} s: {_figures(use)}")
        elif self._warning.lasts or use.used >= WARN_SHARE * use.limit:
            self._warning.warn(
                f"memory: {_figures(use)}; at the limit the system ends one of these processes and cuts run again. "
                f"{_REMEDY}",
                f"memory: still nearly used up, for {self._warning.seconds:.0f} s now: {_figures(use)}",
            )

    def _check_until_end(self) -> None:
        while not self._ended.wait(_CHECK_S):
            self.check()


def _describe_kill(before: MemoryUse, use: MemoryUse) -> str:
    """Describe what the system has ended between both readings, as far as the first one knew the processes."""
    alive, killed = {process.pid for process in use.processes}, use.kills - before.kills
    gone = [process for process in before.processes if process.pid not in alive][:killed]
    named = ", ".join(f"{one.name} {one.pid} with {one.bytes // _MB} MB" for one in gone) or "a process"
    return (
        f"memory: the system ended {named}, because {use.limit // _MB} MB were used up; what it computed runs again. "
        f"{_REMEDY}"
    )


def _name(process: ProcessMemory) -> str:
    return f"{process.name} {process.pid} has {process.bytes // _MB} MB"


def _figures(use: MemoryUse) -> str:
    share = f"{use.used // _MB} of {use.limit // _MB} MB are in use ({100 * use.used // use.limit} %)"
    return ", ".join([share, *map(_name, use.processes[:_SHOWN])])
