"""Explains a test of a rule: the truth of each clause of the rule's conditions on the events of the test.

The events are decoded as the runner of tests decodes them. Conditions on single events are shown for each event, the
condition ``having`` of a window rule for the window of the last event of a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleKind, RuleTest
from rulecore.explain.condition import Clause
from rulecore.explain.event import parse_conditions, trace_event
from rulecore.explain.explanation import ExplainQuestion
from rulecore.explain.rule import latest_event_ms
from rulecore.explain.windows import windows_for_question
from rulecore.key_columns import keyed_schema
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.scalar import logical_lists
from rulecore.lists.store import ListStore
from rulecore.streams import STREAM, RuleInput
from rulecore.testing.in_process import decode_test_events
from rulecore.testing.rule_tests import split_by_stream
from rulecore.union_events import unite_events
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import OFFSET, StreamSchema

MAX_TRACED: Final = 20  # most events of a test that are traced
_END_MS: Final = 2**53


@dataclass(frozen=True, slots=True)
class ConditionTrace:
    """A condition of a rule on an event of a test. ``event``: its number, from 1; of ``having``, the last one of the
    window. ``condition``: ``where``, ``having``, ``expect``, ``step NAME``."""

    event: int
    condition: str
    clause: Clause


def trace_test(
    rule: CompiledRule, test: RuleTest, streams: Mapping[str, StreamSchema], lists: ListStore
) -> tuple[ConditionTrace, ...]:
    """Return the conditions of a rule on the first events of a test. ``RuleError`` or ``RuleSetError`` if one of these
    is no event of the rule's streams."""
    source = RuleInput.find(rule.rule.on, streams, {})
    events = _united(rule, test, source)
    contents = lists.contents(latest_event_ms(events))
    if rule.features:
        from rulecore.explain.features import with_feature_values  # imports their group, which takes time

        events = with_feature_values(rule, source.schema, events, contents)
    conditions, known = (
        parse_conditions(rule, keyed_schema(source.schema, rule.group_by), lists.types()),
        logical_lists(contents),
    )
    numbers = _numbers(source, test)
    found = []
    for row in events.head(MAX_TRACED).iter_rows(named=True):
        clauses = trace_event(row, source, conditions, known, rule.features).conditions
        number = numbers[source.schema.name if len(source.streams) == 1 else row[STREAM]][row[OFFSET]]
        found += [ConditionTrace(number, name, clause) for name, clause in clauses.items()]
    if rule.kind is RuleKind.WINDOW and events.height:
        last = events.row(-1, named=True)
        own = events.filter(pl.col(name).eq_missing(pl.lit(last[name])) for name in rule.group_by)
        windows = windows_for_question(rule, source, own, ExplainQuestion(closing_ms=_END_MS), lists)
        found += [ConditionTrace(len(test.events), "having", one.having) for one in windows[-1:]]
    return tuple(found)


def _united(rule: CompiledRule, test: RuleTest, source: RuleInput) -> pl.DataFrame:
    """Return the events of a test as the rule reads them, in order of arrival."""
    rows = split_by_stream(rule.rule, test.events, {one.schema.name: one.schema for one in source.streams})
    frames = {
        one.schema.name: decode_test_events(
            one.schema, rows.get(one.schema.name, []), source.source(one.topic) * PARTITIONS_PER_TOPIC
        )
        if rows.get(one.schema.name)
        else pl.DataFrame(one.schema.arrow.empty_table())
        for one in source.streams
    }
    return with_list_columns(unite_events(source, frames), rule.key_columns, {})


def _numbers(source: RuleInput, test: RuleTest) -> Mapping[str, Sequence[int]]:
    """Return, by stream, the number in the test of each of its events."""
    if len(source.streams) == 1:
        return {source.schema.name: range(1, len(test.events) + 1)}
    found: dict[str, list[int]] = {one.schema.name: [] for one in source.streams}
    for number, event in enumerate(test.events, 1):
        found[str(event[STREAM])].append(number)
    return found
