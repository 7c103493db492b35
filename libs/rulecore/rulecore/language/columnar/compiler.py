"""Compiles an expression to a Polars expression over columns in their physical form (see ``streamcore.schema``).

The result is physical too. It raises on no data, and its size is linear in that of the tree, but for lambdas inside
each other. It contains no Python function but the one that puts values beside the elements of an array. An expression
without columns becomes a literal, which has height 1 when it is selected alone. Columns must hold values of their
declared types: a decimal with more digits than declared gives wrong results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatch

import numpy as np
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
)
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
from rulecore.language.traversal import free_leaves, is_constant, replace_leaves
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import STRING, Kind, Type, struct_of
from streamcore.wire.map_entries import KEY, VALUE

#: The most elements of an array that are repeated for the elements of another one, in one evaluation.
MAX_BESIDE = 20_000_000
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
    return pl.element().struct.field(expr.name) if expr.name else pl.element()


@_formula.register
def _(expr: HigherOrderCall) -> pl.Expr:
    return _apply(expr.function, _compile(expr.array), expr.array.type.items, expr.parameter, expr.body)


def _apply(function: str, array: pl.Expr, element: Type, parameter: str, body: Expr) -> pl.Expr:
    """Compile a lambda on the elements of an array.

    Polars sees nothing but the elements inside of a list. So the columns that the body uses, and the parameters of
    lambdas around it, are put beside each element, with the numbers from 1 as names; 0 is the element.
    """
    outer = free_leaves(body, parameter)
    own = LambdaParameter(name="0" if outer else "", type=element)
    places: dict[Expr, Expr] = {LambdaParameter(name=parameter, type=element): own}
    if outer:
        inside = [LambdaParameter(name=str(number), type=leaf.type) for number, leaf in enumerate(outer, 1)]
        places |= dict(zip(outer, inside, strict=True))
        array = _beside_elements(array, element, [(leaf.type, _compile(leaf)) for leaf in outer])
    value, replaced = _compile(own), replace_leaves(body, places)
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


def _beside_elements(array: pl.Expr, element: Type, values: Sequence[tuple[Type, pl.Expr]]) -> pl.Expr:
    """Return an array of structs of an element, ``0``, and these values, ``1`` and so on: equal for each element."""
    names = [str(number) for number in range(len(values) + 1)]
    kinds, columns = [element, *(kind for kind, _ in values)], [array, *(value for _, value in values)]
    made = pl.List(pl.Struct({name: polars_type(kind) for name, kind in zip(names, kinds, strict=True)}))
    record = pl.struct(column.alias(name) for name, column in zip(names, columns, strict=True))
    return record.map_batches(_zip_elements, return_dtype=made, is_elementwise=True)


def _zip_elements(columns: pl.Series) -> pl.Series:
    """Return ``_beside_elements`` of a struct of an array and values: Polars has no expression for it.

    Raises ``OverflowError`` if other arrays beside the elements have more than ``MAX_BESIDE`` elements together: they
    are there once for each element.
    """
    import pyarrow as pa

    array, *values = columns.struct.unnest().get_columns()
    lists = array.to_arrow(compat_level=pl.CompatLevel.oldest())
    offsets = lists.offsets.to_numpy()
    rows = pl.Series(np.repeat(np.arange(len(lists)), np.diff(offsets)))
    for value in values:
        if isinstance(value.dtype, pl.List):
            count = int((value.list.len().fill_null(0).cast(pl.Int64).to_numpy() * np.diff(offsets)).sum())
            if count > MAX_BESIDE:
                raise OverflowError(f"an array inside of a lambda over another one: {count} elements in a batch")
    elements = pl.Series("0", lists.values.slice(offsets[0], offsets[-1] - offsets[0]))
    beside = pl.DataFrame([elements, *(value.gather(rows) for value in values)]).to_struct()
    made = pa.LargeListArray.from_arrays(
        pa.array(offsets - offsets[0]), beside.to_arrow(compat_level=pl.CompatLevel.oldest()), mask=lists.is_null()
    )
    return pl.Series(columns.name, made)


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


def _entries_of(function: str, entries: Expr, key: Expr) -> pl.Expr:
    """Apply a function to the entries of a map: whether they have a key."""
    entry = struct_of({KEY: STRING, VALUE: entries.type.items})
    equal = Compare.of("=", MemberOf.of(LambdaParameter(name="__x", type=entry), KEY), key)
    return _apply(function, _compile(entries), entry, "__x", equal)


def _map_contains_key(entries: Expr, key: Expr) -> pl.Expr:
    return pl.when(_compile(key).is_not_null()).then(_entries_of("exists", entries, key))


def _element_at(nested: Expr, key: Expr) -> pl.Expr:
    if nested.type.kind is Kind.MAP:
        return _entries_of("filter", nested, key).list.first().struct.field(VALUE)

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
