"""Rolls a release back: all its rules as they were before it, in one release, as ``headgate rules rollback --release``
does."""

from __future__ import annotations

import time
from dataclasses import replace

from headgate.rules.publish import ControlChange, release_changes
from headgate.rules.signing import KeyHolder
from headgate.web.changes.propose import sign_for
from headgate.web.changes.publish import Terms, await_outcome, change_digest, check_scope, write_once
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.state.app_reader import AppReader, Snapshot
from headgate.web.state.releases import find_release
from headgate.web.state.values import OutcomeValue
from rulecore.documents.status import Subject
from rulecore.errors import RuleSetError
from rulecore.ruleset.history import revert_release

_NAME_CHARACTERS = 80


def roll_back_release(reader: AppReader, name: str, terms: Terms, key: KeyHolder | None = None) -> OutcomeValue:
    """Publish the rules before a release as the release ``undo-NAME``. ``ProblemError`` if one of its rules has changed
    since it was read, or if the app rejects it. ``key``: signs it for its author, as a proposal."""
    undo = f"undo-{name}"[:_NAME_CHARACTERS]
    terms = replace(terms, why=terms.why or f"undo release {name}")

    def changes(snapshot: Snapshot) -> list[ControlChange]:
        present = find_release(snapshot, name).etag
        if terms.etag != present:
            detail = f"a rule of release {name} was changed meanwhile; its ETag is now {present}"
            raise ProblemError(412, ProblemCode.CHANGED_MEANWHILE, detail, headers={"ETag": present})
        try:
            rules, deleted = revert_release(snapshot.history, name)
        except RuleSetError as error:
            raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None
        held = snapshot.history.rules.rules
        gone = [one.rule for place, one in held.items() if place.rule in deleted]
        for rule in (*rules, *gone):
            check_scope(snapshot, rule, terms.by)
        if key is None:
            return [*release_changes(undo, rules, deleted)]
        signing = sign_for(key, terms.by, snapshot.app, [*rules, *gone])
        return [signing.proposal_change(rules, deleted, terms.why or "", int(time.time() * 1000))]

    offset, repeated = write_once(reader, terms, change_digest(f"release {name}", "roll back"), changes)
    changed = (Subject.RELEASE, undo) if key is None else (Subject.PROPOSAL, _proposal_at(reader, offset))
    return await_outcome(reader, changed, offset, terms, repeated=repeated)


def _proposal_at(reader: AppReader, offset: int) -> str:
    """Return the name of the proposal at an offset of the control topic."""
    entries = reversed(reader.snapshot().history.entries)
    own = (one.status for one in entries if one.written.control.offset == offset)
    return next((status.name for status in own if status.subject is Subject.PROPOSAL), "")
