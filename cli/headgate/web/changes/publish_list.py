"""Publishes lists, as ``headgate lists publish`` does; a lost update is refused, as for rules."""

from __future__ import annotations

from headgate.rules.publish import ControlChange
from headgate.web.access.roles import Role
from headgate.web.changes.publish import Terms, await_outcome, change_digest, check_etag, write_once
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from headgate.web.state.app_reader import AppReader, Snapshot
from headgate.web.state.values import OutcomeValue
from rulecore.documents.control_keys import LIST_PART_KEY
from rulecore.documents.status import Subject
from rulecore.documents.yaml_reader import Problem
from rulecore.lists.files import ListFile, load_list_text

_FILE = "list.yaml"


def publish_list(reader: AppReader, name: str, text: str, terms: Terms) -> OutcomeValue:
    """Publish the list in a YAML text that holds its entries. Parts that the app has are not sent again."""

    def changes(snapshot: Snapshot) -> list[ControlChange]:
        check_etag(snapshot, Subject.LIST, name, terms)
        found = _read(text, name)
        _check_scope(snapshot, found, terms)
        *parts, (key, head) = found.records()
        missing = [(k, v) for k, v in parts if k.removeprefix(LIST_PART_KEY) not in snapshot.history.lists.parts]
        return [*(ControlChange(k, v, k) for k, v in missing), ControlChange(key, head, name, found.head.version)]

    offset, repeated = write_once(reader, terms, change_digest(f"list {name}", f"publish {text}"), changes)
    return await_outcome(reader, (Subject.LIST, name), offset, terms, repeated=repeated)


def _read(text: str, name: str) -> ListFile:
    found, problems = load_list_text(text, _FILE)
    if found is None:
        places = [ProblemPlace.of(problem) for problem in problems]
        raise ProblemError(422, ProblemCode.INVALID_LIST, "the list has a mistake; nothing was published", places)
    if found.head.list != name:
        message = f"the list's name is {found.head.list}; the address names {name}"
        place = ProblemPlace.of(Problem(_FILE, found.document.place(("list",)), "list", message))
        raise ProblemError(422, ProblemCode.INVALID_LIST, message, [place])
    return found


def _check_scope(snapshot: Snapshot, found: ListFile, terms: Terms) -> None:
    """Refuse a change of a list whose owner, before or after, is none of the session's. Lists have no tags."""
    live = snapshot.history.lists.lists.get(found.head.list)
    for head in (found.head, *(() if live is None else (live.head,))):
        if not terms.by.may_change(Role.PUBLISHER, snapshot.app, (), head.owner):
            detail = f"{terms.by.subject} is not a publisher of lists of {head.owner}"
            raise ProblemError(403, ProblemCode.NOT_ALLOWED, detail)
