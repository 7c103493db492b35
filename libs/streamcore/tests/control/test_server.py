"""Each request is executed and answered once, whatever happens to the process and to the channel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from streamcore.control.channel import FileChannel
from streamcore.control.commands import Command, Drain, Verify
from streamcore.control.reporter import StatusReporter
from streamcore.control.server import ControlServer, PublishPolicy
from streamcore.control.status import CommandResult, DriverPhase, DriverStatus
from streamcore.errors import ConfigError, Retryable
from streamcore.outages import OUTAGES, Dependency

QUICK = PublishPolicy(min_interval_ms=10, metrics_interval_ms=50, retry_ms=10, retry_max_ms=20, final_wait_ms=2_000)


class Hand:
    """Executes requests, and records them."""

    def __init__(self, answer: CommandResult | None = None) -> None:
        self.done: list[Command] = []
        self.answer = answer

    def __call__(self, request: Command) -> CommandResult | None:
        self.done.append(request)
        return self.answer


class Away(FileChannel):
    """A channel that is unavailable for a while; counts what is published."""

    away = False
    published = 0

    def publish(self, report: str) -> None:
        if self.away:
            raise Retryable("away")
        self.published += 1
        super().publish(report)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.01)


def published_status(folder: Path) -> DriverStatus:
    text = FileChannel(folder).last_status()
    return (None if text is None else DriverStatus.from_json(text)) or DriverStatus(DriverPhase.STARTING)


def test_a_request_is_carried_out_once_and_answered(tmp_path: Path) -> None:
    hand = Hand(CommandResult(True, "done"))
    box = FileChannel(tmp_path)
    with ControlServer(box, DriverStatus(DriverPhase.RUNNING), hand, QUICK):
        box.send('{"id":"1","command":"drain"}')
        wait_until(lambda: "1" in published_status(tmp_path).results)
        box.send('{"id":"1","command":"drain"}')
        time.sleep(0.2)
    assert hand.done == [Drain("1")]
    assert published_status(tmp_path).results["1"] == CommandResult(True, "done")


@pytest.mark.slow
def test_a_request_that_an_earlier_process_answered_is_not_repeated(tmp_path: Path) -> None:
    box = FileChannel(tmp_path)
    box.send('{"id":"1","command":"drain"}')
    with ControlServer(box, DriverStatus(DriverPhase.RUNNING), Hand(CommandResult(True)), QUICK):
        wait_until(lambda: "1" in published_status(tmp_path).results)
    again = Hand(CommandResult(False))
    box = FileChannel(tmp_path)
    with ControlServer(box, DriverStatus(DriverPhase.STARTING), again, QUICK):
        box.send('{"id":"1","command":"drain"}')
        time.sleep(0.5)
        assert published_status(tmp_path).results == {"1": CommandResult(True)}
        box.send('{"id":"2","command":"drain"}')
        wait_until(lambda: "2" in published_status(tmp_path).results)
    assert again.done == [Drain("2")]


def test_a_request_that_was_not_answered_is_carried_out_by_the_next_process(tmp_path: Path) -> None:
    box = FileChannel(tmp_path)
    box.send('{"id":"1","command":"drain"}')
    crashed, then = Hand(None), Hand(CommandResult(True))
    with ControlServer(box, DriverStatus(DriverPhase.RUNNING), crashed, QUICK):
        wait_until(lambda: bool(crashed.done))
    with ControlServer(FileChannel(tmp_path), DriverStatus(DriverPhase.STARTING), then, QUICK):
        wait_until(lambda: "1" in published_status(tmp_path).results)
    assert then.done == [Drain("1")]


def test_a_request_that_fails_is_answered_with_the_reason(tmp_path: Path) -> None:
    def reject(request: Command) -> CommandResult:
        raise ConfigError("not today")

    box = FileChannel(tmp_path)
    with ControlServer(box, DriverStatus(DriverPhase.RUNNING), reject, QUICK):
        box.send('{"id":"1","command":"drain"}')
        wait_until(lambda: "1" in published_status(tmp_path).results)
    assert not published_status(tmp_path).results["1"].ok
    assert "not today" in published_status(tmp_path).results["1"].message


def test_a_rejection_reports_whether_a_retry_can_succeed(tmp_path: Path) -> None:
    reporter = StatusReporter(FileChannel(tmp_path), lambda _: None)
    for name, why in (("away", Retryable("no broker")), ("never", ConfigError("no such savepoint"))):
        reporter.reject(name, why)
    answers = DriverStatus.from_json(reporter.server.status.to_json())
    assert answers is not None
    assert {name: answer.retryable for name, answer in answers.results.items()} == {"away": True, "never": False}


def test_the_status_has_the_system_that_is_away_until_it_is_back(tmp_path: Path) -> None:
    registry = Dependency("Schema registry http://away", "The cut waits", "Start it", grace_s=0)
    refresh = StatusReporter(FileChannel(tmp_path), lambda _: None).server._refresh
    before = DriverStatus(DriverPhase.RUNNING)
    OUTAGES.failed(registry, "connection refused")
    try:
        away = refresh(before)
    finally:
        OUTAGES.succeeded(registry)
    assert "Schema registry http://away: connection refused" in away.message
    assert away.is_urgent(before), "it is published at once"
    assert "http://away" not in refresh(away).message
    assert refresh(DriverStatus(DriverPhase.RUNNING, message="trying again: x")).message == "trying again: x"


def test_an_answer_may_come_later_and_from_another_thread(tmp_path: Path) -> None:
    box = FileChannel(tmp_path)
    with ControlServer(box, DriverStatus(DriverPhase.RUNNING), Hand(None), QUICK) as clerk:
        box.send('{"id":"1","command":"drain"}')
        threading.Timer(0.1, clerk.respond, ("1", CommandResult(True, "late"))).start()
        wait_until(lambda: "1" in published_status(tmp_path).results)


@pytest.mark.slow
def test_a_long_request_delays_neither_other_requests_nor_the_status(tmp_path: Path) -> None:
    done = threading.Event()

    def carry_out(request: Command) -> CommandResult | None:
        if isinstance(request, Verify):
            reporter.run_async(request.id, lambda: CommandResult(done.wait(10), "whole"))
            return None
        return CommandResult(True)

    box, reporter = FileChannel(tmp_path), StatusReporter(FileChannel(tmp_path), carry_out)
    with reporter.server:
        box.send('{"id":"1","command":"verify","savepoint":"a"}')
        time.sleep(0.5)
        box.send('{"id":"2","command":"drain"}')
        wait_until(lambda: "2" in published_status(tmp_path).results)
        assert "1" not in published_status(tmp_path).results
        done.set()
        wait_until(lambda: "1" in published_status(tmp_path).results)
    assert published_status(tmp_path).results["1"] == CommandResult(True, "whole")


def test_the_server_publishes_the_status_when_the_channel_is_available_again(tmp_path: Path) -> None:
    box = Away(tmp_path)
    box.away = True
    with ControlServer(box, DriverStatus(DriverPhase.STARTING), Hand(), QUICK) as clerk:
        clerk.update(lambda report: replace(report, phase=DriverPhase.RUNNING))
        time.sleep(0.2)
        assert published_status(tmp_path).phase is DriverPhase.STARTING
        box.away = False
        wait_until(lambda: published_status(tmp_path).phase is DriverPhase.RUNNING)


def test_the_server_publishes_the_last_status_before_it_stops(tmp_path: Path) -> None:
    for _ in range(20):
        with ControlServer(FileChannel(tmp_path), DriverStatus(DriverPhase.RUNNING), Hand(), QUICK) as clerk:
            clerk.update(lambda report: replace(report, phase=DriverPhase.DRAINED))
        assert published_status(tmp_path).phase is DriverPhase.DRAINED
        (tmp_path / "status.json").unlink()


@pytest.mark.slow
def test_metrics_are_published_no_more_often_than_the_interval(tmp_path: Path) -> None:
    box = Away(tmp_path)
    pace = PublishPolicy(min_interval_ms=10, metrics_interval_ms=400)
    with ControlServer(box, DriverStatus(DriverPhase.RUNNING, committed=1), Hand(), pace) as clerk:
        wait_until(lambda: box.published == 1)
        for batch in range(50):
            clerk.update(lambda report, batch=batch: replace(report, batch=batch))  # type: ignore[misc]
            time.sleep(0.01)
        assert box.published <= 3
        wait_until(lambda: published_status(tmp_path).batch == 49)
    assert orjson.loads((tmp_path / "status.json").read_bytes())["batch"] == 49


def test_the_server_keeps_publishing_metrics_without_updates(tmp_path: Path) -> None:
    lag = iter(range(1, 10_000))
    box = FileChannel(tmp_path)
    pace = PublishPolicy(min_interval_ms=10, metrics_interval_ms=20)
    with ControlServer(
        box, DriverStatus(DriverPhase.RUNNING), Hand(), pace, lambda report: replace(report, lag_rows=next(lag))
    ):
        wait_until(lambda: published_status(tmp_path).lag_rows > 3)
