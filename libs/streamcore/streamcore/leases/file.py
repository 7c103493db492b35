"""The lease of a checkpoint in a folder.

Two files, because neither is enough alone:

- ``lease.lock`` is locked with ``flock``. The kernel releases the lock when the owner dies, even by ``kill -9``, so a
  restart on the same machine is immediate. On some kinds of shared storage, other machines do not see the lock.
- ``lease.json`` names the owner: token, process, host and start time. Its modification time is the owner's heartbeat. A
  process on another machine watches it. If it changes, the acquisition is rejected; if it does not change for
  ``stale_ms``, the owner counts as dead. Only changes are compared, never the clocks of two machines.

An owner that counted as dead but lives (it was suspended or cut off) finds another token at its next ``check`` and gets
``Fenced``. The exactly-once writer of the new owner has fenced its producer too.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from streamcore.errors import CorruptState
from streamcore.leases.base import Lease, LeaseHeld
from streamcore.leases.owner import Owner
from streamcore.storage.atomic_files import naming_file_errors, read_json, write_json


class FileLease(Lease):
    """A lease in a folder. It waits only for an owner on another machine.

    A forked child inherits the lock's descriptor and would keep the lock after this process dies. Start children with
    ``subprocess``, which closes the descriptor.
    """

    def __init__(
        self,
        root: Path,
        *,
        beat_ms: int = 5_000,
        stale_ms: int = 30_000,
        besides: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(root, beat_ms=beat_ms, stale_ms=stale_ms, besides=besides)
        self._root = root
        self._lock_path, self._record_path = root / "lease.lock", root / "lease.json"
        self._descriptor: int | None = None

    def _take(self, meanwhile: Callable[[], None]) -> None:
        self._lock()
        try:
            self._wait_for_foreign_owner(meanwhile)
            write_json(self._record_path, self._owner.entries())
        except BaseException:
            self._unlock()
            raise

    def _give_back(self) -> None:
        holder = self._holder()
        if holder is not None and holder.token == self._owner.token:
            self._record_path.unlink(missing_ok=True)
        self._unlock()

    def _holder(self) -> Owner | None:
        try:
            entries = read_json(self._record_path)
        except CorruptState:
            entries = {}  # an unreadable record counts as a record of an unknown owner
        return None if entries is None else Owner.parse(entries)

    def _lock(self) -> None:
        with naming_file_errors(self._lock_path):
            self._root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise self._rejection(self._holder() or "another process of this machine") from error
        if not _is_at(self._lock_path, descriptor):
            os.close(descriptor)
            raise LeaseHeld(f"{self._what}: it was removed a moment ago; start again")
        self._descriptor = descriptor

    def _unlock(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _wait_for_foreign_owner(self, meanwhile: Callable[[], None]) -> None:
        """Return once the owner in the record is known to be dead. Raise ``LeaseHeld`` if its heartbeat changes."""
        holder = self._holder()
        if holder is None or holder.machine == self._owner.machine:
            return  # we hold the kernel's lock of that machine, so its process is gone
        self._report_wait(holder)
        meanwhile()
        first, deadline = self._heartbeat(), time.monotonic() + self._stale_ms / 1000
        while time.monotonic() < deadline:
            time.sleep(min(0.2, self._beat_ms / 1000))
            beat = self._heartbeat()
            if beat is None:
                return  # released
            if beat != first:
                raise self._rejection(holder)
        self._report_takeover(holder)

    def _heartbeat(self) -> int | None:
        try:
            return self._record_path.stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _beat_once(self) -> bool:
        """Touch the record. That is safe even if another process owns it now: that process is alive."""
        with naming_file_errors(self._record_path):
            os.utime(self._record_path)
        return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether ``path`` is still the locked file. If the file was removed before it was locked, the lock protects
    nothing."""
    try:
        found, mine = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)
