"""What a service is asked, and what it says: any text is read or answered, and what is said fits and reads back."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import strategies as st

from streamcore.service.report import REPORT_BYTES, Answer, NewerSaid, Phase, PlanSaid, Report, SavepointSaid
from streamcore.service.requests import Configure, Drain, Go, TakeSavepoint, Unreadable, Verify, parse_request

TEXTS = st.text(max_size=400)
SAVEPOINTS = st.builds(SavepointSaid, TEXTS, st.integers(0, 9), st.integers(0, 9), TEXTS, st.integers(0, 2**40))
NEWER = st.builds(NewerSaid, st.integers(1, 9), st.integers(-1, 9))
ANSWERS = st.builds(Answer, st.booleans(), TEXTS, st.none() | SAVEPOINTS, st.none() | NEWER)
PLANS = st.builds(PlanSaid, st.sampled_from(["compatible", "incompatible"]), st.lists(TEXTS, max_size=9).map(tuple))
REPORTS = st.builds(
    Report,
    phase=st.sampled_from(Phase),
    version=st.text(max_size=40),
    batch=st.integers(-1, 2**31),
    lag_s=st.floats(0, 1e6),
    plan=st.none() | PLANS,
    answers=st.dictionaries(st.text("abc-0123", min_size=1, max_size=128), ANSWERS, max_size=8),
    message=TEXTS,
)


def test_each_kind_of_request_is_read() -> None:
    assert parse_request('{"id":"1","do":"savepoint","name":"a"}') == TakeSavepoint("1", "a")
    assert parse_request('{"id":"2","do":"drain","savepoint":null}') == Drain("2")
    assert parse_request('{"id":"2","do":"drain","savepoint":"b"}') == Drain("2", "b")
    assert parse_request('{"id":"3","do":"go","epoch":4,"restore":"c"}') == Go("3", 4, "c")
    assert parse_request('{"id":"3","do":"go","epoch":1,"begin":true,"accept_newer":true}') == Go(
        "3", 1, None, begin=True, accept_newer=True
    )
    assert parse_request('{"id":"4","do":"verify","savepoint":"d"}') == Verify("4", "d")
    assert parse_request('{"id":"5","do":"configure","settings":{"a":1}}') == Configure("5", {"a": 1})


def test_a_request_may_say_what_span_it_belongs_to_and_what_is_no_text_costs_nothing() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for entries, meaning in (
        ('"do":"savepoint","name":"a"', TakeSavepoint("1", "a")),
        ('"do":"drain"', Drain("1")),
        ('"do":"go","epoch":4', Go("1", 4)),
    ):
        said = parse_request(f'{{"id":"1",{entries},"traceparent":"{parent}"}}')
        assert said == replace(meaning, traceparent=parent)
        for nonsense in ("7", '""', "null", "{}"):
            assert parse_request(f'{{"id":"1",{entries},"traceparent":{nonsense}}}') == meaning


def test_a_request_that_means_nothing_keeps_its_id_so_that_it_can_be_answered() -> None:
    for text in (
        '{"id":"1","do":"dance"}',
        '{"id":"1","do":"savepoint"}',
        '{"id":"1","do":"go","epoch":0}',
        '{"id":"1","do":"go","epoch":true}',
        '{"id":"1","do":"go","epoch":1,"begin":"yes"}',
        '{"id":"1","do":"drain","savepoint":7}',
        '{"id":"1","do":"verify","savepoint":null}',
        '{"id":"1","do":"configure"}',
    ):
        request = parse_request(text)
        assert isinstance(request, Unreadable)
        assert request.id == "1"
        assert request.why


@given(TEXTS | st.recursive(st.none() | st.integers() | TEXTS, lambda x: st.dictionaries(TEXTS, x)).map(repr))
def test_any_text_is_a_request_or_unreadable(text: str) -> None:
    assert parse_request(text) is not None


@given(REPORTS)
def test_a_report_fits_and_reads_back(report: Report) -> None:
    text = report.to_json()
    if report.answers:
        newest = [*report.answers][-1]
        assert newest in orjson.loads(text)["answers"]
    known = Report.from_json(text)
    assert known is not None
    assert (known.phase, known.batch, known.version) == (report.phase, report.batch, report.version)


@given(st.lists(st.integers(0, 20), max_size=40))
def test_the_newest_answers_stay(ids: list[int]) -> None:
    report = Report(Phase.RUNNING)
    for number in ids:
        report = report.answered(str(number), Answer(True, "x" * 5_000))
    assert len(report.answers) <= 8
    assert set(report.answers) <= {str(number) for number in ids}
    if ids:
        assert str(ids[-1]) in report.answers
    assert len(report.to_json().encode()) <= REPORT_BYTES


@given(st.text())
def test_what_is_no_report_says_nothing(text: str) -> None:
    assert Report.from_json(text) is None


def test_figures_are_no_news_and_everything_else_is() -> None:
    before = Report(Phase.RUNNING, committed=3)
    assert not Report(Phase.RUNNING, committed=9, lag_rows=7).is_news(before)
    assert Report(Phase.DRAINING, committed=3).is_news(before)
    assert before.answered("1", Answer(True)).is_news(before)
    assert Report(Phase.RUNNING, committed=1).is_news(Report(Phase.RUNNING))
