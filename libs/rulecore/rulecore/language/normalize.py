"""Converts equivalent expressions to one normal form, so that they share state, predicates and a fingerprint.

``normalize`` applies small rewrites from the leaves to the root. Each keeps the value for every row, NULL included, so
sums are not reordered and doubles are not compared with less precision. Some equivalent expressions have different
normal forms; expressions with one normal form are always equivalent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, Decimal

from rulecore.language import types
from rulecore.language.ast import (
    AggregateCall,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    ColumnRef,
    Compare,
    ComparisonOp,
    Expr,
    HigherOrderCall,
    In,
    InList,
    IntervalLiteral,
    LambdaParameter,
    Like,
    Literal,
    Lookup,
    Not,
    Or,
    adapter,
)
from rulecore.language.parsing.coercion import convert
from rulecore.language.parsing.literals import timestamp_text
from rulecore.language.patterns import ANY_TEXT, like_tokens
from rulecore.language.reference.evaluator import evaluate
from rulecore.language.traversal import normal_parameter, rebuild, replace_parts
from streamcore.schema import TIMESTAMP

_OPPOSITE: dict[ComparisonOp, ComparisonOp] = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED: dict[ComparisonOp, ComparisonOp] = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_TRUE, _FALSE = Literal.of(True), Literal.of(False)


def normalize(expr: Expr) -> Expr:
    """Return the normal form, which has the expression's value for every row. A normal form is returned unchanged."""
    return _rewrite(_rename_parameter(rebuild(expr, normalize)))


def _rewrite(expr: Expr) -> Expr:
    """Return the normal form of a node whose children are in normal form. It does not normalize them again."""
    for _ in range(_ROUNDS):
        before = expr
        for rewrite in _REWRITES:
            expr = rewrite(expr)
        if expr == before:
            break
    return expr


def _rename_parameter(expr: Expr) -> Expr:
    """Rename the parameter of a lambda, so that it does not matter: by the number of lambdas inside each other."""
    if not isinstance(expr, HigherOrderCall):
        return expr
    name = normal_parameter(expr.body)
    old, new = (LambdaParameter(name=one, type=expr.array.type.items) for one in (expr.parameter, name))
    return HigherOrderCall.of(expr.function, expr.array, name, replace_parts(expr.body, {old: new}))


