"""Processes that a test kills, or that kill themselves: forked from one that has imported their modules.

To import a sink and its client takes up to a second of processor time, more than the process then works. Nothing but
imports runs before the fork, so no thread of a library is missing after it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event

_CONTEXT = multiprocessing.get_context("forkserver")
_PATIENCE_S = 100
_CHILDREN = ("delta_child", "iceberg_child", "parquet_child", "postgres_child")
_CONTEXT.set_forkserver_preload([f"tests.harness.faults.{name}" for name in _CHILDREN])


def run(main: Callable[..., None], *arguments: object) -> int | None:
    """Run a process to its end. Return its exit code: 0, 1 after an exception, minus the signal, None if
    it does not end."""
    return run_together(1, main, *arguments)[0]


def run_together(count: int, main: Callable[..., None], *arguments: object) -> list[int | None]:
    """Run as many equal processes at once to their ends. Return their exit codes."""
    with ExitStack() as stack:
        processes = [stack.enter_context(_start(main, *arguments)) for _ in range(count)]
        for process in processes:
            process.join(_PATIENCE_S)
        return [process.exitcode for process in processes]


def run_and_kill(delays_ms: Sequence[int], main: Callable[..., None], *arguments: object) -> None:
    """Run a process for each delay, one after the other, and kill it so long after it has called ``main``. Most do not
    end before."""
    killed = 0
    for delay_ms in delays_ms:
        begun = _CONTEXT.Event()
        with _start(main, *arguments, begun=begun) as process:
            assert begun.wait(_PATIENCE_S), "it is busy with imports"
            process.join(delay_ms / 1000)
            killed += process.exitcode is None
    assert killed > len(delays_ms) // 2


@contextmanager
def _start(main: Callable[..., None], *arguments: object, begun: Event | None = None) -> Iterator[ForkServerProcess]:
    """Start a process that sets ``begun`` and calls ``main`` with the environment of this one; kill it at the end."""
    process = _CONTEXT.Process(target=_call, args=(dict(os.environ), begun, main, arguments))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _call(
    environment: Mapping[str, str], begun: Event | None, main: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if begun is not None:
        begun.set()
    main(*arguments)
