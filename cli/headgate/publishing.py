"""Rules to a running app and its answers back: the control topic out, the status topic in.

An answer belongs to a record of the control topic by that record's position, so several people may publish at once.
Promises: what ``publish`` returns is on the control topic, whether or not the app runs; an answer is the app's own.
The clock is the caller's limit only.
"""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from headgate.errors import InputError
from rulecore.audit import Written
from rulecore.control_keys import subject_of
from rulecore.model import Rule, canonical_json
from rulecore.releases import to_records
from rulecore.status import StatusKind, Subject
from streamcore.kafka.control import ControlLog, Position
from streamcore.kafka.readers import Follower, Record, end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe
from streamcore.kernel import Control
from streamcore.lanes import STATUS, Headers

_POLL_MS = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What the app said about a rule, a release or a part of one. ``reason`` may have several lines.

    ``position`` is that of the control record; its offset is -1 for what no record asked for (quarantine, time).
    """

    rule: str
    version: int | None
    status: str
    reason: str | None
    position: Position
    subject: str = Subject.RULE
    mode: str | None = None

    @property
    def accepted(self) -> bool:
        """Whether the app now has what was published."""
        return self.status in (StatusKind.ACCEPTED, StatusKind.DELETED, StatusKind.STAGED)


@dataclass(frozen=True, slots=True)
class Note:
    """Who publishes, and why: written beside each record, for those who read the log later."""

    by: str
    why: str | None = None

    @property
    def headers(self) -> Headers:
        """As the record carries it."""
        return (("by", self.by.encode()), *((("why", self.why.encode()),) if self.why else ()))


def own_note(why: str | None) -> Note:
    """In the name of whoever runs this."""
    return Note(f"{getpass.getuser()}@{socket.gethostname()}", why)


@dataclass(frozen=True, slots=True)
class Change:
    """A control record to publish, and what people call it."""

    key: str
    value: bytes | None
    name: str
    version: int | None = None

    @property
    def subject(self) -> Subject:
        """What the app's answer will be about."""
        return subject_of(self.key)[0]


@dataclass(frozen=True, slots=True)
class Published:
    """A change on the control topic. ``answer`` is None when the app was not asked or did not answer in time."""

    change: Change
    position: Position
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class AppTopics:
    """Where an app hears of rules and answers."""

    app: str

    @property
    def control(self) -> str:
        """Rules."""
        return f"{self.app}.control"

    @property
    def status(self) -> str:
        """Answers."""
        return f"{self.app}.{STATUS}"


def require_app(kafka: KafkaSettings, topics: AppTopics) -> None:
    """``InputError`` unless the app has been started there at least once."""
    found = describe(kafka, [topics.control, topics.status])
    if missing := [name for name in (topics.control, topics.status) if name not in found]:
        raise InputError(
            f"app {topics.app}: no topic {missing[0]} at {kafka.bootstrap}; start the app once, "
            "or correct --app or --bootstrap"
        )


def publish(
    kafka: KafkaSettings, topics: AppTopics, changes: Sequence[Change], note: Note, wait_ms: int | None
) -> tuple[Published, ...]:
    """Publish the changes in order, then wait so long for the answers (None: do not wait)."""
    answered_before = end_offsets(kafka, [topics.status]) if wait_ms is not None else {}
    with ControlLog(kafka, topics.control) as log:
        positions = [log.publish(change.key, change.value, note.headers) for change in changes]
    answers: Mapping[Position, Answer] = {}
    if wait_ms is not None:
        wanted = {position: change.subject for position, change in zip(positions, changes, strict=True)}
        with Follower(kafka, [topics.status], since=answered_before) as follower:
            answers = _await(follower, wanted, wait_ms)
    return tuple(Published(c, p, answers.get(p)) for c, p in zip(changes, positions, strict=True))


def publish_in_steps(
    kafka: KafkaSettings, topics: AppTopics, changes: Sequence[Change], note: Note, wait_ms: int
) -> tuple[Published, ...]:
    """Each change when the one before it was answered; ends at the first that is refused or not answered."""
    done: list[Published] = []
    for change in changes:
        done += publish(kafka, topics, [change], note, wait_ms)
        answer = done[-1].answer
        if answer is None or not answer.accepted:
            break
    return tuple(done)


def rule_change(rule: Rule) -> Change:
    """A version of a rule."""
    return Change(rule.id, canonical_json(rule), rule.id, rule.version)


def release_changes(name: str, rules: Sequence[Rule], deleted: Sequence[str]) -> list[Change]:
    """A release as control records, its parts first."""
    return [Change(key, value, subject_of(key)[1]) for key, value in to_records(name, rules, deleted)]


def _await(follower: Follower, wanted: Mapping[Position, Subject], wait_ms: int) -> Mapping[Position, Answer]:
    deadline = time.monotonic() + wait_ms / 1000
    found: dict[Position, Answer] = {}
    while wanted.keys() - found.keys() and time.monotonic() < deadline:
        for answer in read_answers(follower.poll(_POLL_MS)):
            if wanted.get(answer.position) == answer.subject:
                found[answer.position] = answer
    return found


def read_answers(records: Iterable[Record]) -> Iterable[Answer]:
    """The answers in records of a status topic; what is none is passed over, for others may write there."""
    for record in records:
        try:
            body = orjson.loads(record.value or b"")
            place = body["control"]
            position = Position(int(place["partition"]), int(place["offset"]))
            subject, mode = str(body.get("subject", Subject.RULE)), body.get("mode")
            name, status = str(body["rule"]), str(body["status"])
            yield Answer(name, body["version"], status, body["reason"], position, subject, mode)
        except (ValueError, KeyError, TypeError):
            continue


def last_answers(kafka: KafkaSettings, topics: AppTopics) -> tuple[Answer, ...]:
    """Everything that the app said so far, in the order in which it said it."""
    records = read_topic(kafka, topics.status)
    return tuple(read_answers(sorted(records, key=lambda r: (r.timestamp_ms, r.partition, r.offset))))


def read_log(kafka: KafkaSettings, topics: AppTopics) -> tuple[Written, ...]:
    """The control topic from its beginning."""
    with ControlLog(kafka, topics.control) as log:
        return tuple(_written(record) for record in log.read_log())


def _written(record: Record) -> Written:
    control = Control(record.partition, record.offset, record.key, record.value)
    by, why = (None if (text := record.header(n)) is None else text.decode(errors="replace") for n in ("by", "why"))
    return Written(control, record.timestamp_ms, by, why)
