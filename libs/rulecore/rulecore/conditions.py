"""The one way from an expression's text to what evaluation over events needs: parsed, lifted, in normal form.

Whoever compiles a rule, of whatever kind, makes the conditions and values that are asked of each event here, so that
names, limits and lists mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rulecore import lang
from rulecore.lang import Expr, ListType, Scope
from rulecore.lists.asked import ListColumn, lift
from streamcore.schema import BOOLEAN, StreamSchema, Type


@dataclass(frozen=True, slots=True)
class Names:
    """What an expression over events may name, and how large it may be."""

    columns: Mapping[str, Type]
    lists: Mapping[str, ListType] = field(default_factory=dict)
    limits: lang.Limits = field(default_factory=lang.Limits)

    @classmethod
    def of_stream(cls, schema: StreamSchema, lists: Mapping[str, ListType], limits: lang.Limits) -> Names:
        """The columns of a stream, and all lists."""
        return cls({f.name: f.type for f in schema.fields}, lists, limits)


@dataclass(frozen=True, slots=True)
class Condition:
    """``expr`` is in normal form, over the stream's columns and ``list_columns`` (see ``lists.columns``)."""

    expr: Expr
    list_columns: tuple[ListColumn, ...] = ()


def condition(text: str, field: str, names: Names, expect: Type | None = BOOLEAN) -> Condition:
    """The condition of a rule's ``field`` (another type than boolean with ``expect``, any with None)."""
    parsed = lang.parse(text, Scope(names.columns, lists=names.lists), field=field, limits=names.limits, expect=expect)
    return lifted(parsed)


def lifted(expr: Expr) -> Condition:
    """The same of a tree, such as the argument of an aggregate."""
    over_columns, list_columns = lift(expr)
    return Condition(lang.normalise(over_columns), list_columns)
