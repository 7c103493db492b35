"""The lease of a checkpoint in a bucket: one object, changed only by a process that knows its last version.

``lease.json`` names the owner and counts heartbeats. Every change is a conditional PUT: the server makes it only if the
object does not exist, or still is the version (ETag) that was read. So of two concurrent changes one succeeds and the
other is rejected. No lock is needed, no clocks are compared, and a delayed request cannot undo a later one. The
protocol (each step with the state that a crash after it leaves):

1. Read the record. Continue if it has no owner, was released, or names a dead process of this machine. Otherwise watch
   it: if it changes, the acquisition is rejected; if it does not change for ``stale_ms``, its owner counts as dead. A
   crash leaves the record unchanged.
2. Replace the record that step 1 read by one that names this process, and check that the server enforces conditions.
   After a crash the record names a dead owner, which the next process watches.
3. Heartbeat, every ``beat_ms``: replace this process's last record by one with a higher count.

After a rejected PUT the record is read again, because it may be this process's own: the response of an earlier PUT may
have been lost. An owner that counted as dead but lives cannot write heartbeats any more, finds another token at its
next ``check`` and gets ``Fenced``. ``release`` writes a released record instead of deleting it, because object stores
offer no conditional DELETE.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from streamcore.errors import ConfigError, CorruptState, StreamError
from streamcore.leases.base import Lease
from streamcore.leases.owner import Owner
from streamcore.storage import checked_json
from streamcore.storage.atomic_files import Entry

_RECORD: Final = "lease.json"


class Conditional(Protocol):
    """A folder of an object store with conditional writes. A tag identifies one version of an object."""

    @property
    def url(self) -> str:
        """The folder's URL, for messages."""
        ...

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return the content and the tag of the object, or None if it does not exist."""
        ...

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        """Write the object if it has this tag or, with ``tag`` None, if it does not exist.

        Returns the new tag, or None if the server rejected the write.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Seen:
    """The record as it was read. ``owner``: None if it names none; ``tag``: None if there is no record."""

    owner: Owner | None = None
    tag: str | None = None

    def names(self, owner: Owner) -> bool:
        return self.owner is not None and self.owner.token == owner.token


class ObjectLease(Lease):
    """A lease in a folder of an object store."""

    def __init__(
        self,
        place: Conditional,
        *,
        beat_ms: int = 5_000,
        stale_ms: int = 30_000,
        besides: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(place.url, beat_ms=beat_ms, stale_ms=stale_ms, besides=besides)
        self._place = place
        self._tag: str | None = None
        self._beats = 0

    def _take(self, meanwhile: Callable[[], None]) -> None:
        # 1. The owner in the record is dead.
        seen = self._wait_for_dead_owner(meanwhile)
        # 2. Replace it, unless another process was faster.
        self._tag = self._put(seen.tag)
        if self._tag is None:
            raise self._rejection(self._look().owner or "another process")
        try:
            self._check_server_conditions()
        except BaseException:
            self._give_back()
            raise

    def _holder(self) -> Owner | None:
        return self._look().owner

    def _give_back(self) -> None:
        if self._tag is not None:
            with suppress(StreamError):  # the next owner then waits until the record is stale
                self._put(self._tag, released=True)

    def _beat_once(self) -> bool:
        """Run step 3. The lease is lost only once the record names another process: a rejected PUT may also follow an
        own PUT whose response was lost."""
        tag = self._put(self._tag)
        if tag is None and self._is_anothers():
            return False
        self._tag = tag or self._tag
        return True

    def _look(self) -> _Seen:
        """Read the record."""
        record = self._place.read_tagged(_RECORD)
        if record is None:
            return _Seen()
        content, tag = record
        entries = _entries(content)
        return _Seen(None if entries.get("released") else Owner.parse(entries), tag)

    def _wait_for_dead_owner(self, meanwhile: Callable[[], None]) -> _Seen:
        """Run step 1: return the record once it has no living owner. Raise ``LeaseHeld`` if its owner lives."""
        first = self._look()
        if first.owner is None or first.names(self._owner) or first.owner.is_gone():
            return first
        self._report_wait(first.owner)
        meanwhile()
        deadline = time.monotonic() + self._stale_ms / 1000
        while time.monotonic() < deadline:
            time.sleep(self._beat_ms / 4000)
            seen = self._look()
            if seen.owner is None:
                return seen
            if seen.tag != first.tag:
                raise self._rejection(seen.owner)
        self._report_takeover(first.owner)
        return first

    def _put(self, tag: str | None, *, released: bool = False) -> str | None:
        """Replace the version with this tag by a record of this process. Return the new tag, or None if the server
        rejected.

        If the rejected PUT finds a record of this process, whose response was lost, that record is replaced.
        """
        self._beats += 1  # every version must differ, because a tag may be a digest of the content
        record = {**self._owner.entries(), "beat": self._beats, "released": int(released)}
        content = checked_json.encode(record)
        new_tag = self._place.exchange(_RECORD, content, tag)
        if new_tag is None and (seen := self._look()).names(self._owner):
            new_tag = self._place.exchange(_RECORD, content, seen.tag)
        return new_tag

    def _check_server_conditions(self) -> None:
        """Raise ``ConfigError`` if the server makes a change that it must reject, because two processes could then both
        become the owner."""
        record = self._place.read_tagged(_RECORD)
        if record is not None:
            new_tags = [self._place.exchange(_RECORD, record[0], tag) for tag in (None, '"no such tag"')]
            if any(new_tags):
                raise ConfigError(
                    f"{self._what}: this server does not check the conditions of a PUT (If-None-Match, "
                    "If-Match), so nothing there can have one owner; use a server that does, or a folder"
                )

    def _is_anothers(self) -> bool:
        seen = self._look()
        return seen.owner is not None and not seen.names(self._owner)


def _entries(content: bytes) -> dict[str, Entry]:
    """Parse the record. A damaged one gives no entries, which counts as an unknown owner."""
    try:
        return checked_json.parse(content, _RECORD)
    except CorruptState:
        return {}
