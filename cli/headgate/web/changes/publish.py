"""Publishes, pauses and rolls back rules, as the commands do; a lost update is refused.

Two people who read the same version and both change it: the second one's ETag is old, and the change is refused (412).
If another console or a command writes between the check and the record, the app rejects the second record, because
its version is not above the first. A request with an ``Idempotency-Key`` that was made before finds its own control
record by the header ``request`` and gives the same outcome, also after a restart of the console.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate.rules.publish import ChangeNote, ControlChange, ControlResponse, rule_change, write_changes
from headgate.rules.signing import KeyHolder
from headgate.web.access.rights import ConsoleSession
from headgate.web.access.roles import Role
from headgate.web.changes.check import check_text
from headgate.web.changes.propose import sign_for
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from headgate.web.state.app_reader import AppReader, Snapshot
from headgate.web.state.rule_views import find_etag, find_rule
from headgate.web.state.values import OutcomeValue
from rulecore.documents.rule import Rule, RuleMode, canonical_json, parse_mode
from rulecore.documents.slots import Slot
from rulecore.documents.status import StatusKind, Subject
from rulecore.errors import RuleSetError
from rulecore.ruleset.history import roll_back

_POLL_S = 0.1
_KEY_CHARACTERS = 200
NEW = "*"
#: The subjects that have an entity tag of their own.
_TAGGED = (Subject.RULE, Subject.LIST, Subject.STREAM, Subject.FEATURE, Subject.DECISION_POLICY)


@dataclass(frozen=True, slots=True)
class Terms:
    """``etag``: of If-Match, or ``NEW`` for a rule that must not exist yet. ``by``: the author's session. ``key``: the
    Idempotency-Key. ``wait_ms``: longest wait for the app's answer."""

    etag: str | None
    by: ConsoleSession
    why: str | None = None
    key: str | None = None
    wait_ms: int = 10_000


