"""The access plan of a condition: the part that an index looks up, and the residual part that is then checked.

A plan is one or more entries; an event matches the rule if it matches an entry. Each entry has an access (values that
the event must have, literals, one bound, or a leaf to scan by) and a residual condition, which is checked on the events
that the access finds (the candidates). The *shape* of a residual is its tree without constants: residuals of one shape
are checked together. The entries of a plan together are equivalent to the condition. The module knows neither events
nor other rules.

A *witness* of a condition is a set of literals of which one must be in a text whenever the condition is true. That of
an ``and`` is one of its parts', that of an ``or`` has those of all its parts; most other conditions have none.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rulecore import language as lang
from rulecore.language import Expr
from rulecore.language.types import Value
from rulecore.matching.predicates import (
    BooleanNode,
    Node,
    Predicate,
    PredicateKind,
    PredicateLowering,
    TextLiteral,
    TextPlace,
    combine,
    flatten,
    iterate_predicates,
)
from streamcore.schema import Kind

MAX_KEYS: Final = 32  # most keys (combinations of values) of one entry
MAX_LIST_KEYS: Final = 1_000  # most keys of an entry with a single list
MAX_ENTRIES: Final = 16  # most entries of one rule, after distributing `and` over `or`

#: A residual without constants: a leaf's kind and term (no term for an opaque one), or True/False and its parts.
Shape = tuple[object, ...]


class AccessPath(enum.StrEnum):
    """The access of an entry, from the most to the least selective."""

    EQUALITY_AND_BOUND = "equality and bound"
    EQUALITY = "equality"
    LITERALS = "literals"
    BOUND = "bound"
    SCAN = "scan"
    ALL = "all events"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One alternative of a condition.

    ``keys``: the combinations of values of ``key_terms`` that an event must have (one empty combination if there are no
    terms). ``interval``: a lower and an upper bound of one term. Both are also in the residual, so the index may look
    the entry up by ``bound``, which is one of them, or by the grid cells that the interval touches. ``scan``: the leaf
    that every event is checked with, only if there are neither key terms nor a bound. ``shape``: the shape of the
    residual, None if nothing is left to check; ``leaves``: its leaves, in the order of the shape.

    ``node``: instead of a shape, the whole condition of an entry with conditions on texts. ``has_witness``: it is found
    by literals.
    """

    key_terms: tuple[str, ...]
    keys: tuple[tuple[Value, ...], ...]
    bound: Predicate | None
    interval: tuple[Predicate, Predicate] | None
    scan: Predicate | None
    shape: Shape | None
    leaves: tuple[Predicate, ...]
    node: Node | None = None
    has_witness: bool = False

    @property
    def access(self) -> AccessPath:
        """The path by which events find this entry."""
        if self.key_terms:
            return AccessPath.EQUALITY_AND_BOUND if self.bound else AccessPath.EQUALITY
        if self.node is not None:
            return AccessPath.LITERALS if self.has_witness else AccessPath.ALL
        if self.bound:
            return AccessPath.BOUND
        return AccessPath.SCAN if self.scan else AccessPath.ALL


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """The entries of a condition. ``terms``: the expression of each term that they name."""

    entries: tuple[IndexEntry, ...]
    terms: Mapping[str, Expr]

    @property
    def access(self) -> AccessPath:
        """The least selective access of the entries, which dominates the cost."""
        return max((e.access for e in self.entries), key=list(AccessPath).index)


def plan_access(where: Expr) -> AccessPlan:
    """Return the plan of a condition. Literals are part of it only if they spare it from being tried on every event."""
    by_literals = _plan(where, PredicateLowering(texts=True))
    if not any(_needs_program(entry.leaves) for entry in by_literals.entries):
        return by_literals
    paths = {entry.access for entry in by_literals.entries}
    if AccessPath.LITERALS in paths and paths.isdisjoint((AccessPath.SCAN, AccessPath.ALL)):
        return by_literals
    return _plan(where, PredicateLowering())


def _plan(where: Expr, lowering: PredicateLowering) -> AccessPlan:
    nodes = flatten(lowering.node(where, negated=False), every=True)
    conjunctions = _distribute(nodes, lowering)
    entries = tuple(_plan_entry(conjunction, lowering) for conjunction in conjunctions)
    used = {n for e in entries for n in (*e.key_terms, *(x.term for x in (e.bound, e.scan, *e.leaves) if x))}
    return AccessPlan(entries, {name: lowering.terms[name] for name in sorted(used)})


