"""The ``condition`` of a Sigma rule: names, ``and``, ``or``, ``not``, brackets, ``1 of``, ``all of``.

From least to most binding: or, and, not, ``x of y``, brackets. Recursion is bounded by the depth of brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rulecore.sigma.errors import SigmaImportError
from rulecore.sigma.expression_text import ConditionText, conjunction, disjunction, negation

_TOKEN: Final = re.compile(r"\s*(?:([()])|([A-Za-z0-9_*.\-]+)|(\S))")
_DEPTH: Final = 16


def read_condition(
    text: str, names: Sequence[str], formula_of: Callable[[str], ConditionText]
) -> tuple[ConditionText, set[str]]:
    """Return the translated condition over the selections ``names``, and the names that it uses.

    ``formula_of`` translates a selection. The work is bounded by the characters times the names, which ``document``
    limits.
    """
    parser = _Parser(_tokens(text), tuple(names), formula_of)
    formula = parser.either(0)
    if parser.place < len(parser.tokens):
        raise SigmaImportError(f"condition: {parser.tokens[parser.place]!r} is not expected here")
    return formula, parser.used


def _tokens(text: str) -> list[str]:
    tokens = []
    for match in _TOKEN.finditer(text):
        bracket, word, other = match.groups()
        if other == "|":
            raise SigmaImportError("condition: aggregations behind `|` are Sigma 1; write a correlation rule instead")
        if other is not None:
            raise SigmaImportError(f"condition: {other!r} is not expected here")
        tokens.append(bracket or word)
    if not tokens:
        raise SigmaImportError("condition: is empty")
    return tokens


@dataclass(slots=True)
class _Parser:
    """A recursive-descent parser; ``place`` is the index of the next token. Each method parses one level of binding."""

    tokens: list[str]
    names: tuple[str, ...]
    formula_of: Callable[[str], ConditionText]
    place: int = 0
    used: set[str] = field(default_factory=set)

    def next_is(self, word: str) -> bool:
        """Take the next token if it is this word, and return whether it is."""
        is_next = self.place < len(self.tokens) and self.tokens[self.place].lower() == word
        self.place += is_next
        return is_next

    def take(self) -> str:
        if self.place == len(self.tokens):
            raise SigmaImportError("condition: something is missing at its end")
        self.place += 1
        return self.tokens[self.place - 1]

    def either(self, depth: int) -> ConditionText:
        terms = [self.both(depth)]
        while self.next_is("or"):
            terms.append(self.both(depth))
        return disjunction(terms)

    def both(self, depth: int) -> ConditionText:
        terms = [self.negation(depth)]
        while self.next_is("and"):
            terms.append(self.negation(depth))
        return conjunction(terms)

    def negation(self, depth: int) -> ConditionText:
        odd = False
        while self.next_is("not"):
            odd = not odd
        formula = self.atom(depth)
        return negation(formula) if odd else formula

    def atom(self, depth: int) -> ConditionText:
        word = self.take()
        if word == "(":
            if depth == _DEPTH:
                raise SigmaImportError(f"condition: brackets are nested more than {_DEPTH} deep")
            inner = self.either(depth + 1)
            if not self.next_is(")"):
                raise SigmaImportError("condition: a bracket is never closed")
            return inner
        if self.next_is("of"):
            return self.parse_quantifier(word.lower())
        if word in self.names:
            return self.selection(word)
        raise SigmaImportError(f"condition: there is no {word!r}; there are {', '.join(self.names)}")

    def parse_quantifier(self, how_many: str) -> ConditionText:
        if how_many not in ("1", "any", "all"):
            raise SigmaImportError(f"condition: `{how_many} of` is not Sigma; there are `1 of` and `all of`")
        pattern = self.take()
        chosen = [name for name in self.names if _is_chosen(name, pattern)]
        if not chosen:
            raise SigmaImportError(
                f"condition: no selection is called like {pattern!r}; there are {', '.join(self.names)}"
            )
        terms = [self.selection(name) for name in chosen]
        return conjunction(terms) if how_many == "all" else disjunction(terms)

    def selection(self, name: str) -> ConditionText:
        self.used.add(name)
        return self.formula_of(name)


def _is_chosen(name: str, pattern: str) -> bool:
    """Return whether the pattern of ``x of`` selects the name; ``them`` selects names without a leading underscore."""
    if pattern.lower() == "them":
        return not name.startswith("_")
    parts = pattern.split("*")
    return _like(name, parts)


def _like(name: str, parts: list[str]) -> bool:
    """Return whether ``name`` consists of the parts in their order, with any text between them."""
    first, *rest = parts
    if not rest:
        return name == first
    if not name.startswith(first):
        return False
    place = len(first)
    for part in rest[:-1]:
        found = name.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return len(name) - place >= len(rest[-1]) and name.endswith(rest[-1])
