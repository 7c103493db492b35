"""Which changes of a stream's document are possible while an app runs, and why others are not.

A change is possible if each record that was an event stays one, with equal values: further optional fields, wider
types, and fields that may be absent now. Rows that are under way, state by key and the watermark then stay what they
are. Rules that read a field of a wider type are the business of ``rulecore.ruleset.stream_changes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamcore.errors import ConfigError
from streamcore.schema.field_paths import format_path
from streamcore.schema.stream_schema import Field, StreamSchema
from streamcore.schema.types import DOUBLE, LONG, Kind, Type

#: What to do instead of a change that a running app cannot take.
RESTART = "take a savepoint, change the stream file, and start the app from the savepoint"


def is_wider(old: Type, new: Type) -> bool:
    """Return whether every value of the old type is one of the new type. A long above 2**53 is rounded as a double."""
    if old.kind is Kind.DECIMAL and new.kind is Kind.DECIMAL:
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    if old == LONG and new == DOUBLE:
        return True
    if old.kind is new.kind and old.element is not None:
        return old.items == new.items or is_wider(old.items, new.items)
    members: Mapping[str, Type] = dict(new.members)
    return old.kind is new.kind is Kind.STRUCT and all(
        name in members and (members[name] == kind or is_wider(kind, members[name])) for name, kind in old.members
    )


def is_rounded(old: Type, new: Type) -> bool:
    """Return whether the wider type rounds values: a ``long`` as a ``double``, also inside of others."""
    if old.element is not None and new.element is not None:
        return is_rounded(old.items, new.items)
    members: Mapping[str, Type] = dict(new.members)
    inside = [(kind, members[name]) for name, kind in old.members if name in members]
    return (old, new) == (LONG, DOUBLE) or any(is_rounded(one, other) for one, other in inside)


def check_evolution(old: StreamSchema, new: StreamSchema) -> None:
    """Raise ``ConfigError``, with what to do instead, unless a running app can go from one document to the other."""
    if problems := find_problems(old, new):
        raise ConfigError(f"stream {new.name}: {'; '.join(problems)}")


def find_problems(old: StreamSchema, new: StreamSchema) -> list[str]:
    """Return the changes of the new document that a running app cannot take, each with its remedy."""
    return [*_entries(old, new), *_fields(old, new)]


def widened_fields(old: StreamSchema, new: StreamSchema) -> frozenset[str]:
    """Return the names of the fields of another type."""
    before = {field.name: field for field in old.fields}
    return frozenset(f.name for f in new.fields if f.name in before and f.type != before[f.name].type)


def _entries(old: StreamSchema, new: StreamSchema) -> Iterator[str]:
    for entry in ("event_time", "time_fallback", "event_id", "keys", "zone", "envelope", "when", "deduplicate_ms"):
        if getattr(old, entry) != getattr(new, entry):
            yield f"{entry.removesuffix('_ms')} does not change while the app runs: {RESTART}"


def _fields(old: StreamSchema, new: StreamSchema) -> Iterator[str]:
    before = {field.name: field for field in old.fields}
    after = {field.name: field for field in new.fields}
    for name in before:
        if name not in after:
            yield f"field {name} is gone: keep it in the document, for it may be null; or {RESTART}"
    if [name for name in after if name in before] != [name for name in before if name in after]:
        yield "the fields are in another order: keep the order, and put new ones between or behind"
    routed = {old.event_id, *(column for key in old.keys for column in key)}
    for name, field in after.items():
        if name not in before:
            if not field.nullable:
                yield f"the new field {name} is not null, and earlier events do not have it: leave out not null"
        elif problem := _field(before[name], field, is_routed=name in routed):
            yield f"field {name}: {problem}"


def _field(old: Field, new: Field, *, is_routed: bool) -> str:
    """Return why the field cannot become the new one, or nothing. ``is_routed``: whether it is a key or the id."""
    other = f"add a field of another name for it, or {RESTART}"
    if old.location != new.location:
        return f"it would be read from {format_path(new.location)}, not {format_path(old.location)}: {other}"
    if old.unit != new.unit:
        return f"its numbers would be {new.unit.word}, not {old.unit.word}: {other}"
    if old.pattern != new.pattern:
        return f"its texts would be read as {new.pattern or 'ISO 8601'}, not {old.pattern or 'ISO 8601'}: {other}"
    if old.nullable and not new.nullable:
        return f"events without it would be dead letters: leave out not null, or {RESTART}"
    if old.type == new.type:
        return ""
    if not is_wider(old.type, new.type):
        return f"not every {old.type} is a {new.type}: {other}"
    if is_routed:
        return f"it is a key or the id of the stream, and state is stored by its {old.type}: {other}"
    return ""