def find_witness(
    node: Node, terms: Mapping[str, Expr], weight: Callable[[str, TextLiteral], float]
) -> tuple[float, tuple[tuple[str, TextLiteral], ...]] | None:
    """Return the lightest witness of a node, as literals with their terms, and its weight; None without one."""
    if isinstance(node, Predicate):
        literals = () if node.inverted else text_literals(node, terms)
        found = tuple((node.term, literal) for literal in literals or ())
        return (sum(weight(*one) for one in found), found) if found else None
    each = [find_witness(part, terms, weight) for part in node.nodes]
    some = [one for one in each if one is not None]
    if node.every:
        return min(some, key=lambda one: one[0], default=None)
    if len(some) < len(each):
        return None
    return sum(one[0] for one in some), tuple(dict.fromkeys(literal for one in some for literal in one[1]))


def text_literals(leaf: Predicate, terms: Mapping[str, Expr]) -> tuple[TextLiteral, ...] | None:
    """Return the literals of which a text must have one for the leaf's test; None if it is not such a test."""
    if leaf.kind is PredicateKind.TEXT:
        return leaf.literals
    is_text = leaf.kind in _KEYS and terms[leaf.term].type.kind is Kind.STRING
    if not is_text or not all(leaf.constants):
        return None
    return tuple(TextLiteral(str(value), TextPlace.WHOLE) for value in leaf.constants)


def _distribute(nodes: Sequence[Node], lowering: PredicateLowering) -> list[tuple[Node, ...]]:
    """Return the conjunctions to plan.

    A conjunction without a value to look up becomes a disjunction of conjunctions, if there are few of them and each
    has a value or a bound to look up. One with literals is found by them.
    """
    if _by_literals(nodes, lowering):
        return [tuple(nodes)]
    if any(isinstance(n, Predicate) and n.kind in _KEYS and not n.inverted for n in nodes):
        return [tuple(nodes)]
    choice = next((n for n in nodes if isinstance(n, BooleanNode) and len(n.nodes) <= MAX_ENTRIES), None)
    if choice is None:
        return [tuple(nodes)]
    rest = tuple(n for n in nodes if n is not choice)
    parts = [_distribute(flatten(combine(True, (*rest, n)), True), lowering) for n in choice.nodes]
    entries = [entry for part in parts for entry in part]
    indexed = all(
        any(isinstance(n, Predicate) and n.kind in _INDEXED and not n.inverted for n in e) or _by_literals(e, lowering)
        for e in entries
    )
    return entries if indexed and len(entries) <= MAX_ENTRIES else [tuple(nodes)]


_KEYS: Final = frozenset({PredicateKind.EQUAL, PredicateKind.MEMBER})
_BOUNDS: Final = frozenset({PredicateKind.LOWER, PredicateKind.UPPER})
_INDEXED: Final = _KEYS | _BOUNDS


def _by_literals(nodes: Sequence[Node], lowering: PredicateLowering) -> bool:
    """Return whether a part of a conjunction is about texts and has a witness."""
    if not lowering.texts:
        return False
    return any(_has_text([node]) and find_witness(node, lowering.terms, lambda *_: 0.0) for node in nodes)


def _has_text(nodes: Iterable[Node]) -> bool:
    return any(leaf.kind is PredicateKind.TEXT for node in nodes for leaf in iterate_predicates(node))


def _needs_program(nodes: Iterable[Node]) -> bool:
    """Return whether only ``rulecore.matching.text_index`` can check the nodes."""
    leaves = (leaf for node in nodes for leaf in iterate_predicates(node))
    return any(leaf.kind is PredicateKind.TEXT or leaf.inverted for leaf in leaves)


def _plan_entry(nodes: Sequence[Node], lowering: PredicateLowering) -> IndexEntry:
    """Return the entry of a conjunction."""
    terms = lowering.terms
    leaves = [n for n in nodes if isinstance(n, Predicate) and not n.inverted]
    keys = _choose_keys(leaves, terms)
    if _needs_program(nodes):
        by_literals = _by_literals(nodes, lowering)
        return _plan_program(nodes, [] if by_literals else keys, by_literals=by_literals)
    bound = _choose_bound(leaves, terms)
    interval = _find_interval(leaves, bound)
    scan = None
    if not keys and bound is None:
        scan = min(leaves, key=_scan_cost, default=None)
    in_access = {id(leaf) for leaf in (*keys, None if interval else bound, scan) if leaf is not None}
    shape, residual = _find_shape([n for n in nodes if id(n) not in in_access])
    return IndexEntry(
        key_terms=tuple(leaf.term for leaf in keys),
        keys=tuple(itertools.product(*(leaf.constants for leaf in keys))),
        bound=bound,
        interval=interval,
        scan=scan,
        shape=shape,
        leaves=residual,
    )


