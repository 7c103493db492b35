"""What is asked of a running app from other threads, and is done between two of its batches.

A boundary is reached before anything of a batch was decided: all before is committed, nothing of it has reached a sink
or the state. A batch that was begun before, by a process that died, has no boundary before it: some of it may be
written, so it has to run first. Promises: whoever asks gets an answer, also when the app ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from streamcore.errors import Drained, Retryable
from streamcore.savepoint.folder import Savepoint

#: Takes a savepoint of the state after a batch.
Take = Callable[[int], Savepoint]


@dataclass(slots=True)
class Boundary:
    """Of one app. ``what`` names it in messages."""

    what: str
    _drain: threading.Event = field(default_factory=threading.Event)
    _settle: bool = False
    _wanted: deque[tuple[Take, Future[Savepoint]]] = field(default_factory=deque)
    _open: bool = True

    def drain(self, *, settle: bool = False) -> None:
        """Stop at the next boundary. ``settle``: what was begun runs first; else it is left as it is."""
        self._settle = self._settle or settle
        self._drain.set()

    @property
    def asked(self) -> bool:
        """Whether a stop was asked for."""
        return self._drain.is_set()

    @property
    def draining(self) -> bool:
        """Whether a stop was asked for, and need not wait for a batch."""
        return self._drain.is_set() and not self._settle

    def wait(self, seconds: float) -> None:
        """Until it is asked to drain, so long at most."""
        self._drain.wait(seconds)

    def savepoint(self, take: Take) -> Future[Savepoint]:
        """Take a savepoint at the next boundary, and go on."""
        asked: Future[Savepoint] = Future()
        self._wanted.append((take, asked))
        if not self._open:
            self.close()
        return asked

    def reached(self, batch: int, *, begun: bool) -> None:
        """Do what was asked for, before this batch. ``Drained`` to stop here. ``begun``: it is a replay."""
        if not begun:
            while (wanted := self._next()) is not None:
                _answer(*wanted, batch - 1)
        if self._drain.is_set() and not (begun and self._settle):
            raise Drained(f"{self.what}: stopped before batch {batch}")

    @property
    def closed(self) -> bool:
        """Whether the app has ended."""
        return not self._open

    def close(self) -> None:
        """The app has ended: nothing is done any more."""
        self._open = False
        while (wanted := self._next()) is not None:
            wanted[1].set_exception(Retryable(f"{self.what}: it ended before the savepoint could be taken"))

    def _next(self) -> tuple[Take, Future[Savepoint]] | None:
        """Each goes to one of the threads that ask at once."""
        try:
            return self._wanted.popleft()
        except IndexError:
            return None


def _answer(take: Take, asked: Future[Savepoint], batch: int) -> None:
    """A savepoint that fails is its asker's trouble, not the app's."""
    try:
        asked.set_result(take(batch))
    except Exception as error:
        asked.set_exception(error)
