"""What is wrong in a settings document, by entry: for a person who has the file open, and for a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DocumentFault:
    """One mistake in a settings document.

    ``path``: the entry, such as ``inputs.0.map.price``; empty for the whole document. ``line``, ``column``: of an
    expression's wrong part in its text; 0 for other entries. ``text``: of an expression, the message with the line and
    a mark below its wrong part.
    """

    path: str
    message: str
    hint: str = ""
    line: int = 0
    column: int = 0
    text: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the fault as lines of an error message."""
        if self.text:
            yield from self.text.splitlines()
        else:
            yield f"{self.path or 'document'}: {self.message}"
