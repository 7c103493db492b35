"""The expression language of rules: a subset of SQL with Spark's NULL semantics, typed, bounded, and ours.

Text becomes a typed tree (``parse``), and the tree, never the text, is rendered, normalised, hashed and run: by
Polars over columns (``to_polars``), and by a plain evaluator for one row (``evaluate``) that every other way of
running a rule is tested against. Nothing written in this language can run code, read a file, loop, or fail on data:
overflow and division by zero are NULL.
"""

from __future__ import annotations

from rulecore.lang.compile import to_polars
from rulecore.lang.limits import Limits
from rulecore.lang.naive import evaluate
from rulecore.lang.normalise import fingerprint, normalise
from rulecore.lang.parse import parse
from rulecore.lang.physical import to_logical, to_physical
from rulecore.lang.render import render
from rulecore.lang.scope import Scope
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
    Interval,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    When,
    adapter,
)
from rulecore.lang.walk import aggregates, columns, conjuncts, replace_aggregates

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
    "Interval",
    "IsNull",
    "Like",
    "Limits",
    "Literal",
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
    "normalise",
    "parse",
    "render",
    "replace_aggregates",
    "to_logical",
    "to_physical",
    "to_polars",
]
