"""Finds keys of state that are new with (almost) every event, such as an event's id: their state only grows.

Such a rule is valid, and reaches a budget of state (``state_budgets``) sooner or later. A key is known to be unique by
the stream's ``event_id`` and ``event_time``, or by a sample of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rulecore.compile.feature import VALUE_FUNCTIONS
from rulecore.compile.rule import CompiledRule
from rulecore.documents.features import declared_features
from rulecore.documents.rule import RuleKind
from rulecore.language import ColumnRef
from streamcore.schema import StreamSchema

Event = Mapping[str, object]

_FEWEST_EVENTS: Final = 100  # a smaller sample shows nothing
_UNIQUE_SHARE: Final = 0.9  # different keys per event of the sample
_ADVICE: Final = (
    "state grows with every event until the rule reaches `max_rule_state_bytes` and goes into quarantine; "
    "take columns whose values come again, such as a user's or a card's"
)


def unique_keys(rule: CompiledRule, schema: StreamSchema, sample: Sequence[Event] = ()) -> Iterable[tuple[str, str]]:
    """Yield the field of the rule and a message for each of its keys that is new with almost every event.

    ``sample``: events of the stream, as JSON objects.
    """
    for field, columns in dict.fromkeys(_keys(rule)):
        if (reason := _reason(columns, schema, sample)) is not None:
            yield field, f"{', '.join(columns)}: {reason}: {_ADVICE}"


def _keys(rule: CompiledRule) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the keys of the rule's state. Keys of a list are as many as the list has."""
    listed = rule.absence is not None and rule.absence.listed is not None
    if rule.kind is RuleKind.FEATURE:
        yield from _feature_keys(rule)
    elif rule.kind is not RuleKind.EVENT and not listed:
        yield "group_by", rule.group_by
    if rule.rule.suppress is not None and rule.rule.suppress.by:
        yield "suppress.by", rule.rule.suppress.by


def _feature_keys(rule: CompiledRule) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the keys of the features' state: those of the events, and the values that a feature remembers."""
    for number, (feature, entry) in enumerate(zip(rule.features, declared_features(rule.whole.features), strict=True)):
        given = bool(entry.by)
        yield (f"features.{number}.by", feature.by) if given else ("group_by", rule.group_by)
        if feature.function in VALUE_FUNCTIONS and isinstance(feature.argument, ColumnRef):
            yield f"features.{number}.of", (*feature.by, feature.argument.name)


def _reason(columns: Sequence[str], schema: StreamSchema, sample: Sequence[Event]) -> str | None:
    if schema.event_id in columns:
        return f"every event has another {schema.event_id} (`event_id` of stream {schema.name})"
    if schema.event_time in columns:
        return f"almost every event has another {schema.event_time} (`event_time` of stream {schema.name})"
    different = len({tuple(str(event.get(column)) for column in columns) for event in sample})
    if columns and len(sample) >= _FEWEST_EVENTS and different >= _UNIQUE_SHARE * len(sample):
        return f"{len(sample)} events of the sample have {different} different values"
    return None
