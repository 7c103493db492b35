"""The owner of a lease: a process on a machine, with a unique token."""

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
    """The process that holds a lease. ``machine`` distinguishes hosts with one name, and two boots of one host.
    ``process`` distinguishes processes with one process id; it is empty on systems without ``/proc``."""

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
        """Return this process as an owner, with a new token."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        pid = os.getpid()
        return cls(uuid.uuid4().hex, pid, socket.gethostname(), _machine(), since, _process(pid))

    def entries(self) -> dict[str, Entry]:
        """Return the entries of ``lease.json``."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def parse(cls, entries: dict[str, Entry]) -> Owner:
        """Parse the entries of ``lease.json``. Missing values become empty, because even a damaged record has an
        owner."""
        text = {name: str(entries.get(name, "")) for name in ("token", "machine", "since", "process")}
        pid = entries.get("pid")
        return cls(pid=pid if isinstance(pid, int) else 0, host=str(entries.get("host", "an unknown host")), **text)

    def is_gone(self) -> bool:
        """Return whether this owner certainly is dead: it ran on this machine, and its process no longer exists.

        A process whose ``/proc`` entry cannot be read (``hidepid``) counts as alive if its process id is in use.
        """
        here = bool(self.process) and self.process.partition("/")[0] == _namespace() and self.machine == _machine()
        if not here:
            return False
        stat = _stat(self.pid)
        return _is_unknown(self.pid) if stat is None else _process_name(stat) != self.process


def _machine() -> str:
    """Return host name and boot id, which together distinguish hosts with one name and boots of one host."""
    boot = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
    return f"{socket.gethostname()}/{boot}"


def _process(pid: int) -> str:
    """Return the PID namespace of a process and its start time, or an empty text if they are unknown."""
    stat = _stat(pid)
    return "" if stat is None else _process_name(stat)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` after the program name; None if the file cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _process_name(stat: list[str]) -> str:
    # A zombie counts as dead. The 20th value is the start time in clock ticks since boot.
    return f"{_namespace()}/{stat[19]}" if stat[0] not in "ZX" and _namespace() else ""


def _is_unknown(pid: int) -> bool:
    """Return whether no process of any user has this process id."""
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
