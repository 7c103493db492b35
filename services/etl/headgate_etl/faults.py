"""Whether an expression failed on a row: it is NULL, and not because something in it was.

The language answers overflow, division by zero and text that is no number with NULL, for a rule must not stop. In a
clean model that NULL would be a loss that nobody sees. So every expression has a second one beside it, which is true
where a part of it failed that counts: not what ``coalesce`` has another value for, not a branch of ``case`` that is not
taken, not what ``and`` or ``or`` are decided without, not what is only asked whether it is null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from operator import and_, or_

import polars as pl

from rulecore.lang import And, Arithmetic, Call, Case, Column, Compare, Expr, IsNull, Negate, Or
from rulecore.lang.compile import to_polars
from rulecore.lang.walk import walk
from rulecore.lists.asked import ListColumn

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
Own = Callable[[Expr], "pl.Expr | None"]


def bad_value(node: Expr) -> pl.Expr | None:
    """It is null, and its operands are not."""
    if not isinstance(node, Arithmetic | Negate) and not (isinstance(node, Call) and node.function in _FAILING):
        return None
    return to_polars(node).is_null() & _all([to_polars(child).is_not_null() for child in node.children])


def not_in_list(needed: Collection[ListColumn]) -> Own:
    """A look-up gave nothing for a key that is there."""
    operands = {one.name: one.operand for one in needed}

    def own(node: Expr) -> pl.Expr | None:
        if not isinstance(node, Column) or node.name not in operands:
            return None
        return pl.col(node.name).is_null() & to_polars(operands[node.name]).is_not_null()

    return own


def can_fail(expr: Expr, own: Own = bad_value) -> bool:
    """Whether any part of it may."""
    return any(own(node) is not None for node in walk(expr))


def is_strict(expr: Expr) -> bool:
    """Whether it is NULL wherever a part of it is, so that only rows where it is NULL need a closer look."""
    return not any(
        isinstance(node, Case | And | Or | IsNull)
        or (isinstance(node, Call) and node.function in _LENIENT)
        or (isinstance(node, Compare) and node.op == "<=>")
        for node in walk(expr)
    )


def fault(expr: Expr, own: Own = bad_value) -> pl.Expr:
    """True where a part of it that counts failed."""
    if not can_fail(expr, own):
        return _NO
    match expr:
        case IsNull():
            return _NO
        case Case():
            return _of_case(expr, own)
        case And() | Or():
            return to_polars(expr).is_null() & _any([fault(term, own) for term in expr.terms])
        case Call() if expr.function == "coalesce":
            *tried, last = expr.arguments
            return _all([to_polars(one).is_null() for one in tried]) & fault(last, own)
    mine = own(expr)
    return _any([fault(child, own) for child in expr.children] + ([] if mine is None else [mine]))


def _of_case(expr: Case, own: Own) -> pl.Expr:
    result = _NO if expr.otherwise is None else fault(expr.otherwise, own)
    for when in reversed(expr.whens):
        taken = to_polars(when.condition)
        result = pl.when(taken).then(fault(when.result, own)).otherwise(fault(when.condition, own) | result)
    return result


def _any(conditions: Sequence[pl.Expr]) -> pl.Expr:
    return reduce(or_, conditions, _NO)


def _all(conditions: Sequence[pl.Expr]) -> pl.Expr:
    return reduce(and_, conditions, pl.lit(value=True))


_NO = pl.lit(value=False)
