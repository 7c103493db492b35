"""Sends rules to a running app on the control topic and reads its answers from the status topic.

An answer refers to a record of the control topic by that record's position, so several people may publish at once.
Promises: the records that ``publish`` returns are on the control topic, whether or not the app runs; an answer comes
from the app itself. The clock serves only for the caller's time limit.
"""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from headgate.errors import InputError
from rulecore.documents.control_keys import DECISION_POLICY_KEY, FEATURE_KEY, parse_key
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.published_feature import PublishedFeature, encode_feature
from rulecore.documents.releases import NO_NAMED, NamedChanges, to_records
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.status import StatusKind, Subject
from rulecore.ruleset.history import ControlEntry
from streamcore.kafka.control_topic import ControlLog, RecordOffset
from streamcore.kafka.readers import Follower, Record, end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe
from streamcore.kernel import ControlRecord
from streamcore.wire.lanes import STATUS, Headers

_POLL_MS = 200
#: The header of a control record that names the request which wrote it.
REQUEST = "request"


@dataclass(frozen=True, slots=True)
class ControlResponse:
    """The app's answer about a rule, a release or a part of one. ``reason`` may have several lines.

    ``position`` is that of the control record; its offset is -1 for a change that no record requested (quarantine,
    time). ``batch``: the number of the cut that gave it, from which an accepted change counts.
    """

    rule: str
    version: int | None
    status: str
    reason: str | None
    position: RecordOffset
    subject: str = Subject.RULE
    mode: str | None = None
    batch: int | None = None

    @property
    def accepted(self) -> bool:
        """Whether the app now holds the published change."""
        return self.status in (StatusKind.ACCEPTED, StatusKind.DELETED, StatusKind.STAGED, StatusKind.PROPOSED)


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """The author of a change and the reason for it. ``request``: the caller's own name of the request, by which it
    finds the change again. All are headers of the control record."""

    by: str
    why: str | None = None
    request: str | None = None

    @property
    def headers(self) -> Headers:
        """The note as headers of the control record."""
        given = (("by", self.by), ("why", self.why), (REQUEST, self.request))
        return tuple((name, text.encode()) for name, text in given if text)


def note_for_user(why: str | None) -> ChangeNote:
    """Return a note that names the current user as the author."""
    return ChangeNote(f"{getpass.getuser()}@{socket.gethostname()}", why)


@dataclass(frozen=True, slots=True)
class ControlChange:
    """A control record to publish, and its name for users."""

    key: str
    value: bytes | None
    name: str
    version: int | None = None

    @property
    def subject(self) -> Subject:
        """The subject of the app's answer."""
        return parse_key(self.key)[0]


@dataclass(frozen=True, slots=True)
class PublishedChange:
    """A change on the control topic. ``response`` is None when the app was not asked or did not answer in time."""

    change: ControlChange
    position: RecordOffset
    response: ControlResponse | None


@dataclass(frozen=True, slots=True)
class AppTopics:
    """The control topic and the status topic of an app."""

    app: str

    @property
    def control(self) -> str:
        """The control topic, for rules."""
        return f"{self.app}.control"

    @property
    def status(self) -> str:
        """The status topic, for the app's responses."""
        return f"{self.app}.{STATUS}"


def require_app(kafka: KafkaSettings, topics: AppTopics) -> None:
    """Raise ``InputError`` unless the app has been started on this Kafka at least once."""
    found = describe(kafka, [topics.control, topics.status])
    if topics.control in found and topics.status not in found:
        raise InputError(
            f"app {topics.app}: it has no topic {topics.status}: it answers no changes, as a service and a program "
            "that is a function do; change its settings or files, and start it anew from a savepoint"
        )
    if missing := [name for name in (topics.control, topics.status) if name not in found]:
        raise InputError(
            f"app {topics.app}: no topic {missing[0]} at {kafka.bootstrap}; start the app once, "
            "or correct --app or --bootstrap"
        )


def publish(
    kafka: KafkaSettings, topics: AppTopics, changes: Sequence[ControlChange], note: ChangeNote, wait_ms: int | None
) -> tuple[PublishedChange, ...]:
    """Publish the changes in order, then wait for the responses (``wait_ms`` None: do not wait).

    ``wait_ms`` is the longest time without a response to these changes or earlier ones: the app takes a limited number
    of changes in a cut, so many changes, or those of others before them, take a while.
    """
    answered_before = end_offsets(kafka, [topics.status]) if wait_ms is not None else {}
    positions = write_changes(kafka, topics, changes, note)
    responses: Mapping[RecordOffset, ControlResponse] = {}
    if wait_ms is not None:
        wanted = {position: change.subject for position, change in zip(positions, changes, strict=True)}
        with Follower(kafka, [topics.status], since=answered_before) as follower:
            responses = await_responses(lambda: follower.poll(_POLL_MS), wanted, wait_ms)
    return tuple(PublishedChange(c, p, responses.get(p)) for c, p in zip(changes, positions, strict=True))


