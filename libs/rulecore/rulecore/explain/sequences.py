"""Traces the matches of a sequence: each event that a step took, and the step's whole condition on it.

The group of sequences finds the matches. The conditions are those that the author wrote, with what they read of earlier
steps; its values are those of the moment at which the step took the event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from rulecore import language as lang
from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence_conditions import find_reads, read_values
from rulecore.documents.rule_kinds import flatten_steps
from rulecore.documents.yaml_reader import Json
from rulecore.explain.condition import explain_with
from rulecore.explain.event import Row, event_origin
from rulecore.explain.explanation import EventTrace, MatchTrace
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.sequences.firings import SequenceMatch
from rulecore.groups.sequences.group import SequenceGroup
from rulecore.groups.sequences.ids import required_sequence
from rulecore.language import Scope
from rulecore.language.types import Value
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.scalar import logical_lists
from rulecore.lists.store import ListStore
from rulecore.settings import GroupSettings
from rulecore.streams import RuleInput
from streamcore.key_space import KeySpace
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state import KeyValueTable
from streamcore.watermark import NO_WATERMARK

MAX_MATCHES = 3  # in the answer to a question


def trace_matches(
    rule: CompiledRule,
    source: RuleInput,
    events: pl.DataFrame,
    closing_ms: int,
    alerts: Sequence[Mapping[str, Json]],
    lists: ListStore,
) -> list[MatchTrace]:
    """Return the matches of the latest of these alerts of a sequence rule, over the events of the key.

    ``closing_ms``: the watermark to assume.
    """
    wanted = [_places(alert) for alert in alerts[-MAX_MATCHES:]]
    group_id = GroupId.for_rule(rule)
    if not wanted or group_id is None:
        return []
    contents = lists.contents(int(events[EVENT_MS].max()))  # type: ignore[arg-type]
    group = SequenceGroup(group_id, source.schema, GroupSettings())
    group.set_rules([rule], KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
    context = CutContext(0, KeySpace(), source.topics[0], 0, NO_WATERMARK, closing_ms, contents, source.topics)
    group.add(with_list_columns(events, rule.list_columns, contents), context)
    rows = {(row[PARTITION], row[OFFSET]): row for row in events.rows(named=True)}
    found = []
    for match in map(group.matched, group.find_matches(context)):
        own = [rows[event.partition, event.offset] for event in match.events]
        if [event_origin(row, source).place for row in own] in wanted:
            found.append(_trace(rule, source, match, own, logical_lists(contents), lists))
    return sorted(found, key=lambda trace: trace.end_ms)


def _places(alert: Mapping[str, Any]) -> list[Mapping[str, object]]:
    events = alert["events"]
    return [{name: event[name] for name in ("topic", "partition", "offset")} for event in events]


def _trace(
    rule: CompiledRule,
    source: RuleInput,
    match: SequenceMatch,
    rows: Sequence[Row],
    contents: Mapping[str, Mapping[Value, Value]],
    lists: ListStore,
) -> MatchTrace:
    schema = source.schema
    items = {item.step: item for item in flatten_steps(rule.rule.sequence or ())}
    columns = {field.name: field.type for field in schema.fields}
    scope = replace(Scope.of_event(schema), lists=lists.types()).with_steps(tuple(items))
    steps = required_sequence(rule).automaton.steps
    matched: dict[str, list[Row]] = {}
    traces = []
    for event, row in zip(match.events, rows, strict=True):
        step, text = steps[event.step], items[steps[event.step]].where
        expr = lang.parse(text, scope, field="where")
        reads, replaced = find_reads(expr, columns, text, "where")
        own = {name: lang.to_logical(row[name], kind) for name, kind in columns.items()}
        values = own | read_values(reads, matched)
        clause = explain_with(
            expr,
            lambda part: lang.evaluate(lang.replace_aggregates(part, replaced), values, contents),  # noqa: B023
        )
        traces.append(EventTrace(event_origin(row, source), own, {f"step {step}": clause}, schema.places))
        matched.setdefault(step, []).append(row)
    return MatchTrace(match.events[0].event_ms, match.end_ms, match.timed_out, tuple(traces))