def fingerprint(expr: Expr | None) -> str:
    """Return the digest (BLAKE2b, 32 hexadecimal digits) of the normal form's JSON; for None, of ``null``."""
    text = "null" if expr is None else canonical(normalize(expr))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def canonical(expr: Expr) -> str:
    """Return JSON with sorted names and no spaces; equal trees have equal text."""
    return json.dumps(adapter.dump_python(expr, mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_ROUNDS = 8  # one rewrite may enable another; the limit makes the loop finite


def _fold(expr: Expr) -> Expr:
    """Replace a node over constants by its value, unless the value is NULL, not finite, or a time without a text."""
    children = expr.children
    if (
        not children
        or isinstance(expr, AggregateCall | InList | Lookup)
        or expr.type.is_nested
        or not all(isinstance(c, Literal | IntervalLiteral) for c in children)
    ):
        return expr
    value = evaluate(expr, {})
    if value is None or (isinstance(value, float) and not abs(value) < float("inf")):
        return expr
    if expr.type == TIMESTAMP and isinstance(value, int) and timestamp_text(value) is None:
        return expr
    return Literal.of(value, expr.type)


def _replace_interval(expr: Expr) -> Expr:
    """Replace an interval in a comparison by a long. An interval in arithmetic stays."""
    if isinstance(expr, Compare) and isinstance(expr.left, IntervalLiteral):
        return Compare.of(expr.op, Literal.of(expr.left.ms), expr.right)
    if isinstance(expr, Compare) and isinstance(expr.right, IntervalLiteral):
        return Compare.of(expr.op, expr.left, Literal.of(expr.right.ms))
    return expr


def _push_not_down(expr: Expr) -> Expr:
    """Push ``not`` down to nodes without an opposite.

    The opposite of a comparison is exact, since comparisons order all values, NaN included.
    """
    if not isinstance(expr, Not):
        return expr
    operand = expr.operand
    match operand:
        case Not():
            return operand.operand
        case And():
            return _rewrite(Or(terms=_flatten(Or, [_rewrite(Not(operand=t)) for t in operand.terms])))
        case Or():
            return _rewrite(And(terms=_flatten(And, [_rewrite(Not(operand=t)) for t in operand.terms])))
        case Compare() if operand.op != "<=>":
            return _rewrite(Compare.of(_OPPOSITE[operand.op], operand.left, operand.right))
    return expr


def _flatten(node: type[And | Or], terms: Sequence[Expr]) -> tuple[Expr, ...]:
    """Replace each term of class ``node`` by its own terms."""
    return tuple(inner for term in terms for inner in (term.children if isinstance(term, node) else (term,)))


def _simplify_terms(expr: Expr) -> Expr:
    """Sort the terms, and remove duplicates and terms without effect. A single term replaces the node."""
    if not isinstance(expr, And | Or):
        return expr
    deciding, idle = (_FALSE, _TRUE) if isinstance(expr, And) else (_TRUE, _FALSE)
    kept = sorted({canonical(term): term for term in expr.terms if term != idle}.items())
    if deciding in expr.terms:
        return deciding
    if len(kept) < 2:
        return kept[0][1] if kept else idle
    return type(expr)(terms=tuple(term for _, term in kept))


def _orient(expr: Expr) -> Expr:
    """Move the constant of a comparison to the right; without one, the smaller canonical text to the left."""
    if not isinstance(expr, Compare):
        return expr
    constants = isinstance(expr.left, Literal), isinstance(expr.right, Literal)
    swap = constants == (True, False) or (constants == (False, False) and canonical(expr.left) > canonical(expr.right))
    return Compare.of(_MIRRORED.get(expr.op, expr.op), expr.right, expr.left) if swap else expr


def _commute(expr: Expr) -> Expr:
    """Order the two operands of ``+`` and ``*``. Regrouping more would change overflow and rounding."""
    if not isinstance(expr, Arithmetic) or expr.op not in ("+", "*"):
        return expr
    left, right = expr.left, expr.right
    interval_first = isinstance(left, IntervalLiteral) and right.type == TIMESTAMP
    if left.type != TIMESTAMP and (interval_first or canonical(left) > canonical(right)):
        return Arithmetic.of(expr.op, right, left)
    return expr


def _convert_constant(expr: Expr) -> Expr:
    """Convert the constant of a comparison to the type and scale of the other side, so that an index can find it."""
    if not isinstance(expr, Compare) or not isinstance(expr.right, Literal) or isinstance(expr.left, Literal):
        return expr
    if not types.is_numeric(expr.left.type):
        return expr
    exact = convert(expr.right, expr.left.type)
    if exact is not None:
        return expr if exact == expr.right else Compare.of(expr.op, expr.left, exact)
    return _round_bound(expr, expr.right)


def _round_bound(expr: Compare, bound: Literal) -> Expr:
    """Round a bound down to the operand's scale: with scale 2, ``amount > 10.555`` becomes ``amount > 10.55``."""
    value, scale = bound.value, expr.left.type.scale
    if not isinstance(value, Decimal) or bound.type.scale <= scale or expr.op in ("=", "<>", "<=>"):
        return expr
    floor = value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_FLOOR)
    constant = convert(Literal.of(floor), expr.left.type)
    if constant is None or floor == value:
        return expr
    return Compare.of(">" if expr.op in (">", ">=") else "<=", expr.left, constant)


def _split_between(expr: Expr) -> Expr:
    """Replace ``between`` by two comparisons, if the operand is a column or an aggregate."""
    if not isinstance(expr, Between) or not isinstance(expr.operand, ColumnRef | AggregateCall):
        return expr
    low, high = Compare.of(">=", expr.operand, expr.low), Compare.of("<=", expr.operand, expr.high)
    return And(terms=(_rewrite(low), _rewrite(high)))


def _sort_in(expr: Expr) -> Expr:
    """Sort the values of ``in`` and remove duplicates; a single value becomes an equality."""
    if not isinstance(expr, In):
        return expr
    values = [value for _, value in sorted({canonical(v): v for v in expr.values}.items())]
    if len(values) == 1:
        return Compare.of("=", expr.operand, values[0])
    return In(operand=expr.operand, values=tuple(values))


def _simplify_like(expr: Expr) -> Expr:
    """Replace a pattern without wildcards by an equality, and one with a single ``%`` at an end by a prefix or suffix
    test."""
    if not isinstance(expr, Like):
        return expr
    tokens = like_tokens(expr.pattern, expr.escape)
    special = [index for index, token in enumerate(tokens) if not isinstance(token, str)]
    text = Literal.of("".join(token for token in tokens if isinstance(token, str)))
    if not special:
        return Compare.of("=", expr.operand, text)
    if len(special) == 1 and tokens[special[0]] is ANY_TEXT and special[0] in (0, len(tokens) - 1):
        return Call.of("ends_with" if special[0] == 0 and len(tokens) > 1 else "starts_with", (expr.operand, text))
    return Like(operand=expr.operand, pattern=_write_pattern(tokens), escape="\\")


def _write_pattern(tokens: list[str | object]) -> str:
    special = {"%": "\\%", "_": "\\_", "\\": "\\\\"}
    return "".join(special.get(t, t) if isinstance(t, str) else "%" if t is ANY_TEXT else "_" for t in tokens)


def _drop_false_branches(expr: Expr) -> Expr:
    """Remove the branches of ``case`` whose condition is false, if the type does not change."""
    if not isinstance(expr, Case):
        return expr
    whens = tuple(when for when in expr.whens if when.condition != _FALSE)
    if not whens or len(whens) == len(expr.whens):
        return expr
    shorter = Case.of(whens, expr.otherwise)
    return shorter if shorter.type == expr.type else expr


_REWRITES: tuple[Callable[[Expr], Expr], ...] = (
    _fold,
    _replace_interval,
    _split_between,
    _simplify_like,
    _sort_in,
    _push_not_down,
    _simplify_terms,
    _orient,
    _convert_constant,
    _commute,
    _drop_false_branches,
)
