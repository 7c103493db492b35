"""Commands and status of a service: any text is parsed or answered, and a status fits and reads back."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from streamcore.control.commands import Configure, Drain, InvalidCommand, Promote, TakeSavepoint, Verify, parse_command
from streamcore.control.status import (
    STATUS_BYTES,
    CommandResult,
    CompatibilityInfo,
    DriverPhase,
    DriverStatus,
    NewerEpochInfo,
    SavepointInfo,
)

TEXTS = st.text(max_size=400)
SAVEPOINTS = st.builds(SavepointInfo, TEXTS, st.integers(0, 9), st.integers(0, 9), TEXTS, st.integers(0, 2**40))
NEWER = st.builds(NewerEpochInfo, st.integers(1, 9), st.integers(-1, 9))
ANSWERS = st.builds(CommandResult, st.booleans(), TEXTS, st.none() | SAVEPOINTS, st.none() | NEWER)
PLANS = st.builds(
    CompatibilityInfo, st.sampled_from(["compatible", "incompatible"]), st.lists(TEXTS, max_size=9).map(tuple)
)
REPORTS = st.builds(
    DriverStatus,
    phase=st.sampled_from(DriverPhase),
    version=st.text(max_size=40),
    batch=st.integers(-1, 2**31),
    lag_s=st.floats(0, 1e6),
    compatibility=st.none() | PLANS,
    results=st.dictionaries(st.text("abc-0123", min_size=1, max_size=128), ANSWERS, max_size=8),
    message=TEXTS,
)


def test_each_kind_of_request_parses() -> None:
    assert parse_command('{"id":"1","command":"savepoint","name":"a"}') == TakeSavepoint("1", "a")
    assert parse_command('{"id":"2","command":"drain","savepoint":null}') == Drain("2")
    assert parse_command('{"id":"2","command":"drain","savepoint":"b"}') == Drain("2", "b")
    assert parse_command('{"id":"3","command":"promote","epoch":4,"restore":"c"}') == Promote("3", 4, "c")
    assert parse_command('{"id":"3","command":"promote","epoch":1,"allow_empty":true,"discard_newer":true}') == Promote(
        "3", 1, None, allow_empty=True, discard_newer=True
    )
    assert parse_command('{"id":"4","command":"verify","savepoint":"d"}') == Verify("4", "d")
    assert parse_command('{"id":"5","command":"configure","settings":{"a":1}}') == Configure("5", {"a": 1})


def test_a_request_may_carry_a_traceparent_and_an_invalid_one_is_ignored() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for entries, meaning in (
        ('"command":"savepoint","name":"a"', TakeSavepoint("1", "a")),
        ('"command":"drain"', Drain("1")),
        ('"command":"promote","epoch":4', Promote("1", 4)),
    ):
        command = parse_command(f'{{"id":"1",{entries},"traceparent":"{parent}"}}')
        assert command == replace(meaning, traceparent=parent)
        for nonsense in ("7", '""', "null", "{}"):
            assert parse_command(f'{{"id":"1",{entries},"traceparent":{nonsense}}}') == meaning


def test_an_invalid_request_keeps_its_id_for_the_answer() -> None:
    for text in (
        '{"id":"1","command":"dance"}',
        '{"id":"1","command":"savepoint"}',
        '{"id":"1","command":"promote","epoch":0}',
        '{"id":"1","command":"promote","epoch":true}',
        '{"id":"1","command":"promote","epoch":1,"allow_empty":"yes"}',
        '{"id":"1","command":"drain","savepoint":7}',
        '{"id":"1","command":"verify","savepoint":null}',
        '{"id":"1","command":"configure"}',
    ):
        request = parse_command(text)
        assert isinstance(request, InvalidCommand)
        assert request.id == "1"
        assert request.message


@given(TEXTS | st.recursive(st.none() | st.integers() | TEXTS, lambda x: st.dictionaries(TEXTS, x)).map(repr))
def test_any_text_parses_to_a_request_or_is_unreadable(text: str) -> None:
    assert parse_command(text) is not None


@given(REPORTS)
def test_a_status_fits_the_size_limit_and_reads_back(report: DriverStatus) -> None:
    text = report.to_json()
    if report.results:
        newest = [*report.results][-1]
        assert newest in orjson.loads(text)["results"]
    known = DriverStatus.from_json(text)
    assert known is not None
    assert (known.phase, known.batch, known.version) == (report.phase, report.batch, report.version)


@given(st.lists(st.integers(0, 20), max_size=40))
def test_the_status_keeps_the_newest_results(ids: list[int]) -> None:
    report = DriverStatus(DriverPhase.RUNNING)
    for number in ids:
        report = report.with_result(str(number), CommandResult(True, "x" * 5_000))
    assert len(report.results) <= 8
    assert set(report.results) <= {str(number) for number in ids}
    if ids:
        assert str(ids[-1]) in report.results
    assert len(report.to_json().encode()) <= STATUS_BYTES


@given(st.text())
def test_an_invalid_status_parses_to_none(text: str) -> None:
    assert DriverStatus.from_json(text) is None


def test_every_change_of_the_status_but_metrics_is_urgent() -> None:
    before = DriverStatus(DriverPhase.RUNNING, committed=3)
    assert not DriverStatus(DriverPhase.RUNNING, committed=9, lag_rows=7).is_urgent(before)
    assert DriverStatus(DriverPhase.DRAINING, committed=3).is_urgent(before)
    assert before.with_result("1", CommandResult(True)).is_urgent(before)
    assert DriverStatus(DriverPhase.RUNNING, committed=1).is_urgent(DriverStatus(DriverPhase.RUNNING))
