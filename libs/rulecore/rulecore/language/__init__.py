"""The expression language of rules: a typed subset of SQL with Spark's NULL semantics and limits on every size.

``parse`` turns text into a typed tree. The tree is rendered, normalized, hashed and evaluated: on one row by the
reference evaluator (``evaluate``), and on columns by Polars (``columnar.compiler.to_polars``), which is tested against
the reference. An expression cannot run code, read a file, loop, or fail on data: overflow and division by zero are
NULL. The package imports Polars only when columns or regular expressions are used.
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
    HigherOrderCall,
    In,
    InList,
    IntervalLiteral,
    IsNull,
    LambdaParameter,
    Like,
    Literal,
    Lookup,
    MemberOf,
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
from rulecore.language.traversal import (
    aggregates,
    columns,
    conjuncts,
    lists,
    rebuild,
    replace_aggregates,
    replace_parts,
    walk,
)

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
    "HigherOrderCall",
    "In",
    "InList",
    "IntervalLiteral",
    "IsNull",
    "LambdaParameter",
    "Like",
    "ListType",
    "Literal",
    "Lookup",
    "MemberOf",
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
    "replace_parts",
    "to_logical",
    "to_physical",
    "walk",
]
