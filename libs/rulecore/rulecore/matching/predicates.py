"""Lowers a condition to a tree of ``and`` and ``or`` over predicates (leaves), in two-valued logic.

An event satisfies a condition only if the condition is TRUE; NULL and FALSE are equivalent. Therefore, once ``not`` has
been pushed down to the leaves, ``and`` and ``or`` need only two values. A leaf compares a *term* with constants; a term
is a column, or an expression that is computed once per frame for all rules that use it. An *opaque* leaf is any other
condition, which Polars evaluates. The tree is true for exactly the events for which the condition is TRUE.

With ``texts``, conditions on a text and constant literals become leaves of their own, and a pattern is its literals
*and* the pattern: an index of texts finds the literals (``rulecore.matching.text_index``).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from rulecore import language as lang
from rulecore.language import Expr, ast
from rulecore.language.patterns import ANY_TEXT, like_tokens
from rulecore.language.types import Value
from rulecore.matching.regex_literals import required_texts
from streamcore.schema import Kind, Type

_MIN, _MAX = -(2**63), 2**63 - 1


class PredicateKind(enum.StrEnum):
    """The test of a leaf. ``value``: is not null. ``text``: has a literal. ``opaque``: any other condition."""

    EQUAL = "equal"
    DIFFERENT = "different"
    MEMBER = "member"
    NO_MEMBER = "no member"
    LOWER = "lower bound"
    UPPER = "upper bound"
    NULL = "null"
    VALUE = "value"
    TEXT = "text"
    OPAQUE = "opaque"


class TextPlace(enum.IntEnum):
    """Where a literal must be in a text."""

    ANYWHERE = 0
    START = 1
    END = 2
    WHOLE = 3


@dataclass(frozen=True, slots=True, order=True)
class TextLiteral:
    """A literal, which is not empty, and its place."""

    text: str
    place: TextPlace


@dataclass(frozen=True, slots=True)
class Predicate:
    """A leaf: a test of a term against constants.

    ``term``: the name of an expression in ``AccessPlan.terms``; an opaque condition is its own term. ``constants``:
    physical values; a bound has one, an opaque leaf none. ``strict``: whether a bound is ``>`` or ``<``. ``literals``:
    of a text leaf, which is true if the text has one of them. ``inverted``: true if the test is not, also of NULL.
    """

    kind: PredicateKind
    term: str
    constants: tuple[Value, ...] = ()
    strict: bool = False
    literals: tuple[TextLiteral, ...] = ()
    inverted: bool = False


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


_PLACES: Final[Mapping[str, TextPlace]] = {
    "contains": TextPlace.ANYWHERE,
    "starts_with": TextPlace.START,
    "ends_with": TextPlace.END,
}
_MOST_LITERALS: Final = 3  # of a pattern of ``like``: the longest ones


@dataclass(slots=True)
class PredicateLowering:
    """Lowers expressions to nodes and collects their terms. ``negated``: lower ``not expr``.

    ``texts``: whether conditions on texts become text leaves.
    """

    terms: dict[str, Expr] = field(default_factory=dict)
    texts: bool = False

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
        if self.texts and (node := self.text(expr, negated=negated)) is not None:
            return node
        return self.opaque(expr, negated=negated)

    def text(self, expr: Expr, *, negated: bool) -> Node | None:
        """Return the node of a condition on one text; None if it is none."""
        match expr:
            case lang.Call(function="coalesce", arguments=(condition, lang.Literal(value=False))):
                node = self.node(condition, negated=False)
                return invert(node) if negated else node
            case lang.Call(
                function="contains" | "starts_with" | "ends_with" as function,
                arguments=(operand, lang.Literal(value=str(literal))),
            ):
                found: Node = self.literal(operand, literal, _PLACES[function])
            case lang.Like(operand=operand):
                found = self.like(expr)
            case lang.Call(function="regexp_like", arguments=(operand, lang.Literal(value=str(pattern)))):
                found = self.regex(expr, operand, pattern)
            case _:
                return None
        if not negated:
            return found
        return combine(True, (Predicate(PredicateKind.VALUE, self.term(operand)), invert(found)))

    def literal(self, operand: Expr, literal: str, place: TextPlace) -> Predicate:
        """Return the leaf of a literal in a text; every text has the empty one."""
        if not literal:
            return Predicate(PredicateKind.VALUE, self.term(operand))
        return Predicate(PredicateKind.TEXT, self.term(operand), literals=(TextLiteral(literal, place),))

    def like(self, expr: lang.Like) -> Node:
        """Return the node of ``like``: its longest literals, and the pattern unless they are all of it."""
        pieces, tokens = [""], like_tokens(expr.pattern, expr.escape)
        for token in tokens:
            if isinstance(token, str):
                pieces[-1] += token
            elif pieces[-1] or len(pieces) == 1:
                pieces.append("")
        open_start, open_end = (not isinstance(tokens[i], str) for i in (0, -1)) if tokens else (False, False)
        literals = [
            (piece, TextPlace((not open_start and i == 0) + 2 * (not open_end and i == len(pieces) - 1)))
            for i, piece in enumerate(pieces)
            if piece
        ]
        leaves = [self.literal(expr.operand, *one) for one in sorted(literals, key=lambda x: -len(x[0]))]
        if len(leaves) == 1 and all(token is ANY_TEXT or isinstance(token, str) for token in tokens):
            return leaves[0]
        return combine(True, (*leaves[:_MOST_LITERALS], self.opaque(expr, negated=False)))

    def regex(self, expr: Expr, operand: Expr, pattern: str) -> Node:
        """Return the node of a regular expression: the literals that it needs, and the pattern."""
        opaque = self.opaque(expr, negated=False)
        required = required_texts(pattern)
        if required is None or not required.texts:
            return opaque
        subject = operand
        if required.folded and not (isinstance(operand, lang.Call) and operand.function == "lower"):
            subject = lang.Call.of("lower", (operand,))
        literals = tuple(TextLiteral(text, TextPlace.ANYWHERE) for text in sorted(required.texts))
        leaf = Predicate(PredicateKind.TEXT, self.term(subject), literals=literals)
        return combine(True, (leaf, opaque))

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
    """Return ``and`` or ``or`` over the nodes, flattened and without duplicates; one leaf for literals of one text."""
    merged = dict[Node | str, Node]()
    for node in nodes:
        for part in flatten(node, every):
            joins = isinstance(part, Predicate) and part.kind is PredicateKind.TEXT and part.inverted is every
            if not joins or not isinstance(part, Predicate):
                merged[part] = part
                continue
            before = merged.get(part.term)
            known = before.literals if isinstance(before, Predicate) else ()
            merged[part.term] = replace(part, literals=tuple(dict.fromkeys((*known, *part.literals))))
    parts = tuple(merged.values())
    return parts[0] if len(parts) == 1 else BooleanNode(every, parts)


def invert(node: Node) -> Node:
    """Return the node that is true whenever this one is not."""
    if isinstance(node, Predicate):
        return replace(node, inverted=not node.inverted)
    return combine(not node.every, map(invert, node.nodes))


def iterate_predicates(node: Node) -> Iterator[Predicate]:
    """Yield the leaves of a node."""
    if isinstance(node, Predicate):
        yield node
    else:
        for part in node.nodes:
            yield from iterate_predicates(part)


def flatten(node: Node, every: bool) -> tuple[Node, ...]:
    """Return the nodes of an ``and`` (if ``every``) or ``or``; another node alone."""
    return node.nodes if isinstance(node, BooleanNode) and node.every is every else (node,)
