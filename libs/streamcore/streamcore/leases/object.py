"""The lease of a checkpoint in a bucket: one object, changed only by a process that knows its last version.

``lease.json`` names the owner and counts heartbeats. Every change is a PUT on a condition that the server checks: that
there is no such object, or that it is the version (ETag) that was read. So of two that want the same change one gets it
and the other is refused; no lock is needed, no clock is compared, and no request that arrives late can undo a later
one. The protocol of ``acquire`` (a crash after a step leaves the state that its line describes):

1. Read the record. Without an owner, or released: go on. Another's: watch it; it changes, and the lease is refused; it
   stands still for ``stale_ms``, and its owner is taken for dead. An owner of this very system whose process is no more
   needs no watching. Nothing was changed.
2. Put our name in its place, if it is the record that step 1 saw; and make sure that this server does check conditions.
   A crash leaves an owner that is gone: the next one watches it.
3. Beat: replace the record by one that counts one more, every ``beat_ms``, if it is the last one of ours.

An answer that was lost is not guessed: after a refusal the record is read again, and may turn out to be our own. An
owner that was taken for dead and is not cannot beat any more, finds the other's token at its next ``check`` and gets
``Fenced``. ``release`` leaves a record of the release, by the same condition: to delete has none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from streamcore.errors import ConfigError, StreamError
from streamcore.leases.base import Lease
from streamcore.leases.owner import Owner
from streamcore.storage.atomic_files import Entry

_RECORD: Final = "lease.json"


class Conditional(Protocol):
    """A place with objects that change on a condition. A tag names one version of an object."""

    @property
    def url(self) -> str:
        """For messages."""
        ...

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return the content and the tag of the object; None where there is none."""
        ...

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        """Replace it if it has this tag, or, with None, if it is not there. The new tag; None where it was refused."""
        ...


@dataclass(frozen=True, slots=True)
class _Seen:
    """The record as it was read. ``owner``: None where it has none; ``tag``: None where there is no record."""

    owner: Owner | None = None
    tag: str | None = None

    def names(self, owner: Owner) -> bool:
        return self.owner is not None and self.owner.token == owner.token


class ObjectLease(Lease):
    """See ``Lease``."""

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
        # 1. The owner in the record cannot be alive.
        seen = self._without_owner(meanwhile)
        # 2. Ours, unless another process was quicker.
        self._tag = self._put(seen.tag)
        if self._tag is None:
            raise self._refusal(self._look().owner or "another process")
        try:
            self._check_server_conditions()
        except BaseException:
            self._give_back()
            raise

    def _holder(self) -> Owner | None:
        return self._look().owner

    def _give_back(self) -> None:
        if self._tag is not None:
            with suppress(StreamError):  # who comes next waits until it is stale
                self._put(self._tag, released=True)

    def _beat_once(self) -> bool:
        """Step 3. Until another's record was read: a refused request may be overtaken by a change of ours."""
        made = self._put(self._tag)
        if made is None and self._is_anothers():
            return False
        self._tag = made or self._tag
        return True

    def _look(self) -> _Seen:
        found = self._place.read_tagged(_RECORD)
        if found is None:
            return _Seen()
        entries = _entries(found[0])
        return _Seen(None if entries.get("released") else Owner.parse(entries), found[1])

    def _without_owner(self, meanwhile: Callable[[], None]) -> _Seen:
        first = self._look()
        if first.owner is None or first.names(self._owner) or first.owner.is_gone():
            return first
        meanwhile()
        deadline = time.monotonic() + self._stale_ms / 1000
        while time.monotonic() < deadline:
            time.sleep(self._beat_ms / 4000)
            seen = self._look()
            if seen.owner is None:
                return seen
            if seen.tag != first.tag:
                raise self._refusal(seen.owner)
        return first

    def _put(self, tag: str | None, *, released: bool = False) -> str | None:
        """Our record in place of the version with this tag; its own tag, None where another one's is there.

        A refusal may be of our own making: an earlier answer was lost. Then it is the version with our token that is
        replaced.
        """
        self._beats += 1  # no two versions are alike, or a tag would not tell them apart
        record = {**self._owner.entries(), "beat": self._beats, "released": int(released)}
        content = json.dumps(record, indent=1).encode()
        made = self._place.exchange(_RECORD, content, tag)
        if made is None and (seen := self._look()).names(self._owner):
            made = self._place.exchange(_RECORD, content, seen.tag)
        return made

    def _check_server_conditions(self) -> None:
        """``ConfigError`` when the server makes a change that it must refuse: two processes could both become the
        owner."""
        found = self._place.read_tagged(_RECORD)
        if found is not None:
            made = [self._place.exchange(_RECORD, found[0], tag) for tag in (None, '"no such tag"')]
            if any(made):
                raise ConfigError(
                    f"{self._what}: this server does not check the conditions of a PUT (If-None-Match, "
                    "If-Match), so nothing there can have one owner; use a server that does, or a folder"
                )

    def _is_anothers(self) -> bool:
        seen = self._look()
        return seen.owner is not None and not seen.names(self._owner)


def _entries(content: bytes) -> dict[str, Entry]:
    """Parse the record; empty where it is not our JSON: it has an owner that cannot be read."""
    try:
        entries = json.loads(content)
    except ValueError:
        return {}
    return entries if isinstance(entries, dict) else {}
