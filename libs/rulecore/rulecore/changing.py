"""Control records and the passing of time, applied to a copy of a rule set's tables.

Promises: a record that is refused has changed nothing; a release that is refused at one of its changes has changed
nothing. Refuses to know the events and the state of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rulecore.compiled import CompiledRule, RuleLimits
from rulecore.control_keys import FILL_KEY, RELEASE_KEY, STAGED_KEY, subject_of
from rulecore.errors import ExpressionError, RuleError, RuleSetError
from rulecore.fills import Fill, FillRows, decode_fill, open_fill, open_part
from rulecore.load import decode_record
from rulecore.model import Kind, Rule, canonical_json
from rulecore.releases import (
    Release,
    decode_release,
    digest_of,
)
from rulecore.scores_fit import refuse_unfit
from rulecore.slots import Place, Slot, displaced, slot_of, version_key
from rulecore.status import Status, StatusKind, Subject, placed
from rulecore.versions import ChangeBytes, Context, compiled_version, decoded_part, with_bytes
from streamcore.kernel import Control

if TYPE_CHECKING:
    from rulecore.ruleset import RuleSet

_REASONS: Final = 20  # refused changes of a release that are told


@dataclass(slots=True)
class Change:
    """The next set while records are applied to it. ``streams``: those whose rules changed.

    ``changed``: which rules count is different; ``touched``: something is to be stored.
    """

    context: Context
    clock_ms: int
    stored: dict[Place, bytes]
    rules: dict[Place, CompiledRule]
    quarantined: dict[str, str]
    expired: set[str]
    staged: dict[str, bytes]
    places: dict[str, set[Slot]]
    fills: list[FillRows] = field(default_factory=list)
    streams: set[str] = field(default_factory=set)
    changed: bool = False
    touched: bool = False

    @classmethod
    def of(cls, before: RuleSet, clock_ms: int) -> Change:
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
            dict(before.staged),
            places,
        )

    @property
    def limits(self) -> RuleLimits:
        """Those of the set."""
        return self.context.limits

    # --- records ------------------------------------------------------------------------------------------------

    def record(self, record: Control) -> list[Status]:
        """Apply one record; the answers, with the epoch still open."""
        name = (record.key or b"").decode("utf-8", "replace")
        try:
            answers = list(self._apply(name, record.value))
        except RuleError as error:
            answers = [_refused(name, said(error))]
        except Exception as error:  # a fault of ours in one record must not stop the stream
            answers = [_refused(name, f"internal error: {type(error).__name__}: {error}")]
        return [placed(answer, record) for answer in answers]

    def _apply(self, key: str, value: bytes | None) -> Iterator[Status]:
        if key.startswith(FILL_KEY):
            yield self._fill(key.removeprefix(FILL_KEY), value)
        elif key.startswith(STAGED_KEY):
            yield self._stage(key.removeprefix(STAGED_KEY), value)
        elif key.startswith(RELEASE_KEY):
            yield from self._release(key.removeprefix(RELEASE_KEY), value)
        else:
            yield self._rule(key, value)

    def _rule(self, name: str, value: bytes | None) -> Status:
        if value is None:
            return self.delete(name)
        rule: Rule | None = None
        try:
            rule = decode_record(value, self.limits.record_bytes)
            if name != rule.id:
                raise RuleSetError(f"the record's key is {name!r} and the rule's id {rule.id!r}; they must be the same")
            return self.put(rule, canonical_json(rule))
        except RuleError as error:
            version, mode = (None, None) if rule is None else (rule.version, rule.mode_text)
            return Status(name, version, StatusKind.REJECTED, said(error), 0, 0, 0, mode=mode)

    def _stage(self, digest: str, value: bytes | None) -> Status:
        if value is None:
            self.touched |= self.staged.pop(digest, None) is not None
            return Status(digest, None, StatusKind.DELETED, None, 0, 0, 0, Subject.PART)
        if digest_of(value) != digest:
            raise RuleSetError(f"the part's bytes have the digest {digest_of(value)}, its key says {digest[:40]}")
        kept = sum(map(len, self.staged.values())) + len(value)
        if digest not in self.staged and kept > self.limits.staged_bytes:
            raise RuleSetError(
                f"parts of releases that did not come have {kept} bytes, at most {self.limits.staged_bytes} are kept; "
                "publish the release, or delete parts"
            )
        said_early = self._prepare(value)
        self.staged[digest] = value
        self.touched = True
        return Status(digest, None, StatusKind.STAGED, said_early, 0, 0, 0, Subject.PART)

    def _prepare(self, value: bytes) -> str | None:
        """Compile the part's versions now, so that the cut of the release has less to do; what is wrong with them."""
        if not value.startswith(b"["):
            open_part(value)  # of a fill
            return None
        refused: list[str] = []
        for change, version in decoded_part(value):
            if change.rule is not None:
                try:
                    compiled_version(version, self.context)
                except RuleError as error:
                    refused.append(f"{change.rule.id}: {said(error)}")
        return None if not refused else "will be refused:\n" + "\n".join(refused[:_REASONS])

    def _fill(self, name: str, value: bytes | None) -> Status:
        """What a rule's aggregates have missed; the parts are given up whether or not they fit."""
        if value is None:
            return Status(name, None, StatusKind.DELETED, "a fill is no state; nothing changed", 0, 0, 0, Subject.FILL)
        fill = decode_fill(value)
        try:
            self.fills.append(self._opened(name, fill))
            self.touched = True
        finally:
            for digest in fill.parts:
                self.touched |= self.staged.pop(digest, None) is not None
        return Status(name, fill.version, StatusKind.ACCEPTED, None, 0, 0, 0, Subject.FILL)

    def _opened(self, name: str, fill: Fill) -> FillRows:
        places = [Place(name, slot) for slot in (Slot.LIVE, Slot.CANDIDATE)]
        rules = [self.rules[p] for p in places if p in self.rules and self.rules[p].rule.version == fill.version]
        if name != fill.rule or not rules:
            raise RuleSetError(f"version {fill.version} of {name!r} does not count; a fill is for one that does")
        schemas = {schema.name: schema for schema in self.context.streams}
        return open_fill(fill, rules[0], schemas[rules[0].rule.on], self.staged)

    def _release(self, name: str, value: bytes | None) -> Iterator[Status]:
        """All changes on a copy, then the copy's tables instead of ours."""
        if value is None:
            yield _release_status(name, StatusKind.DELETED, "a release is no state; nothing changed")
            return
        release = decode_release(value)
        if release.release != name:
            raise RuleSetError(f"the record's key says release {name!r}, its value {release.release!r}")
        draft = replace(
            self,
            stored=dict(self.stored),
            rules=dict(self.rules),
            quarantined=dict(self.quarantined),
            expired=set(self.expired),
            places={rule: set(slots) for rule, slots in self.places.items()},
            streams=set(self.streams),
        )
        answers, refused = draft._all(self._changes(release))
        self._drop_parts(release)
        if refused:
            more = f"\nand {len(refused) - _REASONS} more" if len(refused) > _REASONS else ""
            reason = f"{len(refused)} of {len(answers) + len(refused)} changes are refused, so nothing changed:\n"
            yield _release_status(name, StatusKind.REJECTED, reason + "\n".join(refused[:_REASONS]) + more)
            return
        self._take(draft)
        yield _release_status(name, StatusKind.ACCEPTED, None)
        yield from (replace(answer, release=name) for answer in answers)

    def _changes(self, release: Release) -> Iterator[ChangeBytes]:
        missing = [digest for digest in release.parts if digest not in self.staged]
        if missing:
            raise RuleSetError(f"part {missing[0]} is not there; publish the parts of a release before the release")
        for digest in release.parts:
            yield from decoded_part(self.staged[digest])
        yield from map(with_bytes, release.changes)

    def _drop_parts(self, release: Release) -> None:
        for digest in release.parts:
            self.touched |= self.staged.pop(digest, None) is not None

    def _all(self, changes: Iterable[ChangeBytes]) -> tuple[list[Status], list[str]]:
        answers: list[Status] = []
        refused: list[str] = []
        for change, version in changes:
            try:
                answers.append(self.delete(change.delete) if change.rule is None else self.put(change.rule, version))
            except RuleError as error:
                refused.append(f"{change.delete or (change.rule and change.rule.id)}: {said(error)}")
        return answers, refused

    def _take(self, other: Change) -> None:
        self.stored, self.rules, self.places = other.stored, other.rules, other.places
        self.quarantined, self.expired, self.streams = other.quarantined, other.expired, other.streams
        self.changed, self.touched = other.changed, self.touched or other.touched

    # --- changes ------------------------------------------------------------------------------------------------

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
            return _accepted(rule, None if why is None else f"no change; in quarantine: {why}")
        newest = self._newest(rule.id)
        if newest is not None and rule.version <= newest:
            raise RuleSetError(f"version {rule.version} is not above version {newest}, the newest; raise it")
        if not self.places.get(rule.id) and len(self.places) >= self.limits.rules:
            raise RuleSetError(f"there are {len(self.places)} rules, which is the limit; delete one first")
        if len(value) > self.limits.record_bytes:
            most = self.limits.record_bytes
            raise RuleSetError(f"the rule has {len(value)} bytes, at most {most}; shorten its tests")
        compiled = compiled_version(value, self.context)
        if compiled.kind is Kind.SCORE:
            refuse_unfit(compiled, {p.rule: c for p, c in self.rules.items() if p.slot is Slot.LIVE})
        self._place(rule, value, compiled)
        return _accepted(rule, self._said_of(rule))

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

    # --- time ---------------------------------------------------------------------------------------------------

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


def said(error: RuleError) -> str:
    """What an author reads."""
    return error.render() if isinstance(error, ExpressionError) else str(error)


def _accepted(rule: Rule, reason: str | None) -> Status:
    return Status(rule.id, rule.version, StatusKind.ACCEPTED, reason, 0, 0, 0, mode=rule.mode_text)


def _by_time(rule: Rule, kind: StatusKind) -> Status:
    return Status(rule.id, rule.version, kind, None, 0, 0, -1, mode=rule.mode_text)


def _release_status(name: str, kind: StatusKind, reason: str | None) -> Status:
    return Status(name, None, kind, reason, 0, 0, 0, Subject.RELEASE)


def _refused(key: str, reason: str) -> Status:
    subject, name = subject_of(key)
    return Status(name, None, StatusKind.REJECTED, reason, 0, 0, 0, subject)
