"""Every error that rulecore raises on purpose.

::

    RuleError                  something about a rule that its author has to change
    ├── ExpressionError        one expression was refused; holds the place in the text
    ├── TypeMismatch           operands of types that do not go together, no place yet (lang turns it into the above)
    ├── DocumentError          a rule's document (YAML, JSON) is not one: unknown entries, wrong values, too large
    ├── ListError              a list's record or file is faulty, or cannot join the others
    └── RuleSetError           a rule is sound by itself and yet cannot join the set: budget, version, stream

They extend ``StreamError``, so that the edge of a process prints one line for any of them.
"""

from __future__ import annotations

from rulecore.printable import in_one_line
from streamcore.errors import StreamError


class RuleError(StreamError):
    """The root. Catch it to refuse one rule and go on with all the others."""


class DocumentError(RuleError):
    """A rule's document cannot be read. Catch it to answer the author; no version of the rule changes."""


class RuleSetError(RuleError):
    """A sound rule that the set refuses. Catch it to answer the author; the previous version stays live."""


class ListError(RuleError):
    """A list's record or file is refused. Catch it to answer the author; the previous version stays live."""


class ExpressionTypeError(RuleError, ValueError):
    """Operands that do not go together. ``operand`` is the index of the one to blame, None for the whole.

    A ``ValueError`` as well, for pydantic reports it as a validation error when a tree is read from JSON.
    """

    def __init__(self, message: str, hint: str = "", operand: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.operand = operand


class ExpressionError(RuleError):
    """An expression of a rule was refused. Catch it to show the author ``render()``.

    ``field`` is the rule's field (``where``, ``having``), ``start`` and ``length`` count characters of ``text``;
    ``line`` and ``column`` follow from them and begin with 1.
    """

    def __init__(self, message: str, *, field: str, text: str, start: int = 0, length: int = 1, hint: str = "") -> None:
        super().__init__(message)
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
        """Return several lines, for a person: the place, the source line, the underline, the hint."""
        line = self.text.split("\n")[self.line - 1]
        window = max(0, self.column - _BEFORE)
        shown = "".join(c if c.isprintable() else " " for c in line[window : window + _SHOWN])
        marks = "^" * max(1, min(self.length, len(shown) - (self.column - 1 - window)))
        lines = [in_one_line(f"{self.field}:{self.line}:{self.column}: {self.message}")]
        lines += [f"  {shown}", "  " + " " * (self.column - 1 - window) + marks]
        return "\n".join([*lines, f"  hint: {in_one_line(self.hint)}"] if self.hint else lines)


_SHOWN = 120  # characters of a source line that are shown at most
_BEFORE = 80  # of them before the place of the error
