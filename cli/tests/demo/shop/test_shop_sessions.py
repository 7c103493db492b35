"""What the shop's sessions must be, worked out by hand, equals what the app makes of the same records in-process; and a
row that is lost, wrong or too much is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest

from headgate.demo.shop.expected_sessions import ExpectedSessions, SessionRow, SessionsExpectation
from headgate.demo.shop.settings import RecordFate, ShopSettings
from headgate.demo.shop.stream import records
from headgate.demo.verify.sessions import SessionDifferences, SessionsOutput, StoredRow, compare, judge
from headgate_sessions.app import build_app
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.wire.lanes import Record
from tests.harness.apps.sessions_app import ROOT, new_settings

PARTITIONS, COUNT = 4, 3_000
GAP_MS, LATENESS_MS = 1_800_000, 600_000
SHOP = ShopSettings(seed=7, start_ms=1_700_000_000_000)
CROWDED = replace(SHOP, users=60)
NONE = SessionDifferences(0, 0, 0)


def raw_records(shop: ShopSettings, count: int) -> Iterator[RawRecord]:
    """Yield the first records as records of a broker."""
    offsets = [0] * PARTITIONS
    for record in records(shop, 0, count):
        partition = record.partition(PARTITIONS)
        yield RawRecord(0, partition, offsets[partition], record.value, record.key)
        offsets[partition] += 1


def run(shop: ShopSettings, gap_ms: int, cut_records: int) -> list[Record]:
    """Run the app; the clock advances by a second with each cut; the first cut is small, as that of the generator."""
    stream = {"schema_file": str(ROOT / "streams" / "shop.yaml"), "topic": "shop", "reject_extra_fields": True}
    settings = new_settings(stream=stream, gap={"gap_ms": gap_ms}, lateness_ms=LATENESS_MS, early_ms=500, shards=2)
    app = InProcessApp(build_app(settings), partitions=range(PARTITIONS))
    sent, now_ms = [*raw_records(shop, COUNT)], SHOP.start_ms + 10**9
    starts = [0, *range(100, COUNT, cut_records)]
    found: list[Record] = []
    for number, start in enumerate(starts):
        stop = starts[number + 1] if number + 1 < len(starts) else COUNT
        found += app.cut(sent[start:stop], now_ms + 1_000 * number)
    return found


def lane(output: list[Record], name: str) -> list[dict[str, object]]:
    return [json.loads(r.value or b"", parse_float=Decimal) for r in output if r.lane == name]


def table(output: list[Record]) -> list[StoredRow]:
    """Return the greatest revisions that are not deleted, as the table holds them."""
    newest: dict[object, dict[str, object]] = {}
    for one in lane(output, "sessions"):
        known = newest.get(one["session_id"])
        if known is None or int(str(one["revision"])) > int(str(known["revision"])):
            newest[one["session_id"]] = one
    return [stored(one) for one in newest.values() if not one["is_deleted"]]


def stored(body: dict[str, object]) -> StoredRow:
    names = ("user_id", "started_at", "ended_at", "events", "pages", "first_page", "last_page", "funnel_step")
    values = [body[name] for name in (*names, "converted", "revenue", "currency", "bounce")]
    values[1:3] = [round(datetime.fromisoformat(str(at)).timestamp() * 1000) for at in values[1:3]]
    values[9] = int(Decimal(str(values[9])) * 100)
    return StoredRow(SessionRow(*values), bool(body["is_final"]))  # type: ignore[arg-type]


def expected(shop: ShopSettings, gap_ms: int) -> ExpectedSessions:
    expectation = SessionsExpectation(PARTITIONS, gap_ms, LATENESS_MS)
    for record in records(shop, 0, COUNT):
        expectation.add(record)
    return expectation.result()


@pytest.mark.parametrize(
    ("shop", "gap_ms", "cut_records"),
    [(SHOP, GAP_MS, 211), (SHOP, GAP_MS, 2_500), (CROWDED, 3_000, 21)],
    ids=["in small cuts", "in large cuts", "with merges"],
)
def test_the_sessions_of_the_app_equal_the_expectation(shop: ShopSettings, gap_ms: int, cut_records: int) -> None:
    output, wanted = run(shop, gap_ms, cut_records), expected(shop, gap_ms)
    assert compare(wanted.sessions, table(output)) == NONE
    assert sum(one.final is True for one in wanted.sessions) > 100
    assert len(lane(output, "late")) == wanted.late > 0
    assert sum(r.lane == "deadletters" for r in output) == wanted.dead_letters > 0
    assert any(one["is_deleted"] for one in lane(output, "sessions")) == (shop is CROWDED)


@pytest.fixture(scope="module")
def wanted() -> ExpectedSessions:
    return expected(SHOP, GAP_MS)


@pytest.fixture
def rows(wanted: ExpectedSessions) -> list[StoredRow]:
    return [StoredRow(one.row, bool(one.final)) for one in wanted.sessions]


def test_the_comparison_finds_lost_wrong_and_unexpected_sessions(
    wanted: ExpectedSessions, rows: list[StoredRow]
) -> None:
    place = next(n for n, one in enumerate(wanted.sessions) if one.final)
    one = rows[place]
    others = rows[:place] + rows[place + 1 :]
    assert compare(wanted.sessions, rows) == NONE
    assert compare(wanted.sessions, others) == SessionDifferences(missing=1, wrong=0, unexpected=0)
    assert compare(wanted.sessions, [*rows, one]).unexpected == 1
    row = one.row
    for changed in (
        replace(row, events=99),
        replace(row, cents=row.cents + 1),
        replace(row, funnel_step=4),
        replace(row, ended_ms=row.ended_ms + 1),
    ):
        assert compare(wanted.sessions, [*others, replace(one, row=changed)]) == SessionDifferences(0, 1, 0), changed
    assert compare(wanted.sessions, [*others, replace(one, final=False)]).wrong == 1
    stranger = replace(one, row=replace(one.row, user_id="nobody"))
    assert compare(wanted.sessions, [*others, stranger]) == SessionDifferences(1, 0, 1)


def test_an_open_session_may_be_missing_or_behind_but_not_ahead(
    wanted: ExpectedSessions, rows: list[StoredRow]
) -> None:
    place = next(n for n, one in enumerate(wanted.sessions) if not one.is_required and one.row.events > 2)
    one = rows[place]
    others = rows[:place] + rows[place + 1 :]
    behind = replace(one, row=replace(one.row, events=one.row.events - 1))
    ahead = replace(one, row=replace(one.row, events=one.row.events + 1))
    assert compare(wanted.sessions, others) == NONE
    assert compare(wanted.sessions, [*others, behind]) == NONE
    assert compare(wanted.sessions, [*others, ahead]) == SessionDifferences(0, 1, 0)


def test_the_verdict_includes_the_counts_of_the_other_lanes_and_the_topic(
    wanted: ExpectedSessions, rows: list[StoredRow]
) -> None:
    revisions = tuple((str(n), 1) for n in range(len(rows)))
    none = SessionsOutput(0, (), {}, (), 0, 0)
    right = SessionsOutput(COUNT, tuple(rows), dict(revisions), revisions, wanted.dead_letters, wanted.late)
    assert judge(none, right, wanted).passed
    assert not judge(none, replace(right, dead_letters=0), wanted).passed
    assert not judge(none, replace(right, late=right.late + 1), wanted).passed
    assert judge(none, replace(right, records=(*revisions, revisions[0])), wanted).duplicated == 1
    assert judge(none, replace(right, records=(*revisions[1:], ("0", 2))), wanted).behind == 1


def test_no_session_contains_late_records(wanted: ExpectedSessions) -> None:
    late = {r.event_ms for r in records(SHOP, 0, COUNT) if r.fate is RecordFate.LATE}
    assert late
    assert not late & {one.row.started_ms for one in wanted.sessions}
