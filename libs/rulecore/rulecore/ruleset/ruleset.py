"""All rules at one epoch, as a value: control records and time make a new one out of an old one.

Promises: ``apply`` is a pure function of the set, the records and the clock, never raises, whatever the bytes, and
returns a status for each record; a rejected version leaves the previous one live, a release takes effect whole or not
at all. Equal sets behave alike, and a set restored from ``records`` equals the one that gave them. Only the part that
one record changes is compiled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import orjson

from rulecore.backfill import BackfillRows
from rulecore.compile.cache import CompileContext, compile_version
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.rule import RuleKind, RuleMode
from rulecore.documents.slots import EVALUATED, Slot, VersionSlot, version_key
from rulecore.documents.status import REASON_CHARACTERS, RuleStatus
from rulecore.errors import RuleError
from rulecore.language import ListType
from rulecore.lists.list_columns import ListColumn, distinct
from rulecore.matching.matcher import EventMatcher
from rulecore.ruleset.apply import RuleSetUpdate, error_text
from rulecore.ruleset.versions import VersionTable
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema

_SET: Final = "set"
_RULE, _STAGED = "rule:", "staged:"
_NEVER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RuleSet:
    """``epoch`` counts the calls that changed which rules count, ``revision`` those that changed anything.

    ``stored`` holds the canonical JSON of every version in a slot; ``rules`` those of them that compile (all, unless a
    stream's schema or a limit changed between two starts: the others are in quarantine and wait for a new version).
    ``quarantined`` gives the reason by version, ``expired`` names versions whose time is over, ``staged`` holds parts
    of releases that have not come yet, by digest. ``backfills`` came with the last change.
    """

    streams: Mapping[str, StreamSchema]
    limits: RuleLimits
    epoch: int = 0
    revision: int = 0
    stored: Mapping[VersionSlot, bytes] = field(default_factory=lambda: MappingProxyType({}))
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    expired: frozenset[str] = frozenset()
    staged: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    rules: Mapping[VersionSlot, CompiledRule] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False
    )
    lists: Mapping[str, ListType] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    backfills: tuple[BackfillRows, ...] = field(default=(), compare=False, repr=False)
    _matchers: dict[tuple[str, int], EventMatcher[CompiledRule]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _boundary_cache: list[int] = field(default_factory=list, compare=False, repr=False)
    _with_state_cache: list[tuple[CompiledRule, ...]] = field(default_factory=list, compare=False, repr=False)

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
    ) -> RuleSet:
        """Return the set that gave these ``records()``; its rules may use these lists."""
        context = CompileContext.of(streams, limits, lists or {})
        values = dict(records)
        header = orjson.loads(values.pop(_SET, b'{"epoch":0,"revision":0,"quarantined":{},"expired":[]}'))
        stored = {VersionSlot.parse(k.removeprefix(_RULE)): v for k, v in values.items() if k.startswith(_RULE)}
        staged = {k.removeprefix(_STAGED): v for k, v in values.items() if k.startswith(_STAGED)}
        reasons: dict[str, str] = dict(header["quarantined"])
        rules: dict[VersionSlot, CompiledRule] = {}
        for position, value in stored.items():
            try:
                rules[position] = compile_version(value, context)
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
            expired=frozenset(header["expired"]),
            staged=MappingProxyType(staged),
            rules=MappingProxyType(rules),
            lists=MappingProxyType(dict(lists or {})),
        )

    def with_lists(self, lists: Mapping[str, ListType]) -> RuleSet:
        """Return the set whose next rules may use these lists. No rule is compiled again: lists keep their types."""
        return self if lists == self.lists else replace(self, lists=MappingProxyType(dict(lists)))

    def rules_using_list(self, name: str) -> tuple[str, ...]:
        """Return the ids of the rules that use the list of that name, in any version."""
        return tuple(sorted({position.rule for position, rule in self.rules.items() if name in rule.lists}))

    def list_columns(self, stream: str) -> tuple[ListColumn, ...]:
        """Return the list columns that the evaluated and paused rules of a stream need."""
        asking = [rule for rule in self.with_state() if rule.list_columns and rule.rule.on == stream]
        return distinct(column for rule in asking for column in rule.list_columns)

    def records(self) -> tuple[tuple[str, bytes], ...]:
        """Return everything that ``restore`` needs, as pairs of a name and bytes, by name."""
        header = {
            "epoch": self.epoch,
            "revision": self.revision,
            "quarantined": dict(self.quarantined),
            "expired": sorted(self.expired),
        }
        pairs = [(f"{_RULE}{position}", value) for position, value in self.stored.items()]
        pairs += [(f"{_STAGED}{digest}", value) for digest, value in self.staged.items()]
        return (*sorted(pairs), (_SET, orjson.dumps(header, option=orjson.OPT_SORT_KEYS)))

    # --- change -------------------------------------------------------------------------------------------------

    def apply(self, records: Sequence[ControlRecord], clock_ms: int) -> tuple[RuleSet, tuple[RuleStatus, ...]]:
        """Return the set after these records, in their order, at this time, and the status of each.

        The last result is kept: all shards of a worker apply the same records to equal sets in each cut, and then share
        the next set with its caches.
        """
        arguments = (self, self.lists, tuple(records), clock_ms)
        if not _LAST or _LAST[0][0] != arguments:
            change = self._update(clock_ms)
            answers = [answer for record in records for answer in change.record(record)]
            _LAST.append((arguments, self._result(change, [*answers, *change.versions.advance_time()])))
        return _LAST[0][1]

    def _update(self, clock_ms: int) -> RuleSetUpdate:
        """Return an update that begins with copies of the tables of this set."""
        context = CompileContext.of(self.streams, self.limits, self.lists)
        versions = VersionTable.copy_from(context, clock_ms, self.stored, self.rules, self.quarantined, self.expired)
        return RuleSetUpdate(versions, dict(self.staged))

    def at_time(self, clock_ms: int) -> tuple[RuleSet, tuple[RuleStatus, ...]]:
        """Return the set at this time: versions whose time has come or is over change slots."""
        return self.apply((), clock_ms) if clock_ms >= self.boundary_ms() else (self, ())

    def boundary_ms(self) -> int:
        """Return the next time at which the clock alone changes the set, epoch milliseconds."""
        if not self._boundary_cache:
            self._boundary_cache.append(
                min((at for p, c in self.rules.items() for at in self._times(p, c)), default=_NEVER)
            )
        return self._boundary_cache[0]

    def _times(self, position: VersionSlot, rule: CompiledRule) -> Iterable[int]:
        effective = rule.rule.effective
        if effective is None:
            return
        if position.slot is Slot.SCHEDULED and effective.start is not None:
            yield effective.start
        elif (
            position.slot is not Slot.DRAFT and effective.end is not None and version_key(rule.rule) not in self.expired
        ):
            yield effective.end

    def _result(self, change: RuleSetUpdate, answers: Sequence[RuleStatus]) -> tuple[RuleSet, tuple[RuleStatus, ...]]:
        after = self if not change.touched else self._changed_set(change)
        return after, tuple(replace(answer, rules_epoch=after.epoch) for answer in answers)

    def _changed_set(self, change: RuleSetUpdate) -> RuleSet:
        return replace(
            self,
            epoch=self.epoch + change.versions.changed,
            revision=self.revision + 1,
            stored=MappingProxyType(change.versions.stored),
            quarantined=MappingProxyType(change.versions.quarantined),
            expired=frozenset(change.versions.expired),
            staged=MappingProxyType(change.staged),
            rules=MappingProxyType(change.versions.rules),
            backfills=tuple(change.backfills),
            _matchers={key: m for key, m in self._matchers.items() if key[0] not in change.versions.streams},
            _boundary_cache=[],
            _with_state_cache=[],
        )

    def quarantine(self, rule: CompiledRule, reason: str) -> RuleSet:
        """Return the set without this version being evaluated. The epoch stays: no version changed.

        A version that is not there, or is in quarantine already, changes nothing.
        """
        name = version_key(rule.rule)
        if name in self.quarantined or all(c.rule != rule.rule for c in self.rules.values()):
            return self
        reasons = MappingProxyType({**self.quarantined, name: reason[:REASON_CHARACTERS]})
        kept = {key: m for key, m in self._matchers.items() if key[0] != rule.rule.on}
        return replace(self, quarantined=reasons, _matchers=kept, _with_state_cache=[])

    # --- questions ----------------------------------------------------------------------------------------------

    def live(self, rule_id: str) -> CompiledRule | None:
        """Return the version in the live slot."""
        return self.rules.get(VersionSlot(rule_id, Slot.LIVE))

    def candidate(self, rule_id: str) -> CompiledRule | None:
        """Return the version on trial beside the live one."""
        return self.rules.get(VersionSlot(rule_id, Slot.CANDIDATE))

    def evaluated_rules(self) -> tuple[CompiledRule, ...]:
        """Return the versions that are evaluated.

        In a mode for it, within their time, not in quarantine; by id and slot.
        """
        return tuple(c for c in self.with_state() if c.rule.status in EVALUATED)

    def with_state(self) -> tuple[CompiledRule, ...]:
        """Return the versions whose state is kept: those that are evaluated, and paused ones; by id and slot."""
        if not self._with_state_cache:
            self._with_state_cache.append(self._find_with_state())
        return self._with_state_cache[0]

    def _find_with_state(self) -> tuple[CompiledRule, ...]:
        modes = EVALUATED | {RuleMode.PAUSED}
        slots = (Slot.LIVE, Slot.CANDIDATE)
        return tuple(
            c
            for position, c in sorted(self.rules.items(), key=lambda pair: pair[0])
            if position.slot in slots and c.rule.status in modes and self._is_active(c)
        )

    def _is_active(self, rule: CompiledRule) -> bool:
        name = version_key(rule.rule)
        return name not in self.quarantined and name not in self.expired

    def on_trial(self) -> tuple[CompiledRule, ...]:
        """Return the candidates that are evaluated beside a live version."""
        return tuple(
            c for p, c in self.rules.items() if p.slot is Slot.CANDIDATE and c in self.evaluated_versions(p.rule)
        )

    def evaluated_versions(self, rule_id: str) -> tuple[CompiledRule, ...]:
        """Return the versions of a rule that are evaluated."""
        both = (self.live(rule_id), self.candidate(rule_id))
        return tuple(c for c in both if c is not None and c.rule.status in EVALUATED and self._is_active(c))

    def matcher(self, stream: str, route: int) -> EventMatcher[CompiledRule]:
        """Return the matcher of the evaluated rules per event of a stream and route, by id.

        Built on first use and kept.
        """
        if (stream, route) not in self._matchers:
            event_rules = [c for c in self.evaluated_rules() if c.kind is RuleKind.EVENT]
            matching = [c for c in event_rules if c.rule.on == stream and c.route == route]
            self._matchers[stream, route] = EventMatcher(matching)
        return self._matchers[stream, route]


#: Arguments and result of the last ``RuleSet.apply`` of the process. ``lists`` are apart: sets are compared without.
_Arguments = tuple[RuleSet, Mapping[str, ListType], tuple[ControlRecord, ...], int]
_LAST: deque[tuple[_Arguments, tuple[RuleSet, tuple[RuleStatus, ...]]]] = deque(maxlen=1)
