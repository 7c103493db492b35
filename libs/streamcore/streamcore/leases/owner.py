"""Who holds a lease: a process, on a machine, by a token of its own."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from streamcore.storage.atomic_files import Entry

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease. ``machine`` distinguishes hosts of one name, and two boots of one host. ``process``: the same
    of processes of one number, empty where the system does not provide it."""

    token: str
    pid: int
    host: str
    machine: str
    since: str
    process: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"

    @classmethod
    def me(cls) -> Owner:
        """Return the owner value of this process, with a new token."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        pid = os.getpid()
        return cls(uuid.uuid4().hex, pid, socket.gethostname(), _machine(), since, _process(pid))

    def entries(self) -> dict[str, Entry]:
        """As written to ``lease.json``."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def parse(cls, entries: dict[str, Entry]) -> Owner:
        """As read from ``lease.json``; missing values stay empty: the file names the owner, the lock decides."""
        text = {name: str(entries.get(name, "")) for name in ("token", "machine", "since", "process")}
        pid = entries.get("pid")
        return cls(pid=pid if isinstance(pid, int) else 0, host=str(entries.get("host", "an unknown host")), **text)

    def is_gone(self) -> bool:
        """Whether it is certain that this process lives no more: it was one of this very system, which has it not.

        A process of another user may be hidden (``hidepid``) and live: an unreadable file counts as empty.
        """
        here = bool(self.process) and self.process.partition("/")[0] == _namespace() and self.machine == _machine()
        if not here:
            return False
        stat = _stat(self.pid)
        return _is_unknown(self.pid) if stat is None else _process_name(stat) != self.process


def _machine() -> str:
    """Host name and boot: a kernel lock of an earlier boot, or of another host of the same name, is not ours."""
    boot = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
    return f"{socket.gethostname()}/{boot}"


def _process(pid: int) -> str:
    """Return the numbering of processes that it is part of (a container has its own), and when it began."""
    stat = _stat(pid)
    return "" if stat is None else _process_name(stat)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` after the name, which may hold anything; None where it is unreadable."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _process_name(stat: list[str]) -> str:
    # A process that has ended and whose parent has not asked yet writes nothing any more.
    # The 20th value is the start in ticks since boot.
    return f"{_namespace()}/{stat[19]}" if stat[0] not in "ZX" and _namespace() else ""


def _is_unknown(pid: int) -> bool:
    """Return whether the system has no process of this number, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _namespace() -> str:
    try:
        return str(_NAMESPACE.readlink())
    except OSError:
        return ""
