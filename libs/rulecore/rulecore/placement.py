"""The versions of all rules in their slots, while they change: published, deleted, or moved by the passing of time.

Promises: a version that is refused has changed nothing; which slot it takes follows from its mode, its time and the
versions that are there. Refuses to know control records, releases and the state of rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rulecore.compiled import CompiledRule
from rulecore.errors import RuleSetError
from rulecore.model import Kind, Rule
from rulecore.scores_fit import refuse_unfit
from rulecore.slots import Place, Slot, displaced, slot_of, version_key
from rulecore.status import Status, StatusKind
from rulecore.versions import Context, compiled_version

if TYPE_CHECKING:
    from rulecore.ruleset import RuleSet


@dataclass(slots=True)
class Placement:
    """``stored`` and ``rules``: canonical bytes and compiled version of each place; ``places``: the slots of each rule.

    ``streams``: those whose rules changed. ``changed``: which rules count is different; ``touched``: something is to be
    stored.
    """

    context: Context
    clock_ms: int
    stored: dict[Place, bytes]
    rules: dict[Place, CompiledRule]
    quarantined: dict[str, str]
    expired: set[str]
    places: dict[str, set[Slot]]
    streams: set[str] = field(default_factory=set)
    changed: bool = False
    touched: bool = False

    @classmethod
    def of(cls, before: RuleSet, clock_ms: int) -> Placement:
        """A copy to change."""
        places: dict[str, set[Slot]] = {}
        for place in before.stored:
            places.setdefault(place.rule, set()).add(place.slot)
        return cls(
            Context.of(before.streams, before.limits, before.lists),
            clock_ms,
            dict(before.stored),
            dict(before.rules),
            dict(before.quarantined),
            set(before.expired),
            places,
        )

    def copy(self) -> Placement:
        """Another one to change, of which nothing is seen here."""
        return replace(
            self,
            stored=dict(self.stored),
            rules=dict(self.rules),
            quarantined=dict(self.quarantined),
            expired=set(self.expired),
            places={rule: set(slots) for rule, slots in self.places.items()},
            streams=set(self.streams),
        )

    def delete(self, name: str | None) -> Status:
        """Remove a rule with all its versions; one that is not there is as good as deleted."""
        assert name is not None, "a change without a version has an id"
        slots = sorted(self.places.get(name, ()))
        if not slots:
            return Status(name, None, StatusKind.DELETED, "there was no such rule", 0, 0, 0)
        version = self._newest(name)
        for slot in slots:
            self._drop(Place(name, slot))
        return Status(name, version, StatusKind.DELETED, None, 0, 0, 0)

    def put(self, rule: Rule, value: bytes) -> Status:
        """Give this version, whose canonical bytes these are, its slot, or raise ``RuleError`` and change nothing."""
        if value in [self.stored[Place(rule.id, slot)] for slot in self.places.get(rule.id, ())]:
            why = self.quarantined.get(version_key(rule))
            return accepted(rule, None if why is None else f"no change; in quarantine: {why}")
        newest = self._newest(rule.id)
        if newest is not None and rule.version <= newest:
            raise RuleSetError(f"version {rule.version} is not above version {newest}, the newest; raise it")
        if not self.places.get(rule.id) and len(self.places) >= self.context.limits.rules:
            raise RuleSetError(f"there are {len(self.places)} rules, which is the limit; delete one first")
        if len(value) > self.context.limits.record_bytes:
            most = self.context.limits.record_bytes
            raise RuleSetError(f"the rule has {len(value)} bytes, at most {most}; shorten its tests")
        compiled = compiled_version(value, self.context)
        if compiled.kind is Kind.SCORE:
            refuse_unfit(compiled, {p.rule: c for p, c in self.rules.items() if p.slot is Slot.LIVE})
        self._place(rule, value, compiled)
        return accepted(rule, self._said_of(rule))

    def _said_of(self, rule: Rule) -> str | None:
        if Place(rule.id, Slot.SCHEDULED) in self.rules and rule.effective is not None:
            return "waits for its time" if self.rules[Place(rule.id, Slot.SCHEDULED)].rule == rule else None
        return None

    def _place(self, rule: Rule, value: bytes, compiled: CompiledRule) -> None:
        live = self.rules.get(Place(rule.id, Slot.LIVE))
        slot = slot_of(rule, None if live is None or self._over(live) else live.rule, self.clock_ms)
        others = {s: self.rules[p].rule for s in self.places.get(rule.id, ()) if (p := Place(rule.id, s)) in self.rules}
        broken = [s for s in self.places.get(rule.id, ()) if s not in others]
        for gone in [*displaced(rule, slot, others), *broken, slot]:
            self._drop(Place(rule.id, gone))
        self.stored[Place(rule.id, slot)] = value
        self.rules[Place(rule.id, slot)] = compiled
        self.places.setdefault(rule.id, set()).add(slot)
        self.streams.add(rule.on)
        self.touched = True
        self.changed |= slot not in (Slot.DRAFT, Slot.SCHEDULED)

    def _over(self, rule: CompiledRule) -> bool:
        name = version_key(rule.rule)
        return name in self.expired or name in self.quarantined

    def _drop(self, place: Place) -> None:
        if self.stored.pop(place, None) is None:
            return
        self.touched = True
        self.changed |= place.slot not in (Slot.DRAFT, Slot.SCHEDULED)
        self.places[place.rule].discard(place.slot)
        if not self.places[place.rule]:
            del self.places[place.rule]
        if (gone := self.rules.pop(place, None)) is not None:
            self.streams.add(gone.rule.on)
            self.expired.discard(version_key(gone.rule))
            self.quarantined.pop(version_key(gone.rule), None)
        elif place.rule not in self.places:
            for name in [n for n in self.quarantined if n.rpartition("@")[0] == place.rule]:
                del self.quarantined[name]

    def _newest(self, name: str) -> int | None:
        """The highest version in any slot."""
        known = [self.rules[p].rule.version for s in self.places.get(name, ()) if (p := Place(name, s)) in self.rules]
        return max(known, default=None)

    def time_passes(self) -> Iterator[Status]:
        """Versions whose time is over end, and then those whose time has come take their places; by id."""
        for place, compiled in sorted(self.rules.items(), key=lambda pair: pair[0]):
            effective, name = compiled.rule.effective, version_key(compiled.rule)
            if effective is None or effective.end is None or place.slot is Slot.DRAFT or name in self.expired:
                continue
            if effective.end <= self.clock_ms:
                self.expired.add(name)
                self.streams.add(compiled.rule.on)
                self.touched = self.changed = True
                yield _by_time(compiled.rule, StatusKind.EXPIRED)
        for place, compiled in sorted(self.rules.items(), key=lambda pair: pair[0]):
            effective = compiled.rule.effective
            if place.slot is not Slot.SCHEDULED or effective is None or effective.start is None:
                continue
            if effective.start <= self.clock_ms and version_key(compiled.rule) not in self.expired:
                value = self.stored.pop(place)
                del self.rules[place]
                self.places[place.rule].discard(Slot.SCHEDULED)
                self._place(compiled.rule, value, compiled)
                yield _by_time(compiled.rule, StatusKind.EFFECTIVE)


def accepted(rule: Rule, reason: str | None) -> Status:
    return Status(rule.id, rule.version, StatusKind.ACCEPTED, reason, 0, 0, 0, mode=rule.mode_text)


def _by_time(rule: Rule, kind: StatusKind) -> Status:
    return Status(rule.id, rule.version, kind, None, 0, 0, -1, mode=rule.mode_text)
