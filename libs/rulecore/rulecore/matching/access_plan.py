"""How one `where` will be looked up: the part that an index can find, and the part that is left to check.

A plan is one or more entries; an event matches the rule when it matches an entry. Each entry has an access (the
values that the event must have, one bound, or a leaf to scan by) and a residual tree for the events that the access
lets through. The *shape* of a residual is the tree without its constants: entries of one shape are checked together.
Promises: entries together are equivalent to the condition. Refuses to know events and other rules.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
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
    combine,
    flatten,
)
from streamcore.schema import Kind

MAX_KEYS: Final = 32  # combinations of values that one entry is filed under
MAX_LIST_KEYS: Final = 1_000  # the same for a single list
MAX_ENTRIES: Final = 16  # of one rule, by distributing `and` over `or`

#: A residual without constants: a leaf's kind and term (no term for an opaque one), or True/False and its parts.
Shape = tuple[object, ...]


class AccessPath(enum.StrEnum):
    """How an entry is found, from the most to the least selective."""

    EQUALITY_AND_BOUND = "equality and bound"
    EQUALITY = "equality"
    BOUND = "bound"
    SCAN = "scan"
    ALL = "all events"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """``keys`` are the combinations of values of ``key_terms`` (one empty combination when there are none).

    ``interval`` is a lower and an upper bound of one term; both are in the residual too, so that an index may look
    entries up by ``bound``, which is one of them, or by the cells of a grid that the interval touches.
    ``scan`` is set only when there are neither key terms nor a bound. ``leaves`` are those of the residual in the
    order of its ``shape``; a shape of None has nothing left to check.
    """

    key_terms: tuple[str, ...]
    keys: tuple[tuple[Value, ...], ...]
    bound: Predicate | None
    interval: tuple[Predicate, Predicate] | None
    scan: Predicate | None
    shape: Shape | None
    leaves: tuple[Predicate, ...]

    @property
    def access(self) -> AccessPath:
        """The path by which events find this entry."""
        if self.key_terms:
            return AccessPath.EQUALITY_AND_BOUND if self.bound else AccessPath.EQUALITY
        if self.bound:
            return AccessPath.BOUND
        return AccessPath.SCAN if self.scan else AccessPath.ALL


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """``terms``: the expression behind every term name of the entries."""

    entries: tuple[IndexEntry, ...]
    terms: Mapping[str, Expr]

    @property
    def access(self) -> AccessPath:
        """The least selective path of the entries: it dominates the cost."""
        return max((e.access for e in self.entries), key=list(AccessPath).index)


def plan_access(where: Expr) -> AccessPlan:
    """Return the plan of a condition."""
    lowering = PredicateLowering()
    nodes = flatten(lowering.node(where, negated=False), every=True)
    entries = tuple(_entry(conjunction, lowering.terms) for conjunction in _distribute(nodes))
    used = {n for e in entries for n in (*e.key_terms, *(x.term for x in (e.bound, e.scan, *e.leaves) if x))}
    return AccessPlan(entries, {name: lowering.terms[name] for name in sorted(used)})


def _distribute(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return a conjunction without a value to look up becomes a disjunction of conjunctions, while that stays small."""
    if any(isinstance(n, Predicate) and n.kind in _KEYS for n in nodes):
        return [tuple(nodes)]
    choice = next((n for n in nodes if isinstance(n, BooleanNode) and len(n.nodes) <= MAX_ENTRIES), None)
    if choice is None:
        return [tuple(nodes)]
    rest = tuple(n for n in nodes if n is not choice)
    parts = [_distribute(flatten(combine(True, (*rest, n)), True)) for n in choice.nodes]
    entries = [entry for part in parts for entry in part]
    indexed = all(any(isinstance(n, Predicate) and n.kind in _INDEXED for n in e) for e in entries)
    return entries if indexed and len(entries) <= MAX_ENTRIES else [tuple(nodes)]


_KEYS: Final = frozenset({PredicateKind.EQUAL, PredicateKind.MEMBER})
_BOUNDS: Final = frozenset({PredicateKind.LOWER, PredicateKind.UPPER})
_INDEXED: Final = _KEYS | _BOUNDS


def _entry(nodes: Sequence[Node], terms: Mapping[str, Expr]) -> IndexEntry:
    leaves = [n for n in nodes if isinstance(n, Predicate)]
    keys = _choose_keys(leaves, terms)
    bound = _choose_bound(leaves, terms)
    interval = _interval(leaves, bound)
    scan = None
    if not keys and bound is None:
        scan = min(leaves, key=_scan_cost, default=None)
    taken = {id(leaf) for leaf in (*keys, None if interval else bound, scan) if leaf is not None}
    shape, residual = _find_shape([n for n in nodes if id(n) not in taken])
    return IndexEntry(
        key_terms=tuple(leaf.term for leaf in keys),
        keys=tuple(itertools.product(*(leaf.constants for leaf in keys))),
        bound=bound,
        interval=interval,
        scan=scan,
        shape=shape,
        leaves=residual,
    )


def _choose_keys(leaves: Sequence[Predicate], terms: Mapping[str, Expr]) -> list[Predicate]:
    """Return all equalities and the short lists that still fit ``MAX_KEYS`` together; else the shortest list alone."""
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
    """Prefer a bound on decimals or doubles over one on counts or times, and a lower over an upper one (a guess)."""

    def rank(leaf: Predicate) -> tuple[bool, bool, bool, str]:
        term = terms[leaf.term]
        measure = term.type.kind in (Kind.DECIMAL, Kind.DOUBLE)
        return not isinstance(term, lang.ColumnRef), not measure, leaf.kind is not PredicateKind.LOWER, leaf.term

    return min((x for x in leaves if x.kind in _BOUNDS), key=rank, default=None)


def _interval(leaves: Sequence[Predicate], bound: Predicate | None) -> tuple[Predicate, Predicate] | None:
    """Return the bound and the first one of its term to the other side."""
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
    return _SCAN_ORDER.index(leaf.kind), leaf.term


def _find_shape(nodes: Sequence[Node]) -> tuple[Shape | None, tuple[Predicate, ...]]:
    """Return shape and leaves of a conjunction, its parts in an order that depends on their shapes only."""
    if not nodes:
        return None, ()
    return _shape(nodes[0] if len(nodes) == 1 else BooleanNode(True, tuple(nodes)))


def _shape(node: Node) -> tuple[Shape, tuple[Predicate, ...]]:
    if isinstance(node, Predicate):
        return (node.kind, "" if node.kind is PredicateKind.OPAQUE else node.term), (node,)
    parts = sorted((_shape(n) for n in node.nodes), key=lambda part: _cheap_first(part[0]))
    return (node.every, *(shape for shape, _ in parts)), tuple(leaf for _, leaves in parts for leaf in leaves)


def _cheap_first(shape: Shape) -> tuple[bool, str]:
    text = repr(shape)
    return PredicateKind.OPAQUE.value in text, text
