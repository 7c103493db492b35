"""Compiles an expression to a Polars expression over columns in their physical form (see ``streamcore.schema``).

The result is physical too. It raises on no data, and its size is linear in that of the tree, but for lambdas inside
each other. It contains no Python function but the one that applies a lambda with values beside elements. An expression
without columns becomes a literal, which has height 1 when it is selected alone. Columns must hold values of their
declared types: a decimal with more digits than declared gives wrong results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
    HigherOrderCall,
    In,
    IntervalLiteral,
    IsNull,
    LambdaParameter,
    Like,
    Literal,
    MemberOf,
    Negate,
    Not,
    Or,
    SecretRef,
)
from rulecore.language.columnar.beside import apply_beside
from rulecore.language.columnar.functions import MAX_ELEMENTS, compile_call
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
from rulecore.language.traversal import find_outside, free_leaves, is_constant, replace_parts
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import STRING, Kind, Type, struct_of
from streamcore.wire.map_entries import KEY, VALUE

_ONE_ROW = pl.DataFrame({"row": [0]})


def to_polars(expr: Expr) -> pl.Expr:
    """Return the expression over physical columns; ``ValueError`` for an aggregate (``replace_aggregates`` first)."""
    return _compile(expr)


def value_frame(values: Sequence[tuple[str, Type, Sequence[object]]]) -> pl.DataFrame:
    """Return a frame of columns, each with its name, type and physical values.

    Raises ``OverflowError`` for a value that the column cannot hold.
    """
    return pl.DataFrame([pl.Series(name, column, polars_type(kind)) for name, kind, column in values])


def holding_rows(expr: Expr, frame: pl.DataFrame) -> Sequence[bool]:
    """Return for which rows of a frame a condition holds; null does not hold."""
    return frame.select(to_polars(expr)).to_series().fill_null(value=False).to_list()


def _compile(expr: Expr) -> pl.Expr:
    """Compile an expression. One without columns becomes a literal, since Polars broadcasts only these everywhere."""
    compiled = _formula(expr)
    if isinstance(expr, ColumnRef | Literal | IntervalLiteral) or not is_constant(expr):
        return compiled
    if expr.type.is_nested:
        return pl.lit(_ONE_ROW.select(compiled).to_series()).first()
    return pl.lit(_ONE_ROW.select(compiled).item(), dtype=polars_type(expr.type))


@singledispatch
def _formula(expr: ExprNode) -> pl.Expr:
    raise ValueError(f"{type(expr).__name__} cannot be compiled; replace_aggregates or extract_list_columns first")


def _operand(expr: Expr) -> ComputedOperand:
    compiled = _compile(expr)
    if isinstance(expr, Literal):
        return ComputedOperand(compiled, expr.type, leaf=True, constant=True, value=_physical(expr))
    constant = is_constant(expr)
    leaf = constant or isinstance(expr, ColumnRef | LambdaParameter)
    return ComputedOperand(compiled, expr.type, leaf=leaf, constant=constant)


def _physical(expr: Literal) -> bool | int | float | str | None:
    value: bool | int | float | str | None = to_physical(expr.value, expr.type)
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
def _(expr: SecretRef) -> pl.Expr:  # noqa: ARG001 - the function reads the key
    return pl.lit(None, dtype=pl.String)


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
def _(expr: MemberOf) -> pl.Expr:
    compiled = _compile(expr.operand)
    if expr.operand.type.kind is Kind.STRUCT:
        return compiled.struct.field(expr.name)
    return compiled.list.eval(pl.element().struct.field(expr.name))


@_formula.register
def _(expr: LambdaParameter) -> pl.Expr:
    assert not expr.name, "the parameter of a lambda is compiled with its lambda"
    return pl.element()


@_formula.register
def _(expr: HigherOrderCall) -> pl.Expr:
    return _apply(expr.function, _compile(expr.array), expr.array.type.items, expr.parameter, expr.body)


def _apply(function: str, array: pl.Expr, element: Type, parameter: str, body: Expr) -> pl.Expr:
    """Compile a lambda on an array. What its body reads from outside of it is computed once for each array."""
    own = LambdaParameter(name=parameter, type=element)
    outside = find_outside(body, parameter)
    if outside:
        columns = [ColumnRef(name=str(number), type=part.type) for number, part in enumerate([own, *outside])]
        inside = _compile(replace_parts(body, dict(zip([own, *outside], columns, strict=True))))
        return apply_beside(function, array, element, [_compile(part) for part in outside], inside, body.type)
    value, replaced = pl.element(), replace_parts(body, {own: LambdaParameter(name="", type=element)})
    result = _compile(replaced)
    if not free_leaves(replaced):  # one value for all elements, of which there may be none
        result = pl.when(value.is_null() | value.is_not_null()).then(result)
    match function:
        case "exists":
            return array.list.agg(result.any(ignore_nulls=False))
        case "forall":
            return array.list.agg(result.all(ignore_nulls=False))
        case "filter":
            return array.list.eval(value.filter(result))
    return array.list.eval(result)


@_formula.register
def _(expr: Call) -> pl.Expr:
    if expr.function in _SEARCHES:
        return _SEARCHES[expr.function](*expr.arguments)
    return compile_call(expr, [_operand(argument) for argument in expr.arguments])


def _array_contains(array: Expr, value: Expr) -> pl.Expr:
    equal = Compare.of("=", LambdaParameter(name="__x", type=array.type.items), value)
    return pl.when(_compile(value).is_not_null()).then(
        _apply("exists", _compile(array), array.type.items, "__x", equal)
    )


def _arrays_overlap(left: Expr, right: Expr) -> pl.Expr:
    one, other = (LambdaParameter(name=n, type=e.type.items) for n, e in (("__x", left), ("__y", right)))
    body = HigherOrderCall.of("exists", right, "__y", Compare.of("=", one, other))
    return _apply("exists", _compile(left), left.type.items, "__x", body)


def _apply_to_entries(function: str, entries: Expr, key: Expr) -> pl.Expr:
    """Apply a function to the entries of a map: whether they have a key."""
    entry = struct_of({KEY: STRING, VALUE: entries.type.items})
    equal = Compare.of("=", MemberOf.of(LambdaParameter(name="__x", type=entry), KEY), key)
    return _apply(function, _compile(entries), entry, "__x", equal)


def _map_contains_key(entries: Expr, key: Expr) -> pl.Expr:
    return pl.when(_compile(key).is_not_null()).then(_apply_to_entries("exists", entries, key))


def _element_at(nested: Expr, key: Expr) -> pl.Expr:
    if nested.type.kind is Kind.MAP:
        return _apply_to_entries("filter", nested, key).list.first().struct.field(VALUE)

    def place(number: pl.Expr) -> pl.Expr:
        from_start = pl.when(number.is_between(1, MAX_ELEMENTS)).then(number - 1)
        return from_start.when(number.is_between(-MAX_ELEMENTS, -1)).then(number)

    return _compile(nested).list.get(let([_operand(key)], place), null_on_oob=True)


_SEARCHES: Mapping[str, Callable[..., pl.Expr]] = {
    "array_contains": _array_contains,
    "arrays_overlap": _arrays_overlap,
    "element_at": _element_at,
    "map_contains_key": _map_contains_key,
}
