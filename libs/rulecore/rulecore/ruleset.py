"""All rules at one epoch, as a value: control records and time make a new one out of an old one.

Promises: ``apply`` is a pure function of the set, the records and the clock, never raises, whatever the bytes, and
answers each record; a rejected version leaves the previous one live, a release takes effect whole or not at all. Equal
sets behave alike, and a set restored from ``records`` equals the one that gave them. What one record changes is
compiled, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import orjson

from rulecore.changing import Change, said
from rulecore.compiled import CompiledRule, RuleLimits
from rulecore.errors import RuleError
from rulecore.fills import FillRows
from rulecore.lang import ListType
from rulecore.lists.asked import ListColumn, distinct
from rulecore.matcher import EventMatcher
from rulecore.model import Kind, Mode
from rulecore.slots import EVALUATED, Place, Slot, version_key
from rulecore.status import REASON_CHARACTERS, Status
from rulecore.versions import Context, compiled_version
from streamcore.kernel import Control
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
    of releases that have not come yet, by digest. ``fills`` came with the last change.
    """

    streams: Mapping[str, StreamSchema]
    limits: RuleLimits
    epoch: int = 0
    revision: int = 0
    stored: Mapping[Place, bytes] = field(default_factory=lambda: MappingProxyType({}))
    quarantined: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    expired: frozenset[str] = frozenset()
    staged: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    rules: Mapping[Place, CompiledRule] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    lists: Mapping[str, ListType] = field(default_factory=lambda: MappingProxyType({}), compare=False, repr=False)
    fills: tuple[FillRows, ...] = field(default=(), compare=False, repr=False)
    _kept: dict[tuple[str, int], EventMatcher[CompiledRule]] = field(default_factory=dict, compare=False, repr=False)
    _boundary: list[int] = field(default_factory=list, compare=False, repr=False)
    _standing: list[tuple[CompiledRule, ...]] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def empty(cls, streams: Mapping[str, StreamSchema], limits: RuleLimits | None = None) -> RuleSet:
        """No rules, epoch 0."""
        return cls(MappingProxyType(dict(streams)), limits or RuleLimits())

    @classmethod
    def restore(
        cls,
        streams: Mapping[str, StreamSchema],
        limits: RuleLimits,
        records: Iterable[tuple[str, bytes]],
        lists: Mapping[str, ListType] | None = None,
    ) -> RuleSet:
        """The set that gave these ``records()``; its rules may ask these lists."""
        context = Context.of(streams, limits, lists or {})
        values = dict(records)
        own = orjson.loads(values.pop(_SET, b'{"epoch":0,"revision":0,"quarantined":{},"expired":[]}'))
        stored = {Place.parse(k.removeprefix(_RULE)): v for k, v in values.items() if k.startswith(_RULE)}
        staged = {k.removeprefix(_STAGED): v for k, v in values.items() if k.startswith(_STAGED)}
        reasons: dict[str, str] = dict(own["quarantined"])
        rules: dict[Place, CompiledRule] = {}
        for place, value in stored.items():
            try:
                rules[place] = compiled_version(value, context)
            except RuleError as error:
                document = orjson.loads(value)
                reasons.setdefault(f"{place.rule}@{document['version']}", f"no longer compiles: {said(error)}")
        return cls(
            streams=MappingProxyType(dict(streams)),
            limits=limits,
            epoch=own["epoch"],
            revision=own["revision"],
            stored=MappingProxyType(stored),
            quarantined=MappingProxyType(reasons),
            expired=frozenset(own["expired"]),
            staged=MappingProxyType(staged),
            rules=MappingProxyType(rules),
            lists=MappingProxyType(dict(lists or {})),
        )

    def with_lists(self, lists: Mapping[str, ListType]) -> RuleSet:
        """The set whose next rules may ask these lists. No rule is compiled again: lists keep their types."""
        return self if lists == self.lists else replace(self, lists=MappingProxyType(dict(lists)))

    def users_of(self, name: str) -> tuple[str, ...]:
        """Ids of the rules that ask the list of that name, in any version."""
        return tuple(sorted({place.rule for place, rule in self.rules.items() if name in rule.lists}))

    def list_columns(self, stream: str) -> tuple[ListColumn, ...]:
        """What the rules of a stream that keep state or are evaluated ask of lists."""
        asking = [rule for rule in self.keeping_state() if rule.list_columns and rule.rule.on == stream]
        return distinct(column for rule in asking for column in rule.list_columns)

    def records(self) -> tuple[tuple[str, bytes], ...]:
        """Everything that ``restore`` needs, as pairs of a name and bytes, by name."""
        own = {
            "epoch": self.epoch,
            "revision": self.revision,
            "quarantined": dict(self.quarantined),
            "expired": sorted(self.expired),
        }
        pairs = [(f"{_RULE}{place}", value) for place, value in self.stored.items()]
        pairs += [(f"{_STAGED}{digest}", value) for digest, value in self.staged.items()]
        return (*sorted(pairs), (_SET, orjson.dumps(own, option=orjson.OPT_SORT_KEYS)))

    # --- change -------------------------------------------------------------------------------------------------

    def apply(self, records: Sequence[Control], clock_ms: int) -> tuple[RuleSet, tuple[Status, ...]]:
        """The set after these records, in their order, at this time, and the answers to each.

        The last result is kept: all shards of a worker ask this of equal sets in each cut, and then share what is made
        of the next one.
        """
        asked = (self, self.lists, tuple(records), clock_ms)
        if not _LAST or _LAST[0][0] != asked:
            change = Change.of(self, clock_ms)
            answers = [answer for record in records for answer in change.record(record)]
            _LAST.append((asked, self._after(change, [*answers, *change.versions.time_passes()])))
        return _LAST[0][1]

    def at(self, clock_ms: int) -> tuple[RuleSet, tuple[Status, ...]]:
        """The set at this time: versions whose time has come or is over change places."""
        return self.apply((), clock_ms) if clock_ms >= self.boundary_ms() else (self, ())

    def boundary_ms(self) -> int:
        """The next time at which the clock alone changes the set, epoch milliseconds."""
        if not self._boundary:
            self._boundary.append(min((at for p, c in self.rules.items() for at in self._times(p, c)), default=_NEVER))
        return self._boundary[0]

    def _times(self, place: Place, rule: CompiledRule) -> Iterable[int]:
        effective = rule.rule.effective
        if effective is None:
            return
        if place.slot is Slot.SCHEDULED and effective.start is not None:
            yield effective.start
        elif place.slot is not Slot.DRAFT and effective.end is not None and version_key(rule.rule) not in self.expired:
            yield effective.end

    def _after(self, change: Change, answers: Sequence[Status]) -> tuple[RuleSet, tuple[Status, ...]]:
        after = self if not change.touched else self._replaced(change)
        return after, tuple(replace(answer, rules_epoch=after.epoch) for answer in answers)

    def _replaced(self, change: Change) -> RuleSet:
        return replace(
            self,
            epoch=self.epoch + change.versions.changed,
            revision=self.revision + 1,
            stored=MappingProxyType(change.versions.stored),
            quarantined=MappingProxyType(change.versions.quarantined),
            expired=frozenset(change.versions.expired),
            staged=MappingProxyType(change.staged),
            rules=MappingProxyType(change.versions.rules),
            fills=tuple(change.fills),
            _kept={key: m for key, m in self._kept.items() if key[0] not in change.versions.streams},
            _boundary=[],
            _standing=[],
        )

    def quarantine(self, rule: CompiledRule, reason: str) -> RuleSet:
        """The set without evaluating this version. The epoch stays: no version changed.

        A version that is not there, or is in quarantine already, changes nothing.
        """
        name = version_key(rule.rule)
        if name in self.quarantined or all(c.rule != rule.rule for c in self.rules.values()):
            return self
        reasons = MappingProxyType({**self.quarantined, name: reason[:REASON_CHARACTERS]})
        kept = {key: m for key, m in self._kept.items() if key[0] != rule.rule.on}
        return replace(self, quarantined=reasons, _kept=kept, _standing=[])

    # --- questions ----------------------------------------------------------------------------------------------

    def live(self, rule_id: str) -> CompiledRule | None:
        """The version in the live slot."""
        return self.rules.get(Place(rule_id, Slot.LIVE))

    def candidate(self, rule_id: str) -> CompiledRule | None:
        """The version on trial beside the live one."""
        return self.rules.get(Place(rule_id, Slot.CANDIDATE))

    def evaluated(self) -> tuple[CompiledRule, ...]:
        """Versions that are evaluated: in a mode for it, within their time, not in quarantine; by id and slot."""
        return tuple(c for c in self.keeping_state() if c.rule.status in EVALUATED)

    def keeping_state(self) -> tuple[CompiledRule, ...]:
        """Versions whose aggregates are kept: those that are evaluated, and paused ones; by id and slot."""
        if not self._standing:
            self._standing.append(self._find_standing())
        return self._standing[0]

    def _find_standing(self) -> tuple[CompiledRule, ...]:
        modes = EVALUATED | {Mode.PAUSED}
        slots = (Slot.LIVE, Slot.CANDIDATE)
        return tuple(
            c
            for place, c in sorted(self.rules.items(), key=lambda pair: pair[0])
            if place.slot in slots and c.rule.status in modes and self._counts(c)
        )

    def _counts(self, rule: CompiledRule) -> bool:
        name = version_key(rule.rule)
        return name not in self.quarantined and name not in self.expired

    def on_trial(self) -> tuple[CompiledRule, ...]:
        """Candidates that are evaluated beside a live version."""
        return tuple(c for p, c in self.rules.items() if p.slot is Slot.CANDIDATE and c in self.evaluated_of(p.rule))

    def evaluated_of(self, rule_id: str) -> tuple[CompiledRule, ...]:
        """The versions of a rule that are evaluated."""
        both = (self.live(rule_id), self.candidate(rule_id))
        return tuple(c for c in both if c is not None and c.rule.status in EVALUATED and self._counts(c))

    def matcher(self, stream: str, route: int) -> EventMatcher[CompiledRule]:
        """The rules per event of a stream and route that are evaluated, by id. Built on first use and kept."""
        if (stream, route) not in self._kept:
            self._kept[stream, route] = EventMatcher(
                [c for c in self.evaluated() if c.kind is Kind.EVENT and c.rule.on == stream and c.route == route]
            )
        return self._kept[stream, route]


#: Arguments and result of the last ``RuleSet.apply`` of the process. ``lists`` are apart: sets are compared without.
_Asked = tuple[RuleSet, Mapping[str, ListType], tuple[Control, ...], int]
_LAST: deque[tuple[_Asked, tuple[RuleSet, tuple[Status, ...]]]] = deque(maxlen=1)
