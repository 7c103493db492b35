"""Rules to a running app and its answers back: the control topic out, the status topic in.

An answer belongs to a record of the control topic by that record's position, so several people may publish at once.
Promises: what ``publish`` returns is on the control topic, whether or not the app runs; an answer is the app's own.
The clock is the caller's limit only.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from headgate.errors import InputError
from rulecore.load import decode_record
from rulecore.model import Rule, canonical_json
from streamcore.errors import StreamError
from streamcore.kafka.control import ControlLog, Position
from streamcore.kafka.readers import Follower, Record, end_offsets, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe
from streamcore.lanes import STATUS

_POLL_MS = 200
_RECORD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What the app said to one control record. ``reason`` may have several lines."""

    rule: str
    version: int | None
    status: str
    reason: str | None
    position: Position

    @property
    def accepted(self) -> bool:
        """Whether the rule is what the app now runs."""
        return self.status == "accepted"


@dataclass(frozen=True, slots=True)
class Published:
    """One rule on the control topic. ``answer`` is None when the app was not asked or did not answer in time."""

    rule: str
    version: int
    position: Position
    answer: Answer | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A rule as it is on the control topic. ``rule`` is None, and ``answer`` says why, when it cannot be read."""

    name: str
    rule: Rule | None
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
    kafka: KafkaSettings, topics: AppTopics, rules: Sequence[Rule], wait_ms: int | None
) -> tuple[Published, ...]:
    """Publish the rules in order, then wait so long for the answers (None: do not wait)."""
    answered_before = end_offsets(kafka, [topics.status]) if wait_ms is not None else {}
    with ControlLog(kafka, topics.control) as log:
        positions = {rule.id: log.publish(rule.id, canonical_json(rule)) for rule in rules}
    answers: Mapping[Position, Answer] = {}
    if wait_ms is not None:
        with Follower(kafka, [topics.status], since=answered_before) as follower:
            answers = _await(follower, set(positions.values()), wait_ms)
    return tuple(Published(r.id, r.version, positions[r.id], answers.get(positions[r.id])) for r in rules)


def _await(follower: Follower, wanted: set[Position], wait_ms: int) -> Mapping[Position, Answer]:
    deadline = time.monotonic() + wait_ms / 1000
    found: dict[Position, Answer] = {}
    while wanted - found.keys() and time.monotonic() < deadline:
        for answer in read_answers(follower.poll(_POLL_MS)):
            if answer.position in wanted:
                found[answer.position] = answer
    return found


def read_answers(records: Iterable[Record]) -> Iterable[Answer]:
    """The answers in records of a status topic; what is none is passed over, for others may write there."""
    for record in records:
        try:
            body = orjson.loads(record.value or b"")
            place = body["control"]
            position = Position(int(place["partition"]), int(place["offset"]))
            yield Answer(str(body["rule"]), body["version"], str(body["status"]), body["reason"], position)
        except (ValueError, KeyError, TypeError):
            continue


def list_rules(kafka: KafkaSettings, topics: AppTopics) -> tuple[Listed, ...]:
    """The rules of the control topic by id, each with the app's last answer about it."""
    with ControlLog(kafka, topics.control) as log:
        view = log.read_all()
    records = read_topic(kafka, topics.status)
    last = {a.rule: a for a in read_answers(sorted(records, key=lambda r: (r.timestamp_ms, r.partition, r.offset)))}
    return tuple(Listed(name, _read(value), last.get(name)) for name, value in sorted(view.values.items()))


def _read(value: bytes) -> Rule | None:
    try:
        return decode_record(value, _RECORD_BYTES)
    except StreamError:
        return None
