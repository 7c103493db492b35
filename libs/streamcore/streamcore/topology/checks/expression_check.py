"""Checks that an expression of a step has no function of several rows.

A cut holds any number of rows, so a ``cum_sum`` or a mean over the rows of a cut depends on where cuts begin. Functions
of the elements of a row's own list are no functions of several rows. What Python functions and plugins do is not
visible in an expression: ``streamcore.topology.checks.step_check`` evaluates it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from streamcore.arguments import check_type
from streamcore.errors import ConfigError

#: Kinds of nodes of Polars' serialised expressions that combine or select rows.
_KINDS = frozenset(
    {
        "Agg",
        "AnonymousAgg",
        "Explode",
        "Filter",
        "Gather",
        "Over",
        "Rolling",
        "Slice",
        "Sort",
        "SortBy",
        "SubPlan",
    }
)
_FUNCTION_NAMES = """
    Append ApproxNUnique ArgMax ArgMin ArgSort ArgUnique ArgWhere BackwardFill Bitwise.And Bitwise.Or Bitwise.Xor
    Boolean.All Boolean.Any Boolean.HasNulls Boolean.IsDuplicated Boolean.IsFirstDistinct Boolean.IsLastDistinct
    Boolean.IsSorted Boolean.IsUnique Correlation CumCount CumMax CumMin CumProd CumSum Diff DropNans DropNulls Entropy
    EwmMean EwmMeanBy EwmStd EwmSum EwmVar ExtendConstant FillNullWithStrategy.Backward FillNullWithStrategy.Forward
    FillNullWithStrategy.Max FillNullWithStrategy.Mean FillNullWithStrategy.Min ForwardFill GatherEvery Hist IndexOf
    Interpolate InterpolateBy Kurtosis MaxBy MinBy Mode NullCount PctChange PeakMax PeakMin Product QCut Quantile
    Random.Sample Random.Shuffle Range.DateRange Range.DatetimeRange Range.IntRange Range.LinearSpace Range.TimeRange
    Rank Repeat Reshape Reverse RLE RLEID RollingExpr RollingExprBy SearchSorted Shift ShiftAndFill Skew
    StringExpr.ConcatVertical TopK TopKBy Unique UniqueCounts ValueCounts
"""
#: Functions of several rows, by Polars' internal names.
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
#: Names in Python that differ from the internal ones, by function or group.
_PYTHON_NAMES = {
    "Bitwise.And": "bitwise_and",
    "Bitwise.Or": "bitwise_or",
    "Bitwise.Xor": "bitwise_xor",
    "FillNullWithStrategy": "fill_null",
    "Gather": "get",
    "NUnique": "n_unique",
    "RLEID": "rle_id",
    "RollingExpr": "rolling",
    "RollingExprBy": "rolling_by",
    "StringExpr.ConcatVertical": "str.join",
}
#: Nodes without expressions of rows below them.
_LEAVES = frozenset(["Column", "Field", "Literal", "Selector"])
#: What to write instead of a function of several rows.
REMEDY = "aggregate in a window, or keep state in a process function"


def check_expression(argument: str, expression: pl.Expr) -> None:
    """Raise ``ConfigError`` if the expression has a function of several rows. ``argument``: as ``map: column d``."""
    check_type(argument, expression, pl.Expr, "write such as pl.col('price') or pl.lit(5)")
    function = next(_functions(expression), None)
    if function is not None:
        raise ConfigError(
            f"{argument}: {function} reads other rows, and a cut may hold any of them, so the result would depend on "
            f"the cut; {REMEDY}"
        )


def _functions(expression: pl.Expr) -> Iterator[str]:
    """Yield the functions of several rows, by their names in Polars."""
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except Exception:  # it has a Python function that cannot be pickled; its inputs can be searched
        for part in expression.meta.pop():
            yield from _functions(part)
    else:
        yield from _search(tree)


def _search(node: Any) -> Iterator[str]:
    """Yield the functions of several rows in a part of the serialised tree. Functions of constants are none."""
    if node == "Len":
        yield "len()"
    elif isinstance(node, list):
        for part in node:
            yield from _search(part)
    elif isinstance(node, dict):
        for kind, body in node.items():
            yield from _search_kind(kind, body)


def _search_kind(kind: str, body: Any) -> Iterator[str]:
    match kind:
        case _ if kind in _LEAVES:
            return
        case "Function":
            names = _function_names(body["function"])
            if _FUNCTIONS.intersection(names) and (_reads_rows(body["input"]) or "Random" in names):
                yield _in_python(names[-1])
            yield from _search(body["input"])
        case "Alias":  # the expression and its name
            yield from _search(body[0])
        case "AnonymousFunction":
            yield from _search(body["input"])
        case "Eval" | "RenameAlias":  # Eval: a function of the elements of a row's own list
            yield from _search(body["expr"])
        case _:
            if kind in _KINDS and _reads_rows(body):
                yield _in_python(next(iter(body)) if kind == "Agg" else kind)
            yield from _search(body)


def _function_names(function: Any) -> tuple[str, ...]:
    """Return the name of a function and, for a group of functions such as Boolean, ``<group>.<name>``."""
    if isinstance(function, str):
        return (function,)
    ((name, body),) = function.items()
    inner = body if isinstance(body, str) else next(iter(body), None) if isinstance(body, dict) else None
    if isinstance(inner, str) and name == "Random":
        inner = body["method"] if isinstance(body["method"], str) else next(iter(body["method"]))
    return (name, f"{name}.{inner}") if f"{name}.{inner}" in _FUNCTIONS else (name,)


def _reads_rows(node: Any) -> bool:
    if isinstance(node, dict):
        return any(kind in ("Column", "Field", "Selector") or _reads_rows(body) for kind, body in node.items())
    return any(_reads_rows(part) for part in node) if isinstance(node, list) else node == "Len"


def _in_python(name: str) -> str:
    """Return the name as in Polars' Python interface: ``cum_sum()`` for ``CumSum``."""
    group, _, function = name.rpartition(".")
    known = _PYTHON_NAMES.get(name) or _PYTHON_NAMES.get(group)
    return (known or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function).lower()) + "()"
