"""All rules at one epoch, as a value: control records make a new one out of an old one.

Promises: ``apply`` is a pure function of the set and the records, never raises, whatever the bytes, and answers each
record with one status; a rejected version leaves the previous one live. Equal sets behave alike, and a set restored
from ``records`` equals the one that gave them. What one record changes is compiled, and nothing else.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rulecore.compiled import CompiledRule, RuleLimits, compile_rule
from rulecore.errors import ExpressionError, RuleError, RuleSetError
from rulecore.load import decode_record
from rulecore.matcher import EventMatcher
from rulecore.model import Mode, Rule, canonical_json
from streamcore.kernel import Control
from streamcore.schema import StreamSchema

_REASON_CHARACTERS = 2_000
_ID_CHARACTERS = 100
_COMPILED_KEPT = 32_768  # by all sets of the process: shards of one worker compile a rule once between them


class StatusKind(enum.StrEnum):
    """What became of a control record, or of a rule."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    DELETED = "deleted"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Status:
    """The answer to one control record. ``version`` is that of the record, None where it has none."""

    rule: str
    version: int | None
    status: StatusKind
    reason: str | None
    rules_epoch: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class RuleSet:
    """``epoch`` counts the calls of ``apply`` that changed anything; ``quarantined`` gives the reason by rule id.

    ``stored`` holds the canonical JSON of every rule; ``rules`` those of them that compile (all, unless a stream's
    schema or a limit changed between two starts: then the others are in quarantine and wait for a new version).
    """

    streams: Mapping[str, StreamSchema]
    limits: RuleLimits
    epoch: int
    stored: Mapping[str, bytes]
    quarantined: Mapping[str, str]
    rules: Mapping[str, CompiledRule] = field(compare=False, repr=False)
    _matchers: dict[str, EventMatcher] = field(default_factory=dict, compare=False, repr=False)
    _windowed: dict[str, tuple[CompiledRule, ...]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def empty(cls, streams: Mapping[str, StreamSchema], limits: RuleLimits | None = None) -> RuleSet:
        """No rules, epoch 0."""
        none: Mapping[str, bytes] = MappingProxyType({})
        frozen = MappingProxyType(dict(streams))
        return cls(frozen, limits or RuleLimits(), 0, none, MappingProxyType({}), MappingProxyType({}))

    @classmethod
    def restore(
        cls,
        streams: Mapping[str, StreamSchema],
        limits: RuleLimits,
        records: Sequence[tuple[str, bytes]],
        epoch: int,
        quarantined: Mapping[str, str],
    ) -> RuleSet:
        """The set that gave these ``records()``, ``epoch`` and ``quarantined``."""
        reasons = dict(quarantined)
        rules: dict[str, CompiledRule] = {}
        for rule_id, value in records:
            try:
                rules[rule_id] = _compile(value, _Context.of(streams, limits))
            except RuleError as error:
                reasons.setdefault(rule_id, f"no longer compiles: {_said(error)}")
        stored = MappingProxyType(dict(records))
        frozen = MappingProxyType(dict(streams))
        return cls(frozen, limits, epoch, stored, MappingProxyType(reasons), MappingProxyType(rules))

    def records(self) -> tuple[tuple[str, bytes], ...]:
        """(rule id, canonical JSON) of every rule, by id: what to keep."""
        return tuple(sorted(self.stored.items()))

    def apply(self, records: Sequence[Control]) -> tuple[RuleSet, tuple[Status, ...]]:
        """The set after these records, in their order, and one status for each."""
        change = _Change(self, dict(self.stored), dict(self.rules), dict(self.quarantined))
        answers = [change.record(record) for record in records]
        after = change.result()
        return after, tuple(replace(answer, rules_epoch=after.epoch) for answer in answers)

    def quarantine(self, rule_id: str, reason: str) -> RuleSet:
        """The set without evaluating this rule until its next version. The epoch stays: no version changed.

        A rule that is not there, or is in quarantine already, changes nothing.
        """
        if rule_id not in self.stored or rule_id in self.quarantined:
            return self
        reasons = MappingProxyType({**self.quarantined, rule_id: reason[:_REASON_CHARACTERS]})
        on = {self.rules[rule_id].rule.on} if rule_id in self.rules else set()
        matchers, windowed = self._kept(on)
        return replace(self, quarantined=reasons, _matchers=matchers, _windowed=windowed)

    def windowed(self, stream: str) -> tuple[CompiledRule, ...]:
        """The windowed rules of a stream that are evaluated (not paused, not in quarantine), by id."""
        if stream not in self._windowed:
            self._windowed[stream] = self._evaluated(stream, windowed=True)
        return self._windowed[stream]

    def matcher(self, stream: str) -> EventMatcher:
        """The rules per event of a stream that are evaluated, by id. Built on first use and kept."""
        if stream not in self._matchers:
            self._matchers[stream] = EventMatcher(self._evaluated(stream, windowed=False))
        return self._matchers[stream]

    def _evaluated(self, stream: str, *, windowed: bool) -> tuple[CompiledRule, ...]:
        found = [
            (rule_id, c)
            for rule_id, c in self.rules.items()
            if c.rule.on == stream
            and (c.window is not None if windowed else c.plan is not None)
            and c.rule.status is not Mode.PAUSED
            and rule_id not in self.quarantined
        ]
        return tuple(c for _, c in sorted(found, key=lambda pair: pair[0]))

    def _kept(self, changed: set[str]) -> tuple[dict[str, EventMatcher], dict[str, tuple[CompiledRule, ...]]]:
        """What was built for streams whose rules did not change."""
        matchers = {s: m for s, m in self._matchers.items() if s not in changed}
        return matchers, {s: w for s, w in self._windowed.items() if s not in changed}


@dataclass(slots=True)
class _Change:
    """The next set while records are applied to it."""

    before: RuleSet
    stored: dict[str, bytes]
    rules: dict[str, CompiledRule]
    quarantined: dict[str, str]
    streams: set[str] = field(default_factory=set)
    changed: bool = False

    def record(self, record: Control) -> Status:
        """Apply one record; its status, with the epoch still open."""
        name = (record.key or b"").decode("utf-8", "replace")[:_ID_CHARACTERS]
        version: int | None = None
        try:
            if record.value is None:
                version = self.version(name)
                kind, reason = self.delete(name)
            else:
                rule = decode_record(record.value, self.before.limits.record_bytes)
                version = rule.version
                kind, reason = self.put(name, rule)
        except RuleError as error:
            kind, reason = StatusKind.REJECTED, _said(error)
        except Exception as error:  # a fault of ours in one rule must not stop the stream
            kind, reason = StatusKind.REJECTED, f"internal error: {type(error).__name__}: {error}"
        short = reason[:_REASON_CHARACTERS] if reason is not None else None
        return Status(name, version, kind, short, 0, record.partition, record.offset)

    def delete(self, name: str) -> tuple[StatusKind, str | None]:
        """Remove a rule; one that is not there is as good as deleted."""
        if name not in self.stored:
            return StatusKind.DELETED, "there was no such rule"
        self.drop(name)
        return StatusKind.DELETED, None

    def put(self, name: str, rule: Rule) -> tuple[StatusKind, str | None]:
        """Make this version the live one, or raise ``RuleError`` and change nothing."""
        if name != rule.id:
            raise RuleSetError(f"the record's key is {name!r} and the rule's id {rule.id!r}; they must be the same")
        value = canonical_json(rule)
        if self.stored.get(name) == value:
            why = self.quarantined.get(name)
            return StatusKind.ACCEPTED, None if why is None else f"no change; in quarantine: {why}"
        live = self.version(name)
        if live is not None and rule.version <= live:
            raise RuleSetError(f"version {rule.version} is not above the live version {live}; raise it")
        if name not in self.stored and len(self.stored) >= self.before.limits.rules:
            raise RuleSetError(f"there are {len(self.stored)} rules, which is the limit; delete one first")
        compiled = _compile(value, _Context.of(self.before.streams, self.before.limits))
        self.drop(name)
        self.stored[name] = value
        self.rules[name] = compiled
        self.streams.add(rule.on)
        return StatusKind.ACCEPTED, None

    def version(self, name: str) -> int | None:
        """Version of the live rule."""
        return self.rules[name].rule.version if name in self.rules else None

    def drop(self, name: str) -> None:
        self.changed = True
        self.stored.pop(name, None)
        self.quarantined.pop(name, None)
        if (gone := self.rules.pop(name, None)) is not None:
            self.streams.add(gone.rule.on)

    def result(self) -> RuleSet:
        if not self.changed:
            return self.before
        matchers, windowed = self.before._kept(self.streams)
        return replace(
            self.before,
            epoch=self.before.epoch + 1,
            stored=MappingProxyType(self.stored),
            quarantined=MappingProxyType(self.quarantined),
            rules=MappingProxyType(self.rules),
            _matchers=matchers,
            _windowed=windowed,
        )


@dataclass(frozen=True, slots=True)
class _Context:
    """What compiling depends on besides the rule; hashable, for the cache."""

    streams: tuple[StreamSchema, ...]
    limits: RuleLimits

    @classmethod
    def of(cls, streams: Mapping[str, StreamSchema], limits: RuleLimits) -> _Context:
        return cls(tuple(streams[name] for name in sorted(streams)), limits)


@functools.lru_cache(maxsize=_COMPILED_KEPT)
def _compile(value: bytes, context: _Context) -> CompiledRule:
    rule = decode_record(value, len(value))
    return compile_rule(rule, {s.name: s for s in context.streams}, context.limits)


def _said(error: RuleError) -> str:
    return error.render() if isinstance(error, ExpressionError) else str(error)
