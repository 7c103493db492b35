"""Writes the conditions of entries on texts as programs (``streamcore.decode.walk.literals.conditions`` runs them).

Which witness a condition is found by changes what a batch costs, never what it finds. The weight of a literal guesses
how many events have it: a long one few, one that many conditions name many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from rulecore import language as lang
from rulecore.language import Expr
from rulecore.matching.access_plan import IndexEntry, find_witness, text_literals
from rulecore.matching.index import TextConditions
from rulecore.matching.predicates import Node, Predicate, PredicateKind, TextLiteral, TextPlace, iterate_predicates

#: The operations of a program (the module that runs them has the same numbers).
ANY_TEST, MISSING, OUTSIDE, NOT, AND, OR, UNLESS_FALSE, UNLESS_TRUE = range(8)
MAX_DEPTH: Final = 512  # values on the stack; more than ``ExpressionLimits`` let a condition have
_OPPOSITE: Final = {PredicateKind.DIFFERENT: PredicateKind.EQUAL, PredicateKind.NO_MEMBER: PredicateKind.MEMBER}
_LONGEST: Final = 12  # characters, from which on a longer literal is no rarer


def write_programs(
    entries: Sequence[IndexEntry], terms: Mapping[str, Expr], number: Callable[[Predicate], int]
) -> TextConditions | None:
    """Return the conditions of the entries that have a tree; None without any. ``number``: of a leaf's constant."""
    own = [(i, entry.node) for i, entry in enumerate(entries) if entry.node is not None]
    if not own:
        return None
    writer = _ProgramWriter(terms)
    for _, node in own:
        writer.write(node)
    uses = Counter(writer.named)

    def weight(term: str, literal: TextLiteral) -> float:
        share = 0.3 if literal.place is TextPlace.ANYWHERE else 0.1
        return float(share * uses[term, literal] * 3.0 ** -min(len(literal.text), _LONGEST))

    witnesses = list[tuple[int, ...] | None]()
    for i, node in own:
        found = None if entries[i].key_terms else find_witness(node, terms, weight)
        witnesses.append(None if found is None else tuple(writer.test(*one) for one in found[1]))
    return TextConditions(
        entries=np.array([i for i, _ in own], np.int64),
        program=tuple(writer.program),
        program_at=tuple(writer.starts),
        literals=tuple(writer.tests),
        lists=tuple(writer.lists),
        witnesses=tuple(witnesses),
        outside=tuple((leaf, number(leaf)) for leaf in writer.outside),
        missing=tuple(writer.missing),
    )


class _ProgramWriter:
    """Collects the programs and the names in them."""

    def __init__(self, terms: Mapping[str, Expr]) -> None:
        self._terms = terms
        self.program: list[tuple[int, int, int]] = []
        self.starts = [0]
        self.tests: dict[tuple[str, TextLiteral], int] = {}
        self.lists: list[int] = []
        self.outside: dict[Predicate, int] = {}
        self.missing: dict[str, int] = {}
        self.named: list[tuple[str, TextLiteral]] = []

    def test(self, term: str, literal: TextLiteral) -> int:
        """Return the number of a test."""
        return self.tests.setdefault((term, literal), len(self.tests))

    def write(self, node: Node) -> None:
        """Write the program of a condition."""
        self._write(node)
        self.starts.append(len(self.program))

    def _write(self, node: Node) -> None:
        if isinstance(node, Predicate):
            self._write_leaf(node)
            return
        skip, join = (UNLESS_FALSE, AND) if node.every else (UNLESS_TRUE, OR)
        for i, part in enumerate(sorted(node.nodes, key=self._cost)):
            at = len(self.program)
            if i:
                self.program.append((skip, 0, 0))
            self._write(part)
            if i:
                self.program.append((join, 0, 0))
                self.program[at] = (skip, len(self.program), 0)

    def _write_leaf(self, leaf: Predicate) -> None:
        test = Predicate(_OPPOSITE.get(leaf.kind, leaf.kind), leaf.term, leaf.constants, leaf.strict, leaf.literals)
        literals = text_literals(test, self._terms)
        if literals is not None:
            named = [(leaf.term, literal) for literal in literals]
            self.named += named
            self.lists += [self.test(*one) for one in named]
            self.program.append((ANY_TEST, len(self.lists) - len(named), len(self.lists)))
            if leaf.kind in _OPPOSITE:
                self.program += [(NOT, 0, 0), (MISSING, self._missing(leaf.term), 0), (NOT, 0, 0), (AND, 0, 0)]
        elif leaf.kind in (PredicateKind.NULL, PredicateKind.VALUE):
            self.program.append((MISSING, self._missing(leaf.term), 0))
            if leaf.kind is PredicateKind.VALUE:
                self.program.append((NOT, 0, 0))
        else:
            asked = Predicate(leaf.kind, leaf.term, leaf.constants, leaf.strict)
            self.program.append((OUTSIDE, self.outside.setdefault(asked, len(self.outside)), 0))
        if leaf.inverted:
            self.program.append((NOT, 0, 0))

    def _missing(self, term: str) -> int:
        """Return the number of a term in ``missing``. A text has a lower case, so that is NULL if the text is."""
        expr = self._terms[term]
        base = expr
        while isinstance(base, lang.Call) and base.function == "lower":
            base = base.arguments[0]
        name = base.name if isinstance(base, lang.ColumnRef) and base.name in self._terms else term
        return self.missing.setdefault(name, len(self.missing))

    def _cost(self, node: Node) -> int:
        """Return a sort key: nodes that need other parts of the index last."""
        return max(_leaf_cost(leaf, self._terms) for leaf in iterate_predicates(node))


def _leaf_cost(leaf: Predicate, terms: Mapping[str, Expr]) -> int:
    test = Predicate(_OPPOSITE.get(leaf.kind, leaf.kind), leaf.term, leaf.constants, literals=leaf.literals)
    if leaf.kind in (PredicateKind.NULL, PredicateKind.VALUE) or text_literals(test, terms) is not None:
        return 0
    return 2 if leaf.kind is PredicateKind.OPAQUE else 1


def number_terms(literals: Iterable[tuple[str, TextLiteral]]) -> dict[str, list[tuple[int, TextLiteral]]]:
    """Return the numbered tests by term."""
    found: dict[str, list[tuple[int, TextLiteral]]] = {}
    for number, (term, literal) in enumerate(literals):
        found.setdefault(term, []).append((number, literal))
    return found
