"""The rules kernel: takes events and rule changes, returns alerts, parts of decisions, statuses and late events.

The kernel applies the control records of a cut first, so the same rule set is evaluated on every event of the cut; each
alert carries the set's epoch. A rule goes into quarantine if its evaluation raises, or if it has more than
``max_matches`` matches in a cut, or if its state exceeds a budget at the end of a cut; the other rules are still
evaluated. The module knows neither Spark nor Kafka: production, tests and back-tests run the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import orjson
import polars as pl

from rulecore import language as lang
from rulecore.alerts.alerts import Alert, AlertContext, event_alert, stateful_alert
from rulecore.alerts.budgets import firings_within_budget, matches_within_budget
from rulecore.alerts.decision_parts import DecidedEvent, DecisionParts, chosen_events
from rulecore.alerts.dispatch import SUPPRESSED, AlertDelivery, AlertDispatcher, FiredRule
from rulecore.compile.rule import STAGE_FAMILIES, CompiledRule
from rulecore.documents.rule import RuleKind, RuleMode
from rulecore.documents.slots import version_key
from rulecore.documents.status import status_record
from rulecore.feature_stage.exchanges import FIRST_ROUTE
from rulecore.feature_stage.rows import ComputedFeatures
from rulecore.firing import Origin, RuleFiring
from rulecore.groups.base import GroupId
from rulecore.groups.feature_values import FeatureValues
from rulecore.groups.scores.signals import SignalCollector, SignalSource
from rulecore.key_columns import Key
from rulecore.language.types import Value
from rulecore.lists.fill_columns import with_list_columns
from rulecore.matching.index import Ints
from rulecore.matching.matcher import EventMatcher
from rulecore.rule_stage import RuleStage
from rulecore.settings import GroupSettings, RulesConfig
from rulecore.state_size import StateHolder
from rulecore.streams import STREAM, is_union, own_fields, stream_names
from streamcore.kernel import ControlRecord, Cut, KernelOutput, StreamKey, StreamReads
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import StateTable
from streamcore.state.scope import TableScope
from streamcore.wire.lanes import LATE, Record

if TYPE_CHECKING:
    from streamcore.wire.lane_rows import LaneRows

_LATE = "event time before the watermark: its windows may have been closed"
_TOP_RULES = 20  # rules in the metrics of a cut


class RulesKernel(RuleStage):
    """The ``Kernel`` of a rules app for one shard: rules, their state, and the state between firings and alerts."""

    metadata_table = "groups"

    def __init__(self, config: RulesConfig) -> None:
        super().__init__(config)
        self._event_keys: dict[str, Sequence[Key]] = {}  # by stream or union, those of its event rules
        self.dispatcher = AlertDispatcher(config.dispatch)
        self._max_chosen = config.dispatch.chosen
        self.decisions = DecisionParts()
        self.signals = SignalCollector((), {}, self.schemas, ())
        self.firings: dict[str, list[SignalSource]] = {}  # of this cut, by stream; the input of scores
        self.computed = ComputedFeatures()  # in this cut, by the stage for features

    # --- state --------------------------------------------------------------------------------------------------

    def _kernel_tables(self) -> dict[str, StateTable]:
        return {**super()._kernel_tables(), **self.dispatcher.tables()}

    def scope(self, name: str) -> TableScope:
        """Return the scope of a table: of a group, the key by which its events are routed; of rules, all shards."""
        return self.dispatcher.scope(name, self.rules) if name in self.dispatcher.tables() else super().scope(name)

    def on_state_loaded(self) -> None:
        """Restore the lists, the rules and the groups from the loaded tables."""
        self.dispatcher.on_state_loaded()
        super().on_state_loaded()

    def _holds(self, kind: str) -> bool:
        return kind not in STAGE_FAMILIES.values()

    def _group_settings(self) -> GroupSettings:
        return replace(self.config.groups, feature_stage=self.config.feature_stage)

    def _groups_of_rule(self, rule: CompiledRule) -> Iterable[tuple[GroupId, CompiledRule]]:
        group = GroupId.for_rule(rule)
        return () if group is None else ((group, rule),)

    def _keys_of_rule(self, rule: CompiledRule) -> Iterable[Key]:
        return (rule.route_key,)

    def _set_routes(self) -> None:
        """Set the keys of the unions, and those of event rules."""
        super()._set_routes()
        found: dict[str, set[Key]] = {}
        for rule in self.rules.with_state():
            if rule.kind is RuleKind.EVENT:
                found.setdefault(rule.rule.on, set()).add(rule.route_key)
        self._event_keys = {
            name: sorted(keys, key=lambda key: (self._routed(name, key).route, key)) for name, keys in found.items()
        }

    def _on_rules_changed(self, wanted: Mapping[GroupId, Sequence[CompiledRule]]) -> None:
        scores = [r for group, rules in wanted.items() if group.kind == RuleKind.SCORE for r in rules]
        live = {rule.rule.id: rule for rule in self.rules.evaluated_rules() if rule.rule.status is RuleMode.LIVE}
        self.signals = SignalCollector(scores, live, self.schemas, [one.topic for one in self.config.streams])
        self.dispatcher.suppression.set_rules(self.rules.with_state())
        self.dispatcher.comparison.keep({rule.rule.id for rule in self.rules.on_trial()})

    def _on_quarantine(self, rule: CompiledRule) -> None:
        self.dispatcher.suppression.release(rule.rule)

    def _other_state(self) -> Mapping[str, StateHolder]:
        return {SUPPRESSED: self.dispatcher.suppression}

    def _find_reads(self) -> Mapping[str, StreamReads]:
        """Return what the rules read of each stream, in this stage and in the one for features."""
        reads = self.rules.find_reads()
        found = {}
        for name in self.schemas:
            routes = [n for n, key in enumerate(self._routes[name]) if key in reads.keys[name]]
            if self.config.feature_stage:
                own = reads.feature_keys[name]
                routes += [FIRST_ROUTE + n for n, key in enumerate(self._routes[name]) if key in own]
            found[name] = StreamReads(reads.fields[name], frozenset(routes))
        return found

    # --- features of other keys ---------------------------------------------------------------------------------

    def _take_computed(self, cut: Cut) -> Cut:
        """Take what the stage for features has computed; return the cut with the events alone."""
        if not self.config.feature_stage:
            return cut
        self.computed = ComputedFeatures.read(cut.events)
        return replace(cut, events={key: rows for key, rows in cut.events.items() if key.route >= 0})

    def _take_failures(self) -> None:
        """Put the rules into quarantine of which the stage for features has put one there; it has said so."""
        failed = self.computed.quarantined
        for rule in self.rules.with_state() if failed else ():
            if (reason := failed.get(version_key(rule.rule))) is not None:
                self._drop_rule(rule, reason)

    def _starts(self, rule: CompiledRule, known_columns: frozenset[str]) -> Mapping[str, int]:
        own, computed = super()._starts(rule, known_columns), self.computed
        features = rule.stage_features if self.config.feature_stage else ()
        names = {one.fingerprint for one in features if one.fingerprint in computed.started}
        return {**{name: computed.since_ms[name] for name in names}, **own}

    def _feature_values(self, group: GroupId) -> FeatureValues:
        routes = self._routes[stream_names(group.stream)[0]]
        return self.computed.find_values(group, routes) if self.config.feature_stage else FeatureValues()

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, cut: Cut) -> KernelOutput:
        """Process a cut: control records, then events stream by stream, then windows that end, then scores."""
        self.firings, self.published = {}, ()
        cut = self._take_computed(cut)
        records = self._apply_control(cut)
        self._take_failures()
        contents = self.lists.contents(cut.clock_ms)
        events = {
            r: with_list_columns(f, self.added_columns.get(r.stream, ()), contents)
            for r, f in (*cut.events.items(), *self._union_events(cut.events))
        }
        cut = replace(cut, events=events)
        self.decisions.begin(events)
        for name in (*self.schemas, *self.unions):
            for key in self._event_keys.get(name, ()):
                records += self._event_records(cut, name, key)
        self._choose_events(cut)
        for name in self.schemas:
            records += self._late_records(cut, name)
        for group in sorted(self.groups, key=str):
            if group in self.groups and group.kind != RuleKind.SCORE:  # the last rule of a group may go into quarantine
                records += self._group_records(cut, group)
        for group in sorted(self.groups, key=str):
            if group.kind == RuleKind.SCORE:
                records += self._score_records(cut, group)
        records += [status_record(status) for status in self.dispatcher.close(cut, self.rules)]
        records += self._enforce_budgets(cut.next_watermark_ms)
        return KernelOutput(
            records,
            (*self._alert_rows(records), *self.decisions.take()),
            counters=self._counters(),
            streams=self.published,
            reads=self._find_reads(),
        )

    def _alert_rows(self, records: Sequence[Record]) -> tuple[LaneRows, ...]:
        """Return the alerts as rows, if sinks take them."""
        if not self.config.alert_rows:
            return ()
        from rulecore.alerts.alert_rows import alert_rows  # with Arrow's compute functions, which few apps need

        rows = (alert_rows(records, lane) for lane in self.config.alert_rows)
        return tuple(one for one in rows if one is not None)

    def _counters(self) -> Mapping[str, int]:
        """Return the counters of this cut and the sizes of the state."""
        counted = self._take_counters()
        counted.update(self.dispatcher.take_counters())
        return counted

    # --- event rules --------------------------------------------------------------------------------------------

    def _event_records(self, cut: Cut, name: str, key: Key) -> list[Record]:
        """Evaluate the event rules that a key routes on every event once, late events included."""
        frame = cut.events.get(self._routed(name, key))
        if frame is None:
            return []
        matcher = self.rules.matcher(name, key)
        matches = matcher.match(frame)
        counts = np.bincount(matches.rule, minlength=len(matcher.rules))
        self._count_cost(matcher, {"candidates": matches.candidates, "matches": counts})
        records = [record for n, reason in matches.failed for record in self._quarantine(matcher.rules[n], reason)]
        if not len(matches.row):
            return records
        kept, exceeding = matches_within_budget(matcher, matches, counts, self.limits)
        rows = frame[matches.row[kept]].to_dicts()
        for row, number in zip(rows, matches.rule[kept].tolist(), strict=True):
            records += self._event_alert(matcher.rules[number], row)
        return [*records, *(record for exceeded in exceeding for record in self._quarantine(*exceeded))]

    def _count_cost(self, matcher: EventMatcher[CompiledRule], measures: Mapping[str, Ints]) -> None:
        """Add the highest counts of each measure to the counters of the cut.

        ``measures``: by name, a count for each rule of the matcher.
        """
        for name, counts in measures.items():
            nonzero = np.flatnonzero(counts)
            for number in nonzero[np.argsort(-counts[nonzero], kind="stable")][:_TOP_RULES].tolist():
                self.dispatcher.count(f"{name}.{version_key(matcher.rules[number].rule)}", int(counts[number]))

    def _event_alert(self, rule: CompiledRule, row: Mapping[str, Value]) -> Iterable[Record]:
        """Yield the alert of an event rule on an event, unless it is suppressed or over budget."""
        name = rule.rule.on
        schema, origin = self._schema(name), self._origin(row)
        by = () if rule.rule.suppress is None else [row[c] for c in rule.rule.suppress.by]
        key = [row[c] for c in rule.route_key]
        mark = (origin.topic, origin.partition, origin.offset)
        fired = FiredRule(rule, key, by, mark, origin.event_ms, origin.event_ms)

        def build(context: AlertContext) -> Alert:
            fields = own_fields(schema, self.schemas[str(row[STREAM])]) if is_union(name) else schema.fields
            return event_alert(rule, schema, row, origin, context, fields)

        yield from self._dispatch(fired, self._decided_event(name, row, origin), build)

    def _dispatch(
        self, fired: FiredRule, decided: DecidedEvent | None, build: Callable[[AlertContext], Alert]
    ) -> Iterable[Record]:
        """Yield the alert of a firing, if it is sent, and add the firing to the decision about its event."""
        dispatched = self.dispatcher.dispatch(fired, self.rules)
        is_sent = dispatched.delivery is AlertDelivery.SENT
        if not is_sent and decided is None:
            return
        decision = None if decided is None else decided.decision
        alert = build(AlertContext(dispatched.lane, self.rules.epoch, dispatched.suppressed, decision))
        if decided is not None:
            self.decisions.add_firing(decided, alert, dispatched, self.rules.epoch)
        if is_sent:
            yield alert.record()

    def _decided_event(self, name: str, row: Mapping[str, Value], origin: Origin) -> DecidedEvent | None:
        """Return an event as one to decide about; None if its stream has no policy. ``name``: of a stream or union."""
        stream = str(row[STREAM]) if is_union(name) else name
        policy = self.rules.policies.by_stream.get(stream)
        if policy is None:
            return None
        own = row if stream == name else self.decisions.find_event(self.schemas[stream], row)
        return DecidedEvent(policy, self.schemas[stream], own, origin)

    def _choose_events(self, cut: Cut) -> None:
        """Add the events that get a decision even if no rule fires at them, up to the limit of a cut."""
        room = self._max_chosen
        for stream, policy in self.rules.policies.by_stream.items():
            if (frame := cut.events.get(StreamKey(stream, 0))) is not None:
                for cause, chosen in chosen_events(policy, self.schemas[stream], frame):
                    if chosen is None:
                        self.dispatcher.count(f"failed_condition.{policy.name}")
                        continue
                    if chosen.height > room:
                        self.dispatcher.count(f"not_chosen.{policy.name}", chosen.height - room)
                    taken = chosen.head(room)
                    room -= taken.height
                    for row in taken.iter_rows(named=True):
                        event = DecidedEvent(policy, self.schemas[stream], row, self._origin(row))
                        self.decisions.add_event(event, cause, self.rules.epoch)

    def _origin(self, row: Mapping[str, object]) -> Origin:
        """Return the origin of an event."""
        partition = row[PARTITION]
        assert isinstance(partition, int)
        return _origin(self.config.streams[partition // PARTITIONS_PER_TOPIC].topic, row)

    def _late_records(self, cut: Cut, name: str) -> Iterable[Record]:
        """Yield a record for each late event of the stream ``name``."""
        frame = cut.events.get(StreamKey(name, 0))
        if frame is None:
            return
        late = frame.filter(pl.col(EVENT_MS) < cut.watermark_ms)
        yield from late_records(self.schemas[name], self.topics[name], late, cut.watermark_ms, _LATE)

    # --- rules with state ---------------------------------------------------------------------------------------

    def _group_records(self, cut: Cut, group_id: GroupId) -> list[Record]:
        """Add the events that are not late to a group, close the windows that end, and return the alerts."""
        name, group = group_id.stream, self.groups[group_id]
        frame = cut.events.get(self._routed(name, self._schema(name).routing_key(group_id.group_by)))
        context = replace(self._cut_context(cut, name), values=self._feature_values(group_id))
        records: list[Record] = []
        if frame is not None:
            on_time = frame.filter(pl.col(EVENT_MS) >= cut.watermark_ms)
            firings, statuses = self._run_until_valid(group, lambda: group.add(on_time, context))
            records += statuses
            records += self._alerts(firings, name, on_time)
        firings, statuses = self._run_until_valid(group, lambda: group.close(context))
        return records + statuses + self._alerts(firings, name, None)

    def _score_records(self, cut: Cut, group_id: GroupId) -> list[Record]:
        """Add the signals of this cut to the scores, then drop the signals that no score can count any more."""
        from rulecore.groups.scores.group import ScoreGroup  # imported only by apps with a score rule

        name, group = group_id.stream, self.groups[group_id]
        assert isinstance(group, ScoreGroup), "make_group creates a ScoreGroup for this kind"
        key, context = self._schema(name).routing_key(group_id.group_by), self._cut_context(cut, name)
        fired = [one for firings in self.firings.values() for one in firings]
        signals = self.signals.from_firings(group_id, fired)
        for on in self.signals.event_streams(group_id):
            if (frame := cut.events.get(self._routed(on, key))) is not None:
                signals += self.signals.from_events(group_id, on, frame)
        firings, _ = group.signals(signals, context)
        group.close(context)
        return self._alerts(firings, name, None)

    def _alerts(self, firings: Sequence[RuleFiring], name: str, frame: pl.DataFrame | None) -> list[Record]:
        """Return the alerts of the firings of stream ``name``; ``RuleFiring.row`` is a row of ``frame``."""
        kept, exceeding = firings_within_budget(firings, self.limits)
        rows = [f.row for f in kept if f.row is not None]
        events = dict(zip(rows, frame[rows].to_dicts(), strict=True)) if frame is not None and rows else {}
        records: list[Record] = []
        for firing in kept:
            event = None if firing.row is None else events[firing.row]
            origin = firing.origin if event is None else self._origin(event)
            self.firings.setdefault(name, []).append((firing, origin))
            decided = None if event is None or origin is None else self._decided_event(name, event, origin)
            records += self._alert(firing, origin, decided)
        return [*records, *(record for exceeded in exceeding for record in self._quarantine(*exceeded))]

    def _alert(self, firing: RuleFiring, origin: Origin | None, decided: DecidedEvent | None) -> Iterable[Record]:
        """Yield the alert of a firing, unless it is suppressed or over budget."""
        rule = firing.rule.rule
        columns = () if rule.suppress is None else rule.suppress.by or firing.rule.group_by
        by = [firing.key[c] for c in columns]
        fired = FiredRule(firing.rule, [*firing.key.values()], by, firing.mark, firing.time_ms, firing.end_ms)
        schema = self._schema(rule.on)
        yield from self._dispatch(fired, decided, lambda context: stateful_alert(firing, schema, origin, context))


def _origin(topic: str, row: Mapping[str, object]) -> Origin:
    partition, offset, event_ms = row[PARTITION], row[OFFSET], row[EVENT_MS]
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    assert isinstance(event_ms, int)
    return Origin(topic, partition % PARTITIONS_PER_TOPIC, offset, event_ms)


def late_records(
    schema: StreamSchema, topic: str, late: pl.DataFrame, watermark_ms: int, reason: str
) -> Iterator[Record]:
    """Yield a record for the lane ``late`` for each late event of a stream."""
    for row in late.iter_rows(named=True):
        origin = _origin(topic, row)
        event = {f.name: lang.to_logical(row[f.name], f.type) for f in schema.fields}
        body = {
            "stream": schema.name,
            "source": {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset},
            "event_time_ms": origin.event_ms,
            "lateness_ms": watermark_ms - origin.event_ms,
            "watermark_ms": watermark_ms,
            "reason": reason,
            "event": event,
        }
        yield Record(LATE, None, orjson.dumps(body, default=str))


def control_record(rule_id: str, value: bytes | None, offset: int) -> ControlRecord:
    """Return a control record for in-process runs."""
    return ControlRecord(0, offset, rule_id.encode(), value)


__all__: Sequence[str] = ("RulesKernel", "control_record", "late_records")
