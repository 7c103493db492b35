"""Parses the ``condition`` of a Sigma rule: names, ``and``, ``or``, ``not``, brackets, ``1 of``, ``all of``.

Precedence, from low to high: or, and, not, ``x of y``, brackets. The depth of brackets bounds the recursion.
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
    text: str, names: Sequence[str], translate: Callable[[str], ConditionText]
) -> tuple[ConditionText, set[str]]:
    """Return the translated condition over the selections ``names``, and the names that it uses.

    ``translate`` translates a selection. The work is at most the number of characters times the number of names;
    ``document`` limits both.
    """
    parser = _Parser(_tokens(text), tuple(names), translate)
    condition = parser.parse_or(0)
    if parser.place < len(parser.tokens):
        raise SigmaImportError(f"condition: {parser.tokens[parser.place]!r} is not expected here")
    return condition, parser.used


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
    """A recursive-descent parser; ``place`` is the index of the next token. A ``parse_`` method for each precedence."""

    tokens: list[str]
    names: tuple[str, ...]
    translate: Callable[[str], ConditionText]
    place: int = 0
    used: set[str] = field(default_factory=set)

    def take_if(self, word: str) -> bool:
        """Go past the next token if it is this word, and return whether it is."""
        is_next = self.place < len(self.tokens) and self.tokens[self.place].lower() == word
        self.place += is_next
        return is_next

    def take(self) -> str:
        if self.place == len(self.tokens):
            raise SigmaImportError("condition: something is missing at its end")
        self.place += 1
        return self.tokens[self.place - 1]

    def parse_or(self, depth: int) -> ConditionText:
        terms = [self.parse_and(depth)]
        while self.take_if("or"):
            terms.append(self.parse_and(depth))
        return disjunction(terms)

    def parse_and(self, depth: int) -> ConditionText:
        terms = [self.parse_not(depth)]
        while self.take_if("and"):
            terms.append(self.parse_not(depth))
        return conjunction(terms)

    def parse_not(self, depth: int) -> ConditionText:
        odd = False
        while self.take_if("not"):
            odd = not odd
        condition = self.parse_atom(depth)
        return negation(condition) if odd else condition

    def parse_atom(self, depth: int) -> ConditionText:
        word = self.take()
        if word == "(":
            if depth == _DEPTH:
                raise SigmaImportError(f"condition: brackets are nested more than {_DEPTH} deep")
            inner = self.parse_or(depth + 1)
            if not self.take_if(")"):
                raise SigmaImportError("condition: a bracket is never closed")
            return inner
        if self.take_if("of"):
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
            raise SigmaImportError(f"condition: no selection matches {pattern!r}; there are {', '.join(self.names)}")
        terms = [self.selection(name) for name in chosen]
        return conjunction(terms) if how_many == "all" else disjunction(terms)

    def selection(self, name: str) -> ConditionText:
        self.used.add(name)
        return self.translate(name)


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
