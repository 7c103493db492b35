"""What is wrong with a document, gathered, so that a person reads all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rulecore.errors import ExpressionError
from streamcore.errors import ConfigError


@dataclass
class Problems:
    """What is wrong, gathered."""

    lines: list[str] = field(default_factory=list)

    def say(self, place: str, what: str) -> None:
        """``place``: the entry of the document."""
        self.lines.append(f"  {place}: {what}")

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """What is refused inside is a problem of that entry."""
        try:
            yield
        except ExpressionError as error:
            self.lines += [f"  {line}" for line in error.render().splitlines()]
        except ConfigError as error:
            self.say(place, str(error))

    def end(self) -> None:
        """``ConfigError`` when there was something."""
        if self.lines:
            raise ConfigError("\n".join(self.lines))
