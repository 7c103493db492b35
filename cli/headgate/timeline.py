"""When what happened since the command began: for people who wonder where the seconds go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headgate.talk import Say, silent


@dataclass(slots=True)
class Timeline:
    """Says each mark once, with the seconds since ``began_s`` (of ``time.monotonic``)."""

    say: Say = silent
    began_s: float = field(default_factory=time.monotonic)
    marks: dict[str, float] = field(default_factory=dict)

    def mark(self, what: str) -> None:
        """Note the first time that it happens."""
        if what not in self.marks:
            self.marks[what] = self.elapsed_s
            self.say(f"{self.elapsed_s:6.1f} s  {what}")

    @contextmanager
    def saying(self, say: Say) -> Iterator[None]:
        """Say it elsewhere for a while, if it is said at all."""
        before, self.say = self.say, silent if self.say is silent else say
        try:
            yield
        finally:
            self.say = before

    @property
    def elapsed_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began_s
