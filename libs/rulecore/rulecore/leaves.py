"""A condition as a tree of ``and`` and ``or`` over leaves that are true or not.

A condition holds for an event exactly when it is TRUE (NULL and FALSE are alike), so once ``not`` has been pushed down
to the leaves, ``and`` and ``or`` are those of two-valued logic. A leaf compares a *term* (a column, or an expression
computed once a batch for all rules that use it) with constants, or it is opaque: any other condition, which Polars
evaluates as it stands. Promises: the tree is true for exactly the events for which the condition is TRUE.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from rulecore import lang
from rulecore.lang import Expr
from rulecore.lang.types import Value
from streamcore.schema import Kind, Type

_MIN, _MAX = -(2**63), 2**63 - 1


class LeafKind(enum.StrEnum):
    """What a leaf asks of its term."""

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
class Leaf:
    """``constants`` are physical values; a bound has one, and is ``strict`` for ``>`` and ``<``.

    ``term`` names the expression in ``Plan.terms``; an opaque leaf is its own term and has no constants.
    """

    kind: LeafKind
    term: str
    constants: tuple[Value, ...] = ()
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Branch:
    """``and`` (``every``) or ``or`` over two or more nodes."""

    every: bool
    nodes: tuple[Node, ...]


Node = Leaf | Branch


_INVERSE: Final[Mapping[str, lang.tree.ComparisonOp]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_MIRRORED: Final[Mapping[str, str]] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(slots=True)
class Lowering:
    """Trees to nodes; collects the terms on the way."""

    terms: dict[str, Expr] = field(default_factory=dict)

    def node(self, expr: Expr, *, negated: bool) -> Node:
        match expr:
            case lang.Not():
                return self.node(expr.operand, negated=not negated)
            case lang.And() | lang.Or():
                every = isinstance(expr, lang.And) != negated
                return branch(every, (self.node(term, negated=negated) for term in expr.terms))
            case lang.Between():
                low = lang.Compare.of("<=", expr.low, expr.operand)
                high = lang.Compare.of("<=", expr.operand, expr.high)
                return branch(not negated, (self.node(part, negated=negated) for part in (low, high)))
            case lang.IsNull():
                return Leaf(LeafKind.VALUE if negated else LeafKind.NULL, self.term(expr.operand))
            case lang.In():
                return self.member(expr, negated=negated)
            case lang.Compare():
                return self.comparison(expr, negated=negated)
            case lang.Column():
                return Leaf(LeafKind.EQUAL, self.term(expr), (not negated,))
        return self.opaque(expr, negated=negated)

    def term(self, expr: Expr) -> str:
        """Columns go by their name, everything else by a name that no column can have."""
        name = expr.name if isinstance(expr, lang.Column) else f"={lang.fingerprint(expr)}"
        self.terms[name] = expr
        return name

    def opaque(self, expr: Expr, *, negated: bool) -> Leaf:
        return Leaf(LeafKind.OPAQUE, self.term(lang.Not(operand=expr) if negated else expr))

    def member(self, expr: lang.In, *, negated: bool) -> Leaf:
        term = self.term(expr.operand)
        values = dict.fromkeys(lang.to_physical(v.value, expr.operand.type) for v in expr.values)
        constants = tuple(sorted(values, key=repr))
        if len(constants) == 1:
            return Leaf(LeafKind.DIFFERENT if negated else LeafKind.EQUAL, term, constants)
        return Leaf(LeafKind.NO_MEMBER if negated else LeafKind.MEMBER, term, constants)

    def comparison(self, expr: lang.Compare, *, negated: bool) -> Leaf:
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
    """The value of a constant; None for everything else, NULL too."""
    if isinstance(expr, lang.Interval):
        return expr.ms
    return expr.value if isinstance(expr, lang.Literal) else None


def _compare_leaf(op: str, kind: Type, value: Value) -> Leaf | None:
    """The leaf (its term still missing) of ``term op value``; None when constants cannot be compared as they are."""
    if op in ("=", "<>"):
        constant = _exact(kind, value)
        equal = LeafKind.EQUAL if op == "=" else LeafKind.DIFFERENT
        return None if constant is None else Leaf(equal, "", (constant,))
    side = LeafKind.LOWER if op in (">", ">=") else LeafKind.UPPER
    strict = op in (">", "<")
    if kind.kind is Kind.DOUBLE and isinstance(value, int | float | Decimal):
        return Leaf(side, "", (float(value),), strict)
    number = _scaled(kind, value)
    return None if number is None else _whole_bound(side, number, strict)


def _exact(kind: Type, value: Value) -> Value:
    """The one physical value that equals the constant; None when there is none or it is not known."""
    match kind.kind:
        case Kind.STRING | Kind.BOOLEAN:
            return value
        case Kind.DOUBLE if isinstance(value, int | float | Decimal):
            return float(value)
    number = _scaled(kind, value)
    if number is None or number != number.to_integral_value() or not _MIN <= number <= _MAX:
        return None
    return int(number)


def _scaled(kind: Type, value: Value) -> Decimal | None:
    """The constant in units of the column's last digit. A double is compared as a double: not here."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if kind.kind not in (Kind.LONG, Kind.DECIMAL, Kind.TIMESTAMP):
        return None
    return Decimal(value).scaleb(kind.scale)


def _whole_bound(side: LeafKind, number: Decimal, strict: bool) -> Leaf:
    """A bound on whole numbers of 64 bits: fractions and what lies outside become the bound that means the same."""
    if number > _MAX or number < _MIN:
        never = (side is LeafKind.LOWER) == (number > _MAX)
        edge = _MAX if number > _MAX else _MIN
        return Leaf(side, "", (edge,), never)
    floor = math.floor(number)
    if number != floor:
        return Leaf(side, "", (floor,), side is LeafKind.LOWER)
    return Leaf(side, "", (floor,), strict)


def branch(every: bool, nodes: Iterable[Node]) -> Node:
    parts = tuple(dict.fromkeys(n for node in nodes for n in flat(node, every)))
    return parts[0] if len(parts) == 1 else Branch(every, parts)


def flat(node: Node, every: bool) -> tuple[Node, ...]:
    return node.nodes if isinstance(node, Branch) and node.every is every else (node,)