def _plan_program(nodes: Sequence[Node], keys: Sequence[Predicate], *, by_literals: bool) -> IndexEntry:
    """Return the entry of a conjunction that is found by keys or by literals and checked by a program."""
    node = combine(True, nodes)
    return IndexEntry(
        key_terms=tuple(leaf.term for leaf in keys),
        keys=tuple(itertools.product(*(leaf.constants for leaf in keys))),
        bound=None,
        interval=None,
        scan=None,
        shape=None,
        leaves=tuple(iterate_predicates(node)),
        node=node,
        has_witness=by_literals,
    )


def _choose_keys(leaves: Sequence[Predicate], terms: Mapping[str, Expr]) -> list[Predicate]:
    """Return the leaves to look up by value: equalities and lists, while their combinations fit ``MAX_KEYS``."""
    candidates = sorted((x for x in leaves if x.kind in _KEYS), key=lambda x: (len(x.constants), x.term))
    plain = [x for x in candidates if isinstance(terms[x.term], lang.ColumnRef)]
    chosen: list[Predicate] = []
    combinations = 1
    for leaf in plain or candidates:
        fits = combinations * len(leaf.constants) <= (MAX_KEYS if chosen else MAX_LIST_KEYS)
        if fits and all(leaf.term != other.term for other in chosen):
            chosen.append(leaf)
            combinations *= len(leaf.constants)
    return sorted(chosen, key=lambda x: x.term)


def _choose_bound(leaves: Sequence[Predicate], terms: Mapping[str, Expr]) -> Predicate | None:
    """Return the bound to look up by, None without one.

    A bound on decimals or doubles is preferred over one on counts or times, and a lower over an upper bound. Both are
    guesses about which is more selective.
    """

    def rank(leaf: Predicate) -> tuple[bool, bool, bool, str]:
        term = terms[leaf.term]
        measure = term.type.kind in (Kind.DECIMAL, Kind.DOUBLE)
        return not isinstance(term, lang.ColumnRef), not measure, leaf.kind is not PredicateKind.LOWER, leaf.term

    return min((x for x in leaves if x.kind in _BOUNDS), key=rank, default=None)


def _find_interval(leaves: Sequence[Predicate], bound: Predicate | None) -> tuple[Predicate, Predicate] | None:
    """Return the lower and the upper bound of the bound's term, None if it has only one of them."""
    if bound is None:
        return None
    other = next((x for x in leaves if x.term == bound.term and x.kind in _BOUNDS - {bound.kind}), None)
    if other is None:
        return None
    return (bound, other) if bound.kind is PredicateKind.LOWER else (other, bound)


_SCAN_ORDER: Final = (
    PredicateKind.MEMBER,
    PredicateKind.NULL,
    PredicateKind.OPAQUE,
    PredicateKind.VALUE,
    PredicateKind.DIFFERENT,
    PredicateKind.NO_MEMBER,
)


def _scan_cost(leaf: Predicate) -> tuple[int, str]:
    """Return a sort key: the expected cost of scanning by a leaf."""
    return _SCAN_ORDER.index(leaf.kind), leaf.term


def _find_shape(nodes: Sequence[Node]) -> tuple[Shape | None, tuple[Predicate, ...]]:
    """Return the shape and the leaves of a residual conjunction. Only the shapes of its parts decide their order."""
    if not nodes:
        return None, ()
    return _shape(nodes[0] if len(nodes) == 1 else BooleanNode(True, tuple(nodes)))


def _shape(node: Node) -> tuple[Shape, tuple[Predicate, ...]]:
    """Return the shape of a node, and its leaves in the order of the shape."""
    if isinstance(node, Predicate):
        return (node.kind, "" if node.kind is PredicateKind.OPAQUE else node.term), (node,)
    parts = sorted((_shape(n) for n in node.nodes), key=lambda part: _cheap_first(part[0]))
    return (node.every, *(shape for shape, _ in parts)), tuple(leaf for _, leaves in parts for leaf in leaves)


def _cheap_first(shape: Shape) -> tuple[bool, str]:
    """Return a sort key: shapes with an opaque leaf last."""
    text = repr(shape)
    return PredicateKind.OPAQUE.value in text, text
