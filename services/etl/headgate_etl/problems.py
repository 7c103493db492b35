"""The problems of a document, collected, so that a user reads all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rulecore.errors import ExpressionError
from streamcore.errors import ConfigError


@dataclass
class Problems:
    """The collected problems of a document."""

    lines: list[str] = field(default_factory=list)

    def add(self, place: str, what: str) -> None:
        """``place``: the entry of the document."""
        self.lines.append(f"  {place}: {what}")

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Record errors raised inside as problems of that entry."""
        try:
            yield
        except ExpressionError as error:
            self.lines += [f"  {line}" for line in error.render().splitlines()]
        except ConfigError as error:
            self.add(place, str(error))

    def raise_if_any(self) -> None:
        """``ConfigError`` when there was something."""
        if self.lines:
            raise ConfigError("\n".join(self.lines))
