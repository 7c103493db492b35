"""The table of all rule versions by slot, while an update changes it: publish, delete, become effective, expire.

A rejected version changes nothing. The slot of a version follows from its mode, its ``effective`` dates and the other
versions of the rule. The module knows neither control records nor releases nor the state of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from rulecore.compile.cache import CompileContext, compile_version
from rulecore.compile.rule import CompiledRule
from rulecore.compile.score_compatibility import check_compatible
from rulecore.documents.control_keys import FEATURE_KEY, parse_key
from rulecore.documents.rule import Rule, RuleKind
from rulecore.documents.slots import Slot, VersionSlot, displaced_slots, slot_for, version_key
from rulecore.documents.status import REASON_CHARACTERS, RuleStatus, StatusKind
from rulecore.errors import RuleSetError
from rulecore.key_columns import Key
from rulecore.ruleset.published_features import PublishedFeatures
from rulecore.streams import stream_names


@dataclass(slots=True)
class VersionTable:
    """The versions of all rules by slot, mutable.

    ``stored``: the canonical JSON of each version; ``rules``: the compiled versions. ``quarantined``, ``unconfirmed``
    and ``expired`` are as in ``RuleSet``. ``slots``: the used slots of each rule. ``timed``: the slots of versions with
    times of effect. ``streams``: the streams whose rules have changed. ``changed``: whether live or candidate versions
    have changed; ``touched``: whether anything has changed. ``route_keys``: by stream, the keys that route events of
    its rules, also of those that the update deletes; empty until one is needed. ``features``: those that are published.
    """

    context: CompileContext
    clock_ms: int
    stored: dict[VersionSlot, bytes]
    rules: dict[VersionSlot, CompiledRule]
    quarantined: dict[str, str]
    expired: set[str]
    slots: dict[str, set[Slot]]
    timed: set[VersionSlot]
    features: PublishedFeatures = field(default_factory=PublishedFeatures)
    unconfirmed: set[str] = field(default_factory=set)
    route_keys: set[tuple[str, Key]] = field(default_factory=set)
    streams: set[str] = field(default_factory=set)
    changed: bool = False
    touched: bool = False

    @classmethod
    def copy_from(
        cls,
        context: CompileContext,
        clock_ms: int,
        stored: Mapping[VersionSlot, bytes],
        rules: Mapping[VersionSlot, CompiledRule],
        quarantined: Mapping[str, str],
        expired: Iterable[str],
        features: PublishedFeatures,
    ) -> VersionTable:
        """Return a table with copies of these mappings."""
        slots: dict[str, set[Slot]] = {}
        for position in stored:
            slots.setdefault(position.rule, set()).add(position.slot)
        timed = {position for position, compiled in rules.items() if compiled.rule.effective is not None}
        tables = (dict(stored), dict(rules), dict(quarantined), set(expired), slots, timed)
        return cls(context, clock_ms, *tables, features)

    def copy(self) -> VersionTable:
        """Return an independent copy."""
        return replace(
            self,
            stored=dict(self.stored),
            rules=dict(self.rules),
            quarantined=dict(self.quarantined),
            unconfirmed=set(self.unconfirmed),
            expired=set(self.expired),
            slots={rule: set(slots) for rule, slots in self.slots.items()},
            timed=set(self.timed),
            route_keys=set(self.route_keys),
            streams=set(self.streams),
        )

    def delete(self, name: str | None) -> RuleStatus:
        """Remove a rule with all its versions. Deleting an unknown rule is accepted, with a note in the status."""
        assert name is not None, "a change without a version has an id"
        slots = sorted(self.slots.get(name, ()))
        if not slots:
            return RuleStatus(name, None, StatusKind.DELETED, "there is no such rule", 0, 0, 0)
        version = self._newest(name)
        for slot in slots:
            self._drop(VersionSlot(name, slot))
        return RuleStatus(name, version, StatusKind.DELETED, None, 0, 0, 0)

    def set_quarantine(self, name: str, version: int, reason: str | None) -> RuleStatus:
        """Put a version of a rule, or of the feature with this key, into quarantine.

        Without a reason, or for a version that no slot has, nothing changes."""
        places = (VersionSlot(name, slot) for slot in self.slots.get(name, ()))
        held = [self.rules[p].rule for p in places if p in self.rules]
        if (keeper := self.features.keepers.get(name.removeprefix(FEATURE_KEY))) is not None and keeper.rule.id == name:
            held.append(keeper.rule)
        rules = [rule for rule in held if rule.version == version]
        subject, shown = parse_key(name)
        if reason is None or not rules:
            note = "nothing changed" if reason is None else "there is no such version"
            return RuleStatus(shown, version, StatusKind.QUARANTINED, note, 0, 0, 0, subject)
        self.quarantined[version_key(rules[0])] = reason[:REASON_CHARACTERS]
        self.unconfirmed.discard(version_key(rules[0]))
        self.streams.add(rules[0].on)
        self.touched = True
        return RuleStatus(shown, version, StatusKind.QUARANTINED, reason, 0, 0, 0, subject, mode=rules[0].mode_text)

    def check_room(self, name: str) -> None:
        """Raise ``RuleSetError`` if a rule of this id would be one more than the limit."""
        if not self.slots.get(name) and len(self.slots) >= self.context.limits.rules:
            raise RuleSetError(f"there are {len(self.slots)} rules, which is the limit; delete one first")

    def put(self, rule: Rule, value: bytes) -> RuleStatus:
        """Put a version, whose canonical JSON is ``value``, into its slot. Raise ``RuleError`` if it is rejected."""
        if value in [self.stored[VersionSlot(rule.id, slot)] for slot in self.slots.get(rule.id, ())]:
            reason = self.quarantined.get(version_key(rule))
            return accepted_status(rule, None if reason is None else f"no change; in quarantine: {reason}")
        newest = self._newest(rule.id)
        if newest is not None and rule.version <= newest:
            raise RuleSetError(f"version {rule.version} is not above version {newest}, the newest; raise it")
        self.check_room(rule.id)
        if len(value) > self.context.limits.record_bytes:
            limit = self.context.limits.record_bytes
            raise RuleSetError(f"the rule has {len(value)} bytes, at most {limit}; shorten its tests")
        compiled = compile_version(value, self.context)
        if compiled.kind is RuleKind.SCORE:
            live = {p.rule: c for p, c in self.rules.items() if p.slot is Slot.LIVE}
            check_compatible(compiled, live, {stream.name: stream for stream in self.context.streams})
        self.check_key(compiled)
        self._fill_slot(rule, value, compiled)
        return accepted_status(rule, self._acceptance_note(rule))

    def check_key(self, compiled: CompiledRule) -> None:
        """Raise ``RuleSetError`` if the rule needs one key too many."""
        names = stream_names(compiled.rule.on)
        needed = {compiled.route_key, *compiled.other_keys}
        if all(needed.issubset(one.keys) for one in self.context.streams if one.name in names):
            return
        if not self.route_keys:
            known = [*self.rules.values(), *self.features.keepers.values()]
            self.route_keys.update(
                (n, key) for r in known for key in (r.route_key, *r.other_keys) for n in stream_names(r.rule.on)
            )
        most = self.context.limits.keys
        for name in names:
            added = {(name, key) for key in needed} - self.route_keys
            if added and sum(n == name for n, _ in self.route_keys) + len(added) > most:
                raise RuleSetError(
                    f"group_by: rules group {name} by {most} keys, which is the limit: each event is sent for "
                    "each; group by one of these, or delete the rules of one"
                )
            self.route_keys |= added

    def _acceptance_note(self, rule: Rule) -> str | None:
        """Return a note for the status of an accepted version that waits for its ``effective`` start."""
        if VersionSlot(rule.id, Slot.SCHEDULED) in self.rules and rule.effective is not None:
            return "waits for its time" if self.rules[VersionSlot(rule.id, Slot.SCHEDULED)].rule == rule else None
        return None

    def _fill_slot(self, rule: Rule, value: bytes, compiled: CompiledRule) -> None:
        """Put the version into the slot that it takes now, and drop the versions that it displaces."""
        live = self.rules.get(VersionSlot(rule.id, Slot.LIVE))
        slot = slot_for(rule, None if live is None or self._is_over(live) else live.rule, self.clock_ms)
        others = {
            s: self.rules[p].rule for s in self.slots.get(rule.id, ()) if (p := VersionSlot(rule.id, s)) in self.rules
        }
        broken = [s for s in self.slots.get(rule.id, ()) if s not in others]
        for slot_to_drop in [*displaced_slots(rule, slot, others), *broken, slot]:
            self._drop(VersionSlot(rule.id, slot_to_drop))
        self.stored[VersionSlot(rule.id, slot)] = value
        self.rules[VersionSlot(rule.id, slot)] = compiled
        if rule.effective is not None:
            self.timed.add(VersionSlot(rule.id, slot))
        self.slots.setdefault(rule.id, set()).add(slot)
        self.streams.add(rule.on)
        self.touched = True
        self.changed |= slot not in (Slot.DRAFT, Slot.SCHEDULED)

    def _is_over(self, rule: CompiledRule) -> bool:
        """Return whether the version is expired, or in quarantine on all shards."""
        name = version_key(rule.rule)
        return name in self.expired or (name in self.quarantined and name not in self.unconfirmed)

    def _drop(self, position: VersionSlot) -> None:
        """Remove the version from a slot, if there is one."""
        if self.stored.pop(position, None) is None:
            return
        self.touched = True
        self.timed.discard(position)
        self.changed |= position.slot not in (Slot.DRAFT, Slot.SCHEDULED)
        self.slots[position.rule].discard(position.slot)
        if not self.slots[position.rule]:
            del self.slots[position.rule]
        if (dropped := self.rules.pop(position, None)) is not None:
            self.streams.add(dropped.rule.on)
            self.expired.discard(version_key(dropped.rule))
            self.quarantined.pop(version_key(dropped.rule), None)
        elif position.rule not in self.slots:
            for name in [n for n in self.quarantined if n.rpartition("@")[0] == position.rule]:
                del self.quarantined[name]

    def take_out(self, position: VersionSlot) -> None:
        """Remove the version of a slot."""
        self._drop(position)

    def _newest(self, name: str) -> int | None:
        """Return the highest version of a rule in any slot, None without one."""
        known = [
            self.rules[p].rule.version for s in self.slots.get(name, ()) if (p := VersionSlot(name, s)) in self.rules
        ]
        return max(known, default=None)

    def advance_time(self) -> Iterator[RuleStatus]:
        """Expire versions at their ``effective`` end, then move waiting versions at their start into their slots.

        Yield the statuses of both, by rule id.
        """
        for position, compiled in self._with_times():
            effective, name = compiled.rule.effective, version_key(compiled.rule)
            if effective is None or effective.end is None or position.slot is Slot.DRAFT or name in self.expired:
                continue
            if effective.end <= self.clock_ms:
                self.expired.add(name)
                self.streams.add(compiled.rule.on)
                self.touched = self.changed = True
                yield _time_status(compiled.rule, StatusKind.EXPIRED)
        for position, compiled in self._with_times():
            effective = compiled.rule.effective
            if position.slot is not Slot.SCHEDULED or effective is None or effective.start is None:
                continue
            if effective.start <= self.clock_ms and version_key(compiled.rule) not in self.expired:
                value = self.stored.pop(position)
                del self.rules[position]
                self.timed.discard(position)
                self.slots[position.rule].discard(Slot.SCHEDULED)
                self._fill_slot(compiled.rule, value, compiled)
                yield _time_status(compiled.rule, StatusKind.EFFECTIVE)

    def _with_times(self) -> list[tuple[VersionSlot, CompiledRule]]:
        """Return the versions with times of effect, by position; most sets have none."""
        return [(position, self.rules[position]) for position in sorted(self.timed)]


def accepted_status(rule: Rule, reason: str | None) -> RuleStatus:
    """Return the status of an accepted version. ``reason``: a note, None for none."""
    return RuleStatus(rule.id, rule.version, StatusKind.ACCEPTED, reason, 0, 0, 0, mode=rule.mode_text)


def _time_status(rule: Rule, kind: StatusKind) -> RuleStatus:
    """Return the status of a version that the clock changed, not a record: its offset is -1."""
    return RuleStatus(rule.id, rule.version, kind, None, 0, 0, -1, mode=rule.mode_text)
