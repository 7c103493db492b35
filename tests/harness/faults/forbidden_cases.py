"""Cases that do what the sandbox forbids, to test that it reports them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path


def warm_up() -> None:
    """Prepare nothing."""


def cases(given: object) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the forbidden cases; the last one does not end by itself."""
    yield "open", lambda: Path("/etc/hostname").read_text()
    yield "import", lambda: str(__import__("this"))
    yield "exec", lambda: str(eval("exec('1')"))
    yield "socket", lambda: str(socket.socket())
    yield "fork", lambda: str(os.system("true"))
    yield "memory", lambda: str(len(bytearray(1 << 30)))
    yield "recursion", lambda: str(_deep())
    yield "endless", lambda: str(_endless())


def _deep() -> int:
    return _deep() + 1


def _endless() -> int:
    while True:
        pass
