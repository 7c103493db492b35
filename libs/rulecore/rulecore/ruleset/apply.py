"""Control records, applied to a copy of a rule set's tables.

Promises: a record that is refused has changed nothing; a release that is refused at one of its changes has changed
nothing. Refuses to know the events and the state of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from rulecore.backfill import Backfill, BackfillRows, decode_backfill, decode_part, decode_parts
from rulecore.compile.cache import ChangeBytes, compile_version, decode_part_cached, with_canonical_bytes
from rulecore.compile.rule import RuleLimits
from rulecore.documents.control_keys import BACKFILL_KEY, RELEASE_KEY, STAGED_KEY, parse_key
from rulecore.documents.loading import decode_record
from rulecore.documents.releases import RuleRelease, decode_release, digest_part
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.slots import Slot, VersionSlot
from rulecore.documents.status import RuleStatus, StatusKind, Subject, as_reply
from rulecore.errors import ExpressionError, RuleError, RuleSetError
from rulecore.ruleset.versions import VersionTable
from streamcore.kernel import ControlRecord

_REASONS: Final = 20  # refused changes of a release that a status lists


@dataclass(slots=True)
class RuleSetUpdate:
    """The next set while records are applied to it. ``restaged``: whether staged parts were added or removed."""

    versions: VersionTable
    staged: dict[str, bytes]
    backfills: list[BackfillRows] = field(default_factory=list)
    restaged: bool = False

    @property
    def touched(self) -> bool:
        """Return whether there is something to store."""
        return self.versions.touched or self.restaged or bool(self.backfills)

    @property
    def _limits(self) -> RuleLimits:
        return self.versions.context.limits

    def record(self, record: ControlRecord) -> list[RuleStatus]:
        """Apply one record and return its statuses, without the epoch."""
        name = (record.key or b"").decode("utf-8", "replace")
        try:
            answers = list(self._apply(name, record.value))
        except RuleError as error:
            answers = [_rejected_status(name, error_text(error))]
        except Exception as error:  # a fault of ours in one record must not stop the stream
            answers = [_rejected_status(name, f"internal error: {type(error).__name__}: {error}")]
        return [as_reply(answer, record) for answer in answers]

    def _apply(self, key: str, value: bytes | None) -> Iterator[RuleStatus]:
        if key.startswith(BACKFILL_KEY):
            yield self._backfill(key.removeprefix(BACKFILL_KEY), value)
        elif key.startswith(STAGED_KEY):
            yield self._stage_part(key.removeprefix(STAGED_KEY), value)
        elif key.startswith(RELEASE_KEY):
            yield from self._release(key.removeprefix(RELEASE_KEY), value)
        else:
            yield self._rule(key, value)

    def _rule(self, name: str, value: bytes | None) -> RuleStatus:
        if value is None:
            return self.versions.delete(name)
        rule: Rule | None = None
        try:
            rule = decode_record(value, self._limits.record_bytes)
            if name != rule.id:
                raise RuleSetError(f"the record's key is {name!r} and the rule's id {rule.id!r}; they must be the same")
            return self.versions.put(rule, canonical_json(rule))
        except RuleError as error:
            version, mode = (None, None) if rule is None else (rule.version, rule.mode_text)
            return RuleStatus(name, version, StatusKind.REJECTED, error_text(error), 0, 0, 0, mode=mode)

    def _stage_part(self, digest: str, value: bytes | None) -> RuleStatus:
        if value is None:
            self._drop_part(digest)
            return RuleStatus(digest, None, StatusKind.DELETED, None, 0, 0, 0, Subject.PART)
        if digest_part(value) != digest:
            raise RuleSetError(f"the part's bytes have the digest {digest_part(value)}, its key has {digest[:40]}")
        kept = sum(map(len, self.staged.values())) + len(value)
        if digest not in self.staged and kept > self._limits.staged_bytes:
            raise RuleSetError(
                f"parts of releases that did not come have {kept} bytes, at most {self._limits.staged_bytes} are kept; "
                "publish the release, or delete parts"
            )
        warning = self._prepare(value)
        self.staged[digest] = value
        self.restaged = True
        return RuleStatus(digest, None, StatusKind.STAGED, warning, 0, 0, 0, Subject.PART)

    def _prepare(self, value: bytes) -> str | None:
        """Compile the versions of the part now, before the cut of the release, and return their errors."""
        if not value.startswith(b"["):
            decode_part(value)  # of a backfill
            return None
        refused: list[str] = []
        for change, version in decode_part_cached(value):
            if change.rule is not None:
                try:
                    compile_version(version, self.versions.context)
                except RuleError as error:
                    refused.append(f"{change.rule.id}: {error_text(error)}")
        return None if not refused else "will be refused:\n" + "\n".join(refused[:_REASONS])

    def _backfill(self, name: str, value: bytes | None) -> RuleStatus:
        """Add a backfill to the update. Its parts are removed even if they do not fit the rule."""
        if value is None:
            return RuleStatus(
                name, None, StatusKind.DELETED, "a backfill is not state; nothing changed", 0, 0, 0, Subject.BACKFILL
            )
        backfill = decode_backfill(value)
        try:
            self.backfills.append(self._decode_backfill(name, backfill))
        finally:
            for digest in backfill.parts:
                self._drop_part(digest)
        return RuleStatus(name, backfill.version, StatusKind.ACCEPTED, None, 0, 0, 0, Subject.BACKFILL)

    def _decode_backfill(self, name: str, backfill: Backfill) -> BackfillRows:
        slots = [VersionSlot(name, slot) for slot in (Slot.LIVE, Slot.CANDIDATE)]
        known = self.versions.rules
        rules = [known[p] for p in slots if p in known and known[p].rule.version == backfill.version]
        if name != backfill.rule or not rules:
            raise RuleSetError(f"version {backfill.version} of {name!r} does not count; a backfill needs one that does")
        schemas = {schema.name: schema for schema in self.versions.context.streams}
        return decode_parts(backfill, rules[0], schemas[rules[0].rule.on], self.staged)

    def _release(self, name: str, value: bytes | None) -> Iterator[RuleStatus]:
        """Apply all changes to a copy of the versions, then replace the versions by the copy."""
        if value is None:
            yield _release_status(name, StatusKind.DELETED, "a release is not state; nothing changed")
            return
        release = decode_release(value)
        if release.release != name:
            raise RuleSetError(f"the record's key names release {name!r} and its value {release.release!r}")
        draft = self.versions.copy()
        answers, refused = _apply_changes(draft, self._changes(release))
        self._drop_parts(release)
        if refused:
            more = f"\nand {len(refused) - _REASONS} more" if len(refused) > _REASONS else ""
            reason = f"{len(refused)} of {len(answers) + len(refused)} changes are refused, so nothing changed:\n"
            yield _release_status(name, StatusKind.REJECTED, reason + "\n".join(refused[:_REASONS]) + more)
            return
        self.versions = draft
        yield _release_status(name, StatusKind.ACCEPTED, None)
        yield from (replace(answer, release=name) for answer in answers)

    def _changes(self, release: RuleRelease) -> Iterator[ChangeBytes]:
        missing = [digest for digest in release.parts if digest not in self.staged]
        if missing:
            raise RuleSetError(f"part {missing[0]} is missing; publish the parts of a release before the release")
        for digest in release.parts:
            yield from decode_part_cached(self.staged[digest])
        yield from map(with_canonical_bytes, release.changes)

    def _drop_parts(self, release: RuleRelease) -> None:
        for digest in release.parts:
            self._drop_part(digest)

    def _drop_part(self, digest: str) -> None:
        self.restaged |= self.staged.pop(digest, None) is not None


def _apply_changes(versions: VersionTable, changes: Iterable[ChangeBytes]) -> tuple[list[RuleStatus], list[str]]:
    """Apply the changes that are valid; return their statuses, and the errors of the others."""
    answers: list[RuleStatus] = []
    refused: list[str] = []
    for change, version in changes:
        try:
            answers.append(
                versions.delete(change.delete) if change.rule is None else versions.put(change.rule, version)
            )
        except RuleError as error:
            refused.append(f"{change.delete or (change.rule and change.rule.id)}: {error_text(error)}")
    return answers, refused


def error_text(error: RuleError) -> str:
    """Return the error as its author reads it."""
    return error.render() if isinstance(error, ExpressionError) else str(error)


def _release_status(name: str, kind: StatusKind, reason: str | None) -> RuleStatus:
    return RuleStatus(name, None, kind, reason, 0, 0, 0, Subject.RELEASE)


def _rejected_status(key: str, reason: str) -> RuleStatus:
    subject, name = parse_key(key)
    return RuleStatus(name, None, StatusKind.REJECTED, reason, 0, 0, 0, subject)
