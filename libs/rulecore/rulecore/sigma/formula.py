"""Conditions of the expression language as text that is put together, with what that needs to know of it.

Promises: brackets stand where they are needed, the text never becomes longer than an expression may be, and a
negation is TRUE exactly when its operand is not (Sigma's two-valued ``not``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rulecore.lang import Limits
from rulecore.sigma.problems import CannotImport

_LONGEST: Final = Limits().text_bytes
_LINE: Final = 100  # characters; a longer condition gets a line for each of its terms


@dataclass(frozen=True, slots=True)
class Formula:
    """``terms`` joined by ``joint`` (``and``, ``or``; "" for a single one). ``nullable``: it may be NULL."""

    terms: tuple[str, ...]
    joint: str
    nullable: bool

    @classmethod
    def atom(cls, text: str, *, nullable: bool) -> Formula:
        """A comparison, a call: what needs no brackets beside ``and``."""
        _refuse_long(len(text.encode()))
        return cls((text,), "", nullable)

    @property
    def text(self) -> str:
        """On one line."""
        return f" {self.joint} ".join(self.terms)

    @property
    def lines(self) -> str:
        """On one line, or with one for each term where that would be long."""
        return self.text if len(self.text) <= _LINE else f"\n{self.joint} ".join(self.terms)


def all_of(formulas: Iterable[Formula]) -> Formula:
    """``and``."""
    return _joined("and", [*formulas])


def any_of(formulas: Iterable[Formula]) -> Formula:
    """``or``."""
    return _joined("or", [*formulas])


def negated(formula: Formula) -> Formula:
    """``not``: TRUE where the formula is FALSE or NULL."""
    inner = f"coalesce({formula.text}, false)" if formula.nullable else f"({formula.text})"
    return Formula.atom(f"not {inner}", nullable=False)


def _joined(joint: str, formulas: Sequence[Formula]) -> Formula:
    assert formulas
    if len(formulas) == 1:
        return formulas[0]
    terms: dict[str, None] = {}
    for one in formulas:
        terms |= dict.fromkeys(one.terms if one.joint in ("", joint) else (f"({one.text})",))
    size = sum(len(term.encode()) + len(joint) + 2 for term in terms)
    _refuse_long(size)
    nullable = any(one.nullable for one in formulas)
    return Formula(tuple(terms), joint if len(terms) > 1 else "", nullable)


def _refuse_long(size: int) -> None:
    if size > _LONGEST:
        raise CannotImport(f"the condition becomes longer than the {_LONGEST} bytes of an expression; split the rule")
