"""Follows the control and status topics of an app, and gives snapshots of its rules.

A snapshot is immutable and has everything that was in the topics when it was asked for: who writes and then asks sees
what was written. The first snapshot replays the whole control topic, each later one only what is new.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import orjson

from headgate.rules.bundle import load_streams
from headgate.rules.publish import REQUEST, AppTopics, ControlResponse, control_entry, read_responses, require_app
from headgate.web.settings import ConsoleApp
from headgate.web.state.lanes.topic_follower import TopicFollower
from rulecore.documents.status import StatusKind, Subject
from rulecore.ruleset.history import ControlEntry, RuleHistory, extend
from rulecore.ruleset.ruleset import RuleSet
from streamcore.errors import Retryable
from streamcore.kafka.readers import Record
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import StreamSchema

_HEADERS = ("by", "why", REQUEST)
#: The longest that a request waits for a Kafka that does not answer.
_ANSWER_MS = 10_000
_CLOSE_S = 5.0
#: What identifies the answer to a part of a control record: its offset, subject and name.
AnswerKey = tuple[int, str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """``answers``: the app's own answer to each control record. ``changes``: its unasked answers (quarantine, time),
    the newest of each rule and version. ``compared``: the newest counts of a trial beside the live version, by rule,
    version and shard. ``requests``: offset and digest of the change of each request. ``views``: what was computed of
    single versions, kept from snapshot to snapshot (``rule_views``). ``files``: the streams before any was published.
    ``began``: the event time from which each aggregate and feature counts that began while the app ran, by its name.
    """

    app: str
    history: RuleHistory
    answers: Mapping[AnswerKey, ControlResponse] = field(default_factory=dict)
    changes: Mapping[tuple[str, int | None], ControlResponse] = field(default_factory=dict)
    compared: Mapping[tuple[str, int | None, int], Mapping[str, int]] = field(default_factory=dict)
    requests: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    views: dict[object, tuple[object, ...]] = field(default_factory=dict)
    files: Mapping[str, StreamSchema] = field(default_factory=dict)
    began: Mapping[str, int] = field(default_factory=dict)

    def last_change(self, name: str, subject: Subject = Subject.RULE) -> ControlEntry | None:
        """Return the last control record about a rule, list or stream; None if there is none."""
        found = (
            entry.written
            for entry in reversed(self.history.entries)
            if entry.status.subject is subject and entry.status.name == name
        )
        return next(found, None)

    def is_in_force(self, name: str, subject: Subject) -> bool:
        """Return whether a document of this name was accepted, and not deleted since."""
        return self.history.in_force(subject, name) is not None


def limit_wait(kafka: KafkaSettings) -> KafkaSettings:
    """Return the settings of clients that read for a page: a person waits for the answer."""
    return replace(kafka, request_timeout_ms=min(_ANSWER_MS, kafka.request_timeout_ms))


class AppReader:
    """Reads one app. Thread-safe. A caller that checks a snapshot and then writes holds ``lock``.

    One request to Kafka answers all waiting callers: if Kafka does not answer, all get that error at once.
    """

    def __init__(self, kafka: KafkaSettings, app: ConsoleApp, now_s: Callable[[], float] = time.time) -> None:
        self.kafka, self.app, self.topics = kafka, app, AppTopics(app.name)
        self.lock = threading.RLock()
        self._now_s = now_s
        self._follower: TopicFollower | None = None
        self._known: Snapshot | None = None
        self._failure: tuple[float, Retryable] | None = None  # when and how Kafka did not answer last

    def snapshot(self) -> Snapshot:
        """Return the present content of the topics. Raises ``InputError`` if the app was never started, and
        ``Retryable`` if Kafka does not answer."""
        begun = time.monotonic()
        with self.lock:
            if self._failure is not None and self._failure[0] >= begun:
                raise Retryable(str(self._failure[1]))
            known = self._read_new()
            rules, _ = known.history.rules.at_time(int(self._now_s() * 1000))
            if rules is not known.history.rules:
                known = replace(known, history=replace(known.history, rules=rules))
            self._known = known
            return known

    def close(self) -> None:
        """Close the consumer. One that still waits for Kafka ends with the process."""
        if not self.lock.acquire(timeout=_CLOSE_S):
            return
        try:
            if self._follower is not None:
                self._follower.close()
                self._follower = self._known = None
        finally:
            self.lock.release()

    def _read_new(self) -> Snapshot:
        try:
            known = self._known or self._open()
            assert self._follower is not None
            new = self._follower.read()
        except Retryable as error:
            self._failure = time.monotonic(), error
            raise
        return self._extended(known, new) if new else known

    def _open(self) -> Snapshot:
        kafka = limit_wait(self.kafka)
        require_app(kafka, self.topics)
        self._follower = TopicFollower(kafka, [self.topics.control, self.topics.status], _HEADERS)
        files = load_streams(self.app.streams)
        return Snapshot(self.app.name, RuleHistory(RuleSet.empty(files)), files=files)

    def _extended(self, known: Snapshot, records: list[Record]) -> Snapshot:
        """Return the snapshot with further records; the known one stays as it is."""
        old = known.history
        versions = {rule: [*those] for rule, those in old.live_versions.items()}
        history = replace(
            old,
            entries=[*old.entries],
            documents={**old.documents},
            live_versions=versions,
            policies={key: [*those] for key, those in old.policies.items()},
            features={key: [*those] for key, those in old.features.items()},
        )
        answers, changes = dict(known.answers), dict(known.changes)
        compared, requests, began = dict(known.compared), dict(known.requests), dict(known.began)
        control = [record for record in records if record.topic == self.topics.control]
        extend(history, map(control_entry, control))
        for record in control:
            if (name := record.header(REQUEST)) is not None:
                key, _, digest = name.decode(errors="replace").partition(" ")
                requests.setdefault(key, (record.offset, digest))
        status = [record for record in records if record.topic == self.topics.status]
        for record in sorted(status, key=lambda r: (r.timestamp_ms, r.partition, r.offset)):
            for answer in read_responses([record]):
                began |= _began(record)
                if answer.status == StatusKind.COMPARED:
                    counts = _counts(record)
                    compared[answer.rule, answer.version, counts.get("shard", 0)] = counts
                elif answer.position.offset >= 0:
                    answers[answer.position.offset, answer.subject, answer.rule] = answer
                else:
                    changes[answer.rule, answer.version] = answer
        return Snapshot(known.app, history, answers, changes, compared, requests, known.views, known.files, began)


def _counts(record: Record) -> Mapping[str, int]:
    """Return the counts of a record that ``read_responses`` accepts."""
    found = orjson.loads(record.value or b"{}").get("compared")
    return {str(k): v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}


def _began(record: Record) -> Mapping[str, int]:
    """Return the event time from which each aggregate counts that a record of ``read_responses`` names."""
    incomplete = orjson.loads(record.value or b"{}").get("incomplete")
    found = incomplete.get("since_ms") if isinstance(incomplete, dict) else None
    return {str(k): v for k, v in found.items() if isinstance(v, int)} if isinstance(found, dict) else {}
