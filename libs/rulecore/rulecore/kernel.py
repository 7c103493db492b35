"""The rules kernel: takes events and rule changes, returns alerts, parts of decisions, statuses and late events.

The kernel applies the control records of a cut first, so the same rule set is evaluated on every event of the cut; each
alert carries the set's epoch. A rule goes into quarantine if its evaluation raises, or if it has more than
``max_matches`` matches in a cut, or if its state exceeds a budget at the end of a cut; the other rules are still
evaluated. The module knows neither Spark nor Kafka: production, tests and back-tests run the same code.
"""

from __future__ import annotations

from collections import Counter
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
from rulecore.backfill import apply_backfill
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.control_keys import parse_key
from rulecore.documents.quarantine import quarantine_record
from rulecore.documents.rule import RuleKind, RuleMode
from rulecore.documents.slots import version_key
from rulecore.documents.status import IncompleteCounts, RuleStatus, StatusKind, Subject, as_reply, status_record
from rulecore.firing import Origin, RuleFailure, RuleFiring
from rulecore.groups.base import BackfilledGroup, CutContext, GroupId, RuleGroup
from rulecore.groups.registry import make_group
from rulecore.groups.scores.signals import SignalCollector, SignalSource
from rulecore.key_columns import Key, KeyColumn
from rulecore.language.types import Value
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.list_columns import ListColumn
from rulecore.lists.routing import split_records
from rulecore.lists.store import ListStore, save
from rulecore.matching.index import Ints
from rulecore.matching.matcher import EventMatcher
from rulecore.ruleset.ruleset import RuleSet
from rulecore.ruleset.stream_changes import StreamChanges, next_streams
from rulecore.settings import RulesConfig
from rulecore.state_budgets import over_budget
from rulecore.streams import STREAM, find_stream, is_union, own_fields, stream_names
from rulecore.union_events import union_events
from streamcore.kernel import (
    BUDGET_REACHED,
    STATE_BYTES,
    STATE_ENTRIES,
    ControlRecord,
    Cut,
    KernelOutput,
    StreamKey,
    StreamReads,
)
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.schema.published_document import PublishedDocument
from streamcore.state import KeyValueTable, StateTable
from streamcore.state.scope import REPLICATED, TableScope, keyed_by
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.lanes import LATE, Record

if TYPE_CHECKING:
    from streamcore.wire.lane_rows import LaneRows

_RULES = "rules"
_GROUPS = "groups"
_LISTS = "lists"
_STREAMS = "streams"
_GENERATION = "generation:"  # how often a group was deleted
_SET = "set"
_NO_ROUTE = -1  # of a key by which no event is routed yet
_LATE = "event time before the watermark: its windows may have been closed"
_TOP_RULES = 20  # rules in the metrics of a cut


