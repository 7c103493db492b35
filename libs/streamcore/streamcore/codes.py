"""Codes that people look up: reasons in records, phases and reasons in a status, exit codes.

``docs/reference/codes.md`` is generated from the classes that derive from these two. Promises that every code has a
sentence for when it occurs and one for what to do: a code without them cannot be declared. Knows nothing else.
"""

from __future__ import annotations

import enum
from typing import Self


def _sentences(value: object, occurs: str, remedy: str) -> tuple[str, str]:
    if not (occurs and remedy):
        raise TypeError(f"the code {value!r} needs two sentences: when it occurs, and what to do")
    return occurs, remedy


class Code(enum.StrEnum):
    """A code as text. A member is declared as its value, ``occurs`` (when) and ``remedy`` (what to do)."""

    _value_: str
    occurs: str
    remedy: str

    def __new__(cls, value: str, occurs: str = "", remedy: str = "") -> Self:
        """Make the member of a value."""
        code = str.__new__(cls, value)
        code._value_, code.occurs, code.remedy = value, *_sentences(value, occurs, remedy)
        return code


class ExitCode(enum.IntEnum):
    """An exit code of a process, declared like a ``Code``."""

    _value_: int
    occurs: str
    remedy: str

    def __new__(cls, value: int, occurs: str = "", remedy: str = "") -> Self:
        """Make the member of a value."""
        code = int.__new__(cls, value)
        code._value_, code.occurs, code.remedy = value, *_sentences(value, occurs, remedy)
        return code
