"""The times of events since the command began, for users who want to know where the seconds go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.console.messages import Print, silent


@dataclass(slots=True)
class Timeline:
    """Prints each mark once, with the seconds since ``began_s`` (of ``time.monotonic``)."""

    print_message: Print = silent
    began_s: float = field(default_factory=time.monotonic)
    marks: dict[str, float] = field(default_factory=dict)

    def mark(self, what: str) -> None:
        """Note the first time that it happens."""
        if what not in self.marks:
            self.marks[what] = self.elapsed_s
            self.print_message(f"{self.elapsed_s:6.1f} s  {what}")

    @contextmanager
    def redirect(self, print_message: Print) -> Iterator[None]:
        """Print the marks elsewhere for a while, if they are printed at all."""
        before, self.print_message = self.print_message, silent if self.print_message is silent else print_message
        try:
            yield
        finally:
            self.print_message = before

    @property
    def elapsed_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began_s
