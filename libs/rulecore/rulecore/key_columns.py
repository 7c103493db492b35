"""The columns of keys: fields of a stream, and expressions of its events, such as ``lower(email)``.

An expression is a column with its text as name, so everything that has keys (groups, alerts, state) knows names and
types only. The text is the one that the language writes (``lang.render``), so that equal keys have one name.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rulecore import language as lang
from rulecore.errors import ExpressionError, RuleError, RuleSetError
from rulecore.language import Expr, Scope
from rulecore.language.suggestions import suggest_field
from streamcore.errors import ConfigError
from streamcore.schema import Field, StreamSchema, Type

#: The names of the columns of a key.
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key that is an expression. ``name``: its text; ``operand``: in normal form."""

    name: str
    operand: Expr

    @property
    def type(self) -> Type:
        """The type of the column."""
        return self.operand.type


def parse_key_columns(schema: StreamSchema, names: Sequence[str], field: str = "group_by") -> tuple[KeyColumn, ...]:
    """Return the columns among these that are expressions of the stream's events.

    ``field``: of the rule, for the error: ``RuleSetError`` for what is no field, ``ExpressionError`` for what is no
    expression.
    """
    return tuple(_parse(schema, one, field, n) for n, one in enumerate(names) if schema.get(one) is None)


@functools.lru_cache(4_096)
def _parse(schema: StreamSchema, name: str, field: str, number: int) -> KeyColumn:
    try:
        parsed = lang.parse(name, Scope.of_event(schema), field=f"{field}.{number}", expect=None)
    except ExpressionError:
        if not all(part.isidentifier() for part in name.split(".")):
            raise
        hint = suggest_field(name, schema)
        raise RuleSetError(f"{field}: stream {schema.name} has no {name}; {hint}") from None
    if not lang.columns(parsed):
        raise RuleSetError(f"{field}: {name} has one value for all events; name a field, or an expression of fields")
    if parsed.type.is_nested:
        raise RuleSetError(f"{field}: {name} is {parsed.type}, and a key has single values")
    if (text := lang.render(parsed)) != name:
        raise RuleSetError(f"{field}: write {text} for {name}, so that rules by equal keys share their state")
    return KeyColumn(name, lang.normalize(parsed))


def with_key_columns(schema: StreamSchema, columns: Iterable[KeyColumn], field: str = "group_by") -> StreamSchema:
    """Return the schema of events that have these columns too."""
    added = tuple(Field(column.name, column.type) for column in columns)
    try:
        return replace(schema, fields=(*schema.fields, *added)) if added else schema
    except ConfigError as error:
        raise RuleSetError(f"{field}: {error}") from error


def keep_keys(schema: StreamSchema, keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return those of the keys that events of the stream have: after a start with another stream file."""
    kept = []
    for key in keys:
        with contextlib.suppress(RuleError):
            with_key_columns(schema, parse_key_columns(schema, key))
            kept.append(key)
    return tuple(kept)


def keyed_schema(schema: StreamSchema, names: Sequence[str]) -> StreamSchema:
    """Return the schema of events that have the columns of a key, which was checked before. A column that is none any
    more, after a start with another stream file, is left out."""
    kept = keep_keys(schema, [(name,) for name in names if schema.get(name) is None])
    return with_key_columns(schema, [column for key in kept for column in parse_key_columns(schema, key)])
