"""Each request is carried out and answered once, whatever happens to the process and to the mailbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson

from streamcore.errors import ConfigError, Retryable
from streamcore.service.clerk import Clerk, Pace
from streamcore.service.mailbox import FileMailbox
from streamcore.service.report import Answer, Phase, Report
from streamcore.service.requests import Drain, Request, Verify
from streamcore.service.voice import Voice

QUICK = Pace(news_ms=10, figures_ms=50, retry_ms=10, retry_max_ms=20, last_words_ms=2_000)


class Hand:
    """Carries out requests, and remembers them."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.done: list[Request] = []
        self.answer = answer

    def __call__(self, request: Request) -> Answer | None:
        self.done.append(request)
        return self.answer


class Away(FileMailbox):
    """A mailbox that nobody reaches for a while; counts what is published."""

    away = False
    published = 0

    def publish(self, report: str) -> None:
        if self.away:
            raise Retryable("away")
        self.published += 1
        super().publish(report)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def said(folder: Path) -> Report:
    text = FileMailbox(folder).last_report()
    return (None if text is None else Report.from_json(text)) or Report(Phase.STARTING)


def test_a_request_is_carried_out_once_and_answered(tmp_path: Path) -> None:
    hand = Hand(Answer(True, "done"))
    box = FileMailbox(tmp_path)
    with Clerk(box, Report(Phase.RUNNING), hand, QUICK):
        box.ask('{"id":"1","do":"drain"}')
        eventually(lambda: "1" in said(tmp_path).answers)
        box.ask('{"id":"1","do":"drain"}')
        time.sleep(0.5)
    assert hand.done == [Drain("1")]
    assert said(tmp_path).answers["1"] == Answer(True, "done")


def test_what_an_earlier_process_answered_is_not_carried_out_again(tmp_path: Path) -> None:
    box = FileMailbox(tmp_path)
    box.ask('{"id":"1","do":"drain"}')
    with Clerk(box, Report(Phase.RUNNING), Hand(Answer(True)), QUICK):
        eventually(lambda: "1" in said(tmp_path).answers)
    again = Hand(Answer(False))
    box = FileMailbox(tmp_path)
    with Clerk(box, Report(Phase.STARTING), again, QUICK):
        box.ask('{"id":"1","do":"drain"}')
        time.sleep(0.5)
        assert said(tmp_path).answers == {"1": Answer(True)}
        box.ask('{"id":"2","do":"drain"}')
        eventually(lambda: "2" in said(tmp_path).answers)
    assert again.done == [Drain("2")]


def test_a_request_that_was_not_answered_is_carried_out_by_the_next_process(tmp_path: Path) -> None:
    box = FileMailbox(tmp_path)
    box.ask('{"id":"1","do":"drain"}')
    crashed, then = Hand(None), Hand(Answer(True))
    with Clerk(box, Report(Phase.RUNNING), crashed, QUICK):
        eventually(lambda: bool(crashed.done))
    with Clerk(FileMailbox(tmp_path), Report(Phase.STARTING), then, QUICK):
        eventually(lambda: "1" in said(tmp_path).answers)
    assert then.done == [Drain("1")]


def test_a_request_that_fails_is_answered_with_the_reason(tmp_path: Path) -> None:
    def refuse(request: Request) -> Answer:
        raise ConfigError("not today")

    box = FileMailbox(tmp_path)
    with Clerk(box, Report(Phase.RUNNING), refuse, QUICK):
        box.ask('{"id":"1","do":"drain"}')
        eventually(lambda: "1" in said(tmp_path).answers)
    assert not said(tmp_path).answers["1"].ok
    assert "not today" in said(tmp_path).answers["1"].message


def test_a_refusal_says_whether_it_is_for_good(tmp_path: Path) -> None:
    voice = Voice(FileMailbox(tmp_path), lambda _: None)
    for name, why in (("away", Retryable("no broker")), ("never", ConfigError("no such savepoint"))):
        voice.refuse(name, why)
    answers = Report.from_json(voice.attending.report.to_json())
    assert answers is not None
    assert {name: answer.retry for name, answer in answers.answers.items()} == {"away": True, "never": False}


def test_an_answer_may_come_later_and_from_another_thread(tmp_path: Path) -> None:
    box = FileMailbox(tmp_path)
    with Clerk(box, Report(Phase.RUNNING), Hand(None), QUICK) as clerk:
        box.ask('{"id":"1","do":"drain"}')
        threading.Timer(0.1, clerk.answer, ("1", Answer(True, "late"))).start()
        eventually(lambda: "1" in said(tmp_path).answers)


def test_what_takes_long_keeps_neither_other_requests_nor_the_report_waiting(tmp_path: Path) -> None:
    done = threading.Event()

    def carry_out(request: Request) -> Answer | None:
        if isinstance(request, Verify):
            voice.later(request.id, lambda: Answer(done.wait(10), "whole"))
            return None
        return Answer(True)

    box, voice = FileMailbox(tmp_path), Voice(FileMailbox(tmp_path), carry_out)
    with voice.attending:
        box.ask('{"id":"1","do":"verify","savepoint":"a"}')
        time.sleep(0.5)
        box.ask('{"id":"2","do":"drain"}')
        eventually(lambda: "2" in said(tmp_path).answers)
        assert "1" not in said(tmp_path).answers
        done.set()
        eventually(lambda: "1" in said(tmp_path).answers)
    assert said(tmp_path).answers["1"] == Answer(True, "whole")


def test_a_mailbox_that_was_away_gets_the_report_when_it_is_back(tmp_path: Path) -> None:
    box = Away(tmp_path)
    box.away = True
    with Clerk(box, Report(Phase.STARTING), Hand(), QUICK) as clerk:
        clerk.say(lambda report: replace(report, phase=Phase.RUNNING))
        time.sleep(0.2)
        assert said(tmp_path).phase is Phase.STARTING
        box.away = False
        eventually(lambda: said(tmp_path).phase is Phase.RUNNING)


def test_the_last_report_is_out_when_the_clerk_leaves(tmp_path: Path) -> None:
    for _ in range(20):
        with Clerk(FileMailbox(tmp_path), Report(Phase.RUNNING), Hand(), QUICK) as clerk:
            clerk.say(lambda report: replace(report, phase=Phase.DRAINED))
        assert said(tmp_path).phase is Phase.DRAINED
        (tmp_path / "report.json").unlink()


def test_figures_are_published_no_more_often_than_the_pace(tmp_path: Path) -> None:
    box = Away(tmp_path)
    pace = Pace(news_ms=10, figures_ms=400)
    with Clerk(box, Report(Phase.RUNNING, committed=1), Hand(), pace) as clerk:
        eventually(lambda: box.published == 1)
        for batch in range(50):
            clerk.say(lambda report, batch=batch: replace(report, batch=batch))  # type: ignore[misc]
            time.sleep(0.01)
        assert box.published <= 3
        eventually(lambda: said(tmp_path).batch == 49)
    assert orjson.loads((tmp_path / "report.json").read_bytes())["batch"] == 49


def test_figures_go_on_while_nobody_says_anything(tmp_path: Path) -> None:
    lag = iter(range(1, 10_000))
    box = FileMailbox(tmp_path)
    pace = Pace(news_ms=10, figures_ms=20)
    with Clerk(box, Report(Phase.RUNNING), Hand(), pace, lambda report: replace(report, lag_rows=next(lag))):
        eventually(lambda: said(tmp_path).lag_rows > 3)
