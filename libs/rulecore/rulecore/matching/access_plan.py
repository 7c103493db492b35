"""The access plan of a condition: the part that an index looks up, and the residual part that is then checked.

A plan is one or more entries; an event matches the rule if it matches an entry. Each entry has an access (values that
the event must have, one bound, or a leaf to scan by) and a residual condition, which is checked on the events that the
access finds (the candidates). The *shape* of a residual is its tree without constants: residuals of one shape are
checked together. The entries of a plan together are equivalent to the condition. The module knows neither events nor
other rules.
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

MAX_KEYS: Final = 32  # most keys (combinations of values) of one entry
MAX_LIST_KEYS: Final = 1_000  # most keys of an entry with a single list
MAX_ENTRIES: Final = 16  # most entries of one rule, after distributing `and` over `or`

#: A residual without constants: a leaf's kind and term (no term for an opaque one), or True/False and its parts.
Shape = tuple[object, ...]


class AccessPath(enum.StrEnum):
    """The access of an entry, from the most to the least selective."""

    EQUALITY_AND_BOUND = "equality and bound"
    EQUALITY = "equality"
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
    """The entries of a condition. ``terms``: the expression of each term that they name."""

    entries: tuple[IndexEntry, ...]
    terms: Mapping[str, Expr]

    @property
    def access(self) -> AccessPath:
        """The least selective access of the entries, which dominates the cost."""
        return max((e.access for e in self.entries), key=list(AccessPath).index)


def plan_access(where: Expr) -> AccessPlan:
    """Return the plan of a condition."""
    lowering = PredicateLowering()
    nodes = flatten(lowering.node(where, negated=False), every=True)
    entries = tuple(_plan_entry(conjunction, lowering.terms) for conjunction in _distribute(nodes))
    used = {n for e in entries for n in (*e.key_terms, *(x.term for x in (e.bound, e.scan, *e.leaves) if x))}
    return AccessPlan(entries, {name: lowering.terms[name] for name in sorted(used)})


def _distribute(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return the conjunctions to plan.

    A conjunction without a value to look up becomes a disjunction of conjunctions, if there are few of them and each
    has a value or a bound to look up.
    """
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


def _plan_entry(nodes: Sequence[Node], terms: Mapping[str, Expr]) -> IndexEntry:
    """Return the entry of a conjunction."""
    leaves = [n for n in nodes if isinstance(n, Predicate)]
    keys = _choose_keys(leaves, terms)
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
