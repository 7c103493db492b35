"""The one way from an expression's text to the form that evaluation over events needs: parsed, lifted, in normal form.

Every compiler of a rule makes the conditions and values that are asked of each event here, so that
names, limits and lists mean the same everywhere.
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
    """The names that an expression over events may use, and its size limits."""

    columns: Mapping[str, Type]
    lists: Mapping[str, ListType] = field(default_factory=dict)
    limits: lang.ExpressionLimits = field(default_factory=lang.ExpressionLimits)

    @classmethod
    def of_stream(cls, schema: StreamSchema, lists: Mapping[str, ListType], limits: lang.ExpressionLimits) -> NameScope:
        """Return the columns of a stream, and all lists."""
        return cls({f.name: f.type for f in schema.fields}, lists, limits)


@dataclass(frozen=True, slots=True)
class EventCondition:
    """``expr`` is in normal form, over the stream's columns and ``list_columns`` (see ``lists.columns``)."""

    expr: Expr
    list_columns: tuple[ListColumn, ...] = ()


def compile_condition(text: str, field: str, names: NameScope, expect: Type | None = BOOLEAN) -> EventCondition:
    """Return the condition of a rule's ``field`` (another type than boolean with ``expect``, any with None)."""
    parsed = lang.parse(text, Scope(names.columns, lists=names.lists), field=field, limits=names.limits, expect=expect)
    return compile_expr(parsed)


def compile_expr(expr: Expr) -> EventCondition:
    """Return the same of a tree, such as the argument of an aggregate."""
    over_columns, list_columns = extract_list_columns(expr)
    return EventCondition(lang.normalize(over_columns), list_columns)
