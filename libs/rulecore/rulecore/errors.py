"""Every error that rulecore raises on purpose.

::

    RuleError                  something about a rule that its author has to change
    ├── ExpressionError        an expression is invalid; holds the position in the text
    ├── ExpressionTypeError    operands of incompatible types; the parser adds the position (ExpressionError)
    ├── DocumentError          a rule's document (YAML, JSON) is invalid: unknown entries, wrong values, too large
    ├── ListError              a list's record or file is invalid, or does not fit the other lists
    └── RuleSetError           a valid rule does not fit the rule set: limits, version, stream

They extend ``StreamError``, for which a command or a service prints one line instead of a traceback.
"""

from __future__ import annotations

from rulecore.printable import in_one_line
from streamcore.errors import StreamError


class RuleError(StreamError):
    """The base class. Catch it to reject one rule and go on with the others."""


class DocumentError(RuleError):
    """A rule's document is invalid. Catch it to report it to the author; no version of the rule has changed."""


class RuleSetError(RuleError):
    """A valid rule does not fit the rule set. Catch it to report it to the author; the previous version stays live."""


class ListError(RuleError):
    """A list's record or file is invalid. Catch it to report it to the author; the previous version stays in use."""


class ExpressionTypeError(RuleError, ValueError):
    """Operands of incompatible types. ``operand`` is the index of the wrong one, None for all of them.

    It extends ``ValueError``, so that pydantic reports it as a validation error when an expression is read from JSON.
    """

    def __init__(self, message: str, hint: str = "", operand: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.operand = operand


class ExpressionError(RuleError):
    """An expression of a rule is invalid. Catch it to show ``render()`` to the author.

    ``field`` is the rule's field (``where``, ``having``) and ``text`` the expression. ``start`` and ``length`` are the
    wrong part of it, in characters; ``line`` and ``column`` are computed from them and begin with 1. ``scope``: the
    ``Scope`` that the text was parsed with; None if the error is not of parsing.
    """

    def __init__(self, message: str, *, field: str, text: str, start: int = 0, length: int = 1, hint: str = "") -> None:
        super().__init__(message)
        self.scope: object = None
        self.message = message
        self.field = field
        self.text = text
        self.hint = hint
        self.start = max(0, min(start, len(text)))
        self.length = max(1, length)
        before = text[: self.start]
        self.line = before.count("\n") + 1
        self.column = self.start - (before.rfind("\n") + 1) + 1

    def __str__(self) -> str:
        """Return one line, for a status record or a log."""
        place = f"{self.field}:{self.line}:{self.column}: {self.message}"
        return in_one_line(f"{place}; {self.hint}" if self.hint else place)

    def render(self) -> str:
        """Return lines for a terminal: position and message, the source line, a mark under its wrong part, the hint."""
        lines = [in_one_line(f"{self.field}:{self.line}:{self.column}: {self.message}"), self.underline()]
        return "\n".join([*lines, f"  hint: {in_one_line(self.hint)}"] if self.hint else lines)

    def underline(self) -> str:
        """Return two lines for a terminal: the source line, and a mark under its wrong part."""
        line = self.text.split("\n")[self.line - 1]
        window = max(0, self.column - _BEFORE)
        shown = "".join(c if c.isprintable() else " " for c in line[window : window + _SHOWN])
        marks = "^" * max(1, min(self.length, len(shown) - (self.column - 1 - window)))
        return f"  {shown}\n  {' ' * (self.column - 1 - window)}{marks}"


_SHOWN = 120  # most characters of a source line that are shown
_BEFORE = 80  # of them before the error
