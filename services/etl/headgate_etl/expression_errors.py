"""Detects that an expression failed on a row: its result is NULL although none of its inputs is NULL.

The language answers overflow, division by zero and text that is not a number with NULL, because a rule must not stop.
In a clean model that NULL would be an unnoticed loss. So every expression has a second one beside it, which is true
where a part of it failed that counts. These parts do not count: a value that ``coalesce`` replaces, a branch of
``case`` that is not taken, an operand without which ``and`` or ``or`` is decided, and an operand of a null check.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from operator import and_, or_

import polars as pl

from rulecore.language import And, Arithmetic, Call, Case, ColumnRef, Compare, Expr, IsNull, Negate, Or
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.traversal import walk
from rulecore.lists.list_columns import ListColumn

#: What may be NULL though no operand is, and should not.
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
    }
)
#: What may be something though an operand is NULL, or NULL though none failed.
_LENIENT = frozenset({"coalesce", "nullif", "greatest", "least"})


#: The condition under which a node fails by itself; None for one that cannot.
SelfFailure = Callable[[Expr], "pl.Expr | None"]


def is_failed(node: Expr) -> pl.Expr | None:
    """Return the condition: the node is null and its operands are not."""
    if not isinstance(node, Arithmetic | Negate) and not (isinstance(node, Call) and node.function in _FAILING):
        return None
    return to_polars(node).is_null() & _all([to_polars(child).is_not_null() for child in node.children])


def not_in_list(needed: Collection[ListColumn]) -> SelfFailure:
    """Return the self-failure of a look-up that found nothing for a key that is not null."""
    operands = {one.name: one.operand for one in needed}

    def self_failure(node: Expr) -> pl.Expr | None:
        if not isinstance(node, ColumnRef) or node.name not in operands:
            return None
        return pl.col(node.name).is_null() & to_polars(operands[node.name]).is_not_null()

    return self_failure


def can_fail(expr: Expr, self_failure: SelfFailure = is_failed) -> bool:
    """Whether any part of it may."""
    return any(self_failure(node) is not None for node in walk(expr))


def is_strict(expr: Expr) -> bool:
    """Whether it is NULL wherever a part of it is, so that only rows where it is NULL need a closer look."""
    return not any(
        isinstance(node, Case | And | Or | IsNull)
        or (isinstance(node, Call) and node.function in _LENIENT)
        or (isinstance(node, Compare) and node.op == "<=>")
        for node in walk(expr)
    )


def evaluation_error(expr: Expr, self_failure: SelfFailure = is_failed) -> pl.Expr:
    """Return the condition that a part of the expression that counts failed."""
    if not can_fail(expr, self_failure):
        return _NO
    match expr:
        case IsNull():
            return _NO
        case Case():
            return _case_error(expr, self_failure)
        case And() | Or():
            return to_polars(expr).is_null() & _any([evaluation_error(term, self_failure) for term in expr.terms])
        case Call() if expr.function == "coalesce":
            *tried, last = expr.arguments
            return _all([to_polars(one).is_null() for one in tried]) & evaluation_error(last, self_failure)
    mine = self_failure(expr)
    return _any([evaluation_error(child, self_failure) for child in expr.children] + ([] if mine is None else [mine]))


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
