"""The work of every lease, wherever its record is: it beats, it checks, it lets go.

Refuses to know how a record is taken, read and changed: that is ``file_lease`` and ``object_lease``.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from streamcore.errors import ConfigError, Fenced, StreamError
from streamcore.leases.owner import Owner


class LeaseHeld(ConfigError):
    """Another process has the lease, or let go of it this very moment. Catch it to ask again: it may end."""


class Lease(ABC):
    """The lease of one checkpoint root. ``acquire``, ``check`` before each batch, ``release``."""

    def __init__(
        self,
        root: object,
        *,
        beat_ms: int = 5_000,
        stale_ms: int = 30_000,
        besides: Callable[[], None] = lambda: None,
    ) -> None:
        """``root``: for messages. ``besides``: what else ``check`` checks; it raises ``Fenced``.

        ``beat_ms``: between two heartbeats; ``stale_ms``: how long an owner stands still before it is taken for dead.
        ``ConfigError`` when the one is not more than twice the other.
        """
        if not 0 < beat_ms * 2 < stale_ms:
            raise ConfigError(f"lease: stale_ms ({stale_ms}) must be more than twice beat_ms ({beat_ms})")
        self._what = f"checkpoint {root}"
        self._beat_ms, self._stale_ms = beat_ms, stale_ms
        self._besides = besides
        self._owner = Owner.me()
        self._held = False
        self._looked_s = -math.inf
        self._stop = threading.Event()
        self._beat: threading.Thread | None = None

    @property
    def owner(self) -> Owner:
        """Ourselves."""
        return self._owner

    def acquire(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Become the owner; ``LeaseHeld`` names the other one.

        When the last owner did not release and nothing here can know that it is gone, this watches for up to
        ``stale_ms`` whether it still lives; ``meanwhile`` is called before, for what can be begun in that time.
        """
        if self._held:
            raise ConfigError(f"{self._what}: this process holds the lease already")
        self._take(meanwhile)
        self._held = True
        self._stop.clear()
        self._beat = threading.Thread(target=self._keep_beating, name="lease", daemon=True)
        self._beat.start()

    def check(self, *, max_age_s: float = 0.0) -> None:
        """Call before each batch. ``Fenced`` when the checkpoint is not, or no longer, ours.

        ``max_age_s``: a look that is no older will do, for a caller that only waits: each is a request or two.
        """
        began_s = time.monotonic()
        if self._held and began_s - self._looked_s < max_age_s:
            return
        holder = self._holder()
        if not self._held or holder is None or holder.token != self._owner.token:
            who = f"{holder} holds it" if holder else "its record is gone"
            raise Fenced(f"{self._what}: the lease of this process was lost: {who}; stop this process")
        self._besides()
        self._looked_s = began_s

    def release(self) -> None:
        """Give it back, so that the next owner need not wait. Leaves another owner's record alone."""
        self._stop.set()
        if self._beat is not None:
            self._beat.join()
            self._beat = None
        if self._held:
            self._give_back()
            self._held = False

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @abstractmethod
    def _take(self, meanwhile: Callable[[], None]) -> None:
        """Put our name into the record; what fails leaves nothing of ours."""

    @abstractmethod
    def _holder(self) -> Owner | None:
        """Read the owner from the record; None where there is none."""

    @abstractmethod
    def _give_back(self) -> None:
        """Take our name out of the record, if it is there."""

    @abstractmethod
    def _beat_once(self) -> bool:
        """Write a heartbeat; return False once the lease is lost and another beat is no use."""

    def _keep_beating(self) -> None:
        """Beat until ``release``, or until the lease is lost. Storage that does not answer is tried again at the next
        beat."""
        while not self._stop.wait(self._beat_ms / 1000):
            with suppress(StreamError):
                if not self._beat_once():
                    return

    def _refusal(self, holder: Owner | str) -> LeaseHeld:
        return LeaseHeld(
            f"{self._what}: in use by {holder}; stop that process first, or give this one a checkpoint of its own"
        )
