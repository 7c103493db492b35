"""Detects that an expression failed on a row: its result is NULL although none of its inputs is NULL.

In the rule language overflow, division by zero and text that is not a number result in NULL, because a rule must not
stop. In the clean model such a NULL would be a silent loss. So an error condition is derived from each
expression: it is true for a row on which a part of the expression failed and the failure has an effect. A failure has
no effect in a value that ``coalesce`` replaces, in a branch of ``case`` that is not taken, in an operand that ``and``
or ``or`` does not need for its result, and in the operand of a null check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import reduce
from operator import and_, or_

import polars as pl

from rulecore.language import (
    And,
    Arithmetic,
    Call,
    Case,
    ColumnRef,
    Compare,
    Expr,
    HigherOrderCall,
    IsNull,
    LambdaParameter,
    MemberOf,
    Negate,
    Not,
    Or,
)
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.traversal import repeats_outside, walk
from rulecore.lists.list_columns import ListColumn

#: Functions whose result is NULL with no NULL operand only when they fail.
_FAILING = frozenset(
    {
        "abs",
        "floor",
        "ceil",
        "ln",
        "date_trunc",
        "to_long",
        "to_double",
        "to_decimal",
        "to_text",
        "to_timestamp",
        "to_utc_timestamp",
        "from_utc_timestamp",
        "from_unixtime",
        "date_format",
        "timestamp_seconds",
        "timestamp_millis",
        "timestamp_micros",
        "unix_micros",
        "year",
        "quarter",
        "month",
        "day",
        "dayofyear",
        "weekofyear",
        "cast",
        "url_decode",
        "unbase64",
        "ip_network",
        "from_json",
    }
)
#: Functions that may return a value for a NULL operand, or NULL without a failure.
_LENIENT = frozenset({"coalesce", "nullif", "greatest", "least", "array", "map", "concat_ws"})

#: The name of a parameter that no expression has.
_VALUE = "__value"

#: Returns the condition that a node fails although its operands do not; None for a node that cannot fail.
SelfFailure = Callable[[Expr], Expr | None]


def is_failed(node: Expr) -> Expr | None:
    """Return the condition that the result of the node is NULL and no operand is; None for a node that cannot fail.

    A sum is NULL without a failure if its array has no values. A ``transform`` is NULL if its result is too large.
    """
    if isinstance(node, Call) and node.function == "array_sum":
        (array,) = node.arguments
        value = Not(operand=IsNull(operand=LambdaParameter(name=_VALUE, type=array.type.items)))
        return And(terms=(IsNull(operand=node), HigherOrderCall.of("exists", array, _VALUE, value)))
    if isinstance(node, HigherOrderCall) and repeats_outside(node):
        return And(terms=(IsNull(operand=node), Not(operand=IsNull(operand=node.array))))
    if not isinstance(node, Arithmetic | Negate) and not (isinstance(node, Call) and node.function in _FAILING):
        return None
    return And(terms=(IsNull(operand=node), *(Not(operand=IsNull(operand=child)) for child in node.children)))


def not_in_list(needed: Collection[ListColumn]) -> SelfFailure:
    """Return the ``SelfFailure`` of the lookups in ``needed``: the key is not NULL, and the list does not have it."""
    operands = {column.name: column.operand for column in needed}

    def self_failure(node: Expr) -> Expr | None:
        if not isinstance(node, ColumnRef) or node.name not in operands:
            return None
        return And(terms=(IsNull(operand=node), Not(operand=IsNull(operand=operands[node.name]))))

    return self_failure


def can_fail(expr: Expr, self_failure: SelfFailure = is_failed) -> bool:
    """Whether any part of the expression can fail."""
    return any(self_failure(node) is not None for node in walk(expr))


def is_strict(expr: Expr) -> bool:
    """Whether the expression is NULL wherever a part of it is NULL, so that only rows with NULL can have failed."""
    return not any(
        isinstance(node, Case | And | Or | IsNull | HigherOrderCall)
        or (isinstance(node, Call) and node.function in _LENIENT)
        or (isinstance(node, Compare) and node.op == "<=>")
        for node in walk(expr)
    )


def evaluation_error(expr: Expr, self_failure: SelfFailure = is_failed) -> pl.Expr:
    """Return the condition that a part of the expression failed, with an effect (see the module)."""
    if not can_fail(expr, self_failure):
        return _NO
    match expr:
        case IsNull():
            return _NO
        case Case():
            return _case_error(expr, self_failure)
        case And() | Or():
            return to_polars(expr).is_null() & _any([evaluation_error(term, self_failure) for term in expr.terms])
        case HigherOrderCall():
            own = self_failure(expr)
            too_large = _NO if own is None else to_polars(own)
            return too_large | evaluation_error(expr.array, self_failure) | _lambda_error(expr, self_failure)
        case Call() if expr.function == "coalesce":
            *earlier, last = expr.arguments
            return _all([to_polars(argument).is_null() for argument in earlier]) & evaluation_error(last, self_failure)
    own = self_failure(expr)
    failed = [evaluation_error(child, self_failure) for child in expr.children]
    return _any(failed if own is None else [*failed, to_polars(own)])


def _lambda_error(expr: HigherOrderCall, self_failure: SelfFailure) -> pl.Expr:
    """Return the condition that the result is NULL for an element although no value that the body reads is NULL."""
    if not can_fail(expr.body, self_failure):
        return _NO
    present = [Not(operand=IsNull(operand=value)) for value in dict.fromkeys(_values(expr.body))]
    failed = And(terms=(IsNull(operand=expr.body), *present))
    found = HigherOrderCall.of("exists", expr.array, expr.parameter, failed)
    return to_polars(found).fill_null(value=False)


def _values(expr: Expr) -> Iterator[Expr]:
    """Yield the columns, the parameters and the members of structs that an expression reads."""
    if isinstance(expr, ColumnRef | LambdaParameter | MemberOf):
        yield expr
    elif isinstance(expr, HigherOrderCall):
        yield from _values(expr.array)
    else:
        for child in expr.children:
            yield from _values(child)


def _case_error(expr: Case, self_failure: SelfFailure) -> pl.Expr:
    result = _NO if expr.otherwise is None else evaluation_error(expr.otherwise, self_failure)
    for when in reversed(expr.whens):
        taken = to_polars(when.condition)
        result = (
            pl.when(taken)
            .then(evaluation_error(when.result, self_failure))
            .otherwise(evaluation_error(when.condition, self_failure) | result)
        )
    return result


def _any(conditions: Sequence[pl.Expr]) -> pl.Expr:
    return reduce(or_, conditions, _NO)


def _all(conditions: Sequence[pl.Expr]) -> pl.Expr:
    return reduce(and_, conditions, pl.lit(value=True))


_NO = pl.lit(value=False)
