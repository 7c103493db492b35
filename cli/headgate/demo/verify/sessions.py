"""Compares the sessions in the service's table and topic with the expected sessions.

The expectation (``headgate.demo.shop.expected_sessions``) shares no code with the product. Promises: every row that is
not deleted is correct, wrong or unexpected, and every session that must have a row has one or is missing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from headgate.demo.shop.expected_sessions import (
    ExpectedSession,
    ExpectedSessions,
    SessionRow,
    SessionsExpectation,
)
from headgate.demo.shop.stream import records
from headgate.demo.verify.summary import VerifySummary
from headgate.demo.workspace import PARTITIONS, Workspace
from streamcore.kafka.readers import Record, end_offsets, read_topic
from streamcore.sinks.postgres.transaction import open_transaction
from streamcore.wire.lanes import DEAD_LETTERS, LATE

if TYPE_CHECKING:
    from headgate_sessions.settings import SessionsSettings
    from streamcore.kafka.settings import KafkaSettings

_READ_LIMIT_MS: Final = 600_000
_SELECT: Final = """
select session_id, revision, is_deleted, is_final, user_id,
       (extract(epoch from started_at) * 1000)::bigint, (extract(epoch from ended_at) * 1000)::bigint,
       events, pages, first_page, last_page, funnel_step, converted, (revenue * 100)::bigint, currency, bounce
