"""The messages of the command to the user, on stderr. stdout is for data.

Library code takes a ``Print`` and does not know whether a terminal, a log or a test receives its messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

#: Takes one line of progress, without a line end.
Print = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print a line to stderr."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - all messages to the user go through here


def silent(_: str) -> None:
    """Print nothing: for tests, and for callers that draw their own view."""