def write_changes(
    kafka: KafkaSettings, topics: AppTopics, changes: Sequence[ControlChange], note: ChangeNote
) -> Sequence[RecordOffset]:
    """Write the changes in order, each once all replicas have the one before. Return their positions."""
    with ControlLog(kafka, topics.control) as log:
        return [log.publish(change.key, change.value, note.headers) for change in changes]


def publish_in_steps(
    kafka: KafkaSettings, topics: AppTopics, changes: Sequence[ControlChange], note: ChangeNote, wait_ms: int
) -> tuple[PublishedChange, ...]:
    """Publish each change after the app has accepted the one before; stop at the first rejection or missing
    response."""
    published_changes: list[PublishedChange] = []
    for change in changes:
        published_changes += publish(kafka, topics, [change], note, wait_ms)
        response = published_changes[-1].response
        if response is None or not response.accepted:
            break
    return tuple(published_changes)


def rule_change(rule: Rule) -> ControlChange:
    """Return the control record that publishes a version of a rule."""
    return ControlChange(rule.id, canonical_json(rule), rule.id, rule.version)


def policy_change(policy: DecisionPolicy) -> ControlChange:
    """Return the control record that publishes a version of a decision policy."""
    name = policy.decision_policy
    return ControlChange(DECISION_POLICY_KEY + name, encode_policy(policy), name, policy.version)


def delete_policy(name: str) -> ControlChange:
    """Return the control record that deletes a decision policy."""
    return ControlChange(DECISION_POLICY_KEY + name, None, name)


def feature_change(feature: PublishedFeature) -> ControlChange:
    """Return the control record that publishes a version of a feature."""
    name = feature.feature
    return ControlChange(FEATURE_KEY + name, encode_feature(feature), name, feature.version)


def delete_feature(name: str) -> ControlChange:
    """Return the control record that deletes a published feature."""
    return ControlChange(FEATURE_KEY + name, None, name)


def release_changes(
    name: str, rules: Sequence[Rule], deleted: Sequence[str], named: NamedChanges = NO_NAMED
) -> list[ControlChange]:
    """Return a release as control records, its parts first. ``named``: its features and decision policies."""
    records = to_records(name, rules, deleted, named=named)
    return [ControlChange(key, value, parse_key(key)[1]) for key, value in records]


def await_responses(
    poll: Callable[[], Iterable[Record]],
    wanted: Mapping[RecordOffset, Subject],
    wait_ms: int,
    now_s: Callable[[], float] = time.monotonic,
) -> Mapping[RecordOffset, ControlResponse]:
    """Return the responses to the control records at these positions, as ``poll`` yields them.

    Returns early if for ``wait_ms`` there is no response to any record up to the last of these.
    """
    found: dict[RecordOffset, ControlResponse] = {}
    last = max((position.offset for position in wanted), default=-1)
    deadline = now_s() + wait_ms / 1000
    while wanted.keys() - found.keys() and now_s() < deadline:
        for response in read_responses(poll()):
            if wanted.get(response.position) == response.subject:
                found[response.position] = response
            if 0 <= response.position.offset <= last:
                deadline = now_s() + wait_ms / 1000
    return found


def read_responses(records: Iterable[Record]) -> Iterable[ControlResponse]:
    """Yield the responses in records of a status topic; skip other records, because others may write there."""
    for record in records:
        try:
            body = orjson.loads(record.value or b"")
            place = body["control"]
            position = RecordOffset(int(place["partition"]), int(place["offset"]))
            subject, mode = str(body.get("subject", Subject.RULE)), body.get("mode")
            name, status = str(body["rule"]), str(body["status"])
            batch = int(text) if (text := record.header("batch")) is not None else None
            yield ControlResponse(name, body["version"], status, body["reason"], position, subject, mode, batch)
        except (ValueError, KeyError, TypeError):
            continue


def read_all_responses(kafka: KafkaSettings, topics: AppTopics) -> tuple[ControlResponse, ...]:
    """Read all answers of the app so far, in their order."""
    records = read_topic(kafka, topics.status)
    return tuple(read_responses(sorted(records, key=lambda r: (r.timestamp_ms, r.partition, r.offset))))


def read_log(kafka: KafkaSettings, topics: AppTopics) -> tuple[ControlEntry, ...]:
    """Read the control topic from its beginning."""
    with ControlLog(kafka, topics.control) as log:
        return tuple(control_entry(record) for record in log.read_log())


def control_entry(record: Record) -> ControlEntry:
    """Return a record of the control topic as an entry of the log."""
    control = ControlRecord(record.partition, record.offset, record.key, record.value)
    by, why = (None if (text := record.header(n)) is None else text.decode(errors="replace") for n in ("by", "why"))
    return ControlEntry(control, record.timestamp_ms, by, why)
