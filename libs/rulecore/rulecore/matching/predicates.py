"""Lowers a condition to a tree of ``and`` and ``or`` over predicates (leaves), in two-valued logic.

An event satisfies a condition only if the condition is TRUE; NULL and FALSE are equivalent. Therefore, once ``not`` has
been pushed down to the leaves, ``and`` and ``or`` need only two values. A leaf compares a *term* with constants; a term
is a column, or an expression that is computed once per frame for all rules that use it. An *opaque* leaf is any other
condition, which Polars evaluates. The tree is true for exactly the events for which the condition is TRUE.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from rulecore import language as lang
from rulecore.language import Expr, ast
from rulecore.language.types import Value
from streamcore.schema import Kind, Type

_MIN, _MAX = -(2**63), 2**63 - 1


class PredicateKind(enum.StrEnum):
    """The test of a leaf. ``value``: is not null. ``opaque``: any other condition."""

    EQUAL = "equal"
    DIFFERENT = "different"
    MEMBER = "member"
    NO_MEMBER = "no member"
    LOWER = "lower bound"
    UPPER = "upper bound"
    NULL = "null"
    VALUE = "value"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A leaf: a test of a term against constants.

    ``term``: the name of an expression in ``AccessPlan.terms``; an opaque condition is its own term. ``constants``:
    physical values; a bound has one, an opaque leaf none. ``strict``: whether a bound is ``>`` or ``<``.
    """

    kind: PredicateKind
    term: str
    constants: tuple[Value, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class BooleanNode:
    """``and`` (if ``every``) or ``or`` over two or more nodes."""

    every: bool
    nodes: tuple[Node, ...]


Node = Predicate | BooleanNode


_INVERSE: Final[Mapping[str, ast.ComparisonOp]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_MIRRORED: Final[Mapping[str, str]] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(slots=True)
class PredicateLowering:
    """Lowers expressions to nodes and collects their terms. ``negated``: lower ``not expr``."""

    terms: dict[str, Expr] = field(default_factory=dict)

    def node(self, expr: Expr, *, negated: bool) -> Node:
        """Return the node of a condition."""
        match expr:
            case lang.Not():
                return self.node(expr.operand, negated=not negated)
            case lang.And() | lang.Or():
                every = isinstance(expr, lang.And) != negated
                return combine(every, (self.node(term, negated=negated) for term in expr.terms))
            case lang.Between():
                low = lang.Compare.of("<=", expr.low, expr.operand)
                high = lang.Compare.of("<=", expr.operand, expr.high)
                return combine(not negated, (self.node(part, negated=negated) for part in (low, high)))
            case lang.IsNull():
                return Predicate(PredicateKind.VALUE if negated else PredicateKind.NULL, self.term(expr.operand))
            case lang.In():
                return self.member(expr, negated=negated)
            case lang.Compare():
                return self.comparison(expr, negated=negated)
            case lang.ColumnRef():
                return Predicate(PredicateKind.EQUAL, self.term(expr), (not negated,))
        return self.opaque(expr, negated=negated)

    def term(self, expr: Expr) -> str:
        """Add a term and return its name: a column's own, or one that no column can have."""
        name = expr.name if isinstance(expr, lang.ColumnRef) else f"={lang.fingerprint(expr)}"
        self.terms[name] = expr
        return name

    def opaque(self, expr: Expr, *, negated: bool) -> Predicate:
        """Return the condition as an opaque leaf."""
        return Predicate(PredicateKind.OPAQUE, self.term(lang.Not(operand=expr) if negated else expr))

    def member(self, expr: lang.In, *, negated: bool) -> Predicate:
        """Return the leaf of ``in``."""
        term = self.term(expr.operand)
        values = dict.fromkeys(lang.to_physical(v.value, expr.operand.type) for v in expr.values)
        constants = tuple(sorted(values, key=repr))
        if len(constants) == 1:
            return Predicate(PredicateKind.DIFFERENT if negated else PredicateKind.EQUAL, term, constants)
        return Predicate(PredicateKind.NO_MEMBER if negated else PredicateKind.MEMBER, term, constants)

    def comparison(self, expr: lang.Compare, *, negated: bool) -> Predicate:
        """Return the leaf of a comparison; it is opaque unless exactly one side is a constant."""
        op: str | None = _INVERSE.get(expr.op) if negated else expr.op
        left, right = expr.left, expr.right
        if _constant(left) is not None:
            left, right, op = right, left, _MIRRORED.get(op, op) if op else op
        value = _constant(right)
        if op is None or value is None or _constant(left) is not None:
            return self.opaque(expr, negated=negated)
        leaf = _compare_leaf("=" if op == "<=>" else op, left.type, value)
        return self.opaque(expr, negated=negated) if leaf is None else replace(leaf, term=self.term(left))


def _constant(expr: Expr) -> Value:
    """Return the value of a constant expression; None for other expressions and for NULL."""
    if isinstance(expr, lang.IntervalLiteral):
        return expr.ms
    return expr.value if isinstance(expr, lang.Literal) else None


def _compare_leaf(op: str, kind: Type, value: Value) -> Predicate | None:
    """Return the predicate ``term op value`` with an empty term; None if the constant has no exact physical value."""
    if op in ("=", "<>"):
        constant = _exact(kind, value)
        equal = PredicateKind.EQUAL if op == "=" else PredicateKind.DIFFERENT
        return None if constant is None else Predicate(equal, "", (constant,))
    side = PredicateKind.LOWER if op in (">", ">=") else PredicateKind.UPPER
    strict = op in (">", "<")
    if kind.kind is Kind.DOUBLE and isinstance(value, int | float | Decimal):
        return Predicate(side, "", (float(value),), strict)
    number = _scale_constant(kind, value)
    return None if number is None else _whole_bound(side, number, strict)


def _exact(kind: Type, value: Value) -> Value:
    """Return the physical value of type ``kind`` that equals the constant; None if there is none."""
    match kind.kind:
        case Kind.STRING | Kind.BOOLEAN:
            return value
        case Kind.DOUBLE if isinstance(value, int | float | Decimal):
            return float(value)
    number = _scale_constant(kind, value)
    if number is None or number != number.to_integral_value() or not _MIN <= number <= _MAX:
        return None
    return int(number)


def _scale_constant(kind: Type, value: Value) -> Decimal | None:
    """Return the constant in units of the last digit of type ``kind``; None for doubles and other types."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if kind.kind not in (Kind.LONG, Kind.DECIMAL, Kind.TIMESTAMP):
        return None
    return Decimal(value).scaleb(kind.scale)


def _whole_bound(side: PredicateKind, number: Decimal, strict: bool) -> Predicate:
    """Return the equivalent bound on 64-bit integers, of a number that may be a fraction or out of range."""
    if number > _MAX or number < _MIN:
        never = (side is PredicateKind.LOWER) == (number > _MAX)
        edge = _MAX if number > _MAX else _MIN
        return Predicate(side, "", (edge,), never)
    floor = math.floor(number)
    if number != floor:
        return Predicate(side, "", (floor,), side is PredicateKind.LOWER)
    return Predicate(side, "", (floor,), strict)


def combine(every: bool, nodes: Iterable[Node]) -> Node:
    """Return ``and`` or ``or`` over the nodes, flattened and without duplicates."""
    parts = tuple(dict.fromkeys(n for node in nodes for n in flatten(node, every)))
    return parts[0] if len(parts) == 1 else BooleanNode(every, parts)


def flatten(node: Node, every: bool) -> tuple[Node, ...]:
    """Return the nodes of an ``and`` (if ``every``) or ``or``; another node alone."""
    return node.nodes if isinstance(node, BooleanNode) and node.every is every else (node,)
