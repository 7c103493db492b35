"""The expression language of rules: a subset of SQL with Spark's NULL semantics, typed, bounded, and ours.

Text becomes a typed tree (``parse``), and the tree, never the text, is rendered, normalized, hashed and run: by a plain
evaluator for one row (``evaluate``), and by Polars over columns (``compile.to_polars``), which like every other way of
running a rule is tested against the reference. Nothing written in this language can run code, read a file, loop, or
fail on data: overflow and division by zero are NULL. The package loads no Polars before columns or patterns are used.
"""

from __future__ import annotations

from rulecore.language.ast import (
    AggregateCall,
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    ColumnRef,
    Compare,
    Expr,
    In,
    InList,
    IntervalLiteral,
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
from rulecore.language.limits import ExpressionLimits
from rulecore.language.normalize import fingerprint, normalize
from rulecore.language.parsing.parser import parse
from rulecore.language.physical import to_logical, to_physical
from rulecore.language.reference.evaluator import evaluate
from rulecore.language.render import render
from rulecore.language.scope import ListType, Scope
from rulecore.language.traversal import aggregates, columns, conjuncts, lists, rebuild, replace_aggregates

__all__ = [
    "AggregateCall",
    "And",
    "Arithmetic",
    "Between",
    "Call",
    "Case",
    "ColumnRef",
    "Compare",
    "Expr",
    "ExpressionLimits",
    "In",
    "InList",
    "IntervalLiteral",
    "IsNull",
    "Like",
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
    "normalize",
    "parse",
    "rebuild",
    "render",
    "replace_aggregates",
    "to_logical",
    "to_physical",
]
