"""The rule set: all versions of all rules, immutable; control records and the passing of time create the next set.

``RuleSet.apply`` is a pure function of the set, the records and the clock. It raises for no record, whatever its bytes,
and returns a status for each. If a version is rejected, the previous version stays live. A release takes effect as a
whole or not at all. A set restored from ``records()`` equals the original. ``apply`` compiles only the changed rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from rulecore.backfill import BackfillRows
from rulecore.compile.cache import CompileContext, compile_version
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.rule import RuleKind, RuleMode
from rulecore.documents.slots import EVALUATED, Slot, VersionSlot, version_key
from rulecore.documents.status import REASON_CHARACTERS, RuleStatus
from rulecore.errors import RuleError, RuleSetError
from rulecore.governance.documents import ProposalDocument
from rulecore.governance.state import Governance
from rulecore.governance.table import ApprovalNeed, GovernanceTable
from rulecore.key_columns import Key, KeyColumn
from rulecore.language import ListType
from rulecore.lists.list_columns import ListColumn, distinct
from rulecore.matching.matcher import EventMatcher
from rulecore.ruleset.apply import RuleSetUpdate
from rulecore.ruleset.approvals import error_text
from rulecore.ruleset.decision_policies import NO_POLICIES, STORED_POLICY, CompiledPolicies, PolicyTable
from rulecore.ruleset.published_features import STORED_FEATURE, PublishedFeatures
from rulecore.ruleset.replay import LogReplay
from rulecore.ruleset.versions import VersionTable
from rulecore.streams import stream_names
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema

_SET: Final = "set"
_RULE, _STAGED = "rule:", "staged:"
_NEVER: Final = 2**63 - 1


class RuleReads(NamedTuple):
    """What rules need of the events of each stream: fields, the keys by which they are routed to rules, and those by
    which they are routed to features of other keys."""

    fields: Mapping[str, frozenset[str]]
    keys: Mapping[str, frozenset[Key]]
    feature_keys: Mapping[str, frozenset[Key]]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All versions of the rules in their slots. Immutable, except for caches.

    ``epoch`` counts the changes of live and candidate versions, of features and of decision policies; ``revision``
    counts all changes. ``stored``: the canonical JSON of every version in a slot. ``rules``: the compiled versions; if
    a stream's schema or a limit changed between two starts, a stored version may no longer compile, and is in
    quarantine until a new version comes.
    ``quarantined``: the reason, by ``id@version``. ``unconfirmed``: those of them of which no control record was read
    yet: other shards evaluate them. ``expired``: the ``id@version`` of versions past their ``effective`` end.
    ``staged``: the parts of releases and backfills that are not yet published, by digest. ``lists``: the types of the
    lists that rules may use. ``backfills``: the backfills of the last change. ``governance``: who has to agree.
    ``policies``: how the rules that fire at one event become a decision. ``features``: those that are published.
    """

    streams: Mapping[str, StreamSchema]
    limits: RuleLimits
    epoch: int = 0
    revision: int = 0
    stored: Mapping[VersionSlot, bytes] = field(default_factory=lambda: MappingProxyType({}))
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unconfirmed: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()
    staged: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    governance: Governance = field(default_factory=Governance)
    policies: CompiledPolicies = NO_POLICIES
    features: PublishedFeatures = field(default_factory=PublishedFeatures)
    rules: Mapping[VersionSlot, CompiledRule] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    lists: Mapping[str, ListType] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    backfills: tuple[BackfillRows, ...] = field(default=(), compare=False, repr=False)
    _matchers: dict[tuple[str, Key], EventMatcher[CompiledRule]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _boundary_cache: list[int] = field(default_factory=list, compare=False, repr=False)
    _with_state_cache: list[tuple[CompiledRule, ...]] = field(default_factory=list, compare=False, repr=False)
    _reads_cache: list[RuleReads] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def empty(cls, streams: Mapping[str, StreamSchema], limits: RuleLimits | None = None) -> RuleSet:
        """Return a set without rules, at epoch 0."""
        return cls(MappingProxyType(dict(streams)), limits or RuleLimits())

    @classmethod
    def restore(
        cls,
        streams: Mapping[str, StreamSchema],
        limits: RuleLimits,
        records: Iterable[tuple[str, bytes]],
        lists: Mapping[str, ListType] | None = None,
        routes: Mapping[str, Sequence[Key]] | None = None,
    ) -> RuleSet:
        """Return the set whose ``records()`` these are. ``lists``: the types of the lists that its rules may use.
        ``routes``: the keys by which the events of each stream are routed; None for any."""
        values = dict(records)
        published = {k.removeprefix(STORED_FEATURE): v for k, v in values.items() if k.startswith(STORED_FEATURE)}
        context = CompileContext.of(streams, limits, lists or {}, {})
        features = PublishedFeatures.restore(published, context, lambda rule: _check_routed(rule, routes))
        context = context.with_features(features.documents)
        header = orjson.loads(values.pop(_SET, b'{"epoch":0,"revision":0,"quarantined":{},"expired":[]}'))
        stored = {VersionSlot.parse(k.removeprefix(_RULE)): v for k, v in values.items() if k.startswith(_RULE)}
        staged = {k.removeprefix(_STAGED): v for k, v in values.items() if k.startswith(_STAGED)}
        policies = {k.removeprefix(STORED_POLICY): v for k, v in values.items() if k.startswith(STORED_POLICY)}
        reasons: dict[str, str] = dict(header["quarantined"])
        rules: dict[VersionSlot, CompiledRule] = {}
        for position, value in stored.items():
            try:
                compiled = compile_version(value, context)
                _check_routed(compiled, routes)
                rules[position] = compiled
            except RuleError as error:
                document = orjson.loads(value)
                reasons.setdefault(f"{position.rule}@{document['version']}", f"no longer compiles: {error_text(error)}")
        return cls(
            streams=MappingProxyType(dict(streams)),
            limits=limits,
            epoch=header["epoch"],
            revision=header["revision"],
            stored=MappingProxyType(stored),
            quarantined=MappingProxyType(reasons),
            unconfirmed=frozenset(header.get("unconfirmed", ())),
            expired=frozenset(header["expired"]),
            staged=MappingProxyType(staged),
            governance=Governance.restore(values),
            policies=CompiledPolicies.compile(policies, streams, limits),
            features=features,
            rules=MappingProxyType(rules),
            lists=MappingProxyType(dict(lists or {})),
        )

    def with_lists(self, lists: Mapping[str, ListType]) -> RuleSet:
        """Return the set with these lists for later rules. No rule is compiled again: a used list keeps its type."""
        return self if lists == self.lists else replace(self, lists=MappingProxyType(dict(lists)))

    def rules_using_list(self, name: str) -> tuple[str, ...]:
        """Return the ids of the rules that use the list of that name in any version, and of features with their key."""
        using = {position.rule for position, rule in self.rules.items() if name in rule.lists}
        return tuple(sorted({*using, *(one.rule.id for one in self.features.keepers.values() if name in one.lists)}))

    def added_columns(self, stream: str) -> tuple[KeyColumn | ListColumn, ...]:
        """Return the columns that the evaluated and paused rules of a stream need beside its fields."""
        needing = [rule for rule in self.with_state() if rule.columns and rule.rule.on == stream]
        return distinct(column for rule in needing for column in rule.columns)

    def find_reads(self) -> RuleReads:
        """Return what the rules need of the events until the next control record."""
        if not self._reads_cache:
            self._reads_cache.append(self._find_reads())
        return self._reads_cache[0]

    def _find_reads(self) -> RuleReads:
        """Compute ``find_reads``."""
        fields: dict[str, set[str]] = {name: set() for name in self.streams}
        keys: dict[str, set[Key]] = {name: set() for name in self.streams}
        feature_keys: dict[str, set[Key]] = {name: set() for name in self.streams}
        in_slots = [rule for position, rule in self.rules.items() if position.slot is not Slot.DRAFT]
        for rule in (*in_slots, *self.features.keepers.values()):
            for name in stream_names(rule.rule.on):
                fields[name] |= rule.reads
                keys[name].add(rule.route_key)
                feature_keys[name] |= {one.route_key for one in rule.stage_features}
        for name, policy in self.policies.by_stream.items():
            fields[name] |= policy.reads[name]
            if policy.chooses(name):
                keys[name].add(self.streams[name].keys[0])
        return RuleReads(
            {name: frozenset(self.streams[name].names) & read for name, read in fields.items()},
            {name: frozenset(found) for name, found in keys.items()},
            {name: frozenset(found) for name, found in feature_keys.items()},
        )

    def records(self) -> tuple[tuple[str, bytes], ...]:
        """Return the input of ``restore``: names and values, sorted by name, the header last."""
        header = {
            "epoch": self.epoch,
            "revision": self.revision,
            "quarantined": dict(self.quarantined),
            "expired": sorted(self.expired),
        }
        if self.unconfirmed:
            header["unconfirmed"] = sorted(self.unconfirmed)
        pairs = [(f"{_RULE}{position}", value) for position, value in self.stored.items()]
        pairs += [(f"{_STAGED}{digest}", value) for digest, value in self.staged.items()]
        pairs += [(f"{STORED_POLICY}{name}", value) for name, value in self.policies.stored.items()]
        pairs += [(f"{STORED_FEATURE}{name}", value) for name, value in self.features.stored.items()]
        pairs += self.governance.records()
        return (*sorted(pairs), (_SET, orjson.dumps(header, option=orjson.OPT_SORT_KEYS)))

    # --- change -------------------------------------------------------------------------------------------------

    def apply(self, records: Sequence[ControlRecord], clock_ms: int) -> tuple[RuleSet, tuple[RuleStatus, ...]]:
        """Apply the records in their order, then the time; return the next set and the statuses of all changes.

        The last result is cached: in each cut all shards of a worker apply equal records to equal sets, and thus share
        the next set and its caches.
        """
        arguments = (self, self.lists, tuple(records), clock_ms)
        last = _LAST[0] if _LAST else None  # read once: a console applies records in several threads
        if last is None or last[0] != arguments:
            update = self._start_update(clock_ms)
            statuses = [status for record in records for status in update.apply_record(record)]
            statuses += [*update.end_emergencies(), *update.versions.advance_time()]
            last = (arguments, self._result(update, statuses))
            _LAST.append(last)
        return last[1]

    def _start_update(self, clock_ms: int) -> RuleSetUpdate:
        """Return an update that starts from copies of this set's tables."""
        context = CompileContext.of(self.streams, self.limits, self.lists, self.features.documents)
        versions = VersionTable.copy_from(
            context, clock_ms, self.stored, self.rules, self.quarantined, self.expired, self.features
        )
        versions.unconfirmed.update(self.unconfirmed)
        governance = GovernanceTable.copy_from(self.governance, clock_ms)
        policies = PolicyTable(self.policies, self.streams, self.limits)
        return RuleSetUpdate(versions, dict(self.staged), governance, policies)

    def start_replay(self) -> LogReplay:
        """Return a replay, which applies a log record by record to one copy of this set's tables."""
        return LogReplay(self._start_update(0), self.epoch, self.revision, self.backfills)

    def after_replay(self, replay: LogReplay) -> RuleSet:
        """Return the set after a replay that has started from this one. The replay ends: its tables are the set's."""
        if not replay.changed:
            return self
        update = replay.update
        update.versions.streams.update(replay.streams)
        update.backfills[:] = replay.backfills
        update.governance.touched = replay.governed
        return replace(self._updated_set(update), epoch=replay.epoch, revision=replay.revision)

    def at_time(self, clock_ms: int) -> tuple[RuleSet, tuple[RuleStatus, ...]]:
        """Return the set at this time, and the statuses of the versions that became effective or expired."""
        return self.apply((), clock_ms) if clock_ms >= self.boundary_ms() else (self, ())

    def boundary_ms(self) -> int:
        """Return the next time at which a version becomes effective or expires, or an emergency ends, in epoch
        milliseconds."""
        if not self._boundary_cache:
            times = (ms for p, c in self.rules.items() for ms in self._effective_times(p, c))
            self._boundary_cache.append(min(self.governance.next_end_ms(), min(times, default=_NEVER)))
        return self._boundary_cache[0]

    def _effective_times(self, position: VersionSlot, rule: CompiledRule) -> Iterable[int]:
        """Yield the start or end of ``effective`` at which the version in this slot changes."""
        effective = rule.rule.effective
        if effective is None:
            return
        if position.slot is Slot.SCHEDULED and effective.start is not None:
            yield effective.start
        elif (
            position.slot is not Slot.DRAFT and effective.end is not None and version_key(rule.rule) not in self.expired
        ):
            yield effective.end

    def _result(self, update: RuleSetUpdate, statuses: Sequence[RuleStatus]) -> tuple[RuleSet, tuple[RuleStatus, ...]]:
        """Return the set after the update, and the statuses with its epoch."""
        after = self if not update.touched else self._updated_set(update)
        return after, tuple(replace(status, rules_epoch=after.epoch) for status in statuses)

    def _updated_set(self, update: RuleSetUpdate) -> RuleSet:
        """Return the set with the tables of the update."""
        return replace(
            self,
            epoch=self.epoch + update.changed,
            revision=self.revision + 1,
            stored=MappingProxyType(update.versions.stored),
            quarantined=MappingProxyType(update.versions.quarantined),
            unconfirmed=frozenset(update.versions.unconfirmed & update.versions.quarantined.keys()),
            expired=frozenset(update.versions.expired),
            staged=MappingProxyType(update.staged),
            governance=update.governance.state() if update.governance.touched else self.governance,
            policies=update.policies.policies,
            features=update.versions.features,
            rules=MappingProxyType(update.versions.rules),
            backfills=tuple(update.backfills),
            _matchers={key: m for key, m in self._matchers.items() if key[0] not in update.versions.streams},
            _boundary_cache=[],
            _with_state_cache=[],
            _reads_cache=[],
        )

    def quarantine(self, rule: CompiledRule, reason: str) -> RuleSet:
        """Return the set with this version in quarantine, where it is not evaluated. The epoch does not change.

        Until the control record comes that all shards read, a later version takes the slot that it takes on the shards
        where nothing has failed. Return this set if it does not hold the version, or if the version is in quarantine
        already.
        """
        name = version_key(rule.rule)
        held = (*self.rules.values(), *self.features.keepers.values())
        if name in self.quarantined or all(c.rule != rule.rule for c in held):
            return self
        reasons = MappingProxyType({**self.quarantined, name: reason[:REASON_CHARACTERS]})
        kept = {key: m for key, m in self._matchers.items() if key[0] != rule.rule.on}
        unconfirmed = self.unconfirmed | {name}
        return replace(self, quarantined=reasons, unconfirmed=unconfirmed, _matchers=kept, _with_state_cache=[])

    def compute_need(self, proposal: ProposalDocument) -> ApprovalNeed:
        """Return the present requirements of all changes of a proposal together."""
        return self._start_update(0).compute_need(proposal)

    # --- questions ----------------------------------------------------------------------------------------------

    def live(self, rule_id: str) -> CompiledRule | None:
        """Return the version in the live slot."""
        return self.rules.get(VersionSlot(rule_id, Slot.LIVE))

    def candidate(self, rule_id: str) -> CompiledRule | None:
        """Return the version on trial (shadow or canary)."""
        return self.rules.get(VersionSlot(rule_id, Slot.CANDIDATE))

    def evaluated_rules(self) -> tuple[CompiledRule, ...]:
        """Return the versions that are evaluated, by id and slot: not paused, expired or in quarantine."""
        return tuple(c for c in self.with_state() if c.rule.status in EVALUATED)

    def with_state(self) -> tuple[CompiledRule, ...]:
        """Return the versions whose state is kept, by id and slot: evaluated ones, paused ones, and those that keep
        published features."""
        if not self._with_state_cache:
            self._with_state_cache.append(self._find_with_state())
        return self._with_state_cache[0]

    def _find_with_state(self) -> tuple[CompiledRule, ...]:
        """Compute ``with_state``."""
        modes = EVALUATED | {RuleMode.PAUSED}
        slots = (Slot.LIVE, Slot.CANDIDATE)
        held = (
            c
            for position, c in sorted(self.rules.items(), key=lambda pair: pair[0])
            if position.slot in slots and c.rule.status in modes and self._is_active(c)
        )
        return (*held, *(c for _, c in sorted(self.features.keepers.items()) if self._is_active(c)))

    def _is_active(self, rule: CompiledRule) -> bool:
        """Return whether the version is neither in quarantine nor expired."""
        name = version_key(rule.rule)
        return name not in self.quarantined and name not in self.expired

    def on_trial(self) -> tuple[CompiledRule, ...]:
        """Return the candidates that are evaluated."""
        return tuple(
            c for p, c in self.rules.items() if p.slot is Slot.CANDIDATE and c in self.evaluated_versions(p.rule)
        )

    def evaluated_versions(self, rule_id: str) -> tuple[CompiledRule, ...]:
        """Return the evaluated versions of a rule: at most the live one and the candidate."""
        both = (self.live(rule_id), self.candidate(rule_id))
        return tuple(c for c in both if c is not None and c.rule.status in EVALUATED and self._is_active(c))

    def matcher(self, stream: str, key: Key) -> EventMatcher[CompiledRule]:
        """Return the matcher of the evaluated event rules of a stream that one key routes; it is built once and
        cached."""
        if (stream, key) not in self._matchers:
            event_rules = [c for c in self.evaluated_rules() if c.kind is RuleKind.EVENT]
            matching = [c for c in event_rules if c.rule.on == stream and c.route_key == key]
            self._matchers[stream, key] = EventMatcher(matching)
        return self._matchers[stream, key]


def _check_routed(rule: CompiledRule, routes: Mapping[str, Sequence[Key]] | None) -> None:
    """Raise ``RuleSetError`` if the key of a rule is none of its streams any more."""
    for name in () if routes is None else stream_names(rule.rule.on):
        if missing := sorted({rule.route_key, *rule.other_keys}.difference((routes or {})[name])):
            raise RuleSetError(
                f"[{', '.join(missing[0])}] is no key of {name} any more; publish a new version, which begins "
                "anew, or start with the key in the stream file"
            )


#: The arguments and result of the last ``RuleSet.apply`` of the process. ``lists`` are a separate argument because sets
#: are compared without them.
_Arguments = tuple[RuleSet, Mapping[str, ListType], tuple[ControlRecord, ...], int]
_LAST: deque[tuple[_Arguments, tuple[RuleSet, tuple[RuleStatus, ...]]]] = deque(maxlen=1)
