"""The rules kernel: events and rule changes in, alerts, answers to changes and late events out.

A cut's control records are applied first, so every event of a cut meets the same rule set, and the set's epoch is on
every alert. A rule that fails while it is evaluated goes into quarantine and the cut goes on without it. This module
knows neither Spark nor Kafka: it is the same in production, in a test and in a back-test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import orjson
import polars as pl

from rulecore import lang
from rulecore.alerts import alert, event_alert
from rulecore.compiled import CompiledRule, RuleLimits
from rulecore.factory import RulesFactory
from rulecore.families import make_group
from rulecore.firing import Failure, Firing, Origin
from rulecore.groups import GroupId, Moment, RuleGroup
from rulecore.model import Kind, Mode
from rulecore.ruleset import RuleSet, Status, StatusKind
from rulecore.scores import ScoreGroup
from rulecore.scores_feed import Fired, ScoreFeed
from streamcore.app import PARTITIONS_PER_TOPIC
from streamcore.kernel import Control, Cut, Output, Routed
from streamcore.lanes import LATE, STATUS, Record
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK

_RULES = "rules"
_GROUPS = "groups"
_SET = "\0set"  # no rule id begins so: the set's own values


class RulesKernel:
    """One shard's rules, panes and memory."""

    def __init__(self, factory: RulesFactory) -> None:
        self.factory = factory
        self.schemas = {s.schema.name: s.schema for s in factory.streams}
        self.topics = {s.schema.name: s.topic for s in factory.streams}
        self.limits = RuleLimits(rules=factory.max_rules)
        self.rules = RuleSet.empty(self.schemas, self.limits)
        self.stored = KeyValueTable()
        self.memory = KeyValueTable()
        self.groups: dict[GroupId, RuleGroup] = {}
        self.feed = ScoreFeed((), {})
        self.fired: dict[str, list[Fired]] = {}  # of this cut, by stream
        self.derived_from: bytes | None = None  # the stored set that `rules` and `groups` were made from

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, StateTable]:
        tables: dict[str, StateTable] = {_RULES: self.stored, _GROUPS: self.memory}
        for group in self.groups.values():
            tables.update(group.tables())
        return tables

    def table(self, name: str) -> StateTable:
        if name in (_RULES, _GROUPS):
            return self.stored if name == _RULES else self.memory
        return self._group(GroupId.parse(name.split(":")[1])).table(name)

    def loaded(self) -> None:
        blob = self.stored.get(_SET)
        if blob is None or blob == self.derived_from:
            return  # caught up over cuts without a rule change
        self.derived_from = blob
        own = orjson.loads(blob)
        records = tuple((key, value) for key, value in self.stored if key != _SET)
        self.rules = RuleSet.restore(self.schemas, self.limits, records, own["epoch"], own["quarantined"])
        self._regroup({}, 0)

    def _store_rules(self) -> None:
        kept = dict(self.rules.records())
        for rule_id, _ in [*self.stored]:
            if rule_id not in kept:
                self.stored.put(rule_id, None)
        for rule_id, value in kept.items():
            self.stored.put(rule_id, value)
        own = {"epoch": self.rules.epoch, "quarantined": dict(self.rules.quarantined)}
        self.derived_from = orjson.dumps(own, option=orjson.OPT_SORT_KEYS)
        self.stored.put(_SET, self.derived_from)

    def _group(self, group: GroupId) -> RuleGroup:
        if group not in self.groups:
            self.groups[group] = make_group(group, self.schemas[group.stream], self.factory.groups)
        return self.groups[group]

    def _regroup(self, latest_event_ms: Mapping[str, int], watermark_ms: int) -> None:
        """Every rule with state to its group. A paused one keeps its state; one in quarantine does not."""
        wanted: dict[GroupId, list[CompiledRule]] = {}
        for rule_id in sorted(self.rules.rules):
            rule = self.rules.rules[rule_id]
            group = GroupId.of(rule)
            if group is not None and rule_id not in self.rules.quarantined:
                wanted.setdefault(group, []).append(rule)
        for group in [g for g in self.groups if g not in wanted]:
            del self.groups[group]
            self.memory.put(str(group), None)
        for group, rules in wanted.items():
            self._group(group).set_rules(
                rules, self.memory, latest_event_ms.get(group.stream, NO_WATERMARK), watermark_ms
            )
        scores = [r for group, rules in wanted.items() if group.kind == Kind.SCORE for r in rules]
        live = {n: r for n, r in self.rules.rules.items() if n not in self.rules.quarantined}
        self.feed = ScoreFeed(scores, {n: r for n, r in live.items() if r.rule.status is Mode.LIVE})

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, cut: Cut) -> Output:
        """Rule changes, then events in the order of their streams, then the windows that the watermark closes, and in
        the end the scores of all that."""
        self.fired = {}
        records = self._change(cut)
        for name in self.schemas:
            records += self._per_event(cut, name)
            records += self._late(cut, name)
        for group in sorted(self.groups, key=str):
            if group in self.groups and group.kind != Kind.SCORE:  # a rule that fails may take its group with it
                records += self._grouped(cut, group)
        for group in sorted(self.groups, key=str):
            if group.kind == Kind.SCORE:
                records += self._scored(cut, group)
        return Output(records)

    def _change(self, cut: Cut) -> list[Record]:
        if not cut.control:
            return []
        before = self.rules.epoch
        self.rules, answers = self.rules.apply(cut.control)
        if self.rules.epoch != before:
            self._store_rules()
            self._regroup(cut.latest_event_ms, cut.watermark_ms)
        return [_status(answer) for answer in answers] if cut.shard == 0 else []

    def _per_event(self, cut: Cut, name: str) -> list[Record]:
        """Rules per event see every event once, the late ones too."""
        frame = cut.events.get(Routed(name, 0))
        if frame is None:
            return []
        matcher = self.rules.matcher(name)
        matches = matcher.match(frame)
        records = [self._quarantine(matcher.rules[n], reason) for n, reason in matches.failed]
        if not len(matches.row):
            return records
        rows = frame[matches.row].to_dicts()
        schema, epoch = self.schemas[name], self.rules.epoch
        for row, number in zip(rows, matches.rule.tolist(), strict=True):
            records.append(event_alert(matcher.rules[number], schema, row, self._origin(name, row), epoch))
        return records

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

    def _grouped(self, cut: Cut, group_id: GroupId) -> list[Record]:
        """Rules with state: the events that are on time, then what the watermark ends."""
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
        name, group = group_id.stream, self.groups[group_id]
        assert isinstance(group, ScoreGroup), "families makes it"
        route, moment = self.schemas[name].route_for(group_id.group_by), self._moment(cut, name)
        assert route is not None, "the rule set accepts only groups that are routed"
        signals = self.feed.of_firings(group_id, self.fired.get(name, ()))
        if (frame := cut.events.get(Routed(name, route))) is not None:
            signals += self.feed.of_events(group_id, frame)
        firings, _ = group.signals(signals, moment)
        group.close(moment)
        return [self._alert(firing, None) for firing in firings]

    def _moment(self, cut: Cut, stream: str) -> Moment:
        times = (cut.clock_ms, cut.watermark_ms, cut.next_watermark_ms)
        return Moment(cut.shard, self.factory.shards, self.topics[stream], *times)

    def _alerts(self, firings: Sequence[Firing], name: str, frame: pl.DataFrame | None) -> list[Record]:
        """``frame`` holds the events that the firings' rows count."""
        rows = [f.row for f in firings if f.row is not None]
        events = dict(zip(rows, frame[rows].to_dicts(), strict=True)) if frame is not None and rows else {}
        fired = [(f, None if f.row is None else self._origin(name, events[f.row])) for f in firings]
        self.fired.setdefault(name, []).extend(fired)
        return [self._alert(firing, origin) for firing, origin in fired]

    def _alert(self, firing: Firing, origin: Origin | None) -> Record:
        return alert(firing, self.schemas[firing.rule.rule.on], origin, self.rules.epoch)

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
        self.rules = self.rules.quarantine(rule.rule.id, reason)
        self._store_rules()
        self._regroup({}, 0)
        status = Status(rule.rule.id, rule.rule.version, StatusKind.QUARANTINED, reason, self.rules.epoch, 0, -1)
        return _status(status)


def _status(status: Status) -> Record:
    body = {
        "rule": status.rule,
        "version": status.version,
        "status": status.status.value,
        "reason": status.reason,
        "rules_epoch": status.rules_epoch,
        "control": {"partition": status.partition, "offset": status.offset},
    }
    return Record(STATUS, status.rule.encode(), orjson.dumps(body))


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
