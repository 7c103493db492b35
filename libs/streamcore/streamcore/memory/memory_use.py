"""Reads the memory that an app's processes take, and the limit at which the system ends one of them.

The limit is that of the container: the lowest limit of the process's cgroups (version 2 or 1). Their use has no page
cache that the system can drop. With a limit of the settings, the use is the resident memory of the processes.

No kernel uses this module: two processes never take the same memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_NO_LIMIT: Final = 1 << 60  # cgroups of version 1 without a limit have a number near 2**63
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessMemory(NamedTuple):
    """The resident memory of a process. ``name``: ``JVM``, ``Python`` or the name of the program."""

    bytes: int
    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The memory in use, its limit, and the processes of the app, largest first. ``kills``: how many processes the
    system has ended at the limit of the container, since that began."""

    used: int
    limit: int
    processes: tuple[ProcessMemory, ...]
    kills: int = 0


class _Cgroup(NamedTuple):
    """The files of one version of cgroups: limit and use in a folder, the line of ``memory.stat`` to take off, and the
    file with the line ``oom_kill``."""

    limit: str
    used: str
    droppable: str
    events: str


_V2: Final = _Cgroup("memory.max", "memory.current", "inactive_file", "memory.events")
_V1: Final = _Cgroup("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """Reads the memory of a process and its descendants.

    ``limit``: bytes, instead of the container's limit. ``pid``: the process; None for this one. ``proc`` and
    ``cgroups``: where the system has its files.
    """

    limit: int | None = None
    pid: int | None = None
    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")

    def read(self) -> MemoryUse | None:
        """Return the use, None without a limit."""
        container = None if self.limit is not None else self._container()
        if self.limit is None and container is None:
            return None
        processes = tuple(sorted(self._processes(), reverse=True))
        if container is not None:
            used, limit, kills = container
            return MemoryUse(used, limit, processes, kills)
        return MemoryUse(sum(process.bytes for process in processes), self.limit or 0, processes)

    def _container(self) -> tuple[int, int, int] | None:
        """Return use, limit and kills of the cgroup with the lowest limit, None without a limit."""
        found = [(limit, folder, files) for folder, files in self._folders() if (limit := _limit(folder, files))]
        if not found:
            return None
        limit, folder, files = min(found, key=lambda one: one[0])
        used = _number(folder / files.used)
        if used is None:
            return None
        droppable = _entry(folder / "memory.stat", files.droppable)
        return max(0, used - droppable), limit, _entry(folder / files.events, "oom_kill")

    def _folders(self) -> Iterator[tuple[Path, _Cgroup]]:
        """Yield the folders of the cgroups of this process and those above, which are its own root in a container."""
        for line in _text(self.proc / "self/cgroup").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" or "memory" in controllers.split(","):
                files = _V2 if number == "0" else _V1
                root = self.cgroups if number == "0" else self.cgroups / "memory"
                inner = root / path.lstrip("/")
                yield from ((folder, files) for folder in (inner, *inner.parents) if folder.is_relative_to(root))

    def _processes(self) -> Iterator[ProcessMemory]:
        """Yield the process and its descendants."""
        parents: dict[int, int] = {}
        found: dict[int, ProcessMemory] = {}
        for folder in self.proc.glob("[0-9]*"):
            name, _, rest = _text(folder / "stat").partition("(")[2].rpartition(")")
            fields, pages = rest.split(), _text(folder / "statm").split()
            if len(fields) > 1 and len(pages) > 1:  # the process has not ended meanwhile
                pid = int(folder.name)
                parents[pid] = int(fields[1])
                found[pid] = ProcessMemory(int(pages[1]) * _PAGE, pid, _NAMES.get(name.rstrip("0123456789."), name))
        root = os.getpid() if self.pid is None else self.pid
        for pid, process in found.items():
            above = pid
            while above not in (root, 0):
                above = parents.get(above, 0)
            if above == root:
                yield process


_NAMES: Final = {"java": "JVM", "python": "Python"}


def _limit(folder: Path, files: _Cgroup) -> int | None:
    limit = _number(folder / files.limit)
    return None if limit is None or limit >= _NO_LIMIT else limit


def _entry(file: Path, name: str) -> int:
    """Return the number in the line that begins with ``name``; 0 if there is none."""
    lines = (line.split() for line in _text(file).splitlines())
    return next((int(line[1]) for line in lines if line[0] == name), 0)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """Return the content of a file, nothing if there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""
