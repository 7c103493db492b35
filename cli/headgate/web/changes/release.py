"""Rolls a release back: all its rules as they were before it, in one release, as ``headgate rules rollback --release``
does."""

from __future__ import annotations

from headgate.rules.publish import ChangeNote, release_changes, write_changes
from headgate.web.changes.publish import Terms, await_outcome, change_digest, find_request
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.state.app_reader import AppReader
from headgate.web.state.releases import find_release
from headgate.web.state.values import OutcomeValue
from rulecore.documents.status import Subject
from rulecore.errors import RuleSetError
from rulecore.ruleset.history import revert_release

_NAME_CHARACTERS = 80


def roll_back_release(reader: AppReader, name: str, terms: Terms) -> OutcomeValue:
    """Publish the rules before a release as the release ``undo-NAME``. ``ProblemError`` if one of its rules has changed
    since it was read, or if the app rejects it."""
    undo = f"undo-{name}"[:_NAME_CHARACTERS]
    digest = change_digest(f"release {name}", "roll back")
    with reader.lock:
        snapshot = reader.snapshot()
        earlier = find_request(snapshot, terms, digest)
        offset = -1 if earlier is None else earlier
        if earlier is None:
            present = find_release(snapshot, name).etag
            if terms.etag != present:
                detail = f"a rule of release {name} was changed meanwhile; its ETag is now {present}"
                raise ProblemError(412, ProblemCode.CHANGED_MEANWHILE, detail, headers={"ETag": present})
            try:
                rules, deleted = revert_release(snapshot.history, name)
            except RuleSetError as error:
                raise ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error)) from None
            *parts, release = release_changes(undo, rules, deleted)
            why = terms.why or f"undo release {name}"
            write_changes(reader.kafka, reader.topics, parts, ChangeNote(terms.by, why))
            request = None if terms.key is None else f"{terms.key} {digest}"
            (position,) = write_changes(reader.kafka, reader.topics, [release], ChangeNote(terms.by, why, request))
            offset = position.offset
    return await_outcome(reader, (Subject.RELEASE, undo), offset, terms, repeated=earlier is not None)
