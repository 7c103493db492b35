"""The rules kernel: takes events and rule changes, returns alerts, statuses of changes and late events.

A cut's control records are applied first, so every event of a cut meets the same rule set, and the set's epoch is on
every alert. A rule that fails while it is evaluated, or matches more than it may, goes into quarantine and the cut goes
on without it. This module knows neither Spark nor Kafka: it is the same in production, in a test and in a back-test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import orjson
import polars as pl

from rulecore import language as lang
from rulecore.alerts.alerts import AlertContext, event_alert, stateful_alert
from rulecore.alerts.budgets import firings_within_budget, matches_within_budget
from rulecore.alerts.dispatch import AlertDispatcher, FiredRule
from rulecore.backfill import apply_backfill
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.rule import RuleKind, RuleMode
from rulecore.documents.slots import version_key
from rulecore.documents.status import IncompleteCounts, RuleStatus, StatusKind, Subject, as_reply, status_record
from rulecore.firing import Origin, RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId, RuleGroup
from rulecore.groups.registry import make_group
from rulecore.groups.scores.signals import SignalCollector, SignalSource
from rulecore.groups.windows.group import WindowGroup
from rulecore.language.types import Value
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.list_columns import ListColumn
from rulecore.lists.routing import split_records
from rulecore.lists.store import ListStore, save
from rulecore.matching.index import Ints
from rulecore.matching.matcher import EventMatcher
from rulecore.ruleset.ruleset import RuleSet
from rulecore.settings import RulesConfig
from streamcore.kernel import ControlRecord, Cut, KernelOutput, StreamKey
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.lanes import LATE, Record

_RULES = "rules"
_GROUPS = "groups"
_LISTS = "lists"
_GENERATION = "generation:"  # how often a group was deleted
_SET = "set"
_TOP_RULES = 20  # rules in the metrics of a cut


class RulesKernel:
    """One shard's rules, their state and the state between firings and alerts."""

    def __init__(self, config: RulesConfig) -> None:
        self.config = config
        self.schemas = {s.schema.name: s.schema for s in config.streams}
        self.topics = {s.schema.name: s.topic for s in config.streams}
        self.limits = RuleLimits(rules=config.max_rules, matches=config.max_matches)
        self.rules = RuleSet.empty(self.schemas, self.limits)
        self.stored_rules = KeyValueTable()
        self.lists = ListStore.empty(config.lists)
        self.stored_lists = KeyValueTable()
        self.list_columns: dict[str, tuple[ListColumn, ...]] = {}
        self.group_metadata = KeyValueTable()
        self.dispatcher = AlertDispatcher(config.dispatch)
        self.groups: dict[GroupId, RuleGroup] = {}
        self.signals = SignalCollector((), {})
        self.firings: dict[str, list[SignalSource]] = {}  # of this cut, by stream
        self.derived_from: bytes | None = None  # the stored set that `rules` and `groups` were made from

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, StateTable]:
        tables = self._kernel_tables()
        for group in self.groups.values():
            tables.update(group.tables())
        return tables

    def _kernel_tables(self) -> dict[str, StateTable]:
        return {
            _RULES: self.stored_rules,
            _GROUPS: self.group_metadata,
            _LISTS: self.stored_lists,
            **self.dispatcher.tables(),
        }

    def table(self, name: str) -> StateTable:
        own = self._kernel_tables()
        return own[name] if name in own else self._group(GroupId.parse(name.split(":")[1])).table(name)

    def on_state_loaded(self) -> None:
        self.dispatcher.on_state_loaded()
        self.groups = {group: kept for group, kept in self.groups.items() if group == self._current_generation(group)}
        if dict(self.stored_lists) != dict(self.lists.records()):
            self.lists = ListStore.restore(self.stored_lists, self.config.lists)
            self.rules = self.rules.with_lists(self.lists.types())
        blob = self.stored_rules.get(_SET)
        if blob is None or blob == self.derived_from:
            return  # caught up over cuts without a rule change
        self.derived_from = blob
        self.rules = RuleSet.restore(self.schemas, self.limits, self.stored_rules, self.lists.types())
        self._assign_groups({}, 0)

    def _store_rules(self) -> None:
        kept = dict(self.rules.records())
        for name, _ in [*self.stored_rules]:
            if name not in kept:
                self.stored_rules.put(name, None)
        for name, value in kept.items():
            self.stored_rules.put(name, value)
        self.derived_from = kept[_SET]

    def _group(self, group: GroupId) -> RuleGroup:
        if group not in self.groups:
            self.groups[group] = make_group(group, self.schemas[group.stream], self.config.groups)
        return self.groups[group]

    def _current_generation(self, group: GroupId) -> GroupId:
        """Return the group with its current generation."""
        generation = self.group_metadata.get(f"{_GENERATION}{replace(group, generation=0)}")
        return replace(group, generation=0 if generation is None else int(generation))

    def _drop_group(self, group: GroupId) -> None:
        """Delete a group that no rule needs.

        Rows of it that the state log still holds do not come back into a later one: that has another generation.
        """
        del self.groups[group]
        self.group_metadata.put(str(group), None)
        if group == self._current_generation(group):
            self.group_metadata.put(f"{_GENERATION}{replace(group, generation=0)}", str(group.generation + 1).encode())

    def _assign_groups(self, latest_event_ms: Mapping[str, int], watermark_ms: int) -> None:
        """Assign every rule with state to its group. A paused rule keeps its state; one in quarantine does not."""
        self.list_columns = {name: self.rules.list_columns(name) for name in self.schemas}
        wanted: dict[GroupId, list[CompiledRule]] = {}
        for rule in self.rules.with_state():
            group = GroupId.for_rule(rule)
            if group is not None:
                wanted.setdefault(self._current_generation(group), []).append(rule)
        for group in [g for g in self.groups if g not in wanted]:
            self._drop_group(group)
        for group, rules in wanted.items():
            self._group(group).set_rules(
                rules, self.group_metadata, latest_event_ms.get(group.stream, NO_WATERMARK), watermark_ms
            )
        scores = [r for group, rules in wanted.items() if group.kind == RuleKind.SCORE for r in rules]
        live = {rule.rule.id: rule for rule in self.rules.evaluated_rules() if rule.rule.status is RuleMode.LIVE}
        self.signals = SignalCollector(scores, live)
        self.dispatcher.comparison.keep({rule.rule.id for rule in self.rules.on_trial()})

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, cut: Cut) -> KernelOutput:
        """Process a cut: rule changes, events in the order of their streams, windows that end, scores of all."""
        self.firings = {}
        records = self._apply_control(cut)
        contents = self.lists.contents(cut.clock_ms)
        events = {r: with_list_columns(f, self.list_columns.get(r.stream, ()), contents) for r, f in cut.events.items()}
        cut = replace(cut, events=events)
        for name, schema in self.schemas.items():
            for route in range(len(schema.keys)):
                records += self._event_records(cut, StreamKey(name, route))
            records += self._late_records(cut, name)
        for group in sorted(self.groups, key=str):
            if group in self.groups and group.kind != RuleKind.SCORE:  # a rule that fails may take its group with it
                records += self._group_records(cut, group)
        for group in sorted(self.groups, key=str):
            if group.kind == RuleKind.SCORE:
                records += self._score_records(cut, group)
        records += [status_record(status) for status in self.dispatcher.close(cut, self.rules)]
        return KernelOutput(records, counters=self._counters())

    def _counters(self) -> Mapping[str, int]:
        """Return the counters of this cut and the sizes of the state."""
        counted = Counter(self.dispatcher.take_counters())
        for group_id, group in self.groups.items():
            counted.update({f"{group_id.kind}.{name}": number for name, number in group.metrics().items()})
        return counted

    def _apply_control(self, cut: Cut) -> list[Record]:
        if not cut.control and cut.clock_ms < self.rules.boundary_ms():
            return []
        parts, changes, deletions = split_records(cut.control)
        answers = self._change_lists(parts)
        before, known = self.rules, self._aggregates()
        self.rules, statuses = before.apply(changes, cut.clock_ms) if changes else before.at_time(cut.clock_ms)
        if self.rules is not before:
            self._store_rules()
        if self.rules.epoch != before.epoch:
            self._assign_groups(cut.latest_event_ms, cut.watermark_ms)
        self._apply_backfills(cut)
        answers += [*(self._with_warming(status, known, cut) for status in statuses), *self._change_lists(deletions)]
        return [status_record(answer) for answer in answers] if cut.shard == 0 else []

    def _apply_backfills(self, cut: Cut) -> None:
        """Add backfills to the aggregates that missed events."""
        backfills, self.rules = self.rules.backfills, replace(self.rules, backfills=())
        for backfill in backfills:
            group = self._window_group(backfill.rule)
            if group is not None:
                name = backfill.rule.rule.on
                apply_backfill(backfill, group, self.schemas[name], self._cut_context(cut, name), self.group_metadata)

    def _window_group(self, rule: CompiledRule) -> WindowGroup | None:
        group_id = GroupId.for_rule(rule)
        group = None if group_id is None else self.groups.get(self._current_generation(group_id))
        return group if isinstance(group, WindowGroup) else None

    def _aggregates(self) -> frozenset[str]:
        """Return the columns of all aggregates over windows."""
        groups = (group for group in self.groups.values() if isinstance(group, WindowGroup))
        return frozenset(name for group in groups for name in group.metadata.since_ms)

    def _with_warming(self, status: RuleStatus, known: frozenset[str], cut: Cut) -> RuleStatus:
        """Add to the status of a new version which aggregates start now, and at which offsets."""
        if status.subject is not Subject.RULE or status.status not in (StatusKind.ACCEPTED, StatusKind.EFFECTIVE):
            return status
        found = [c for c in self.rules.evaluated_versions(status.name) if c.rule.version == status.version]
        group = self._window_group(found[0]) if found else None
        since = {} if group is None else group.since_by_column(found[0])
        new = {name: at for name, at in since.items() if name not in known and at > NO_WATERMARK}
        if not new:
            return status
        source = [s.schema.name for s in self.config.streams].index(found[0].rule.on)
        own = {n % PARTITIONS_PER_TOPIC: o for n, o in cut.start_offsets.items() if n // PARTITIONS_PER_TOPIC == source}
        return replace(status, incomplete=IncompleteCounts(new, own))

    def _change_lists(self, records: Sequence[ControlRecord]) -> list[RuleStatus]:
        before, answers = self.lists, []
        for record in records:
            key = (record.key or b"").decode("utf-8", "replace")
            self.lists, answer = self.lists.apply(key, record.value, self.rules.rules_using_list)
            answers.append(as_reply(answer, record, self.rules.epoch))
        if self.lists is not before:
            save(self.lists, self.stored_lists)
            self.rules = self.rules.with_lists(self.lists.types())
        return answers

    # --- rules per event ----------------------------------------------------------------------------------------

    def _event_records(self, cut: Cut, routed: StreamKey) -> list[Record]:
        """Evaluate the rules per event on every event once, late ones included."""
        frame = cut.events.get(routed)
        if frame is None:
            return []
        matcher = self.rules.matcher(routed.stream, routed.route)
        matches = matcher.match(frame)
        counts = np.bincount(matches.rule, minlength=len(matcher.rules))
        self._count_cost(matcher, {"candidates": matches.candidates, "matches": counts})
        records = [self._quarantine(matcher.rules[n], reason) for n, reason in matches.failed]
        if not len(matches.row):
            return records
        kept, over = matches_within_budget(matcher, matches, counts, self.limits)
        rows = frame[matches.row[kept]].to_dicts()
        for row, number in zip(rows, matches.rule[kept].tolist(), strict=True):
            records += self._event_alert(matcher.rules[number], row)
        return records + [self._quarantine(rule, reason) for rule, reason in over]

    def _count_cost(self, matcher: EventMatcher[CompiledRule], measures: Mapping[str, Ints]) -> None:
        """Count the most expensive rules of the cut: by events that the index passed to them, and by matches."""
        for name, counts in measures.items():
            some = np.flatnonzero(counts)
            for number in some[np.argsort(-counts[some], kind="stable")][:_TOP_RULES].tolist():
                self.dispatcher.count(f"{name}.{version_key(matcher.rules[number].rule)}", int(counts[number]))

    def _event_alert(self, rule: CompiledRule, row: Mapping[str, Value]) -> Iterable[Record]:
        name = rule.rule.on
        schema, origin = self.schemas[name], self._origin(name, row)
        by = () if rule.rule.suppress is None else [row[c] for c in rule.rule.suppress.by]
        key = [row[c] for c in schema.keys[rule.route]]
        mark = (origin.topic, origin.partition, origin.offset)
        decision = self.dispatcher.dispatch(
            FiredRule(rule, key, by, mark, origin.event_ms, origin.event_ms), self.rules
        )
        if decision.lane is not None:
            context = AlertContext(decision.lane, self.rules.epoch, decision.suppressed)
            yield event_alert(rule, schema, row, origin, context)

    def _origin(self, name: str, row: Mapping[str, object]) -> Origin:
        partition, offset, event_ms = row[PARTITION], row[OFFSET], row[EVENT_MS]
        assert isinstance(partition, int)
        assert isinstance(offset, int)
        assert isinstance(event_ms, int)
        return Origin(self.topics[name], partition % PARTITIONS_PER_TOPIC, offset, event_ms)

    def _late_records(self, cut: Cut, name: str) -> Iterable[Record]:
        frame = cut.events.get(StreamKey(name, 0))
        if frame is None:
            return
        for row in frame.filter(pl.col(EVENT_MS) < cut.watermark_ms).iter_rows(named=True):
            yield _late_record(self.schemas[name], row, self._origin(name, row), cut.watermark_ms)

    # --- rules with state ---------------------------------------------------------------------------------------

    def _group_records(self, cut: Cut, group_id: GroupId) -> list[Record]:
        """Process the events that are on time, then the windows that the watermark ends."""
        name, group = group_id.stream, self.groups[group_id]
        route = self.schemas[name].route_for(group_id.group_by)
        assert route is not None, "the rule set accepts only groups that are routed"
        frame = cut.events.get(StreamKey(name, route))
        context = self._cut_context(cut, name)
        records: list[Record] = []
        if frame is not None:
            on_time = frame.filter(pl.col(EVENT_MS) >= cut.watermark_ms)
            firings, failed = self._run_until_valid(group, lambda: group.add(on_time, context))
            records += failed
            records += self._alerts(firings, name, on_time)
        firings, failed = self._run_until_valid(group, lambda: group.close(context))
        return records + failed + self._alerts(firings, name, None)

    def _score_records(self, cut: Cut, group_id: GroupId) -> list[Record]:
        """Add the signals of this cut to the scores, then forget those that the watermark ends."""
        from rulecore.groups.scores.group import ScoreGroup  # as families does: not for those who have no such rule

        name, group = group_id.stream, self.groups[group_id]
        assert isinstance(group, ScoreGroup), "families makes it"
        route, context = self.schemas[name].route_for(group_id.group_by), self._cut_context(cut, name)
        assert route is not None, "the rule set accepts only groups that are routed"
        signals = self.signals.from_firings(group_id, self.firings.get(name, ()))
        if (frame := cut.events.get(StreamKey(name, route))) is not None:
            signals += self.signals.from_events(group_id, frame)
        firings, _ = group.signals(signals, context)
        group.close(context)
        return self._alerts(firings, name, None)

    def _cut_context(self, cut: Cut, stream: str) -> CutContext:
        times = (cut.clock_ms, cut.watermark_ms, cut.next_watermark_ms)
        return CutContext(cut.shard, self.config.shards, self.topics[stream], *times, self.lists.contents(cut.clock_ms))

    def _alerts(self, firings: Sequence[RuleFiring], name: str, frame: pl.DataFrame | None) -> list[Record]:
        """Return the alerts of the firings; their rows are indexes of ``frame``."""
        kept, over = firings_within_budget(firings, self.limits)
        rows = [f.row for f in kept if f.row is not None]
        events = dict(zip(rows, frame[rows].to_dicts(), strict=True)) if frame is not None and rows else {}
        records: list[Record] = []
        for firing in kept:
            origin = None if firing.row is None else self._origin(name, events[firing.row])
            self.firings.setdefault(name, []).append((firing, origin))
            records += self._alert(firing, origin)
        return records + [self._quarantine(rule, reason) for rule, reason in over]

    def _alert(self, firing: RuleFiring, origin: Origin | None) -> Iterable[Record]:
        rule = firing.rule.rule
        columns = () if rule.suppress is None else rule.suppress.by or firing.rule.group_by
        by = [firing.key[c] for c in columns]
        fired = FiredRule(firing.rule, [*firing.key.values()], by, firing.mark, firing.time_ms, firing.end_ms)
        decision = self.dispatcher.dispatch(fired, self.rules)
        if decision.lane is not None:
            context = AlertContext(decision.lane, self.rules.epoch, decision.suppressed)
            yield stateful_alert(firing, self.schemas[rule.on], origin, context)

    def _run_until_valid(
        self, group: RuleGroup, action: Callable[[], tuple[list[RuleFiring], list[RuleFailure]]]
    ) -> tuple[list[RuleFiring], list[Record]]:
        """Run the action until no rule fails. Each failure puts a rule into quarantine, so this ends."""
        records: list[Record] = []
        while True:
            firings, failures = action()
            if not failures:
                return firings, records
            records += [self._quarantine(f.rule, f.reason) for f in failures]
            if group not in self.groups.values():
                return [], records

    def _quarantine(self, rule: CompiledRule, reason: str) -> Record:
        self.rules = self.rules.quarantine(rule, reason)
        self._store_rules()
        self._assign_groups({}, 0)
        kind, mode = StatusKind.QUARANTINED, rule.rule.mode_text
        return status_record(
            RuleStatus(rule.rule.id, rule.rule.version, kind, reason, self.rules.epoch, 0, -1, mode=mode)
        )


def _late_record(schema: StreamSchema, row: Mapping[str, object], origin: Origin, watermark_ms: int) -> Record:
    event = {f.name: lang.to_logical(row[f.name], f.type) for f in schema.fields}  # type: ignore[arg-type]
    body = {
        "stream": schema.name,
        "source": {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset},
        "event_time_ms": origin.event_ms,
        "lateness_ms": watermark_ms - origin.event_ms,
        "watermark_ms": watermark_ms,
        "reason": "event time before the watermark: its windows may have been closed",
        "event": event,
    }
    return Record(LATE, None, orjson.dumps(body, default=str))


def control_record(rule_id: str, value: bytes | None, offset: int) -> ControlRecord:
    """Return a control record for in-process runs."""
    return ControlRecord(0, offset, rule_id.encode(), value)


__all__: Sequence[str] = ("RulesKernel", "control_record")
