"""The common part of all leases: acquire, heartbeat, check and release.

How the lease's record is read and changed is in ``file`` and ``object``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from streamcore.errors import ConfigError, Fenced, StreamError
from streamcore.leases.owner import Owner

_LOG = logging.getLogger(__name__)


class LeaseHeld(ConfigError):
    """Another process holds the lease, or released it just now. Catch it to try again later."""


class Lease(ABC):
    """The lease of one checkpoint root. Call ``acquire``, then ``check`` before each batch, then ``release``."""

    def __init__(
        self,
        root: object,
        *,
        beat_ms: int = 5_000,
        stale_ms: int = 30_000,
        besides: Callable[[], None] = lambda: None,
    ) -> None:
        """``root``: named in messages. ``besides``: a further check that ``check`` calls; it raises ``Fenced``.

        ``beat_ms``: interval of the heartbeats. ``stale_ms``: an owner without a heartbeat for this time counts as
        dead. Raises ``ConfigError`` unless ``stale_ms`` is more than twice ``beat_ms``.
        """
        if not 0 < beat_ms * 2 < stale_ms:
            raise ConfigError(f"lease: stale_ms ({stale_ms}) must be more than twice beat_ms ({beat_ms})")
        self._what = f"checkpoint {root}"
        self._beat_ms, self._stale_ms = beat_ms, stale_ms
        self._besides = besides
        self._owner = Owner.me()
        self._held = False
        self._checked_s = -math.inf
        self._stop = threading.Event()
        self._beat: threading.Thread | None = None

    @property
    def owner(self) -> Owner:
        """This process, as it is named in the lease's record."""
        return self._owner

    def acquire(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Acquire the lease. Raise ``LeaseHeld``, naming the owner, if another process holds it.

        If the last owner did not release the lease and is not known to be dead, this watches its heartbeat for up to
        ``stale_ms``. ``meanwhile`` is called before that wait, to start other work.
        """
        if self._held:
            raise ConfigError(f"{self._what}: this process holds the lease already")
        self._take(meanwhile)
        self._held = True
        self._stop.clear()
        self._beat = threading.Thread(target=self._keep_beating, name="lease", daemon=True)
        self._beat.start()

    def check(self, *, max_age_s: float = 0.0) -> None:
        """Raise ``Fenced`` if this process does not hold the lease. Call it before each batch.

        ``max_age_s``: do nothing if the last check is younger. A check costs a request or two.
        """
        began_s = time.monotonic()
        if self._held and began_s - self._checked_s < max_age_s:
            return
        holder = self._holder()
        if not self._held or holder is None or holder.token != self._owner.token:
            raise Fenced(f"{self._what}: the lease of this process was lost: {self._why_lost(holder)}. Nothing is lost")
        self._besides()
        self._checked_s = began_s

    def _why_lost(self, holder: Owner | None) -> str:
        if holder is None:
            return (
                "its record is gone, because another process took it over and has ended, or a person removed it; "
                "this process ends: start one process of the app"
            )
        why = f"because this one gave no sign for {self._stale_ms / 1000:.0f} s"
        return f"{holder} took it over, {why}; this one ends, that one goes on"

    def release(self) -> None:
        """Release the lease, so that the next owner need not wait. Another owner's record is not changed."""
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
        """Write this process into the record. A failure leaves no record of this process."""

    @abstractmethod
    def _holder(self) -> Owner | None:
        """Read the owner from the record; return None if there is none."""

    @abstractmethod
    def _give_back(self) -> None:
        """Remove this process from the record, if the record names it."""

    @abstractmethod
    def _beat_once(self) -> bool:
        """Write a heartbeat; return False once the lease is lost."""

    def _keep_beating(self) -> None:
        """Write heartbeats until ``release``, or until the lease is lost. A failed heartbeat is ignored; the next one
        comes after ``beat_ms``."""
        while not self._stop.wait(self._beat_ms / 1000):
            with suppress(StreamError):
                if not self._beat_once():
                    return

    def _report_wait(self, holder: Owner) -> None:
        """Log that an owner of another machine may live, before its heartbeat is watched."""
        text = "%s: %s holds it; this process waits %.0f s for a sign of that one, and takes over if there is none"
        _LOG.warning(text, self._what, holder, self._stale_ms / 1000)

    def _report_takeover(self, holder: Owner) -> None:
        """Log that the owner gave no sign of life."""
        text = "%s: taken over from %s, which gave no sign for %.0f s; if it lives, it stops with an error: Fenced"
        _LOG.warning(text, self._what, holder, self._stale_ms / 1000)

    def _rejection(self, holder: Owner | str) -> LeaseHeld:
        return LeaseHeld(
            f"{self._what}: in use by {holder}; stop that process first, or give this one a checkpoint of its own"
        )
