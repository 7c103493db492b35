"""The key in question: parses and renders it, and builds the query for its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation

import polars as pl

from headgate.errors import InputError
from headgate.explain.kafka_reader import KeyEventsQuery
from headgate.records.topic_decoder import key_columns
from rulecore import language as lang
from rulecore.compile.rule import CompiledRule
from rulecore.documents.features import declared_features
from rulecore.documents.rule import Rule
from rulecore.documents.windows import CountSpec, SequenceSpan, SessionSpec
from rulecore.key_columns import keyed_schema
from streamcore.offsets import TopicPartition
from streamcore.schema import StreamSchema

_MARGIN_MS = 60_000


def lookback_ms(rule: Rule) -> int | None:
    """Return how far back in event time the rule's state reaches, in milliseconds; None if time does not bound it.

    ``rule``: with the definitions of published features that it names.
    """
    if rule.expect is not None:
        return rule.expect.every
    if rule.score is not None:
        return rule.score.within
    if rule.features:
        return max(one.span.size_ms for one in declared_features(rule.features) if one.span is not None)
    match rule.within:
        case None:
            return 0
        case CountSpec():
            return None
        case SessionSpec():
            return 20 * rule.within.session
        case SequenceSpan():
            return rule.within.span
        case _:
            return rule.within.size_ms


def to_query(
    rule: CompiledRule,
    keys: Sequence[Mapping[str, object]],
    start: Mapping[TopicPartition, int],
    at_ms: int | None,
    scan: int,
) -> KeyEventsQuery:
    """Build the query for the events of keys (``keys_of_event``): twice as far back as the rule looks, because the
    events of an earlier firing may not count again."""
    length = lookback_ms(rule.whole)
    back = None if length is None else 2 * length + _MARGIN_MS
    return KeyEventsQuery(keys, start, at_ms, back, (length or 0) + _MARGIN_MS, scan)


def keys_of_event(rule: CompiledRule, event: pl.DataFrame, schema: StreamSchema) -> list[dict[str, object]]:
    """Return the keys whose events the rule counts at an event: that of its group; of features those by which the
    events that they count are routed, which may have no more in common."""
    keys = (rule.route_key, *sorted(rule.other_keys)) if rule.features else (rule.group_by,)
    return [event.select(key_columns(event, key, schema)).row(0, named=True) for key in keys]


def show_key(key: Mapping[str, object], schema: StreamSchema) -> str:
    """Render a key of physical values as ``user_id = u1``."""
    shown = []
    for name, value in key.items():
        field = keyed_schema(schema, [name]).get(name)
        logical = value if field is None else lang.to_logical(value, field.type)
        shown.append(f"{name} = {'null' if logical is None else logical}")
    return ", ".join(shown)


def parse_key(texts: Sequence[str], rule: CompiledRule, schema: StreamSchema) -> dict[str, object]:
    """Parse texts such as ``user_id=u1`` to physical values. Raises ``InputError`` unless they are the columns of the
    key."""
    wanted = rule.group_by or schema.keys[0]
    pairs = [text.partition("=") for text in texts]
    if {name for name, _, _ in pairs} != set(wanted) or not all(equals for _, equals, _ in pairs):
        raise InputError(
            f"--key {' '.join(texts)}: {rule.rule.id} needs {' '.join(f'--key {n}=VALUE' for n in wanted)}"
        )
    return {name: physical(name, value, schema) for name, _, value in pairs}


def physical(name: str, text: str, schema: StreamSchema) -> object:
    """Parse the text of a value of the field ``name`` to its physical value. Raises ``InputError`` if it does not
    fit."""
    field = keyed_schema(schema, [name]).get(name)
    assert field is not None, "the columns of a key are fields of the stream, or expressions"
    if text == "null":
        return None
    try:
        match field.type.kind.value:
            case "string":
                return text
            case "boolean":
                return {"true": True, "false": False}[text]
            case "double":
                return float(text)
            case "decimal":
                return lang.to_physical(Decimal(text), field.type)
        return int(text)
    except (ValueError, KeyError, InvalidOperation):
        raise InputError(f"--key {name}={text}: is not a {field.type}") from None
