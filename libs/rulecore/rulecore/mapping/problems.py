"""The problems of a document, collected, so that a user reads all of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rulecore.errors import ExpressionError
from rulecore.language import Scope, parse
from streamcore.errors import ConfigError
from streamcore.service.config.faults import DocumentFault

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNKNOWN = re.compile(r"unknown \w+ ([A-Za-z_][A-Za-z0-9_]*)")


@dataclass
class Problems:
    """Collects the problems of a document.

    ``unclear``: fields whose own declaration is wrong. An expression or an entry about one of them may be wrong for
    this reason alone, so it gives no further problem.
    """

    faults: list[DocumentFault] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)

    @property
    def lines(self) -> list[str]:
        """The problems as text, one line each; of an expression also the line with the mark below its wrong part."""
        return [f"  {line}" for fault in self.faults for line in fault.lines()]

    def add(self, path: str, message: str) -> None:
        """Add a problem. ``path``: the entry of the document, such as ``inputs.0.map.price``."""
        before, _, name = path.rpartition(".")
        if not before or name not in self.unclear:
            self.faults.append(DocumentFault(path, message))

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        """Add an ``ExpressionError`` or ``ConfigError`` raised in the block as a problem, and leave the block."""
        try:
            yield
        except ExpressionError as error:
            if not self._is_consequence(path, error):
                fault = DocumentFault(path, error.message, error.hint, error.line, error.column, error.render())
                self.faults.append(fault)
        except ConfigError as error:
            if path.startswith(("model.", "lists.")):  # a declaration, which is no consequence
                self.faults.append(DocumentFault(path, str(error)))
            else:
                self.add(path, str(error))

    def _is_consequence(self, path: str, error: ExpressionError) -> bool:
        """Whether the error may have its cause in the declaration of a field that is wrong."""
        if (unknown := _UNKNOWN.match(error.message)) is not None:
            return unknown[1] in self.unclear
        if _needs_no_types(error):
            return False
        return path.rpartition(".")[2] in self.unclear or bool(self.unclear.intersection(_NAME.findall(error.text)))

    def raise_if_any(self) -> None:
        """Raise ``ConfigError`` with all problems, if there are any."""
        if self.faults:
            raise ConfigError("\n".join(self.lines))


def _needs_no_types(error: ExpressionError) -> bool:
    """Whether the error is there without any columns, too, as that of a bracket that is not closed."""
    try:
        parse(error.text, Scope({}), expect=None)
    except ExpressionError as again:
        return (again.message, again.start) == (error.message, error.start)
    return False
