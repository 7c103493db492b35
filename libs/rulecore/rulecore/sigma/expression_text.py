"""Builds conditions of the expression language as text.

Brackets are added where they are needed. A text longer than an expression may be raises ``SigmaImportError``. A
negation is TRUE exactly when its operand is not TRUE, as in Sigma, whose logic has two values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rulecore.language import ExpressionLimits
from rulecore.sigma.errors import SigmaImportError

_LONGEST: Final = ExpressionLimits().text_bytes
_LINE: Final = 100  # characters; a longer condition gets a line for each of its terms


@dataclass(frozen=True, slots=True)
class ConditionText:
    """The text of a condition: ``terms`` joined by ``joint``, which is ``and``, ``or``, or "" for a single term.

    ``nullable``: whether the condition may be NULL.
    """

    terms: tuple[str, ...]
    joint: str
    nullable: bool

    @classmethod
    def atom(cls, text: str, *, nullable: bool) -> ConditionText:
        """Return a comparison or a call, which needs no brackets beside ``and``."""
        _refuse_long(len(text.encode()))
        return cls((text,), "", nullable)

    @property
    def text(self) -> str:
        """The condition on one line."""
        return f" {self.joint} ".join(self.terms)

    @property
    def lines(self) -> str:
        """The condition on one line, or on a line for each term if one line would be too long."""
        return self.text if len(self.text) <= _LINE else f"\n{self.joint} ".join(self.terms)


def conjunction(formulas: Iterable[ConditionText]) -> ConditionText:
    """Join conditions with ``and``."""
    return _join("and", [*formulas])


def disjunction(formulas: Iterable[ConditionText]) -> ConditionText:
    """Join conditions with ``or``."""
    return _join("or", [*formulas])


def negation(formula: ConditionText) -> ConditionText:
    """Return ``not``: TRUE where the formula is FALSE or NULL."""
    inner = f"coalesce({formula.text}, false)" if formula.nullable else f"({formula.text})"
    return ConditionText.atom(f"not {inner}", nullable=False)


def _join(joint: str, formulas: Sequence[ConditionText]) -> ConditionText:
    assert formulas
    if len(formulas) == 1:
        return formulas[0]
    terms: dict[str, None] = {}
    for one in formulas:
        terms |= dict.fromkeys(one.terms if one.joint in ("", joint) else (f"({one.text})",))
    size = sum(len(term.encode()) + len(joint) + 2 for term in terms)
    _refuse_long(size)
    nullable = any(one.nullable for one in formulas)
    return ConditionText(tuple(terms), joint if len(terms) > 1 else "", nullable)


def _refuse_long(size: int) -> None:
    if size > _LONGEST:
        raise SigmaImportError(
            f"the condition becomes longer than the {_LONGEST} bytes of an expression; split the rule"
        )
