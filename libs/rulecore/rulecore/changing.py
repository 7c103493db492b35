"""Control records, applied to a copy of a rule set's tables.

Promises: a record that is refused has changed nothing; a release that is refused at one of its changes has changed
nothing. Refuses to know the events and the state of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from rulecore.compiled import RuleLimits
from rulecore.control_keys import FILL_KEY, RELEASE_KEY, STAGED_KEY, subject_of
from rulecore.errors import ExpressionError, RuleError, RuleSetError
from rulecore.fills import Fill, FillRows, decode_fill, open_fill, open_part
from rulecore.load import decode_record
from rulecore.model import Rule, canonical_json
from rulecore.placement import Placement
from rulecore.releases import Release, decode_release, digest_of
from rulecore.slots import Place, Slot
from rulecore.status import Status, StatusKind, Subject, placed
from rulecore.versions import ChangeBytes, compiled_version, decoded_part, with_bytes
from streamcore.kernel import Control

if TYPE_CHECKING:
    from rulecore.ruleset import RuleSet

_REASONS: Final = 20  # refused changes of a release that are told


@dataclass(slots=True)
class Change:
    """The next set while records are applied to it. ``restaged``: parts of releases came or went."""

    versions: Placement
    staged: dict[str, bytes]
    fills: list[FillRows] = field(default_factory=list)
    restaged: bool = False

    @classmethod
    def of(cls, before: RuleSet, clock_ms: int) -> Change:
        """A copy to change."""
        return cls(Placement.of(before, clock_ms), dict(before.staged))

    @property
    def touched(self) -> bool:
        """Whether something is to be stored."""
        return self.versions.touched or self.restaged or bool(self.fills)

    @property
    def _limits(self) -> RuleLimits:
        return self.versions.context.limits

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
            return self.versions.delete(name)
        rule: Rule | None = None
        try:
            rule = decode_record(value, self._limits.record_bytes)
            if name != rule.id:
                raise RuleSetError(f"the record's key is {name!r} and the rule's id {rule.id!r}; they must be the same")
            return self.versions.put(rule, canonical_json(rule))
        except RuleError as error:
            version, mode = (None, None) if rule is None else (rule.version, rule.mode_text)
            return Status(name, version, StatusKind.REJECTED, said(error), 0, 0, 0, mode=mode)

    def _stage(self, digest: str, value: bytes | None) -> Status:
        if value is None:
            self._unstage(digest)
            return Status(digest, None, StatusKind.DELETED, None, 0, 0, 0, Subject.PART)
        if digest_of(value) != digest:
            raise RuleSetError(f"the part's bytes have the digest {digest_of(value)}, its key says {digest[:40]}")
        kept = sum(map(len, self.staged.values())) + len(value)
        if digest not in self.staged and kept > self._limits.staged_bytes:
            raise RuleSetError(
                f"parts of releases that did not come have {kept} bytes, at most {self._limits.staged_bytes} are kept; "
                "publish the release, or delete parts"
            )
        said_early = self._prepare(value)
        self.staged[digest] = value
        self.restaged = True
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
                    compiled_version(version, self.versions.context)
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
        finally:
            for digest in fill.parts:
                self._unstage(digest)
        return Status(name, fill.version, StatusKind.ACCEPTED, None, 0, 0, 0, Subject.FILL)

    def _opened(self, name: str, fill: Fill) -> FillRows:
        places = [Place(name, slot) for slot in (Slot.LIVE, Slot.CANDIDATE)]
        known = self.versions.rules
        rules = [known[p] for p in places if p in known and known[p].rule.version == fill.version]
        if name != fill.rule or not rules:
            raise RuleSetError(f"version {fill.version} of {name!r} does not count; a fill is for one that does")
        schemas = {schema.name: schema for schema in self.versions.context.streams}
        return open_fill(fill, rules[0], schemas[rules[0].rule.on], self.staged)

    def _release(self, name: str, value: bytes | None) -> Iterator[Status]:
        """All changes on a copy, then the copy instead of ours."""
        if value is None:
            yield _release_status(name, StatusKind.DELETED, "a release is no state; nothing changed")
            return
        release = decode_release(value)
        if release.release != name:
            raise RuleSetError(f"the record's key says release {name!r}, its value {release.release!r}")
        draft = self.versions.copy()
        answers, refused = _all(draft, self._changes(release))
        self._drop_parts(release)
        if refused:
            more = f"\nand {len(refused) - _REASONS} more" if len(refused) > _REASONS else ""
            reason = f"{len(refused)} of {len(answers) + len(refused)} changes are refused, so nothing changed:\n"
            yield _release_status(name, StatusKind.REJECTED, reason + "\n".join(refused[:_REASONS]) + more)
            return
        self.versions = draft
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
            self._unstage(digest)

    def _unstage(self, digest: str) -> None:
        self.restaged |= self.staged.pop(digest, None) is not None


def _all(versions: Placement, changes: Iterable[ChangeBytes]) -> tuple[list[Status], list[str]]:
    """Make all changes that can be made; their answers, and why the others cannot."""
    answers: list[Status] = []
    refused: list[str] = []
    for change, version in changes:
        try:
            answers.append(
                versions.delete(change.delete) if change.rule is None else versions.put(change.rule, version)
            )
        except RuleError as error:
            refused.append(f"{change.delete or (change.rule and change.rule.id)}: {said(error)}")
    return answers, refused


def said(error: RuleError) -> str:
    """What an author reads."""
    return error.render() if isinstance(error, ExpressionError) else str(error)


def _release_status(name: str, kind: StatusKind, reason: str | None) -> Status:
    return Status(name, None, kind, reason, 0, 0, 0, Subject.RELEASE)


def _refused(key: str, reason: str) -> Status:
    subject, name = subject_of(key)
    return Status(name, None, StatusKind.REJECTED, reason, 0, 0, 0, subject)
