"""Which names an expression may use: columns, aggregates, lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamcore.schema import StreamSchema, Type


@dataclass(frozen=True, slots=True)
class ListType:
    """A list that rules may name: the type of its entries, and of the value of each, None where they have none."""

    name: str
    of: Type
    value: Type | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """``columns`` outside of aggregates, ``arguments`` inside of them (``columns`` again when None).

    For ``where``: the event's columns. For ``having``: the columns of ``group_by``, ``aggregates``, and the event's
    columns as ``arguments``. ``lists`` by name.
    """

    columns: Mapping[str, Type]
    aggregates: bool = False
    arguments: Mapping[str, Type] | None = None
    lists: Mapping[str, ListType] = field(default_factory=dict)

    @classmethod
    def of_event(cls, schema: StreamSchema) -> Scope:
        """Return the scope of ``where``."""
        return cls({f.name: f.type for f in schema.fields})

    @classmethod
    def of_group(cls, schema: StreamSchema, group_by: tuple[str, ...]) -> Scope:
        """Return the scope of ``having``. Every name of ``group_by`` is a field of the schema."""
        event = {f.name: f.type for f in schema.fields}
        return cls({name: event[name] for name in group_by}, aggregates=True, arguments=event)
