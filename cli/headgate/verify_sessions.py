"""Sessions as they are in the service's table and topic, against what must be there.

The expectation (``headgate.local.shop.expected_sessions``) shares no code with the product. Promises: every row that is
not deleted is found right, wrong or unexpected, and every session that must be there is found or lost.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from headgate.local.shop.expected_sessions import (
    ExpectedSession,
    ExpectedSessions,
    SessionRow,
    SessionsExpectation,
)
from headgate.local.shop.stream import records
from headgate.local.workspace import PARTITIONS, Workspace
from headgate.output import Json
from streamcore.kafka.readers import Record, end_offsets, read_topic
from streamcore.lanes import DEAD_LETTERS, LATE
from streamcore.sinks.postgres.asking import transaction

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
    """A row that is not deleted."""

    row: SessionRow
    final: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """How much there was at some moment. ``sessions``: rows that are not deleted, ``final`` of them."""

    events: int
    sessions: int
    final: int
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class Found:
    """What table and topics hold. ``revisions``: by session, the table's; ``said``: the records of the topic."""

    events: int
    rows: tuple[StoredRow, ...]
    revisions: Mapping[str, int]
    said: tuple[tuple[str, int], ...]
    dead_letters: int
    late: int

    @property
    def mark(self) -> Mark:
        """The numbers."""
        final = sum(row.final for row in self.rows)
        return Mark(self.events, len(self.rows), final, self.dead_letters, self.late)


@dataclass(frozen=True, slots=True)
class Differences:
    """``lost``: must be there and is not; ``wrong``: is there and says something else; ``unexpected``: of no session,
    or a second row of one."""

    lost: int
    wrong: int
    unexpected: int


@dataclass(frozen=True, slots=True)
class SessionsVerdict:
    """``run`` counts what this run added, ``total`` everything since the shop was made. ``duplicated``: revisions that
    the topic has twice; ``behind``: sessions whose newest revision is not the same in topic and table. ``open``:
    sessions that may lag behind, for they go on."""

    run: Mark
    total: Mark
    expected: Mark
    open: int
    deleted: int
    differences: Differences
    duplicated: int
    behind: int

    @property
    def good(self) -> bool:
        """Nothing lost, twice, too much or different, and every event accounted for."""
        told = (self.total.dead_letters, self.total.late) == (self.expected.dead_letters, self.expected.late)
        return told and not any((*asdict(self.differences).values(), self.duplicated, self.behind))

    def document(self) -> dict[str, Json]:
        """For programs."""
        total: dict[str, Json] = {**asdict(self.total), "expected": asdict(self.expected)}
        return {
            **asdict(self.run),
            **asdict(self.differences),
            "duplicated": self.duplicated,
            "behind": self.behind,
            "total": {**total, "open": self.open, "deleted": self.deleted},
        }


class SessionsCheck:
    """What was there before, and in the end."""

    def __init__(self, kafka: KafkaSettings, shop: Workspace, settings: SessionsSettings) -> None:
        self._kafka = kafka
        self._shop = shop
        self._settings = settings
        self._before = read(kafka, shop, settings)

    def processed(self) -> None:
        """The table is read when the app has stopped."""

    def verdict(self) -> SessionsVerdict:
        """Read everything again, and compare."""
        after = read(self._kafka, self._shop, self._settings)
        expectation = SessionsExpectation(PARTITIONS, self._settings.gap.gap_ms, self._settings.lateness_ms)
        for record in records(self._shop.shop, 0, after.events):
            expectation.add(record)
        return judge(self._before, after, expectation.result())


def read(kafka: KafkaSettings, shop: Workspace, settings: SessionsSettings) -> Found:
    """Everything that table and topics hold now, as far as it is committed."""
    assert settings.postgres is not None, "the local app always has one"
    with transaction(settings.postgres.settings(), "headgate up, comparing") as connection:
        table = connection.execute(_SELECT).fetchall()
    names = shop.names
    return Found(
        events=sum(end_offsets(kafka, [names.events]).values()),
        rows=tuple(StoredRow(SessionRow(*row[4:]), bool(row[3])) for row in table if not row[2]),  # type: ignore[arg-type]
        revisions={str(row[0]): int(str(row[1])) for row in table},
        said=tuple(_said(record) for record in _all(kafka, names.lane("sessions"))),
        dead_letters=len(_all(kafka, names.lane(DEAD_LETTERS))),
        late=len(_all(kafka, names.lane(LATE))),
    )


def _all(kafka: KafkaSettings, topic: str) -> Sequence[Record]:
    return read_topic(kafka, topic, limit_ms=_READ_LIMIT_MS)


def _said(record: Record) -> tuple[str, int]:
    body = json.loads(record.value or b"")
    return str(body["session_id"]), int(body["revision"])


def judge(before: Found, after: Found, expected: ExpectedSessions) -> SessionsVerdict:
    """The verdict on everything, with the numbers of what came between the two readings."""
    newest: dict[str, int] = {}
    for session, revision in after.said:
        newest[session] = max(newest.get(session, 0), revision)
    was, now = asdict(before.mark), asdict(after.mark)
    sessions = expected.sessions
    return SessionsVerdict(
        run=Mark(**{name: now[name] - was[name] for name in now}),
        total=after.mark,
        expected=Mark(
            expected.records,
            len(sessions),
            sum(one.final is True for one in sessions),
            expected.dead_letters,
            expected.late,
        ),
        open=sum(not one.said for one in sessions),
        deleted=len(after.revisions) - len(after.rows),
        differences=compare(sessions, after.rows),
        duplicated=sum(count - 1 for count in Counter(after.said).values()),
        behind=sum(newest.get(s) != after.revisions.get(s) for s in newest.keys() | after.revisions.keys()),
    )


def compare(expected: Iterable[ExpectedSession], rows: Iterable[StoredRow]) -> Differences:
    """Each row with the session of its user that it overlaps."""
    waiting: dict[str, list[ExpectedSession]] = defaultdict(list)
    for one in expected:
        waiting[one.row.user_id].append(one)
    wrong = unexpected = 0
    for stored in rows:
        of_user = waiting[stored.row.user_id]
        match = next((one for one in of_user if _overlap(one.row, stored.row)), None)
        if match is None:
            unexpected += 1
            continue
        of_user.remove(match)
        wrong += not _agrees(match, stored)
    lost = sum(one.said for left in waiting.values() for one in left)
    return Differences(lost, wrong, unexpected)


def _overlap(one: SessionRow, other: SessionRow) -> bool:
    return one.started_ms <= other.ended_ms and other.started_ms <= one.ended_ms


def _agrees(expected: ExpectedSession, stored: StoredRow) -> bool:
    if expected.final is not None and stored.final != expected.final:
        return False
    return stored.row == expected.row if expected.said else stored.row.within(expected.row)