class RulesKernel:
    """The ``Kernel`` of a rules app for one shard: rules, their state, and the state between firings and alerts."""

    def __init__(self, config: RulesConfig) -> None:
        self.config = config
        self.schemas = {s.schema.name: s.schema for s in config.streams}
        self._schemas = dict(self.schemas)  # those and the unions of them that rules read
        self.topics = {s.schema.name: s.topic for s in config.streams}
        self._routes: dict[str, Sequence[Key]] = {s.schema.name: s.routes for s in config.streams}  # and of unions
        self._event_keys: dict[str, Sequence[Key]] = {}  # by stream or union, those of its event rules
        self.limits = RuleLimits(rules=config.max_rules, matches=config.max_matches)
        self.rules = RuleSet.empty(self.schemas, self.limits)
        self.stored_rules = KeyValueTable()
        self.lists = ListStore.empty(config.lists)
        self.stored_lists = KeyValueTable()
        self.added_columns: dict[str, tuple[KeyColumn | ListColumn, ...]] = {}
        self.unions: list[str] = []  # of streams, that rules read
        self.streams = StreamChanges(config.sources, self.limits.record_bytes)
        self.published: Sequence[PublishedDocument] = ()  # in this cut
        self.group_metadata = KeyValueTable()
        self.dispatcher = AlertDispatcher(config.dispatch)
        self._max_chosen = config.dispatch.chosen
        self.decisions = DecisionParts()
        self.groups: dict[GroupId, RuleGroup] = {}
        self.signals = SignalCollector((), {}, self.schemas, ())
        self.firings: dict[str, list[SignalSource]] = {}  # of this cut, by stream; the input of scores
        self.derived_from: bytes | None = None  # the stored header from which `rules` and `groups` were restored

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, StateTable]:
        """Return all state tables by name: those of the kernel and those of each group."""
        tables = self._kernel_tables()
        for group in self.groups.values():
            tables.update(group.tables())
        return tables

    def _kernel_tables(self) -> dict[str, StateTable]:
        """Return the tables that do not belong to a group."""
        return {
            _RULES: self.stored_rules,
            _GROUPS: self.group_metadata,
            _LISTS: self.stored_lists,
            _STREAMS: self.streams.table,
            **self.dispatcher.tables(),
        }

    def table(self, name: str) -> StateTable:
        """Return the table of that name; create its group if the name has one."""
        kernel_tables = self._kernel_tables()
        return (
            kernel_tables[name] if name in kernel_tables else self._group(GroupId.parse(name.split(":")[1])).table(name)
        )

    def scope(self, name: str) -> TableScope:
        """Return the scope of a table: of a group, the key by which its events are routed; of rules, all shards."""
        if name in self.dispatcher.tables():
            return self.dispatcher.scope(name, self.rules)
        if name in self._kernel_tables():
            return REPLICATED
        group = GroupId.parse(name.split(":")[1])
        return keyed_by(self._schema(group.stream).routing_key(group.group_by))

    def on_state_loaded(self) -> None:
        """Restore the lists, the rules and the groups from the loaded tables."""
        self.dispatcher.on_state_loaded()
        self.groups = {group: kept for group, kept in self.groups.items() if group == self._current_generation(group)}
        if dict(self.stored_lists) != dict(self.lists.records()):
            self.lists = ListStore.restore(self.stored_lists, self.config.lists)
            self.rules = self.rules.with_lists(self.lists.types())
        blob = self.stored_rules.get(_SET)
        if blob is None or blob == self.derived_from:
            return  # the rules did not change in the cuts that were loaded
        self.derived_from = blob
        self.rules = RuleSet.restore(
            self.schemas, self.limits, self.stored_rules, self.lists.types(), self._known_routes()
        )
        self._assign_groups({}, 0)

    def _store_rules(self) -> None:
        """Write the rule set to its table."""
        records = dict(self.rules.records())
        for name, _ in [*self.stored_rules]:
            if name not in records:
                self.stored_rules.put(name, None)
        for name, value in records.items():
            self.stored_rules.put(name, value)
        self.derived_from = records[_SET]

    def _group(self, group: GroupId) -> RuleGroup:
        """Return the group of that id, created if needed."""
        if group not in self.groups:
            self.groups[group] = make_group(group, self._schema(group.stream), self.config.groups)
        return self.groups[group]

    def _current_generation(self, group: GroupId) -> GroupId:
        """Return the group with its current generation."""
        generation = self.group_metadata.get(f"{_GENERATION}{replace(group, generation=0)}")
        return replace(group, generation=0 if generation is None else int(generation))

    def _drop_group(self, group: GroupId) -> None:
        """Delete a group that no rule needs.

        The state log may still hold its rows. A later group of the same rules has another generation, so that it does
        not load them.
        """
        del self.groups[group]
        self.group_metadata.put(str(group), None)
        if group == self._current_generation(group):
            self.group_metadata.put(f"{_GENERATION}{replace(group, generation=0)}", str(group.generation + 1).encode())

    def _assign_groups(self, latest_event_ms: Mapping[str, int], watermark_ms: int) -> None:
        """Assign every rule with state to its group. A paused rule keeps its state; a rule in quarantine loses it."""
        reading = [rule for rule in self.rules.with_state() if rule.kind is not RuleKind.SCORE]  # that reads signals
        self.unions = sorted({rule.rule.on for rule in reading if is_union(rule.rule.on)})
        self.added_columns = {name: self.rules.added_columns(name) for name in (*self.schemas, *self.unions)}
        self._set_routes()
        wanted: dict[GroupId, list[CompiledRule]] = {}
        for rule in self.rules.with_state():
            group = GroupId.for_rule(rule)
            if group is not None:
                wanted.setdefault(self._current_generation(group), []).append(rule)
        for group in [g for g in self.groups if g not in wanted]:
            self._drop_group(group)
        for group, rules in wanted.items():
            self._group(group).set_rules(
                rules, self.group_metadata, self._latest_ms(latest_event_ms, group.stream), watermark_ms
            )
        scores = [r for group, rules in wanted.items() if group.kind == RuleKind.SCORE for r in rules]
        live = {rule.rule.id: rule for rule in self.rules.evaluated_rules() if rule.rule.status is RuleMode.LIVE}
        self.signals = SignalCollector(scores, live, self.schemas, [one.topic for one in self.config.streams])
        self.dispatcher.suppression.set_rules(self.rules.with_state())
        self.dispatcher.comparison.keep({rule.rule.id for rule in self.rules.on_trial()})

    def _set_routes(self) -> None:
        """Set the keys of the unions, and those of event rules."""
        rules = self.rules.with_state()
        for name in self.unions:
            members = {*stream_names(name)}
            self._routes[name] = sorted({one.route_key for one in rules if {*stream_names(one.rule.on)} >= members})
        found: dict[str, set[Key]] = {}
        for rule in rules:
            if rule.kind is RuleKind.EVENT:
                found.setdefault(rule.rule.on, set()).add(rule.route_key)
        self._event_keys = {
            name: sorted(keys, key=lambda key: (self._routed(name, key).route, key)) for name, keys in found.items()
        }

    def _routed(self, name: str, key: Key) -> StreamKey:
        """Return the exchange that brings the events of a stream or union by a key."""
        if self.config.is_alone:
            return StreamKey(name, 0)
        keys = self._routes[name]
        return StreamKey(name, keys.index(key) if key in keys else _NO_ROUTE)

    def _known_routes(self) -> Mapping[str, Sequence[Key]] | None:
        """Return the keys by which the events of each stream are routed; None for any."""
        return None if self.config.is_alone else {name: self._routes[name] for name in self.schemas}

    def _find_new_keys(self, rules: RuleSet) -> Sequence[PublishedDocument]:
        """Return the further keys of the streams of which rules need a key by which events are not routed yet, without
        those that no rule needs any more."""
        found = []
        for name, needed in sorted(rules.routing_keys().items()) if not self.config.is_alone else ():
            routes, declared = self._routes[name], self.schemas[name].keys
            if new := sorted(needed.difference(routes)):
                kept = [key for key in routes if key in needed and key not in declared]
                found.append(PublishedDocument.of_keys(name, [*kept, *new]))
        return found

    def _find_reads(self) -> Mapping[str, StreamReads]:
        """Return the fields and routes that the rules read of each stream."""
        fields, keys = self.rules.read_fields(), self.rules.routing_keys()
        return {
            name: StreamReads(
                fields[name], frozenset(n for n, key in enumerate(self._routes[name]) if key in keys[name])
            )
            for name in self.schemas
        }

    @staticmethod
    def _latest_ms(by_stream: Mapping[str, int], name: str) -> int:
        """Return the latest event time of a stream, or of the streams of a union."""
        return max(by_stream.get(member, NO_WATERMARK) for member in stream_names(name))

    def _schema(self, name: str) -> StreamSchema:
        """Return the schema of a stream, or of a union of streams that a rule reads."""
        if name not in self._schemas:
            self._schemas[name] = find_stream(self.schemas, name)
        return self._schemas[name]

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, cut: Cut) -> KernelOutput:
        """Process a cut: control records, then events stream by stream, then windows that end, then scores."""
        self.firings, self.published = {}, ()
        records = self._apply_control(cut)
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

    def _union_events(self, events: Mapping[StreamKey, pl.DataFrame]) -> Iterator[tuple[StreamKey, pl.DataFrame]]:
        """Yield the events of each union of streams for each of its keys."""
        for name in self.unions:
            union = self._schema(name)
            for key in self._routes[name]:
                routed = {member: self._routed(member, key) for member in stream_names(name)}
                frames = {member: events[one] for member, one in routed.items() if one in events}
                if (frame := union_events(union, self.schemas, frames)) is not None:
                    yield self._routed(name, key), frame

    def _counters(self) -> Mapping[str, int]:
        """Return the counters of this cut and the sizes of the state."""
        counted = Counter(self.dispatcher.take_counters())
        sizes = [(group_id.kind, group.state_size()) for group_id, group in self.groups.items()]
        for kind, size in [*sizes, (SUPPRESSED, self.dispatcher.suppression.state_size())]:
            counted.update({f"{STATE_ENTRIES}.{kind}": size.entries, f"{STATE_BYTES}.{kind}": size.bytes})
        for group_id, group in self.groups.items():
            counted.update({f"{group_id.kind}.{name}": number for name, number in group.metrics().items()})
        return counted

    def _apply_control(self, cut: Cut) -> list[Record]:
        """Apply the control records and the clock to lists, rules and streams; return the statuses, in shard 0 only."""
        if not cut.control and cut.clock_ms < self.rules.boundary_ms() and not self.streams.is_waiting:
            return []
        statuses, waiting = self.streams.take_waiting(self.schemas)
        statuses = [replace(status, rules_epoch=self.rules.epoch) for status in statuses]
        rest: Sequence[ControlRecord] = [*waiting, *cut.control]
        while True:
            changes, documents, rest = next_streams(rest)
            applied = self._apply_changes(cut, changes)
            if applied is None:
                self.streams.wait([*changes, *documents, *rest])  # for the next cut, which has the keys
                break
            statuses += applied
            if not documents:
                break
            answers, self.published = self.streams.decide(documents, rest, self.rules)
            statuses += [replace(status, rules_epoch=self.rules.epoch) for status in answers]
            if self.published:
                break  # the rest waits for the next cut, which has the documents
        return [status_record(status) for status in statuses] if cut.shard == 0 else []

    def _apply_changes(self, cut: Cut, control: Sequence[ControlRecord]) -> list[RuleStatus] | None:
        """Apply control records of lists and rules, and the clock; return the statuses.

        None if a rule needs a key by which events are not routed yet: then nothing has changed but ``published``.
        """
        parts, changes, deletions = split_records(control)
        lists = self.lists
        statuses = self._change_lists(parts)
        before, known_columns = self.rules, self._aggregate_columns()
        after, rule_statuses = before.apply(changes, cut.clock_ms) if changes else before.at_time(cut.clock_ms)
        if new_keys := self._find_new_keys(after):
            self._restore_lists(lists)
            self.published = new_keys
            return None
        self.rules = after
        if self.rules is not before:
            self._store_rules()
        newly_quarantined = self.rules.quarantined.keys() - before.quarantined.keys()
        for compiled in self.rules.rules.values():
            if version_key(compiled.rule) in newly_quarantined:
                self.dispatcher.suppression.release(compiled.rule)
        if self.rules.epoch != before.epoch or newly_quarantined:
            self._assign_groups(cut.latest_event_ms, cut.watermark_ms)
        self._apply_backfills(cut)
        statuses += [self._with_incomplete_counts(status, known_columns, cut) for status in rule_statuses]
        return statuses + self._change_lists(deletions)

    def _apply_backfills(self, cut: Cut) -> None:
        """Add the backfills of the last change to the aggregates of their rules."""
        backfills, self.rules = self.rules.backfills, replace(self.rules, backfills=())
        for backfill in backfills:
            group = self._backfilled_group(backfill.rule)
            if group is not None:
                name = backfill.rule.rule.on
                apply_backfill(backfill, group, self._cut_context(cut, name), self.group_metadata)

    def _backfilled_group(self, rule: CompiledRule) -> BackfilledGroup | None:
        """Return the rule's group if it is one of time windows or features, else None."""
        group_id = GroupId.for_rule(rule)
        group: object = None if group_id is None else self.groups.get(self._current_generation(group_id))
        return group if isinstance(group, BackfilledGroup) else None

    def _aggregate_columns(self) -> frozenset[str]:
        """Return the names of all aggregates over time windows, and of all features."""
        groups = (group for group in self.groups.values() if isinstance(group, BackfilledGroup))
        return frozenset(name for group in groups for name in group.all_since_ms())

    def _with_incomplete_counts(self, status: RuleStatus, known_columns: frozenset[str], cut: Cut) -> RuleStatus:
        """Add to the status of a new version the aggregates that start in this cut, and the offsets of their start.

        ``known_columns``: the columns of the aggregates that existed before the change.
        """
        if status.status not in (StatusKind.ACCEPTED, StatusKind.EFFECTIVE):
            return status
        held = self._counting_versions(status)
        versions = [c for c in held if c.rule.version == status.version]
        group = self._backfilled_group(versions[0]) if versions else None
        since_ms = {} if group is None else group.since_by_column(versions[0])
        new = {name: ms for name, ms in since_ms.items() if name not in known_columns and ms > NO_WATERMARK}
        if not new:
            return status
        return replace(status, incomplete=IncompleteCounts(new, self._start_offsets(cut, versions[0].rule.on)))

    def _counting_versions(self, status: RuleStatus) -> Sequence[CompiledRule]:
        """Return the versions that count for the subject of a status: of a rule those that are evaluated, of a
        published feature the rule that keeps it."""
        if status.subject is Subject.RULE:
            return self.rules.evaluated_versions(status.name)
        keeper = self.rules.features.keepers.get(status.name) if status.subject is Subject.FEATURE else None
        return () if keeper is None else (keeper,)

    def _start_offsets(self, cut: Cut, name: str) -> dict[str, dict[int, int]]:
        """Return the offsets, by topic and partition, at which the cut begins in the input of a rule."""
        found: dict[str, dict[int, int]] = {self.topics[member]: {} for member in stream_names(name)}
        for number, offset in sorted(cut.start_offsets.items()):
            topic = self.config.streams[number // PARTITIONS_PER_TOPIC].topic
            if topic in found:
                found[topic][number % PARTITIONS_PER_TOPIC] = offset
        return found

    def _change_lists(self, records: Sequence[ControlRecord]) -> list[RuleStatus]:
        """Apply control records of lists, and return the status of each."""
        before, statuses = self.lists, []
        for record in records:
            key = (record.key or b"").decode("utf-8", "replace")
            self.lists, status = self.lists.apply(key, record.value, self.rules.rules_using_list)
            statuses.append(as_reply(status, record, self.rules.epoch))
        if self.lists is not before:
            save(self.lists, self.stored_lists)
            self.rules = self.rules.with_lists(self.lists.types())
        return statuses

    def _restore_lists(self, lists: ListStore) -> None:
        """Undo the changes of the lists since they were these."""
        if self.lists is not lists:
            self.lists = lists
            save(lists, self.stored_lists)
            self.rules = self.rules.with_lists(lists.types())

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
        context = self._cut_context(cut, name)
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

    def _cut_context(self, cut: Cut, stream: str) -> CutContext:
        """Return the context of a cut for the groups of a stream."""
        times = (cut.clock_ms, cut.watermark_ms, cut.next_watermark_ms)
        topic, topics = self.topics.get(stream, ""), [one.topic for one in self.config.streams]
        lists = self.lists.contents(cut.clock_ms)
        return CutContext(cut.shard, cut.key_space, topic, *times, lists, topics if is_union(stream) else ())

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

    def _run_until_valid(
        self, group: RuleGroup, action: Callable[[], tuple[list[RuleFiring], list[RuleFailure]]]
    ) -> tuple[list[RuleFiring], list[Record]]:
        """Repeat the action until no rule fails; return its firings and the statuses of the failed rules.

        Each failed rule goes into quarantine, so the loop ends.
        """
        records: list[Record] = []
        while True:
            firings, failures = action()
            if not failures:
                return firings, records
            for failure in failures:
                records += self._quarantine(failure.rule, failure.reason)
            if group not in self.groups.values():
                return [], records

    def _enforce_budgets(self, watermark_ms: int) -> list[Record]:
        """Put rules into quarantine until all state is within its budgets; return the statuses."""
        records: list[Record] = []
        while over := over_budget(self.groups, self.dispatcher.suppression, self.config.budgets, watermark_ms):
            versions = {version_key(c.rule): c for c in self.rules.with_state()}
            for version, budget, reason in over:
                self.dispatcher.count(f"{BUDGET_REACHED}.{budget}")
                records += self._quarantine(versions[version], reason)
        return records

    def _quarantine(self, rule: CompiledRule, reason: str) -> list[Record]:
        """Put the rule into quarantine on this shard and drop its state.

        Return the status that reports it, and the control record that puts it into quarantine on all shards.
        """
        self.rules = self.rules.quarantine(rule, reason)
        self.dispatcher.suppression.release(rule.rule)
        self._store_rules()
        self._assign_groups({}, 0)
        kind, mode = StatusKind.QUARANTINED, rule.rule.mode_text
        subject, name = parse_key(rule.rule.id)
        status = RuleStatus(name, rule.rule.version, kind, reason, self.rules.epoch, 0, -1, subject, mode=mode)
        return [status_record(status), quarantine_record(rule.rule, reason)]


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
