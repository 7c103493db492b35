"""Builds conditions of the expression language as text.

Brackets are added where they are needed. A text that is too long for an expression raises ``SigmaImportError``. A
negation is TRUE exactly when its operand is not TRUE, as in Sigma, whose logic has two values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rulecore.language import ExpressionLimits
from rulecore.sigma.errors import SigmaImportError

_MAX_BYTES: Final = ExpressionLimits().text_bytes
_MAX_LINE: Final = 100  # characters; a longer condition gets a line for each of its terms


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
        _reject_long(len(text.encode()))
        return cls((text,), "", nullable)

    @property
    def text(self) -> str:
        """The condition on one line."""
        return f" {self.joint} ".join(self.terms)

    @property
    def lines(self) -> str:
        """The condition on one line, or on a line for each term if one line would be too long."""
        return self.text if len(self.text) <= _MAX_LINE else f"\n{self.joint} ".join(self.terms)


def conjunction(conditions: Iterable[ConditionText]) -> ConditionText:
    """Join conditions with ``and``."""
    return _join("and", [*conditions])


def disjunction(conditions: Iterable[ConditionText]) -> ConditionText:
    """Join conditions with ``or``."""
    return _join("or", [*conditions])


def negation(condition: ConditionText) -> ConditionText:
    """Return the condition that is TRUE where ``condition`` is FALSE or NULL, else FALSE."""
    inner = f"coalesce({condition.text}, false)" if condition.nullable else f"({condition.text})"
    return ConditionText.atom(f"not {inner}", nullable=False)


def _join(joint: str, conditions: Sequence[ConditionText]) -> ConditionText:
    assert conditions
    if len(conditions) == 1:
        return conditions[0]
    terms: dict[str, None] = {}
    for one in conditions:
        terms |= dict.fromkeys(one.terms if one.joint in ("", joint) else (f"({one.text})",))
    size = sum(len(term.encode()) + len(joint) + 2 for term in terms)
    _reject_long(size)
    nullable = any(one.nullable for one in conditions)
    return ConditionText(tuple(terms), joint if len(terms) > 1 else "", nullable)


def _reject_long(size: int) -> None:
    if size > _MAX_BYTES:
        raise SigmaImportError(
            f"the condition becomes longer than the {_MAX_BYTES} bytes of an expression; split the rule"
        )
