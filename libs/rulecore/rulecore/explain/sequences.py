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
from rulecore.documents.yaml_reader import Json
from rulecore.explain.condition import Clause, explain_with
from rulecore.explain.event import Row, event_origin, sequence_conditions
from rulecore.explain.explanation import EventTrace, MatchTrace
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.sequences.firings import SequenceMatch, find_end
from rulecore.groups.sequences.group import SequenceGroup, with_computed
from rulecore.groups.sequences.ids import required_sequence
from rulecore.key_columns import keyed_schema
from rulecore.language import Scope
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

#: By step: the events that it has taken.
Taken = Mapping[str, Sequence[Row]]


class SequenceTracer:
    """A sequence rule over the events of one key: a group that has the events, and the conditions as written."""

    def __init__(
        self, rule: CompiledRule, source: RuleInput, events: pl.DataFrame, closing_ms: int, lists: ListStore
    ) -> None:
        self.rule, self.source, keyed = rule, source, keyed_schema(source.schema, rule.group_by)
        contents = lists.contents(int(events[EVENT_MS].max()))  # type: ignore[arg-type]
        self._contents = logical_lists(contents)
        group_id = GroupId.for_rule(rule)
        assert group_id is not None
        self.group = SequenceGroup(group_id, keyed, GroupSettings())
        self.group.set_rules([rule], KeyValueTable(), NO_WATERMARK, NO_WATERMARK)
        self.context = CutContext(0, KeySpace(), source.topics[0], 0, NO_WATERMARK, closing_ms, contents, source.topics)
        self.group.add(with_list_columns(events, rule.columns, contents), self.context)
        ordered = events.sort(EVENT_MS, PARTITION, OFFSET)
        self.rows = with_computed(ordered, required_sequence(rule).computed).rows(named=True)
        self.row_at = {(row[PARTITION], row[OFFSET]): row for row in self.rows}
        scope = replace(Scope.of_event(keyed), lists=lists.types())
        self.conditions = sequence_conditions(rule, scope)
        if rule.rule.where is not None:
            self.conditions["where"] = lang.parse(rule.rule.where, scope, field="where")

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps by number."""
        return required_sequence(self.rule).automaton.steps

    def explain(self, name: str, row: Row, taken: Taken) -> Clause:
        """Explain a condition of the rule on an event, for the events that the steps have taken before."""
        expr = self.conditions[name]
        reads, places = find_reads(expr, "", name)
        fields = {field.name: lang.to_logical(row[field.name], field.type) for field in self.source.schema.fields}
        values = fields | read_values(reads, taken)
        return explain_with(expr, lambda part: lang.evaluate(lang.replace_parts(part, places), values, self._contents))

    def trace(self, row: Row, conditions: Mapping[str, Clause]) -> EventTrace:
        """Return the trace of an event with these conditions."""
        own = {field.name: lang.to_logical(row[field.name], field.type) for field in self.source.find_fields(row)}
        return EventTrace(event_origin(row, self.source), own, conditions, self.source.schema.places)

    def trace_taken(self, events: Sequence[tuple[str, Row]]) -> tuple[EventTrace, ...]:
        """Return the traces of the events that steps have taken, each with the condition of its step."""
        taken: dict[str, list[Row]] = {}
        traces = []
        for step, row in events:
            traces.append(self.trace(row, {f"step {step}": self.explain(f"step {step}", row, taken)}))
            taken.setdefault(step, []).append(row)
        return tuple(traces)


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
    if not wanted:
        return []
    tracer = SequenceTracer(rule, source, events, closing_ms, lists)
    found = []
    for match in map(tracer.group.matched, tracer.group.find_matches(tracer.context)):
        own = [(tracer.steps[event.step], tracer.row_at[event.partition, event.offset]) for event in match.events]
        if [event_origin(row, source).place for _, row in own] in wanted:
            found.append(_trace(tracer, match, own))
    return sorted(found, key=lambda trace: trace.end_ms)


def _places(alert: Mapping[str, Any]) -> list[Mapping[str, object]]:
    events = alert["events"]
    return [{name: event[name] for name in ("topic", "partition", "offset")} for event in events]


def _trace(tracer: SequenceTracer, match: SequenceMatch, events: Sequence[tuple[str, Row]]) -> MatchTrace:
    end_ms = find_end(tracer.rule, match)
    return MatchTrace(match.events[0].event_ms, end_ms, match.timed_out, tracer.trace_taken(events))
