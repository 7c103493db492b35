"""Lexemes: the operands, function names, operators and keywords in the text of an expression."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal


def words(text: str) -> frozenset[str]:
    """Return the set of the words of a text."""
    return frozenset(text.split())


SYMBOLS = {"==": "=", "!=": "<>", **{s: s for s in words("+ - * / % = <> < <= > >= <=> || -> [ ]")}}
KEYWORDS = words("and or not in between like rlike is null true false case when then else end escape distinct")
#: Words of SQL that the language does not have. They get a message of their own, not "unknown column".
FOREIGN = words(
    "ilike startswith endswith contains select from where with union exists over lateral join values order group"
)


class LexemeKind(enum.Enum):
    """The kind of a lexeme."""

    NAME = "name"
    CONSTANT = "constant"
    NULL = "null"
    INTERVAL = "interval"
    TIMESTAMP = "timestamp"
    STAR = "star"
    MEMBER = "member"  # of a struct: .name
    FUNCTION = "function"
    OPERATOR = "operator"  # and keywords, brackets and the comma


OPERANDS = frozenset(
    {LexemeKind.NAME, LexemeKind.CONSTANT, LexemeKind.NULL, LexemeKind.INTERVAL, LexemeKind.TIMESTAMP, LexemeKind.STAR}
)


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A lexeme at the characters of the text from ``start`` to ``end``, exclusive.

    ``value``: of a constant; of an interval or timestamp in milliseconds. ``escape``: the escape character after a
    ``like`` pattern. ``distinct``: of ``count(distinct ...)``.
    """

    kind: LexemeKind
    text: str
    start: int
    end: int
    value: bool | int | float | Decimal | str | None = None
    escape: str | None = None
    distinct: bool = False

    def is_operator(self, *texts: str) -> bool:
        """Return whether it is one of these operators or keywords."""
        return self.kind is LexemeKind.OPERATOR and self.text in texts

    def ends_operand(self) -> bool:
        """Return whether it can be the last lexeme of an operand, so that an operator may follow."""
        return self.kind in OPERANDS or self.kind is LexemeKind.MEMBER or self.is_operator(")", "]", "end", "null")


#: What the language has in place of a symbol or word of other languages.
_INSTEAD = {
    "&": "write: and",
    "!": "write: not",
    "~": "accepted here: regexp_like(text, 'pattern')",
    "ilike": "accepted here: lower(text) like 'pattern in lower case'",
    "startswith": "accepted here: starts_with(text, 'start')",
    "endswith": "accepted here: ends_with(text, 'end')",
    "contains": "accepted here: contains(text, 'part')",
    "filter": "accepted here: count_if(condition), sum(case when condition then x end)",
}


def foreign_hint(text: str) -> str:
    """Return the hint about a symbol or a word that the language does not have."""
    if text.lower() in _INSTEAD:
        return _INSTEAD[text.lower()]
    if text.lower() in FOREIGN:
        return "an expression of columns, constants and functions; no queries or windows"
    return "accepted here: + - * / % = <> < <= > >= <=> || ( ) [ ] , -> and words"
