"""What the keyed stages of a rules app have in common: the rule set, the lists and the streams, which control records
change, and the groups of rules with their state.

Every stage applies all control records of a cut to a set of its own, so that all have equal sets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import polars as pl

from rulecore.backfill import apply_backfill
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.control_keys import parse_key
from rulecore.documents.quarantine import quarantine_record
from rulecore.documents.rule import RuleKind
from rulecore.documents.slots import version_key
from rulecore.documents.status import IncompleteCounts, RuleStatus, StatusKind, Subject, as_reply, status_record
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.groups.base import BackfilledGroup, CutContext, GroupId, RuleGroup
from rulecore.groups.registry import make_group
from rulecore.key_columns import Key, KeyColumn
from rulecore.lists.list_columns import ListColumn
from rulecore.lists.routing import split_records
from rulecore.lists.store import ListStore, save
from rulecore.ruleset.ruleset import RuleSet
from rulecore.ruleset.stream_changes import StreamChanges, next_streams
from rulecore.settings import GroupSettings, RulesConfig
from rulecore.state_budgets import over_budget
from rulecore.state_size import StateHolder
from rulecore.streams import find_stream, is_union, stream_names
from rulecore.union_events import union_events
from streamcore.kernel import BUDGET_REACHED, STATE_BYTES, STATE_ENTRIES, ControlRecord, Cut, StreamKey
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import StreamSchema
from streamcore.schema.published_document import PublishedDocument
from streamcore.state import KeyValueTable, StateTable
from streamcore.state.scope import REPLICATED, TableScope, keyed_by
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.lanes import Record

_RULES = "rules"
_LISTS = "lists"
_STREAMS = "streams"
_GENERATION = "generation:"  # how often a group was deleted
_SET = "set"
_NO_ROUTE: Final = -1  # of a key by which no event is routed yet


class RuleStage(ABC):
    """The part of a ``Kernel`` of a rules app that does not depend on what its stage computes.

    ``metadata_table``: the name of the table with facts about its groups. ``first_route``: of the exchanges that bring
    its events.
    """

    metadata_table: str
    first_route: int = 0

    def __init__(self, config: RulesConfig) -> None:
        self.config = config
        self.schemas = {s.schema.name: s.schema for s in config.streams}
        self._schemas = dict(self.schemas)  # those and the unions of them that rules read
        self.topics = {s.schema.name: s.topic for s in config.streams}
        self._routes: dict[str, Sequence[Key]] = {s.schema.name: s.routes for s in config.streams}  # and of unions
        other_keys = config.is_alone or config.feature_stage
        self.limits = RuleLimits(rules=config.max_rules, matches=config.max_matches, other_keys=other_keys)
        self.rules = RuleSet.empty(self.schemas, self.limits)
        self.stored_rules = KeyValueTable()
        self.lists = ListStore.empty(config.lists)
        self.stored_lists = KeyValueTable()
        self.added_columns: dict[str, tuple[KeyColumn | ListColumn, ...]] = {}
        self.unions: list[str] = []  # of streams, that rules read
        self.streams = StreamChanges(config.sources, self.limits.record_bytes)
        self.published: Sequence[PublishedDocument] = ()  # in this cut
        self.group_metadata = KeyValueTable()
        self.groups: dict[GroupId, RuleGroup] = {}
        self.counted: Counter[str] = Counter()  # in this cut
        self.derived_from: bytes | None = None  # the stored header from which `rules` and `groups` were restored
        self._waits_for_times = False  # a restore has state begin, and only the next cut knows when

    # --- what a stage computes ----------------------------------------------------------------------------------

    @abstractmethod
    def _groups_of_rule(self, rule: CompiledRule) -> Iterable[tuple[GroupId, CompiledRule]]:
        """Yield the groups, of generation 0, that a rule is in here, and what each has of it."""

    @abstractmethod
    def _keys_of_rule(self, rule: CompiledRule) -> Iterable[Key]:
        """Return the keys by which the stage gets the events of a rule."""

    @abstractmethod
    def _holds(self, kind: str) -> bool:
        """Return whether the stage has groups of this kind (``GroupId.kind``)."""

    def _on_rules_changed(self, wanted: Mapping[GroupId, Sequence[CompiledRule]]) -> None:  # noqa: B027 - few need it
        """Do what else a change of the rules asks for. ``wanted``: the rules of each group."""

    def _on_quarantine(self, rule: CompiledRule) -> None:  # noqa: B027 - few need it
        """Drop the state of a rule outside of its groups."""

    def _other_state(self) -> Mapping[str, StateHolder]:
        """Return the state outside of groups that budgets count, by its name in counters."""
        return {}

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
            self.metadata_table: self.group_metadata,
            _LISTS: self.stored_lists,
            _STREAMS: self.streams.table,
        }

    def table(self, name: str) -> StateTable:
        """Return the table of that name; create its group if the name has one. Raise ``LookupError`` if another stage
        has it."""
        kernel_tables = self._kernel_tables()
        return kernel_tables[name] if name in kernel_tables else self._group(self._parse_group(name)).table(name)

    def _parse_group(self, name: str) -> GroupId:
        """Return the group of a table."""
        group = GroupId.parse(name.split(":")[1])
        if not self._holds(group.kind):
            raise KeyError(name)
        return group

    def scope(self, name: str) -> TableScope:
        """Return the scope of a table: of a group, the key by which its events are routed; of rules, all shards."""
        if name in self._kernel_tables():
            return REPLICATED
        group = self._parse_group(name)
        return keyed_by(self._schema(group.stream).routing_key(group.group_by))

    def on_state_loaded(self) -> None:
        """Restore the lists, the rules and the groups from the loaded tables."""
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
        before = dict(self.group_metadata)
        self._assign_groups({}, 0)
        self._forget_starts(before)

    def _forget_starts(self, before: Mapping[str, bytes]) -> None:
        """Undo what groups stored about state that begins with the restore: it is complete from the events of the next
        cut on. ``before``: what was stored, which a restart of the same app does not change."""
        for group in map(str, self.groups):
            if self.group_metadata.get(group) != before.get(group):
                self.group_metadata.put(group, before.get(group))
                self._waits_for_times = True

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
            self.groups[group] = make_group(group, self._schema(group.stream), self._group_settings())
        return self.groups[group]

    def _group_settings(self) -> GroupSettings:
        """Return the settings of the groups of this stage."""
        return self.config.groups

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
        self.added_columns = {name: self._find_columns(name) for name in (*self.schemas, *self.unions)}
        self._set_routes()
        wanted: dict[GroupId, list[CompiledRule]] = {}
        for rule in self.rules.with_state():
            for group, own in self._groups_of_rule(rule):
                wanted.setdefault(self._current_generation(group), []).append(own)
        for group in [g for g in self.groups if g not in wanted]:
            self._drop_group(group)
        for group, rules in wanted.items():
            self._group(group).set_rules(
                rules, self.group_metadata, self._latest_ms(latest_event_ms, group.stream), watermark_ms
            )
        self._on_rules_changed(wanted)

    def _find_columns(self, stream: str) -> tuple[KeyColumn | ListColumn, ...]:
        """Return the columns that the rules of a stream or union need here beside its fields."""
        return self.rules.added_columns(stream)

    def _set_routes(self) -> None:
        """Set the keys of the unions."""
        rules = self.rules.with_state()
        for name in self.unions:
            members = {*stream_names(name)}
            reading = [one for one in rules if {*stream_names(one.rule.on)} >= members]
            self._routes[name] = sorted({key for one in reading for key in self._keys_of_rule(one)})

    def _routed(self, name: str, key: Key) -> StreamKey:
        """Return the exchange that brings the events of a stream or union by a key."""
        if self.config.is_alone:
            return StreamKey(name, 0)
        keys = self._routes[name]
        return StreamKey(name, self.first_route + keys.index(key) if key in keys else _NO_ROUTE)

    def _known_routes(self) -> Mapping[str, Sequence[Key]] | None:
        """Return the keys by which the events of each stream are routed; None for any."""
        return None if self.config.is_alone else {name: self._routes[name] for name in self.schemas}

    def _find_new_keys(self, rules: RuleSet) -> Sequence[PublishedDocument]:
        """Return the further keys of the streams of which rules need a key by which events are not routed yet, without
        those that no rule needs any more."""
        found, reads = [], rules.find_reads()
        for name in sorted(self.schemas) if not self.config.is_alone else ():
            needed = reads.keys[name] | (reads.feature_keys[name] if self.config.feature_stage else frozenset())
            routes, declared = self._routes[name], self.schemas[name].keys
            if new := sorted(needed.difference(routes)):
                kept = [key for key in routes if key in needed and key not in declared]
                found.append(PublishedDocument.of_keys(name, [*kept, *new]))
        return found

    @staticmethod
    def _latest_ms(by_stream: Mapping[str, int], name: str) -> int:
        """Return the latest event time of a stream, or of the streams of a union."""
        return max(by_stream.get(member, NO_WATERMARK) for member in stream_names(name))

    def _schema(self, name: str) -> StreamSchema:
        """Return the schema of a stream, or of a union of streams that a rule reads."""
        if name not in self._schemas:
            self._schemas[name] = find_stream(self.schemas, name)
        return self._schemas[name]

    def _apply_control(self, cut: Cut) -> list[Record]:
        """Apply the control records and the clock to lists, rules and streams; return the statuses, in shard 0 only."""
        if self._waits_for_times:
            self._waits_for_times = False
            self._assign_groups(cut.latest_event_ms, cut.watermark_ms)
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
                self._on_quarantine(compiled)
        if self.rules.epoch != before.epoch or newly_quarantined:
            self._assign_groups(cut.latest_event_ms, cut.watermark_ms)
        self._apply_backfills(cut)
        statuses += [self._with_incomplete_counts(status, known_columns, cut) for status in rule_statuses]
        return statuses + self._change_lists(deletions)

    def _apply_backfills(self, cut: Cut) -> None:
        """Add the backfills of the last change to the aggregates of their rules."""
        backfills, self.rules = self.rules.backfills, replace(self.rules, backfills=())
        for backfill in backfills:
            context = self._cut_context(cut, backfill.rule.rule.on)
            for key, group in self._backfilled_groups(backfill.rule):
                apply_backfill(backfill, group, key, context, self.group_metadata)

    def _backfilled_groups(self, rule: CompiledRule) -> Iterator[tuple[Key, BackfilledGroup]]:
        """Yield the groups of time windows or features that a rule is in here, each with the key of its events."""
        for group_id, _ in self._groups_of_rule(rule):
            group: object = self.groups.get(self._current_generation(group_id))
            if isinstance(group, BackfilledGroup):
                yield self._schema(group_id.stream).routing_key(group_id.group_by), group

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
        since_ms = self._starts(versions[0], known_columns) if versions else {}
        new = {name: ms for name, ms in since_ms.items() if ms > NO_WATERMARK}
        if not new:
            return status
        return replace(status, incomplete=IncompleteCounts(new, self._start_offsets(cut, versions[0].rule.on)))

    def _starts(self, rule: CompiledRule, known_columns: frozenset[str]) -> Mapping[str, int]:
        """Return the event time from which each aggregate or feature of a rule counts that starts in this cut."""
        groups = self._backfilled_groups(rule)
        since_ms = {name: ms for _, group in groups for name, ms in group.since_by_column(rule).items()}
        return {name: ms for name, ms in since_ms.items() if name not in known_columns}

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

    # --- helpers ---

    def _union_events(self, events: Mapping[StreamKey, pl.DataFrame]) -> Iterator[tuple[StreamKey, pl.DataFrame]]:
        """Yield the events of each union of streams for each of its keys."""
        for name in self.unions:
            union = self._schema(name)
            for key in self._routes[name]:
                routed = {member: self._routed(member, key) for member in stream_names(name)}
                frames = {member: events[one] for member, one in routed.items() if one in events}
                if (frame := union_events(union, self.schemas, frames)) is not None:
                    yield self._routed(name, key), frame

    def _cut_context(self, cut: Cut, stream: str) -> CutContext:
        """Return the context of a cut for the groups of a stream."""
        times = (cut.clock_ms, cut.watermark_ms, cut.next_watermark_ms)
        topic, topics = self.topics.get(stream, ""), [one.topic for one in self.config.streams]
        lists = self.lists.contents(cut.clock_ms)
        return CutContext(cut.shard, cut.key_space, topic, *times, lists, topics if is_union(stream) else ())

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

    def _take_counters(self) -> Counter[str]:
        """Return the counters of this cut and the sizes of the state, and forget the counters."""
        counted, self.counted = self.counted, Counter()
        sizes = [(group_id.kind, group.state_size()) for group_id, group in self.groups.items()]
        sizes += [(kind, holder.state_size()) for kind, holder in self._other_state().items()]
        for kind, size in sizes:
            counted.update({f"{STATE_ENTRIES}.{kind}": size.entries, f"{STATE_BYTES}.{kind}": size.bytes})
        for group_id, group in self.groups.items():
            counted.update({f"{group_id.kind}.{name}": number for name, number in group.metrics().items()})
        return counted

    def _enforce_budgets(self, watermark_ms: int) -> list[Record]:
        """Put rules into quarantine until all state is within its budgets; return the statuses."""
        records: list[Record] = []
        while over := over_budget(self.groups, [*self._other_state().values()], self.config.budgets, watermark_ms):
            versions = {version_key(c.rule): c for c in self.rules.with_state()}
            for version, budget, reason in over:
                self.counted[f"{BUDGET_REACHED}.{budget}"] += 1
                records += self._quarantine(versions[version], reason)
        return records

    def _quarantine(self, rule: CompiledRule, reason: str) -> list[Record]:
        """Put the rule into quarantine on this shard and drop its state.

        Return the status that reports it, and the control record that puts it into quarantine on all shards.
        """
        self._drop_rule(rule, reason)
        kind, mode = StatusKind.QUARANTINED, rule.rule.mode_text
        subject, name = parse_key(rule.rule.id)
        status = RuleStatus(name, rule.rule.version, kind, reason, self.rules.epoch, 0, -1, subject, mode=mode)
        return [status_record(status), quarantine_record(rule.rule, reason)]

    def _drop_rule(self, rule: CompiledRule, reason: str) -> None:
        """Put the rule into quarantine on this shard and drop its state."""
        self.rules = self.rules.quarantine(rule, reason)
        self._on_quarantine(rule)
        self._store_rules()
        self._assign_groups({}, 0)
