"""Reads the headers of a message. A header whose name is not UTF-8 is left out: no stream can name it."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable
from typing import Final

import confluent_kafka as ck

MessageHeaders = list[tuple[str, bytes | None]]
#: For a name that is not UTF-8 the client returns a result *and* sets an exception. Python only notices that at once if
#: the call is made in C; a frequent call in Python leaves the exception to whatever comes after it.
_HEADERS: Final[Callable[[ck.Message], MessageHeaders | None]] = operator.methodcaller("headers")


def message_headers(message: ck.Message) -> MessageHeaders:
    """Return the headers of a message in their order."""
    try:
        return _HEADERS(message) or []
    except SystemError:
        # The client has made a pair for each header, with a hole in place of such a name, and returns the pairs of the
        # first call again. A look at the hole would end the process; the garbage collector's look passes over it.
        return [found for pair in _HEADERS(message) or () if (found := _without_hole(pair)) is not None]


def _without_hole(pair: object) -> tuple[str, bytes | None] | None:
    parts = gc.get_referents(pair)
    names = [part for part in parts if isinstance(part, str)]
    values = [part for part in parts if not isinstance(part, str)]
    return (names[0], values[0]) if names else None
