"""The problems of a document, collected, so that a user reads all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rulecore.errors import ExpressionError
from streamcore.errors import ConfigError


@dataclass
class Problems:
    """Collects the problems of a document, one line each."""

    lines: list[str] = field(default_factory=list)

    def add(self, path: str, message: str) -> None:
        """Add a problem. ``path``: the entry of the document, such as ``inputs.0.map.price``."""
        self.lines.append(f"  {path}: {message}")

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Add an ``ExpressionError`` or ``ConfigError`` raised in the block as a problem, and leave the block."""
        try:
            yield
        except ExpressionError as error:
            self.lines += [f"  {line}" for line in error.render().splitlines()]
        except ConfigError as error:
            self.add(path, str(error))

    def raise_if_any(self) -> None:
        """Raise ``ConfigError`` with all problems, if there are any."""
        if self.lines:
            raise ConfigError("\n".join(self.lines))
