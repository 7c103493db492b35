"""What the command says to a person, on stderr. stdout is for data.

Library code takes a ``Say`` and does not know whether a terminal, a log or a test listens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

#: Takes one line of progress, without a line end.
Say = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Print for a person."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the one place that prints for a person


def silent(_: str) -> None:
    """Say nothing: for tests, and for callers that draw their own view."""
