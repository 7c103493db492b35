"""The time of each step of a command, for users who want to know which steps are slow."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.console.messages import Print, silent


@dataclass(slots=True)
class Timeline:
    """Prints the first time of each step, in seconds since ``began_s`` (by ``time.monotonic``). ``marks``: the times so
    far, by the name of the step."""

    print_message: Print = silent
    began_s: float = field(default_factory=time.monotonic)
    marks: dict[str, float] = field(default_factory=dict)

    def mark(self, step: str) -> None:
        """Record and print the time of a step, unless that is done."""
        if step not in self.marks:
            self.marks[step] = self.elapsed_s
            self.print_message(f"{self.elapsed_s:6.1f} s  {step}")

    @contextmanager
    def redirect(self, print_message: Print) -> Iterator[None]:
        """Print the times with another function inside this context, if they are printed at all."""
        before, self.print_message = self.print_message, silent if self.print_message is silent else print_message
        try:
            yield
        finally:
            self.print_message = before

    @property
    def elapsed_s(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self.began_s
