"""One event loop for all enrichments of a process, in its own thread.

Frames are enriched by blocking calls. A loop that ran only during these calls would not serve connections between them:
heartbeats would stop, and a connection that the server closed would look open. So the loop runs in a thread from the
first ``acquire`` to the last ``release``; stopping it cancels the tasks that are left. A forked process gets a loop of
its own.
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
    """A thread with an event loop that runs until ``stop``."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="enrichment", daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._stop.wait()

    def submit(self, coroutine: Coroutine[object, object, Result]) -> Future[Result]:
        """Start a coroutine on the loop. A caller that stops waiting for the result must cancel it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, coroutine: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine on the loop, wait, and return its result."""
        return self.submit(coroutine).result()

    def stop(self) -> None:
        """Cancel the tasks that still run, close the loop and end the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@dataclass(slots=True)
class _SharedLoop:
    """The loop of one process, with the number of its users."""

    loop: LoopThread
    users: int = 0


_lock = threading.Lock()
_loops: dict[int, _SharedLoop] = {}  # by process id: a fork copies the dictionary, not the thread


def acquire() -> LoopThread:
    """Return this process's loop, started if needed. Each call needs one ``release``."""
    with _lock:
        shared = _loops.get(os.getpid()) or _loops.setdefault(os.getpid(), _SharedLoop(LoopThread()))
        shared.users += 1
        return shared.loop


def release() -> None:
    """Give up one ``acquire``; the last one stops the loop."""
    with _lock:
        shared = _loops[os.getpid()]
        shared.users -= 1
        if not shared.users:
            del _loops[os.getpid()]
            shared.loop.stop()
