"""The rules kernel: events and rule changes in, alerts, answers to changes and late events out.

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

from rulecore import lang
from rulecore.alerts import Given, alert, event_alert
from rulecore.budgets import first_firings, within_budget
from rulecore.compiled import CompiledRule, RuleLimits
from rulecore.factory import RulesFactory
from rulecore.families import make_group
from rulecore.fills import apply_fill
from rulecore.firing import Failure, Firing, Origin
from rulecore.groups import GroupId, Moment, RuleGroup
from rulecore.index import Ints
from rulecore.lang.types import Value
from rulecore.lists.asked import ListColumn
from rulecore.lists.columns import with_list_columns
from rulecore.lists.control import split
from rulecore.lists.store import ListStore, save
from rulecore.matcher import EventMatcher
from rulecore.model import Kind, Mode
from rulecore.outlet import Fired, Outlet
from rulecore.ruleset import RuleSet
from rulecore.scores_feed import Fired as FiredAt
from rulecore.scores_feed import ScoreFeed
from rulecore.slots import version_key
from rulecore.status import Status, StatusKind, Subject, Warming, placed, status_record
from rulecore.windowed import WindowGroup
from streamcore.kernel import Control, Cut, Output, Routed
from streamcore.lanes import LATE, Record
from streamcore.position import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK

_RULES = "rules"
_GROUPS = "groups"
_LISTS = "lists"
_BORN = "born:"  # how often a group was given up
_SET = "set"
_TOLD = 20  # rules in the metrics of a cut


class RulesKernel:
    """One shard's rules, their state and what was given."""

    def __init__(self, factory: RulesFactory) -> None:
        self.factory = factory
        self.schemas = {s.schema.name: s.schema for s in factory.streams}
        self.topics = {s.schema.name: s.topic for s in factory.streams}
        self.limits = RuleLimits(rules=factory.max_rules, matches=factory.max_matches)
        self.rules = RuleSet.empty(self.schemas, self.limits)
        self.stored = KeyValueTable()
        self.lists = ListStore.empty(factory.lists)
        self.listed = KeyValueTable()
        self.list_columns: dict[str, tuple[ListColumn, ...]] = {}
        self.memory = KeyValueTable()
        self.outlet = Outlet(factory.outlet)
        self.groups: dict[GroupId, RuleGroup] = {}
        self.feed = ScoreFeed((), {})
        self.fired: dict[str, list[FiredAt]] = {}  # of this cut, by stream
        self.derived_from: bytes | None = None  # the stored set that `rules` and `groups` were made from

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, StateTable]:
        tables = self._own_tables()
        for group in self.groups.values():
            tables.update(group.tables())
        return tables

    def _own_tables(self) -> dict[str, StateTable]:
        return {_RULES: self.stored, _GROUPS: self.memory, _LISTS: self.listed, **self.outlet.tables()}

    def table(self, name: str) -> StateTable:
        own = self._own_tables()
        return own[name] if name in own else self._group(GroupId.parse(name.split(":")[1])).table(name)

    def loaded(self) -> None:
        self.outlet.loaded()
        self.groups = {group: kept for group, kept in self.groups.items() if group == self._current(group)}
        if dict(self.listed) != dict(self.lists.records()):
            self.lists = ListStore.restore(self.listed, self.factory.lists)
            self.rules = self.rules.with_lists(self.lists.types())
        blob = self.stored.get(_SET)
        if blob is None or blob == self.derived_from:
            return  # caught up over cuts without a rule change
        self.derived_from = blob
        self.rules = RuleSet.restore(self.schemas, self.limits, self.stored, self.lists.types())
        self._regroup({}, 0)

    def _store_rules(self) -> None:
        kept = dict(self.rules.records())
        for name, _ in [*self.stored]:
            if name not in kept:
                self.stored.put(name, None)
        for name, value in kept.items():
            self.stored.put(name, value)
        self.derived_from = kept[_SET]

    def _group(self, group: GroupId) -> RuleGroup:
        if group not in self.groups:
            self.groups[group] = make_group(group, self.schemas[group.stream], self.factory.groups)
        return self.groups[group]

    def _current(self, group: GroupId) -> GroupId:
        """The group in its present life."""
        born = self.memory.get(f"{_BORN}{replace(group, born=0)}")
        return replace(group, born=0 if born is None else int(born))

    def _give_up(self, group: GroupId) -> None:
        """No rule wants it. Rows of it that the state log still holds must not come back into a later one."""
        del self.groups[group]
        self.memory.put(str(group), None)
        if group == self._current(group):
            self.memory.put(f"{_BORN}{replace(group, born=0)}", str(group.born + 1).encode())

    def _regroup(self, latest_event_ms: Mapping[str, int], watermark_ms: int) -> None:
        """Every rule with state to its group. A paused one keeps its state; one in quarantine does not."""
        self.list_columns = {name: self.rules.list_columns(name) for name in self.schemas}
        wanted: dict[GroupId, list[CompiledRule]] = {}
        for rule in self.rules.keeping_state():
            group = GroupId.of(rule)
            if group is not None:
                wanted.setdefault(self._current(group), []).append(rule)
        for group in [g for g in self.groups if g not in wanted]:
            self._give_up(group)
        for group, rules in wanted.items():
            self._group(group).set_rules(
                rules, self.memory, latest_event_ms.get(group.stream, NO_WATERMARK), watermark_ms
            )
        scores = [r for group, rules in wanted.items() if group.kind == Kind.SCORE for r in rules]
        live = {rule.rule.id: rule for rule in self.rules.evaluated() if rule.rule.status is Mode.LIVE}
        self.feed = ScoreFeed(scores, live)
        self.outlet.comparison.keep({rule.rule.id for rule in self.rules.on_trial()})

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, cut: Cut) -> Output:
        """Rule changes, then events in the order of their streams, then what the watermark ends, then scores of all."""
        self.fired = {}
        records = self._change(cut)
        contents = self.lists.contents(cut.clock_ms)
        events = {r: with_list_columns(f, self.list_columns.get(r.stream, ()), contents) for r, f in cut.events.items()}
        cut = replace(cut, events=events)
        for name, schema in self.schemas.items():
            for route in range(len(schema.keys)):
                records += self._per_event(cut, Routed(name, route))
            records += self._late(cut, name)
        for group in sorted(self.groups, key=str):
            if group in self.groups and group.kind != Kind.SCORE:  # a rule that fails may take its group with it
                records += self._grouped(cut, group)
        for group in sorted(self.groups, key=str):
            if group.kind == Kind.SCORE:
                records += self._scored(cut, group)
        records += [status_record(status) for status in self.outlet.close(cut, self.rules)]
        return Output(records, counted=self._counted())

    def _counted(self) -> Mapping[str, int]:
        """What this cut adds to the metrics, and how much is kept."""
        counted = Counter(self.outlet.take_counted())
        for group_id, group in self.groups.items():
            counted.update({f"{group_id.kind}.{name}": number for name, number in group.metrics().items()})
        return counted

    def _change(self, cut: Cut) -> list[Record]:
        if not cut.control and cut.clock_ms < self.rules.boundary_ms():
            return []
        parts, changes, gone = split(cut.control)
        answers = self._change_lists(parts)
        before, known = self.rules, self._aggregates()
        self.rules, said = before.apply(changes, cut.clock_ms) if changes else before.at(cut.clock_ms)
        if self.rules is not before:
            self._store_rules()
        if self.rules.epoch != before.epoch:
            self._regroup(cut.latest_event_ms, cut.watermark_ms)
        self._fill(cut)
        answers += [*(self._warming(status, known, cut) for status in said), *self._change_lists(gone)]
        return [status_record(answer) for answer in answers] if cut.shard == 0 else []

    def _fill(self, cut: Cut) -> None:
        """Aggregates get what they have missed."""
        fills, self.rules = self.rules.fills, replace(self.rules, fills=())
        for fill in fills:
            group = self._windows_of(fill.rule)
            if group is not None:
                name = fill.rule.rule.on
                apply_fill(fill, group, self.schemas[name], self._moment(cut, name), self.memory)

    def _windows_of(self, rule: CompiledRule) -> WindowGroup | None:
        group_id = GroupId.of(rule)
        group = None if group_id is None else self.groups.get(self._current(group_id))
        return group if isinstance(group, WindowGroup) else None

    def _aggregates(self) -> frozenset[str]:
        """All that is counted in windows, by column."""
        groups = (group for group in self.groups.values() if isinstance(group, WindowGroup))
        return frozenset(name for group in groups for name in group.kept.since_ms)

    def _warming(self, status: Status, known: frozenset[str], cut: Cut) -> Status:
        """The answer to a new version, with what it begins to count and from where on."""
        if status.subject is not Subject.RULE or status.status not in (StatusKind.ACCEPTED, StatusKind.EFFECTIVE):
            return status
        found = [c for c in self.rules.evaluated_of(status.name) if c.rule.version == status.version]
        group = self._windows_of(found[0]) if found else None
        since = {} if group is None else group.since_of(found[0])
        new = {name: at for name, at in since.items() if name not in known and at > NO_WATERMARK}
        if not new:
            return status
        source = [s.schema.name for s in self.factory.streams].index(found[0].rule.on)
        own = {n % PARTITIONS_PER_TOPIC: o for n, o in cut.starts.items() if n // PARTITIONS_PER_TOPIC == source}
        return replace(status, warming=Warming(new, own))

    def _change_lists(self, records: Sequence[Control]) -> list[Status]:
        before, answers = self.lists, []
        for record in records:
            key = (record.key or b"").decode("utf-8", "replace")
            self.lists, answer = self.lists.apply(key, record.value, self.rules.users_of)
            answers.append(placed(answer, record, self.rules.epoch))
        if self.lists is not before:
            save(self.lists, self.listed)
            self.rules = self.rules.with_lists(self.lists.types())
        return answers

    # --- rules per event ----------------------------------------------------------------------------------------

    def _per_event(self, cut: Cut, routed: Routed) -> list[Record]:
        """Rules per event see every event once, the late ones too."""
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
        kept, over = within_budget(matcher, matches, counts, self.limits)
        rows = frame[matches.row[kept]].to_dicts()
        for row, number in zip(rows, matches.rule[kept].tolist(), strict=True):
            records += self._event_alert(matcher.rules[number], row)
        return records + [self._quarantine(rule, reason) for rule, reason in over]

    def _count_cost(self, matcher: EventMatcher[CompiledRule], measures: Mapping[str, Ints]) -> None:
        """The dearest rules of the cut, by the events that the index let through to them, and by matches."""
        for name, counts in measures.items():
            some = np.flatnonzero(counts)
            for number in some[np.argsort(-counts[some], kind="stable")][:_TOLD].tolist():
                self.outlet.count(f"{name}.{version_key(matcher.rules[number].rule)}", int(counts[number]))

    def _event_alert(self, rule: CompiledRule, row: Mapping[str, Value]) -> Iterable[Record]:
        name = rule.rule.on
        schema, origin = self.schemas[name], self._origin(name, row)
        by = () if rule.rule.suppress is None else [row[c] for c in rule.rule.suppress.by]
        key = [row[c] for c in schema.keys[rule.route]]
        mark = (origin.topic, origin.partition, origin.offset)
        verdict = self.outlet.judge(Fired(rule, key, by, mark, origin.event_ms, origin.event_ms), self.rules)
        if verdict.lane is not None:
            given = Given(verdict.lane, self.rules.epoch, verdict.suppressed)
            yield event_alert(rule, schema, row, origin, given)

    def _origin(self, name: str, row: Mapping[str, object]) -> Origin:
        partition, offset, event_ms = row[PARTITION], row[OFFSET], row[EVENT_MS]
        assert isinstance(partition, int)
        assert isinstance(offset, int)
        assert isinstance(event_ms, int)
        return Origin(self.topics[name], partition % PARTITIONS_PER_TOPIC, offset, event_ms)

    def _late(self, cut: Cut, name: str) -> Iterable[Record]:
        frame = cut.events.get(Routed(name, 0))
        if frame is None:
            return
        for row in frame.filter(pl.col(EVENT_MS) < cut.watermark_ms).iter_rows(named=True):
            yield _late_record(self.schemas[name], row, self._origin(name, row), cut.watermark_ms)

    # --- rules with state ---------------------------------------------------------------------------------------

    def _grouped(self, cut: Cut, group_id: GroupId) -> list[Record]:
        """The events that are on time, then what the watermark ends."""
        name, group = group_id.stream, self.groups[group_id]
        route = self.schemas[name].route_for(group_id.group_by)
        assert route is not None, "the rule set accepts only groups that are routed"
        frame = cut.events.get(Routed(name, route))
        moment = self._moment(cut, name)
        records: list[Record] = []
        if frame is not None:
            on_time = frame.filter(pl.col(EVENT_MS) >= cut.watermark_ms)
            firings, failed = self._settled(group, lambda: group.add(on_time, moment))
            records += failed
            records += self._alerts(firings, name, on_time)
        firings, failed = self._settled(group, lambda: group.close(moment))
        return records + failed + self._alerts(firings, name, None)

    def _scored(self, cut: Cut, group_id: GroupId) -> list[Record]:
        """Score rules: what others gave in this cut, then what the watermark ends."""
        from rulecore.scores import ScoreGroup  # as families does: not for those who have no such rule

        name, group = group_id.stream, self.groups[group_id]
        assert isinstance(group, ScoreGroup), "families makes it"
        route, moment = self.schemas[name].route_for(group_id.group_by), self._moment(cut, name)
        assert route is not None, "the rule set accepts only groups that are routed"
        signals = self.feed.of_firings(group_id, self.fired.get(name, ()))
        if (frame := cut.events.get(Routed(name, route))) is not None:
            signals += self.feed.of_events(group_id, frame)
        firings, _ = group.signals(signals, moment)
        group.close(moment)
        return self._alerts(firings, name, None)

    def _moment(self, cut: Cut, stream: str) -> Moment:
        times = (cut.clock_ms, cut.watermark_ms, cut.next_watermark_ms)
        return Moment(cut.shard, self.factory.shards, self.topics[stream], *times, self.lists.contents(cut.clock_ms))

    def _alerts(self, firings: Sequence[Firing], name: str, frame: pl.DataFrame | None) -> list[Record]:
        """``frame`` holds the events that the firings' rows count."""
        kept, over = first_firings(firings, self.limits)
        rows = [f.row for f in kept if f.row is not None]
        events = dict(zip(rows, frame[rows].to_dicts(), strict=True)) if frame is not None and rows else {}
        records: list[Record] = []
        for firing in kept:
            origin = None if firing.row is None else self._origin(name, events[firing.row])
            self.fired.setdefault(name, []).append((firing, origin))
            records += self._alert(firing, origin)
        return records + [self._quarantine(rule, reason) for rule, reason in over]

    def _alert(self, firing: Firing, origin: Origin | None) -> Iterable[Record]:
        rule = firing.rule.rule
        columns = () if rule.suppress is None else rule.suppress.by or firing.rule.group_by
        by = [firing.key[c] for c in columns]
        fired = Fired(firing.rule, [*firing.key.values()], by, firing.mark, firing.time_ms, firing.end_ms)
        verdict = self.outlet.judge(fired, self.rules)
        if verdict.lane is not None:
            given = Given(verdict.lane, self.rules.epoch, verdict.suppressed)
            yield alert(firing, self.schemas[rule.on], origin, given)

    def _settled(
        self, group: RuleGroup, action: Callable[[], tuple[list[Firing], list[Failure]]]
    ) -> tuple[list[Firing], list[Record]]:
        """Run until no rule fails: each failure puts a rule into quarantine, so this ends."""
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
        self._regroup({}, 0)
        kind, mode = StatusKind.QUARANTINED, rule.rule.mode_text
        return status_record(Status(rule.rule.id, rule.rule.version, kind, reason, self.rules.epoch, 0, -1, mode=mode))


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


def control_of(rule_id: str, value: bytes | None, offset: int) -> Control:
    """A control record for in-process runs."""
    return Control(0, offset, rule_id.encode(), value)


__all__: Sequence[str] = ("RulesKernel", "control_of")
