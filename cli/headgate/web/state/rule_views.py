"""The rules, changes, lists and streams of a snapshot as values. Pure functions."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import cast

from pydantic import JsonValue

from headgate.rules.publish import ControlResponse
from headgate.rules.render import find_policy
from headgate.rules.yaml_text import short_document, yaml_text
from headgate.web.problems import not_found
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.values import (
    ChangeValue,
    DocumentValue,
    FieldValue,
    ListValue,
    RuleValue,
    StreamValue,
    TrialValue,
    VersionValue,
)
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import Rule
from rulecore.documents.slots import Slot, VersionSlot, version_key
from rulecore.documents.status import Subject
from rulecore.ruleset.history import HistoryEntry
from rulecore.streams import stream_names

#: What is counted of a trial: subjects for which only the live version fired, only the one on trial, or both.
_COMPARED = ("only_live", "only_candidate", "both")
_SNAPSHOTS = 8  # of which values are kept: of some apps, and while one is followed by the next
_SLOTS = {slot: number for number, slot in enumerate(Slot)}


def find_etag(snapshot: Snapshot, name: str, subject: Subject = Subject.RULE) -> str:
    """Return the entity tag of a rule, list or stream: the offset of the last record about it, ``"none"`` without."""
    last = snapshot.last_change(name, subject)
    return f'"{"none" if last is None else f"{subject.value[0]}{last.control.offset}"}"'


@lru_cache(_SNAPSHOTS)
def list_versions(snapshot: Snapshot) -> tuple[VersionValue, ...]:
    """Return the versions in slots, by rule and slot."""
    published = _publications(snapshot)
    places = sorted(snapshot.history.rules.rules.items(), key=lambda pair: (pair[0].rule, _SLOTS[pair[0].slot]))
    return tuple(_version(snapshot, place, compiled, published) for place, compiled in places)


def find_rule(snapshot: Snapshot, rule: str) -> RuleValue:
    """Return a rule. ``ProblemError`` if the app has never accepted one of this id."""
    history = snapshot.history
    versions = tuple(sorted(version for name, version in history.documents if name == rule))
    if not versions:
        raise not_found(f"app {snapshot.app} has no rule {rule}")
    published = _publications(snapshot)
    held = [
        _version(snapshot, place, compiled, published)
        for slot in Slot
        if (compiled := history.rules.rules.get(place := VersionSlot(rule, slot))) is not None
    ]
    newest = history.documents[rule, max((one.version for one in held), default=versions[-1])]
    return RuleValue(
        rule=rule,
        etag=find_etag(snapshot, rule),
        slots=tuple(held),
        newest=versions[-1],
        versions=versions,
        document=_document(newest),
        yaml=yaml_text(newest),
        trial=_trial(snapshot, rule, held),
    )


def find_version(snapshot: Snapshot, rule: str, version: int) -> DocumentValue:
    """Return a version of a rule. ``ProblemError`` if there is none."""
    found = snapshot.history.documents.get((rule, version))
    if found is None:
        raise not_found(f"app {snapshot.app} has no version {version} of rule {rule}")
    return DocumentValue(rule=rule, version=version, document=_document(found), yaml=yaml_text(found))


def newest_document(snapshot: Snapshot, rule: str) -> Rule:
    """Return the newest version in a slot, else the newest of all. ``ProblemError`` if there is none."""
    value = find_rule(snapshot, rule)
    version = max((one.version for one in value.slots), default=value.newest)
    return snapshot.history.documents[rule, version]


def list_changes(snapshot: Snapshot) -> Iterator[ChangeValue]:
    """Yield all changes, the newest first."""
    return (read_change(snapshot, entry) for entry in reversed(snapshot.history.entries))


def list_lists(snapshot: Snapshot) -> list[ListValue]:
    """Return the lists, by name."""
    return [
        ListValue(
            name=name,
            version=live.head.version,
            owner=live.head.owner,
            description=live.head.description,
            of=str(live.head.of),
            value=None if live.head.value is None else str(live.head.value),
            entries=None if (entries := live.entries()) is None else len(entries.numbers),
            expires_ms=live.head.expires,
            rules=snapshot.history.rules.rules_using_list(name),
        )
        for name, live in sorted(snapshot.history.lists.lists.items())
    ]


def find_list(snapshot: Snapshot, name: str) -> ListValue:
    """Return a list. ``ProblemError`` if the app has none of this name."""
    found = next((one for one in list_lists(snapshot) if one.name == name), None)
    if found is None:
        raise not_found(f"app {snapshot.app} has no list {name}")
    return found


def find_stream(snapshot: Snapshot, name: str) -> StreamValue:
    """Return a stream. ``ProblemError`` if the app has none of this name."""
    found = next((one for one in list_streams(snapshot) if one.name == name), None)
    if found is None:
        raise not_found(f"app {snapshot.app} has no stream {name}")
    return found


def list_streams(snapshot: Snapshot) -> list[StreamValue]:
    """Return the streams, by name."""
    rules = snapshot.history.rules
    readers: dict[str, set[str]] = {}
    versions: Counter[str] = Counter()
    for place, compiled in rules.rules.items():
        for name in stream_names(compiled.rule.on):
            readers.setdefault(name, set()).add(place.rule)
            versions[name] += 1
    return [
        StreamValue(
            name=name,
            version=schema.version,
            event_time=schema.event_time,
            keys=schema.keys,
            fields=tuple(FieldValue(name=field.name, type=str(field.type)) for field in schema.fields),
            rules=tuple(sorted(readers.get(name, ()))),
            versions=versions[name],
            origin="file" if snapshot.files.get(name) == schema else "published",
        )
        for name, schema in sorted(rules.streams.items())
    ]


def select_versions(versions: Iterable[VersionValue], words: Mapping[str, str]) -> list[VersionValue]:
    """Return the versions that have all the words: ``text`` in id, owner, tags or description; other names exactly."""
    text = words.get("text", "").lower()
    exact = {name: word for name, word in words.items() if name != "text" and word}
    return [
        one
        for one in versions
        if text in " ".join((one.rule, one.owner, *one.tags, one.description)).lower()
        and all(_has(one, name, word) for name, word in exact.items())
    ]


def _has(version: VersionValue, name: str, word: str) -> bool:
    if name == "tag":
        return word in version.tags
    value = str(getattr(version, name))
    return value == word or (name == "mode" and value.startswith(f"{word} "))


@lru_cache(_SNAPSHOTS)
def _publications(snapshot: Snapshot) -> Mapping[tuple[str, int | None], HistoryEntry]:
    """Return the entry that published each version."""
    entries = (one for one in snapshot.history.entries if one.status.subject is Subject.RULE)
    return {(one.status.name, one.status.version): one for one in entries}


def _version(
    snapshot: Snapshot,
    place: VersionSlot,
    compiled: CompiledRule,
    published: Mapping[tuple[str, int | None], HistoryEntry],
) -> VersionValue:
    rule: Rule = compiled.rule
    entry = published.get((rule.id, rule.version))
    answer = None
    if entry is not None:
        answer = snapshot.answers.get((entry.written.control.offset, Subject.RULE.value, rule.id))
    answer = snapshot.changes.get((rule.id, rule.version), answer)
    quarantined = snapshot.history.rules.quarantined.get(version_key(rule))
    policies = snapshot.history.rules.policies
    made_of = (compiled, entry, answer, quarantined, policies)
    known = snapshot.views.get(place)
    if known is not None and all(map(operator.is_, known, made_of)):
        assert isinstance(known[-1], VersionValue)
        return known[-1]
    value = VersionValue(
        rule=rule.id,
        version=rule.version,
        slot=place.slot.value,
        mode=rule.mode_text,
        kind=rule.kind.value,
        stream=rule.on,
        severity=rule.then.severity.value,
        owner=rule.owner,
        tags=rule.tags,
        description=rule.description,
        tests=len(rule.tests),
        status=None if answer is None else answer.status,
        reason=None if answer is None else answer.reason,
        policy=find_policy(place.slot, rule, policies),
        quarantined=quarantined,
        published_ms=None if entry is None else entry.written.time_ms,
        by=None if entry is None else entry.status.by or entry.written.by,
    )
    snapshot.views[place] = (*made_of, value)
    return value


def find_answer(snapshot: Snapshot, entry: HistoryEntry) -> ControlResponse | None:
    """Return the app's own answer to a change; None if there is none yet."""
    status = entry.status
    return snapshot.answers.get((entry.written.control.offset, status.subject.value, status.name))


