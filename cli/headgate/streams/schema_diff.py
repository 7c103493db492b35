"""The effects of a change of a stream's document: on the records of its topic, on rules, and on their state."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.errors import RuleError
from rulecore.language import ListType
from rulecore.streams import stream_names
from streamcore.schema import Field, StreamSchema
from streamcore.schema.evolution import is_rounded, is_wider
from streamcore.schema.field_paths import format_path


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference. ``entry``: the field, or the entry of the document; ``effect``: its consequence."""

    entry: str
    before: str | None
    after: str | None
    effect: str


class RuleFate(enum.StrEnum):
    """The fate of a rule with the new document."""

    SAME = "same"
    NO_STATE = "no state"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class RuleEffect:
    """The effect on one rule. ``reason``: empty for ``SAME``."""

    rule: str
    fate: RuleFate
    reason: str = ""


def diff_schemas(old: StreamSchema, new: StreamSchema) -> list[SchemaChange]:
    """Return the differences of two documents of one stream: fields in the order of the new one, then other entries."""
    return [*_fields(old, new), *_entries(old, new)]


def diff_rules(
    old: StreamSchema,
    new: StreamSchema,
    rules: Iterable[Rule],
    lists: Mapping[str, ListType],
    others: Mapping[str, StreamSchema] = MappingProxyType({}),
) -> list[RuleEffect]:
    """Return the effect on each rule that reads the stream and is valid with the old document.

    ``others``: the streams that rules may read besides it.
    """
    effects = []
    for rule in rules:
        if old.name not in stream_names(rule.on):
            continue
        before = _compile(rule, {**others, old.name: old}, lists)
        if isinstance(before, CompiledRule):
            after = _compile(rule, {**others, old.name: new}, lists)
            if before.route_key in old.keys and before.route_key not in new.keys and isinstance(after, CompiledRule):
                after = f"it is routed by [{', '.join(before.route_key)}], which is no key any more; keep the key"
            effects.append(_effect(before, after))
    return effects


def _compile(rule: Rule, streams: Mapping[str, StreamSchema], lists: Mapping[str, ListType]) -> CompiledRule | str:
    """Return the compiled rule, or why it is invalid."""
    try:
        return compile_rule(rule, streams, RuleLimits(), lists)
    except RuleError as error:
        return str(error)


def _effect(before: CompiledRule, after: CompiledRule | str) -> RuleEffect:
    name = before.rule.id
    if isinstance(after, str):
        return RuleEffect(name, RuleFate.REJECTED, after)
    kept, needed = _state(before), _state(after)
    if anew := sum(one not in kept for one in needed):
        return RuleEffect(name, RuleFate.NO_STATE, f"{anew} of {len(needed)} parts of its state begin anew")
    return RuleEffect(name, RuleFate.SAME)


def _state(rule: CompiledRule) -> frozenset[object]:
    """Return the names of the state that the rule keeps, and the key by which its events come."""
    found: set[object] = {(rule.route_key, aggregate.fingerprint) for aggregate in rule.aggregates}
    if rule.sequence is not None:
        found.add((rule.route_key, rule.sequence.fingerprint))
    if rule.absence is not None:
        found.add((rule.route_key, rule.absence.population))
    return frozenset(found)


def _fields(old: StreamSchema, new: StreamSchema) -> Iterator[SchemaChange]:
    before, after = ({field.name: field for field in schema.fields} for schema in (old, new))
    for name, field in after.items():
        if name not in before:
            effect = "null for events without it" if field.nullable else "records without it are dead letters"
            yield SchemaChange(name, None, _describe(field), f"a new field; {effect}")
        elif before[name] != field:
            yield SchemaChange(name, _describe(before[name]), _describe(field), _field_effect(before[name], field))
    for name, field in before.items():
        if name not in after:
            yield SchemaChange(name, _describe(field), None, "not read any more; rules that name it are rejected")


def _field_effect(old: Field, new: Field) -> str:
    effects = []
    if old.type != new.type:
        fits = is_wider(old.type, new.type)
        wider = "every value fits" if fits else "records whose value does not fit are dead letters"
        rounded = "; a whole number above 2^53 is rounded" if is_rounded(old.type, new.type) else ""
        effects.append(f"another type: {wider}{rounded}")
    if old.nullable and not new.nullable:
        effects.append("records without it are dead letters")
    if not old.nullable and new.nullable:
        effects.append("records without it are events now")
    if (old.location, old.unit) != (new.location, new.unit):
        effects.append("another value of the record")
    return "; ".join(effects)


def _describe(field: Field) -> str:
    place = f" from {format_path(field.path)}" if field.path else ""
    return f"{field.type}{'' if field.nullable else ' not null'}{place}"


def _entries(old: StreamSchema, new: StreamSchema) -> Iterator[SchemaChange]:
    for entry, before, after, effect in (
        ("name", old.name, new.name, "another stream: it begins without state"),
        ("event_time", old.event_time, new.event_time, "windows, watermark and lateness follow another time"),
        ("event_id", old.event_id, new.event_id, "duplicates and alerts go by another id"),
        ("keys", _keys(old), _keys(new), "start from a savepoint: state is kept where the rule has the same route"),
        ("zone", old.zone, new.zone, "times without a zone mean other moments"),
        ("envelope", _text(old.envelope), _text(new.envelope), "fields are read from other places"),
        ("when", _text(old.when), _text(new.when), "other records of the topic are events"),
        ("deduplicate", _ms(old), _ms(new), "start from a savepoint: the app has another number of keyed stages"),
    ):
        if before != after:
            yield SchemaChange(entry, before, after, effect)


def _keys(schema: StreamSchema) -> str:
    return ", ".join(f"[{', '.join(key)}]" for key in schema.keys)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _ms(schema: StreamSchema) -> str | None:
    return None if schema.deduplicate_ms is None else f"{schema.deduplicate_ms} ms"
