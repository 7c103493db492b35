"""The expression language of rules: a subset of SQL with Spark's NULL semantics, typed, bounded, and ours.

Text becomes a typed tree (``parse``), and the tree, never the text, is rendered, normalised, hashed and run: by a plain
evaluator for one row (``evaluate``), and by Polars over columns (``compile.to_polars``), which like every other way of
running a rule is tested against the plain one. Nothing written in this language can run code, read a file, loop, or
fail on data: overflow and division by zero are NULL. The package loads no Polars before columns or patterns are used.
"""

from __future__ import annotations

from rulecore.lang.limits import Limits
from rulecore.lang.naive import evaluate
from rulecore.lang.normalise import fingerprint, normalise
from rulecore.lang.parse import parse
from rulecore.lang.physical import to_logical, to_physical
from rulecore.lang.render import render
from rulecore.lang.scope import ListType, Scope
from rulecore.lang.tree import (
    Aggregate,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Column,
    Compare,
    Expr,
    In,
    InList,
    Interval,
    IsNull,
    Like,
    Literal,
    Lookup,
    Negate,
    Not,
    Or,
    When,
    adapter,
)
from rulecore.lang.walk import aggregates, columns, conjuncts, lists, rebuild, replace_aggregates

__all__ = [
    "Aggregate",
    "And",
    "Arithmetic",
    "Between",
    "Call",
    "Case",
    "Column",
    "Compare",
    "Expr",
    "In",
    "InList",
    "Interval",
    "IsNull",
    "Like",
    "Limits",
    "ListType",
    "Literal",
    "Lookup",
    "Negate",
    "Not",
    "Or",
    "Scope",
    "When",
    "adapter",
    "aggregates",
    "columns",
    "conjuncts",
    "evaluate",
    "fingerprint",
    "lists",
    "normalise",
    "parse",
    "rebuild",
    "render",
    "replace_aggregates",
    "to_logical",
    "to_physical",
]
