"""The releases of a snapshot as values. Pure functions."""

from __future__ import annotations

from functools import lru_cache

from headgate.web.problems import not_found
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.values import ReleasedDocument, ReleasedRule, ReleaseValue
from rulecore.documents.status import Subject


@lru_cache(8)
def list_releases(snapshot: Snapshot) -> tuple[ReleaseValue, ...]:
    """Return the releases, the newest first."""
    entries = snapshot.history.entries
    rules: dict[str, list[tuple[int, ReleasedRule]]] = {}
    others: dict[str, list[tuple[int, ReleasedDocument]]] = {}
    last: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(entries):
        status = entry.status
        last[status.subject, status.name] = entry.written.control.offset
        if status.release is None:
            continue
        if status.subject in (Subject.FEATURE, Subject.DECISION_POLICY):
            others.setdefault(status.release, []).append((index, _document(snapshot, index)))
        elif status.subject is Subject.RULE:
            deleted = status.status == "deleted"
            rules.setdefault(status.release, []).append(
                (
                    index,
                    ReleasedRule(
                        rule=status.name,
                        version=None if deleted else status.version,
                        before=snapshot.history.before(status.name, index),
                        status=status.status,
                    ),
                )
            )
    found = []
    for entry in reversed(entries):
        if entry.status.subject is not Subject.RELEASE:
            continue
        name, own = entry.status.name, rules.get(entry.status.name, [])
        offset = entry.written.control.offset
        documents = others.get(name, [])
        names = [(Subject.RULE, one.rule) for _, one in own] + [(one.subject, one.name) for _, one in documents]
        newest = max([offset, *(last[of] for of in names)])
        found.append(
            ReleaseValue(
                name=name,
                etag=f'"s{newest}"',
                offset=offset,
                time_ms=entry.written.time_ms,
                by=entry.written.by,
                why=entry.written.why,
                status=entry.status.status,
                reason=entry.status.reason,
                rules=tuple(one for index, one in own if entries[index].written.control.offset <= offset),
                others=tuple(one for index, one in documents if entries[index].written.control.offset <= offset),
            )
        )
    return tuple(found)


def _document(snapshot: Snapshot, index: int) -> ReleasedDocument:
    """Return a feature or decision policy of a release. ``index``: of its entry."""
    status = snapshot.history.entries[index].status
    return ReleasedDocument(
        subject=status.subject.value,
        name=status.name,
        version=None if status.status == "deleted" else status.version,
        before=snapshot.history.named_before(status.subject, status.name, index),
        status=status.status,
    )


def find_release(snapshot: Snapshot, name: str) -> ReleaseValue:
    """Return the newest release of this name. ``ProblemError`` if there is none."""
    found = next((one for one in list_releases(snapshot) if one.name == name), None)
    if found is None:
        raise not_found(f"app {snapshot.app} has no release {name}")
    return found