class RuleWriter:
    """Writes the rules of one app. ``key``: signs each change for its author, as a proposal; None: nobody signs."""

    def __init__(
        self, reader: AppReader, key: KeyHolder | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader, self._key, self._now_s = reader, key, now_s

    def publish(self, rule_id: str, text: str, mode: str | None, terms: Terms) -> OutcomeValue:
        """Publish the rule in a YAML text. ``mode``: instead of the one in the text."""

        def rule(snapshot: Snapshot) -> Rule:
            checked = check_text(snapshot, text)
            found = checked.require()
            if found.id != rule_id:
                raise _invalid("id", f"the rule's id is {found.id}; the address names {rule_id}")
            newest = snapshot.history.newest(rule_id)
            if found.version <= newest and checked.loaded is not None:
                place = checked.loaded.document.place(("version",))
                message = f"version {found.version} is not above {newest}, the newest; write version: {newest + 1}"
                where = ProblemPlace(line=place.line, column=place.column, path="version", message=message)
                raise ProblemError(422, ProblemCode.INVALID_RULE, message, [where])
            return found if mode is None else in_mode(found, mode)

        return self._change(rule_id, f"publish {mode} {text}", rule, terms)

    def set_mode(self, rule_id: str, mode: str, version: int | None, terms: Terms) -> OutcomeValue:
        """Publish a version that has a slot again, under a new number, in another mode: pause, disable, go live.

        ``version`` None: the only one, or the live one to pause or retire.
        """

        def rule(snapshot: Snapshot) -> Rule:
            chosen = snapshot.history.documents[rule_id, _choose_version(snapshot, rule_id, mode, version)]
            numbered = chosen.model_copy(update={"version": snapshot.history.newest(rule_id) + 1})
            return in_mode(numbered, mode)

        return self._change(rule_id, f"mode {mode} {version}", rule, terms)

    def roll_back(self, rule_id: str, to: int | None, terms: Terms) -> OutcomeValue:
        """Publish an earlier version again, under a new number. ``to``: None for the one that was live before."""

        def rule(snapshot: Snapshot) -> Rule:
            find_rule(snapshot, rule_id)
            try:
                return roll_back(snapshot.history, rule_id, to)
            except RuleSetError as error:
                raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None

        return self._change(rule_id, f"roll back {to}", rule, terms)

    # --- the way of a change ------------------------------------------------------------------------------------

    def _change(self, rule_id: str, what: str, make: Callable[[Snapshot], Rule], terms: Terms) -> OutcomeValue:
        def changes(snapshot: Snapshot) -> list[ControlChange]:
            check_etag(snapshot, Subject.RULE, rule_id, terms)
            rule = make(snapshot)
            check_scope(snapshot, rule, terms.by)
            return [self._record(rule, terms)]

        offset, repeated = write_once(self._reader, terms, change_digest(rule_id, what), changes)
        what_changed = (Subject.RULE, rule_id)
        return await_outcome(self._reader, what_changed, offset, terms, repeated=repeated, now_s=self._now_s)

    def _record(self, rule: Rule, terms: Terms) -> ControlChange:
        if self._key is None:
            return rule_change(rule)
        signing = sign_for(self._key, terms.by, self._reader.app.name, [rule])
        return signing.proposal_change([rule], (), terms.why or "", int(time.time() * 1000))


def change_digest(name: str, what: str) -> str:
    """Return a digest of a change, by which a repeated request is told from another one with its key."""
    return hashlib.blake2b(f"{name} {what}".encode(), digest_size=16).hexdigest()


def write_once(
    reader: AppReader, terms: Terms, digest: str, make: Callable[[Snapshot], Sequence[ControlChange]]
) -> tuple[int, bool]:
    """Write the changes that ``make`` returns, unless the same request has written them before; return the offset of
    the last one, and whether it was there. ``digest``: of ``change_digest``. The last one alone names the request."""
    with reader.lock:
        snapshot = reader.snapshot()
        earlier = _find_request(snapshot, terms, digest)
        if earlier is not None:
            return earlier, True
        *parts, change = make(snapshot)
        request = None if terms.key is None else f"{terms.key} {digest}"
        if parts:
            write_changes(reader.kafka, reader.topics, parts, ChangeNote(terms.by.subject, terms.why))
        note = ChangeNote(terms.by.subject, terms.why, request)
        (position,) = write_changes(reader.kafka, reader.topics, [change], note)
        return position.offset, False


def await_outcome(
    reader: AppReader,
    changed: tuple[Subject, str],
    offset: int,
    terms: Terms,
    *,
    repeated: bool,
    now_s: Callable[[], float] = time.monotonic,
) -> OutcomeValue:
    """Wait for the app's answer to the record at ``offset``. ``changed``: its subject and name. ``ProblemError`` if the
    app has rejected the change."""
    deadline, (subject, name) = now_s() + terms.wait_ms / 1000, changed
    while True:
        snapshot = reader.snapshot()
        answer = snapshot.answers.get((offset, subject.value, name)) or _of_proposal(snapshot, offset)
        if answer is not None or now_s() >= deadline:
            break
        time.sleep(_POLL_S)
    if answer is not None and answer.status == StatusKind.REJECTED:
        raise ProblemError(409, ProblemCode.REJECTED, answer.reason or "the app gave no reason")
    own = (entry.status for entry in snapshot.history.entries if entry.written.control.offset == offset)
    version = next((status.version for status in own if status.name == name), None)
    return OutcomeValue(
        rule=name,
        version=version or 0,
        offset=offset,
        status=None if answer is None else answer.status,
        reason=None if answer is None else answer.reason,
        batch=None if answer is None else answer.batch,
        etag=find_etag(snapshot, name, subject) if subject in _TAGGED else "",
        repeated=repeated,
    )


def _find_request(snapshot: Snapshot, terms: Terms, digest: str) -> int | None:
    """Return the offset of the record that the same request has written before. ``ProblemError`` if the key belongs to
    another change, or is none."""
    if terms.key is None:
        return None
    if not terms.key.isascii() or not terms.key.isprintable() or " " in terms.key or len(terms.key) > _KEY_CHARACTERS:
        raise _invalid("Idempotency-Key", f"up to {_KEY_CHARACTERS} letters, digits and signs without blanks")
    if terms.key not in snapshot.requests:
        return None
    offset, known = snapshot.requests[terms.key]
    if known != digest:
        detail = f"the key {terms.key} was used for another change, at offset {offset} of the control topic"
        raise ProblemError(422, ProblemCode.KEY_REUSED, detail)
    return offset


def _of_proposal(snapshot: Snapshot, offset: int) -> ControlResponse | None:
    """Return the answer to a signed change that does not count yet."""
    own = (one.status for one in reversed(snapshot.history.entries) if one.written.control.offset == offset)
    names = (status.name for status in own if status.subject is Subject.PROPOSAL)
    found = (snapshot.answers.get((offset, Subject.PROPOSAL.value, name)) for name in names)
    return next((one for one in found if one is not None and one.status != StatusKind.ACCEPTED), None)


def check_scope(snapshot: Snapshot, rule: Rule, by: ConsoleSession) -> None:
    """Refuse a change of a rule whose tags and owner, before or after, are none of the session's."""
    held = (one.rule for place, one in snapshot.history.rules.rules.items() if place.rule == rule.id)
    for one in (rule, *held):
        if not by.may_change(Role.PUBLISHER, snapshot.app, one.tags, one.owner):
            tags = ", ".join(one.tags) or "none"
            detail = f"{by.subject} is not a publisher of rules of {one.owner} with tags {tags}"
            raise ProblemError(403, ProblemCode.NOT_ALLOWED, detail)


def check_etag(snapshot: Snapshot, subject: Subject, name: str, terms: Terms) -> None:
    """Refuse a change of a rule, list or stream whose precondition is missing (428) or no longer true (412)."""
    present = find_etag(snapshot, name, subject)
    if terms.etag is None:
        raise ProblemError(
            428, ProblemCode.NO_PRECONDITION, f"send If-Match: {present}, the ETag of what you have read"
        )
    if (terms.etag == NEW and snapshot.is_in_force(name, subject)) or terms.etag not in (NEW, present):
        last = snapshot.last_change(name, subject)
        who = "" if last is None or last.by is None else f" by {last.by}"
        detail = f"{subject} {name} was changed meanwhile{who}; its ETag is now {present}"
        raise ProblemError(412, ProblemCode.CHANGED_MEANWHILE, detail, headers={"ETag": present})


def _choose_version(snapshot: Snapshot, rule_id: str, mode: str, version: int | None) -> int:
    """Return the version that gets another mode. ``ProblemError`` if none is named and several could be meant."""
    slots = find_rule(snapshot, rule_id).slots
    live = [one for one in slots if one.slot == Slot.LIVE.value]
    if version is not None:
        meant = [one for one in slots if one.version == version]
    else:
        meant = [*slots] if len(slots) == 1 else live if mode in (RuleMode.PAUSED, RuleMode.RETIRED) else []
    if not meant:
        known = ", ".join(f"{one.version} ({one.slot})" for one in slots) or "none; roll back to one"
        wrong = "name the one that is meant" if version is None else f"{version} has no slot"
        raise _invalid("version", f"{wrong}: rule {rule_id} has the versions {known}")
    return meant[0].version


def in_mode(rule: Rule, mode: str) -> Rule:
    """Return the rule in another mode. ``ProblemError`` if there is no such mode."""
    try:
        changed = rule.model_copy(update={"mode": parse_mode(mode)})
    except ValueError as error:
        raise _invalid("mode", f"{error}; a canary is canary=10%") from None
    canonical_json(changed)
    return changed


def _invalid(path: str, message: str) -> ProblemError:
    return ProblemError(
        422, ProblemCode.INVALID_REQUEST, f"{path}: {message}", [ProblemPlace(path=path, message=message)]
    )
