"""Between a mailbox and a service: each request is carried out and answered once, and the report is kept up to date.

Two threads, so that a savepoint that takes a minute does not make the report old. A request, step by step (a crash
after a step leaves what its line says):

1. Look whether its id has been answered, by this process or an earlier one. It has: nothing happens.
2. Carry it out. A crash leaves it unanswered, and the next process carries it out again: a savepoint of that name is
   found, a drain stops at once.
3. Publish the answer. From here on step 1 knows it.

A mailbox that is away (an API server that restarts) stops neither the service nor the clerk: the report is published
when it is back. Refuses to know what a request means: that is the ``carry_out`` it is given.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from streamcore.errors import StreamError
from streamcore.service.mailbox import Mailbox
from streamcore.service.report import Answer, Report
from streamcore.service.requests import Request, parse_request

_LOG = logging.getLogger(__name__)
_LAST_PAUSE_S = 0.5

#: Gets the request; None when the answer comes later, by ``Clerk.answer``.
CarryOut = Callable[[Request], Answer | None]


@dataclass(frozen=True, slots=True)
class Pace:
    """``news_ms``: the least time between two publications; ``figures_ms``: the same when only figures have changed.
    ``retry_ms``: the pause after one failed, doubled up to ``retry_max_ms``. ``last_words_ms``: how long the end of
    the process waits for its last report."""

    news_ms: int = 1_000
    figures_ms: int = 5_000
    retry_ms: int = 1_000
    retry_max_ms: int = 15_000
    last_words_ms: int = 10_000


class Clerk:
    """Entered, it works. ``say`` changes the report, from any thread; leaving publishes the last one. ``refresh``
    brings figures up to date that change while nobody says anything."""

    def __init__(
        self,
        mailbox: Mailbox,
        report: Report,
        carry_out: CarryOut,
        pace: Pace | None = None,
        refresh: Callable[[Report], Report] = lambda report: report,
    ) -> None:
        self._mailbox = mailbox
        self._refresh = refresh
        self._carry_out = carry_out
        self._pace = pace or Pace()
        self._changed = threading.Condition()
        self._report = replace(report, at_ms=_now_ms())
        self._published: Report | None = None
        self._closing = threading.Event()
        self._known = threading.Event()
        self._begun: set[str] = set()
        self._threads: list[threading.Thread] = []

    @property
    def report(self) -> Report:
        """As it is now."""
        return self._report

    def say(self, change: Callable[[Report], Report]) -> None:
        """Change the report."""
        with self._changed:
            self._report = replace(change(self._report), at_ms=_now_ms())
            self._changed.notify_all()

    def answer(self, identity: str, answer: Answer) -> None:
        """Step 3 of a request whose answer comes later."""
        self.say(lambda report: report.answered(identity, answer))

    def __enter__(self) -> Clerk:
        for name, run in (("requests", self._attend), ("reports", self._publish_until_closed)):
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._threads[1].join(self._pace.last_words_ms / 1000)
        self._mailbox.close()

    def _attend(self) -> None:
        """Steps 1 to 3, one request after the other."""
        while not self._closing.is_set():
            request = self._next()
            if request is None:
                self._mailbox.wait(1.0)
                continue
            self._begun.add(request.id)
            # 2. Whatever goes wrong is an answer.
            answer = self._carried_out(request)
            # 3. Or later, by ``answer``.
            if answer is not None:
                self.answer(request.id, answer)

    def _next(self) -> Request | None:
        # 1. Nothing is begun before it is known what an earlier process answered.
        if not self._known.is_set():
            return None
        try:
            text = self._mailbox.newest()
        except StreamError:
            return None
        request = None if text is None else parse_request(text)
        if request is None or request.id in self._begun or request.id in self._report.answers:
            return None
        return request

    def _carried_out(self, request: Request) -> Answer | None:
        try:
            return self._carry_out(request)
        except StreamError as error:
            return Answer(False, f"{type(error).__name__}: {error}")

    def _publish_until_closed(self) -> None:
        pause_ms = self._pace.retry_ms
        while True:
            closing = self._closing.is_set()
            try:
                self._learn()
                self._publish()
            except StreamError as error:
                _LOG.warning("the report is not published: %s", error)
                self._rest(pause_ms)
                pause_ms = min(2 * pause_ms, self._pace.retry_max_ms)
                continue
            pause_ms = self._pace.retry_ms
            if closing and self._published is self._report:
                return
            self._wait_for_change()

    def _learn(self) -> None:
        """Take over what an earlier process answered."""
        if self._known.is_set():
            return
        text = self._mailbox.last_report()
        before = None if text is None else Report.from_json(text)
        if before is not None:
            with self._changed:
                self._report = replace(self._report, answers={**before.answers, **self._report.answers})
        self._known.set()

    def _publish(self) -> None:
        report = self._report
        if report is not self._published:
            self._mailbox.publish(report.to_json())
            self._published = report

    def _wait_for_change(self) -> None:
        """Until something is worth a publication: news soon, figures now and then."""
        self._closing.wait(self._pace.news_ms / 1000)
        with self._changed:
            news = self._changed.wait_for(self._is_due, self._pace.figures_ms / 1000)
        if not news:
            self.say(self._refresh)

    def _is_due(self) -> bool:
        return self._closing.is_set() or self._report.is_news(self._published)

    def _rest(self, pause_ms: int) -> None:
        """After a failure: short at the end, for the process waits for its last words."""
        if self._closing.wait(pause_ms / 1000):
            time.sleep(_LAST_PAUSE_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
