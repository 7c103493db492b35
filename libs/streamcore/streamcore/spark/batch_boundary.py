"""Executes requests of other threads to a running app (drain, savepoint) between two of its batches.

At a boundary the previous batch is committed, and nothing of the next one has reached a sink or the state. A batch that
a dead process began has no boundary before it: a part of it may be written, so it must run first. Every request gets a
response, even if the app ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from streamcore.errors import Drained, Retryable
from streamcore.savepoint.repository import Savepoint

#: Takes a savepoint of the state after a batch.
Take = Callable[[int], Savepoint]


@dataclass(slots=True)
class BatchBoundary:
    """Collects requests to one app and executes them at its batch boundaries. ``what`` names the app in messages."""

    what: str
    _drain: threading.Event = field(default_factory=threading.Event)
    _finish_open_batch: bool = False
    _wanted: deque[tuple[Take, Future[Savepoint]]] = field(default_factory=deque)
    _open: bool = True

    def drain(self, *, finish_open_batch: bool = False) -> None:
        """Request a stop at the next boundary. With ``finish_open_batch``, a batch that an earlier process began runs
        first; otherwise it stays unfinished."""
        self._finish_open_batch = self._finish_open_batch or finish_open_batch
        self._drain.set()

    @property
    def drain_requested(self) -> bool:
        """Whether a stop was requested."""
        return self._drain.is_set()

    @property
    def draining(self) -> bool:
        """Whether a stop was requested that need not wait for an open batch."""
        return self._drain.is_set() and not self._finish_open_batch

    def wait(self, seconds: float) -> None:
        """Wait until a drain is requested, ``seconds`` at most."""
        self._drain.wait(seconds)

    def savepoint(self, take: Take) -> Future[Savepoint]:
        """Request a savepoint at the next boundary, after which the app continues. The future gets the savepoint, or
        the error."""
        asked: Future[Savepoint] = Future()
        self._wanted.append((take, asked))
        if not self._open:
            self.close()
        return asked

    def on_boundary(self, batch: int, *, begun: bool) -> None:
        """Execute the requests before this batch. Raise ``Drained`` if the app must stop here.

        ``begun``: the offset log has the batch already, so it is a replay.
        """
        if not begun:
            while (wanted := self._next()) is not None:
                _resolve(*wanted, batch - 1)
        if self._drain.is_set() and not (begun and self._finish_open_batch):
            raise Drained(f"{self.what}: stopped before batch {batch}")

    @property
    def is_closed(self) -> bool:
        """Whether the app has ended."""
        return not self._open

    def close(self) -> None:
        """Fail all open and later requests, because the app has ended."""
        self._open = False
        while (wanted := self._next()) is not None:
            wanted[1].set_exception(Retryable(f"{self.what}: it ended before the savepoint could be taken"))

    def _next(self) -> tuple[Take, Future[Savepoint]] | None:
        """Remove and return one request, or None. Several threads may call this at once."""
        try:
            return self._wanted.popleft()
        except IndexError:
            return None


def _resolve(take: Take, asked: Future[Savepoint], batch: int) -> None:
    """Take the savepoint and resolve its future: a failure goes to the caller and does not stop the app."""
    try:
        asked.set_result(take(batch))
    except Exception as error:
        asked.set_exception(error)
