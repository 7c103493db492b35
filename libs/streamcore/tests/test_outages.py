import datetime
import logging
import time

import pytest

from streamcore.errors import Permanent, Retryable
from streamcore.outages import GRACE_S, REPEAT_S, SILENCE_S, Dependency, Outages

DB = Dependency("PostgreSQL db:5432", "Cuts wait and no row is lost", "Start the server or mend the network")
KAFKA = Dependency("Kafka b:9092", "Cuts wait", "Start the broker")


class _Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def utc(self) -> datetime.datetime:
        return datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC) + datetime.timedelta(seconds=self.now_s - 1000)


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def outages(clock: _Clock, caplog: pytest.LogCaptureFixture) -> Outages:
    caplog.set_level(logging.INFO)
    return Outages(logging.getLogger("app"), clock, clock.utc)


def test_an_outage_is_logged_once_then_every_minute_and_at_its_end(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(130 * 4):  # a client that tries four times a second
        outages.failed(DB, "connection refused")
        outages.check()
        clock.now_s += 0.25
    outages.succeeded(DB)
    outages.succeeded(DB)
    assert caplog.messages == [
        "PostgreSQL db:5432 is unavailable since 12:00:00 UTC: connection refused. Cuts wait and no row is lost. "
        "Start the server or mend the network",
        "PostgreSQL db:5432 is still unavailable, after 62 s: connection refused. Start the server or mend the network",
        "PostgreSQL db:5432 is still unavailable, after 122 s: connection refused. "
        "Start the server or mend the network",
        "PostgreSQL db:5432 is back after 130 s",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3 + ["INFO"]


@pytest.mark.parametrize("end", ["", ".", "?"])
def test_the_reason_is_a_sentence(end: str, outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture) -> None:
    outages.failed(DB, f"refused; is the server running{end}")
    clock.now_s += GRACE_S
    outages.check()
    assert f"is the server running{end or '.'} Cuts wait and no row is lost. Start" in caplog.messages[0]


def test_a_failure_that_a_retry_fixes_immediately_is_not_logged(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outages.failed(DB, "connection reset")
    clock.now_s += GRACE_S / 2
    outages.check()
    outages.succeeded(DB)
    clock.now_s += REPEAT_S
    outages.check()
    assert caplog.messages == []


def test_a_call_without_an_answer_is_an_outage_while_it_waits(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with outages.attempt(DB, "batch 7"):
        clock.now_s += SILENCE_S - 1
        outages.check()
        assert caplog.messages == []
        clock.now_s += 1
        outages.check()
        outages.check()
        assert [text.partition(". ")[0] for text in caplog.messages] == [
            "PostgreSQL db:5432 is unavailable since 12:00:00 UTC: no answer to batch 7"
        ]
        clock.now_s += 20
    assert caplog.messages[1:] == ["PostgreSQL db:5432 is back after 30 s"]


def test_a_slow_call_is_no_outage_while_the_system_answers_others(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with outages.attempt(DB, "a large request"):
        for _ in range(10):
            clock.now_s += SILENCE_S / 2
            with outages.attempt(DB, "a small request"):
                outages.check()
    assert caplog.messages == []


def test_a_long_call_with_answered_parts_is_no_outage_and_a_part_ends_none(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with outages.attempt(DB, "batch 7"):
        for _ in range(10):
            clock.now_s += SILENCE_S / 2
            outages.answered(DB)
            outages.check()
        assert caplog.messages == []
        clock.now_s += SILENCE_S
        outages.check()
        outages.answered(DB)
        clock.now_s += SILENCE_S / 2
    assert [text.partition(": ")[0] for text in caplog.messages] == [
        "PostgreSQL db:5432 is unavailable since 12:00:50 UTC",
        "PostgreSQL db:5432 is back after 15 s",
    ]


def test_a_system_without_further_calls_is_not_reported_again(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outages.failed(DB, "connection refused", clock.now_s - GRACE_S)
    for _ in range(300):
        clock.now_s += 1
        outages.check()
    outages.succeeded(DB)
    assert [text.partition(": ")[0] for text in caplog.messages] == [
        "PostgreSQL db:5432 is unavailable since 11:59:58 UTC",
        "PostgreSQL db:5432 is still unavailable, after 62 s",
    ]


def test_only_retryable_errors_are_failures_of_the_system(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for error in (Permanent("a bad row"), Retryable("timed out")):
        with pytest.raises(type(error)), outages.attempt(DB, "batch 7"):
            raise error
        clock.now_s += GRACE_S
        outages.check()
    assert [text.partition(". ")[0] for text in caplog.messages] == [
        "PostgreSQL db:5432 is unavailable since 12:00:02 UTC: timed out"
    ]


def test_each_system_has_its_own_outage(outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture) -> None:
    outages.failed(DB, "connection refused")
    clock.now_s += 1
    outages.failed(KAFKA, "timed out")
    outages.succeeded(DB)
    clock.now_s += GRACE_S
    outages.check()
    assert [text.partition(" ")[0] for text in caplog.messages] == ["Kafka"]


def test_a_part_of_a_system_is_reported_only_while_the_system_itself_works(
    outages: Outages, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    part = Dependency("Transactions on b:9092", "Cuts wait", "Restart the broker", grace_s=15, part_of=KAFKA)
    for second in range(80):
        if second < 40:
            outages.failed(KAFKA, "timed out")
        elif second == 40:
            outages.succeeded(KAFKA)
        outages.failed(part, "no coordinator")
        outages.check()
        clock.now_s += 1
    assert [text.partition(": ")[0] for text in caplog.messages] == [
        "Kafka b:9092 is unavailable since 12:00:00 UTC",
        "Kafka b:9092 is back after 40 s",
        "Transactions on b:9092 is unavailable since 12:00:39 UTC",
    ]


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Messages of the tests' own log: threads that other tests began in this process log elsewhere."""
    return [record.getMessage() for record in caplog.records if record.name == "app"]


@pytest.mark.slow
def test_a_thread_reports_while_the_caller_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = _Clock()
    outages = Outages(logging.getLogger("app"), clock, clock.utc, thread=True)
    with outages.attempt(DB, "batch 7"):
        clock.now_s += SILENCE_S
        limit_s = time.monotonic() + 30
        while not (found := reports(caplog)) and time.monotonic() < limit_s:
            time.sleep(0.02)
    assert found[0].startswith("PostgreSQL db:5432 is unavailable since 12:00:00 UTC")
