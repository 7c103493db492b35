"""One event loop for all enrichments of a process, in a thread of its own.

Rows are enriched by a plain call, made again and again from code that knows no event loop. A loop that ran only during
those calls would leave connections unattended between them: heartbeats would stop and a connection that the server
closed would look open. So it runs on in a thread, from the first user to the last; ending it cancels whatever the users
left behind and closes it. A forked process gets a loop of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


class LoopThread:
    """An event loop that runs until ``stop``."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="enrichment", daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    def submit(self, work: Coroutine[object, object, Result]) -> Future[Result]:
        """Begin the work on the loop. A caller that stops waiting for the result must cancel the work itself."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[object, object, Result]) -> Result:
        """Run it on the loop and wait."""
        return self.submit(work).result()

    def stop(self) -> None:
        """Cancel the tasks that still run, close the loop, end the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@dataclass(slots=True)
class _Shared:
    loop: LoopThread
    users: int = 0


_lock = threading.Lock()
_shared: dict[int, _Shared] = {}  # by process: a fork copies the dictionary, not the thread


def acquire() -> LoopThread:
    """Return this process's loop, for one more user."""
    with _lock:
        shared = _shared.get(os.getpid()) or _shared.setdefault(os.getpid(), _Shared(LoopThread()))
        shared.users += 1
        return shared.loop


def release() -> None:
    """Return one user less; with the last the loop ends."""
    with _lock:
        shared = _shared[os.getpid()]
        shared.users -= 1
        if not shared.users:
            del _shared[os.getpid()]
            shared.loop.stop()