def read_change(snapshot: Snapshot, entry: HistoryEntry) -> ChangeValue:
    """Return a change with the app's answer."""
    status, written, answer = entry.status, entry.written, find_answer(snapshot, entry)
    return ChangeValue(
        offset=written.control.offset,
        time_ms=written.time_ms,
        by=written.by if status.by is None else status.by,
        signed=status.by is not None,
        subject=status.subject.value,
        name=status.name,
        version=status.version,
        mode=status.mode,
        status=status.status.value if answer is None else answer.status,
        answered=answer is not None,
        release=status.release,
        why=written.why,
        reason=status.reason if answer is None else answer.reason,
    )


def _trial(snapshot: Snapshot, rule: str, held: Iterable[VersionValue]) -> TrialValue | None:
    """Return the counts of the version on trial, of all shards together."""
    for one in held:
        shards = [counts for place, counts in snapshot.compared.items() if place[:2] == (rule, one.version)]
        if one.slot == Slot.CANDIDATE.value and shards:
            sums = {name: sum(counts.get(name, 0) for counts in shards) for name in _COMPARED}
            return TrialValue(version=one.version, counts=sums)
    return None


def _document(rule: Rule) -> dict[str, JsonValue]:
    return cast("dict[str, JsonValue]", short_document(rule))
