"""Compiles an expression to a Polars expression over columns in their physical form (see ``streamcore.schema``).

The result is physical too. It contains no Python function, raises on no data, and its size is linear in that of the
tree. An expression without columns becomes a literal, which has height 1 when it is selected alone. Columns must hold
values of their declared types: a decimal with more digits than declared gives wrong results.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import singledispatch

import polars as pl

from rulecore.language.ast import (
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    ColumnRef,
    Compare,
    Expr,
    ExprNode,
    In,
    IntervalLiteral,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
)
from rulecore.language.columnar.functions import compile_call
from rulecore.language.columnar.operators import (
    ComputedOperand,
    arithmetic,
    comparison,
    join_balanced,
    let,
    negation,
)
from rulecore.language.patterns import ANY_CHARACTER, ANY_TEXT, like_tokens
from rulecore.language.physical import to_physical
from rulecore.language.traversal import columns
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import Type

_ONE_ROW = pl.DataFrame({"row": [0]})


def to_polars(expr: Expr) -> pl.Expr:
    """Return the expression over physical columns; ``ValueError`` for an aggregate (``replace_aggregates`` first)."""
    return _compile(expr)


def evaluate_columns(expr: Expr, values: Sequence[tuple[str, Type, Sequence[object]]]) -> list[object]:
    """Return the physical value for each row. ``values``: of each column its name, type and physical values.

    Raises ``OverflowError`` for a value that the column cannot hold.
    """
    frame = pl.DataFrame([pl.Series(name, column, polars_type(kind)) for name, kind, column in values])
    return frame.select(to_polars(expr)).to_series().to_list()


def _compile(expr: Expr) -> pl.Expr:
    """Compile an expression. One without columns becomes a literal, since Polars broadcasts only these everywhere."""
    compiled = _formula(expr)
    if isinstance(expr, ColumnRef | Literal | IntervalLiteral) or columns(expr):
        return compiled
    return pl.lit(_ONE_ROW.select(compiled).item(), dtype=polars_type(expr.type))


@singledispatch
def _formula(expr: ExprNode) -> pl.Expr:
    raise ValueError(f"{type(expr).__name__} cannot be compiled; replace_aggregates or extract_list_columns first")


def _operand(expr: Expr) -> ComputedOperand:
    compiled = _compile(expr)
    if isinstance(expr, Literal):
        return ComputedOperand(compiled, expr.type, leaf=True, constant=True, value=_physical(expr))
    constant = not columns(expr)
    return ComputedOperand(compiled, expr.type, leaf=constant or isinstance(expr, ColumnRef), constant=constant)


def _physical(expr: Literal) -> bool | int | float | str | None:
    value = to_physical(expr.value, expr.type)
    assert not isinstance(value, Decimal)
    return value


@_formula.register
def _(expr: ColumnRef) -> pl.Expr:
    return pl.col(expr.name)


@_formula.register
def _(expr: Literal) -> pl.Expr:
    return pl.lit(to_physical(expr.value, expr.type), dtype=polars_type(expr.type))


@_formula.register
def _(expr: IntervalLiteral) -> pl.Expr:
    return pl.lit(expr.ms, dtype=pl.Int64)


@_formula.register
def _(expr: And) -> pl.Expr:
    return join_balanced([_compile(term) for term in expr.terms], operator.and_)


@_formula.register
def _(expr: Or) -> pl.Expr:
    return join_balanced([_compile(term) for term in expr.terms], operator.or_)


@_formula.register
def _(expr: Not) -> pl.Expr:
    return ~_compile(expr.operand)


@_formula.register
def _(expr: IsNull) -> pl.Expr:
    return _compile(expr.operand).is_null()


@_formula.register
def _(expr: Compare) -> pl.Expr:
    return comparison(expr.op, _operand(expr.left), _operand(expr.right))


@_formula.register
def _(expr: Between) -> pl.Expr:
    operands = [_operand(part) for part in expr.children]

    def formula(*values: pl.Expr) -> pl.Expr:
        operand, low, high = (replace(o, expr=v) for o, v in zip(operands, values, strict=True))
        return comparison("<=", low, operand) & comparison("<=", operand, high)

    return let(operands, formula)


@_formula.register
def _(expr: In) -> pl.Expr:
    values = [to_physical(v.value, v.type) for v in expr.values]
    return _compile(expr.operand).is_in(pl.Series(values, dtype=polars_type(expr.operand.type)).implode())


@_formula.register
def _(expr: Like) -> pl.Expr:
    """Compile to a comparison, prefix, suffix or substring test where the pattern allows it, else to a regex."""
    text = _compile(expr.operand)
    tokens = like_tokens(expr.pattern, expr.escape)
    inner = "".join(t for t in tokens if isinstance(t, str))
    shape = "".join("%" if t is ANY_TEXT else "_" if t is ANY_CHARACTER else "x" for t in tokens)
    match shape.replace("x", ""), shape[:1], shape[-1:]:
        case "", _, _:
            return text == pl.lit(inner)
        case "%", _, "%":
            return text.str.starts_with(inner)
        case "%", "%", _:
            return text.str.ends_with(inner)
        case "%%", "%", "%":
            return text.str.contains(inner, literal=True)
    parts = {ANY_TEXT: ".*", ANY_CHARACTER: "."}
    body = "".join(pl.escape_regex(t) if isinstance(t, str) else parts[t] for t in tokens)
    return text.str.contains(rf"\A(?s:{body})\z")


@_formula.register
def _(expr: Case) -> pl.Expr:
    result = pl.lit(None, dtype=polars_type(expr.type))
    if expr.otherwise is not None:
        result = _operand(expr.otherwise).convert(expr.type)
    for when in reversed(expr.whens):
        result = pl.when(_compile(when.condition)).then(_operand(when.result).convert(expr.type)).otherwise(result)
    return result


@_formula.register
def _(expr: Negate) -> pl.Expr:
    return negation(_operand(expr.operand))


@_formula.register
def _(expr: Arithmetic) -> pl.Expr:
    return arithmetic(expr.op, _operand(expr.left), _operand(expr.right), expr.type)


@_formula.register
def _(expr: Call) -> pl.Expr:
    return compile_call(expr, [_operand(argument) for argument in expr.arguments])
