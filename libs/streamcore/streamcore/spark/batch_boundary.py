"""Requests to a running app from other threads (drain, savepoint), which are done between two of its batches.

A boundary is reached before anything of a batch was decided: all before is committed, nothing of it has reached a sink
or the state. A batch that was begun before, by a process that died, has no boundary before it: some of it may be
written, so it has to run first. Promises: every request gets a response, also when the app ends.
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
    """The batch boundaries of one app. ``what`` names the app in messages."""

    what: str
    _drain: threading.Event = field(default_factory=threading.Event)
    _finish_open_batch: bool = False
    _wanted: deque[tuple[Take, Future[Savepoint]]] = field(default_factory=deque)
    _open: bool = True

    def drain(self, *, finish_open_batch: bool = False) -> None:
        """Stop at the next boundary. ``finish_open_batch``: a batch that was begun runs first, else it stays
        unfinished."""
        self._finish_open_batch = self._finish_open_batch or finish_open_batch
        self._drain.set()

    @property
    def drain_requested(self) -> bool:
        """Whether a stop was asked for."""
        return self._drain.is_set()

    @property
    def draining(self) -> bool:
        """Whether a stop was asked for, and need not wait for a batch."""
        return self._drain.is_set() and not self._finish_open_batch

    def wait(self, seconds: float) -> None:
        """Wait until a drain is requested, ``seconds`` at most."""
        self._drain.wait(seconds)

    def savepoint(self, take: Take) -> Future[Savepoint]:
        """Take a savepoint at the next boundary, and go on."""
        asked: Future[Savepoint] = Future()
        self._wanted.append((take, asked))
        if not self._open:
            self.close()
        return asked

    def on_boundary(self, batch: int, *, begun: bool) -> None:
        """Serve the requests before this batch. ``Drained`` to stop here. ``begun``: it is a replay."""
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
        """Refuse all requests: the app has ended."""
        self._open = False
        while (wanted := self._next()) is not None:
            wanted[1].set_exception(Retryable(f"{self.what}: it ended before the savepoint could be taken"))

    def _next(self) -> tuple[Take, Future[Savepoint]] | None:
        """Pop one request; several threads may call this at once."""
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