from sessions.session
"""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row of the table that is not deleted. ``final``: whether it is marked final."""

    row: SessionRow
    final: bool


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Counts of table and topics at one moment. ``sessions``: the rows that are not deleted; ``final``: those marked
    final."""

    events: int
    sessions: int
    final: int
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class SessionsOutput:
    """The content of table and topics. ``revisions``: of all rows, by session id. ``records``: session id and revision
    of each record of the sessions topic."""

    events: int
    rows: tuple[StoredRow, ...]
    revisions: Mapping[str, int]
    records: tuple[tuple[str, int], ...]
    dead_letters: int
    late: int

    @property
    def counts(self) -> SessionCounts:
        """The counts of this output."""
        final = sum(row.final for row in self.rows)
        return SessionCounts(self.events, len(self.rows), final, self.dead_letters, self.late)


@dataclass(frozen=True, slots=True)
class SessionDifferences:
    """``missing``: required sessions without a row; ``wrong``: rows with other values than expected; ``unexpected``:
    rows of no expected session, and second rows of one."""

    missing: int
    wrong: int
    unexpected: int


@dataclass(frozen=True, slots=True)
class SessionsVerifyResult:
    """``run`` counts the output of this run, ``total`` everything since the shop was created. ``duplicated``: revisions
    that the topic holds more than once; ``behind``: sessions whose newest revision differs between topic and table.
    ``open``: sessions whose rows may be older or missing, because the sessions have not ended. ``deleted``: deleted
    rows."""

    run: SessionCounts
    total: SessionCounts
    expected: SessionCounts
    open: int
    deleted: int
    differences: SessionDifferences
    duplicated: int
    behind: int

    @property
    def passed(self) -> bool:
        """Return whether no session is missing, duplicated, unexpected or wrong, and every event is accounted for."""
        accounted_for = (self.total.dead_letters, self.total.late) == (self.expected.dead_letters, self.expected.late)
        return accounted_for and not any((*asdict(self.differences).values(), self.duplicated, self.behind))

    def summary(self) -> VerifySummary:
        """Return the result in the schema of all services."""
        return VerifySummary(
            passed=self.passed,
            events=self.run.events,
            produced=self.total.sessions,
            expected=self.expected.sessions,
            missing=self.differences.missing,
            unexpected=self.differences.unexpected,
            duplicated=self.duplicated,
            wrong=self.differences.wrong,
            dead_letters=self.total.dead_letters,
            details={
                "run": asdict(self.run),
                "total": {**asdict(self.total), "expected": asdict(self.expected)},
                "open": self.open,
                "deleted": self.deleted,
                "behind": self.behind,
            },
        )


class SessionsVerifier:
    """Verifies the sessions service: reads table and topics before the run and at its end."""

    def __init__(self, kafka: KafkaSettings, shop: Workspace, settings: SessionsSettings) -> None:
        self._kafka = kafka
        self._shop = shop
        self._settings = settings
        self._before = read(kafka, shop, settings)

    def on_events_processed(self) -> None:
        """Do nothing: the table is read when the app has stopped."""

    def compare(self) -> SessionsVerifyResult:
        """Read table and topics again, and compare their content with the expected sessions."""
        after = read(self._kafka, self._shop, self._settings)
        expectation = SessionsExpectation(PARTITIONS, self._settings.gap.gap_ms, self._settings.lateness_ms)
        for record in records(self._shop.shop, 0, after.events):
            expectation.add(record)
        return judge(self._before, after, expectation.result())


def read(kafka: KafkaSettings, shop: Workspace, settings: SessionsSettings) -> SessionsOutput:
    """Read the committed content of table and topics."""
    assert settings.postgres is not None, "the local app always has a PostgreSQL"
    with open_transaction(settings.postgres, "headgate up, comparing") as connection:
        table = connection.execute(_SELECT).fetchall()
    names = shop.names
    return SessionsOutput(
        events=sum(end_offsets(kafka, [names.events]).values()),
        rows=tuple(StoredRow(SessionRow(*row[4:]), bool(row[3])) for row in table if not row[2]),  # type: ignore[arg-type]
        revisions={str(row[0]): int(str(row[1])) for row in table},
        records=tuple(_session_revision(record) for record in _read_topic(kafka, names.lane("sessions"))),
        dead_letters=len(_read_topic(kafka, names.lane(DEAD_LETTERS))),
        late=len(_read_topic(kafka, names.lane(LATE))),
    )


def _read_topic(kafka: KafkaSettings, topic: str) -> Sequence[Record]:
    return read_topic(kafka, topic, limit_ms=_READ_LIMIT_MS)


def _session_revision(record: Record) -> tuple[str, int]:
    body = json.loads(record.value or b"")
    return str(body["session_id"]), int(body["revision"])


def judge(before: SessionsOutput, after: SessionsOutput, expected: ExpectedSessions) -> SessionsVerifyResult:
    """Compare the output with the expected sessions, and count the output of this run."""
    newest: dict[str, int] = {}
    for session, revision in after.records:
        newest[session] = max(newest.get(session, 0), revision)
    counts_before, counts = asdict(before.counts), asdict(after.counts)
    sessions = expected.sessions
    return SessionsVerifyResult(
        run=SessionCounts(**{name: counts[name] - counts_before[name] for name in counts}),
        total=after.counts,
        expected=SessionCounts(
            expected.records,
            len(sessions),
            sum(session.final is True for session in sessions),
            expected.dead_letters,
            expected.late,
        ),
        open=sum(not session.is_required for session in sessions),
        deleted=len(after.revisions) - len(after.rows),
        differences=compare(sessions, after.rows),
        duplicated=sum(count - 1 for count in Counter(after.records).values()),
        behind=sum(newest.get(s) != after.revisions.get(s) for s in newest.keys() | after.revisions.keys()),
    )


def compare(expected: Iterable[ExpectedSession], rows: Iterable[StoredRow]) -> SessionDifferences:
    """Compare each row with the expected session of its user that it overlaps in time."""
    unmatched: dict[str, list[ExpectedSession]] = defaultdict(list)
    for session in expected:
        unmatched[session.row.user_id].append(session)
    wrong = unexpected = 0
    for stored in rows:
        of_user = unmatched[stored.row.user_id]
        match = next((session for session in of_user if _overlap(session.row, stored.row)), None)
        if match is None:
            unexpected += 1
            continue
        of_user.remove(match)
        wrong += not _is_correct(match, stored)
    missing = sum(session.is_required for sessions in unmatched.values() for session in sessions)
    return SessionDifferences(missing, wrong, unexpected)


def _overlap(one: SessionRow, other: SessionRow) -> bool:
    return one.started_ms <= other.ended_ms and other.started_ms <= one.ended_ms


def _is_correct(expected: ExpectedSession, stored: StoredRow) -> bool:
    if expected.final is not None and stored.final != expected.final:
        return False
    return stored.row == expected.row if expected.is_required else stored.row.within(expected.row)
