"""Compiles the text of an expression over events: parses it, extracts the columns that lists give, and normalizes it.

All compilers of rules use this module for conditions and values of events, so that names, limits and lists have one
meaning everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rulecore import language as lang
from rulecore.language import Expr, ListType, Scope
from rulecore.lists.list_columns import ListColumn, extract_list_columns
from streamcore.schema import BOOLEAN, StreamSchema, Type


@dataclass(frozen=True, slots=True)
class NameScope:
    """The names that an expression over events may use, and its size limits. ``steps``: those of a sequence, which the
    expression may not read."""

    columns: Mapping[str, Type]
    lists: Mapping[str, ListType] = field(default_factory=dict)
    limits: lang.ExpressionLimits = field(default_factory=lang.ExpressionLimits)
    steps: tuple[str, ...] = ()

    @classmethod
    def of_stream(cls, schema: StreamSchema, lists: Mapping[str, ListType], limits: lang.ExpressionLimits) -> NameScope:
        """Return the scope with the columns of a stream and these lists."""
        return cls({f.name: f.type for f in schema.fields}, lists, limits)


@dataclass(frozen=True, slots=True)
class EventCondition:
    """A compiled expression over events.

    ``expr`` is in normal form, over the stream's columns and ``list_columns`` (see ``lists.list_columns``).
    """

    expr: Expr
    list_columns: tuple[ListColumn, ...] = ()


def compile_condition(text: str, field: str, names: NameScope, expect: Type | None = BOOLEAN) -> EventCondition:
    """Compile the expression of a rule's ``field``, which errors name. ``expect``: its type; None for any type."""
    scope = Scope(names.columns, lists=names.lists, later_steps=names.steps)
    parsed = lang.parse(text, scope, field=field, limits=names.limits, expect=expect)
    return compile_expr(parsed)


def compile_expr(expr: Expr) -> EventCondition:
    """Compile an expression that is already parsed, such as the argument of an aggregate."""
    over_columns, list_columns = extract_list_columns(expr)
    return EventCondition(lang.normalize(over_columns), list_columns)
