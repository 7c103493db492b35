"""The two ways that `headgate up` runs: with a live view until somebody stops it, or for so many events and a verdict.

Promises: whatever ends it, the stack is stopped in order; the first signal asks for that, the second one hurries it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from rich.console import Console
from rich.live import Live

from headgate import verify
from headgate.errors import HeadgateError
from headgate.local.generator import Orders
from headgate.local.stack import Stack
from headgate.talk import Say
from headgate.timeline import Timeline
from headgate.verify import Verdict
from headgate.view import render
from headgate.watch import Watch
from streamcore.kafka.readers import end_offsets

_REFRESH_S: Final = 0.3
_POLL_S: Final = 0.1
_LINE_EVERY_S: Final = 5.0
_STALLED_S: Final = 180.0
_CHILDREN_EVERY_S: Final = 1.0


class NotInOrderError(HeadgateError):
    """It was stopped by force. Nothing is lost: the next start repeats what was open."""


@dataclass(slots=True)
class Signals:
    """``stop`` is set by the first signal, ``hurry`` by the second. In ``setting_up`` a signal interrupts at once."""

    say: Say
    stop: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)
    setting_up: bool = True

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM in here."""
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.setting_up:
            self.setting_up = False
            self.stop.set()
            raise KeyboardInterrupt
        if self.stop.is_set():
            self.hurry.set()
        self.stop.set()


class Up:
    """One run over a stack. ``headgate.commands.up`` makes it."""

    def __init__(self, stack: Stack, signals: Signals, say: Say, timeline: Timeline) -> None:
        self.stack = stack
        self._signals = signals
        self._say = say
        self._timeline = timeline
        self._checked_s = 0.0

    def live(self, orders: Orders, console: Console) -> None:
        """Show the view until a signal comes, or until the ordered events are processed."""
        self.stack.generate(orders)
        self._signals.setting_up = False
        with Watch(self.stack, self._timeline) as watch:
            if console.is_terminal:
                self._show(watch, console)
            else:
                self._tell(watch)

    def _show(self, watch: Watch, console: Console) -> None:
        """What would be said meanwhile is said afterwards: the view has the screen."""
        held: list[str] = []
        try:
            with self._timeline.saying(held.append), Live(console=console, screen=True, auto_refresh=False) as live:
                while not self._ended():
                    watch.poll()
                    phase = "running" if self.stack.app.figures.cuts else "starting the rules app"
                    live.update(render(watch.state(phase), *console.size), refresh=True)
                    self._signals.stop.wait(_REFRESH_S)
        finally:
            for line in held:
                self._say(line)
        watch.poll()
        self._say(self._line(watch))

    def _tell(self, watch: Watch) -> None:
        """No terminal: a line now and then."""
        next_s = 0.0
        while not self._ended():
            watch.poll()
            if time.monotonic() >= next_s:
                self._say(self._line(watch))
                next_s = time.monotonic() + _LINE_EVERY_S
            self._signals.stop.wait(_REFRESH_S)

    def _line(self, watch: Watch) -> str:
        state = watch.state("")
        return (
            f"{state.processed or 0:,} events processed, lag {state.lag or 0:,}, {state.events_per_second:,.0f}/s; "
            f"{state.alert_count:,} alerts, {state.dead_letters:,} dead letters, {state.late:,} late"
        )

    def _ended(self) -> bool:
        self._check()
        done = self.stack.generator.done and self.stack.app.figures.processed >= self.stack.generator.next_index
        return self._signals.stop.is_set() or done

    def _check(self) -> None:
        """Raise when a part of the stack is gone; note what happened for the first time."""
        if time.monotonic() - self._checked_s > _CHILDREN_EVERY_S:
            self._checked_s = time.monotonic()
            self.stack.check()
        figures = self.stack.app.figures
        for what, happened in (
            ("first cut", figures.cuts),
            ("first events", figures.events),
            ("first alert", figures.alerts),
        ):
            if happened:
                self._timeline.mark(what)

    def counted(self, events: int, orders: Orders) -> Verdict | None:
        """Send so many events, wait until they are processed, stop the app, and compare. None when interrupted."""
        self._signals.setting_up = False
        if not self._caught_up():
            return None
        before = verify.read(self.stack.kafka, self.stack.shop)
        self._say(f"sending {events:,} events")
        self.stack.generate(orders)
        while not self.stack.generator.done:
            self._check()
            if self._signals.stop.wait(_POLL_S):
                return None
        self._timeline.mark("all events are sent")
        if not self._caught_up():
            return None
        self._timeline.mark("all events are processed")
        shipped = [rule.rule for rule in self.stack.book.rules]
        rules, others = verify.comparable(shipped, self.stack.published())
        self.stack.stop_app(self._signals.hurry)
        self._say("reading the topics and comparing")
        after = verify.read(self.stack.kafka, self.stack.shop)
        return verify.compare(before, after, self.stack.shop, rules, others)

    def _caught_up(self) -> bool:
        """Wait until the app has processed what the event topic holds now; False when interrupted."""
        topic = self.stack.shop.names.events
        ends = {partition: end for (_, partition), end in end_offsets(self.stack.kafka, [topic]).items()}
        seen, since = -1, time.monotonic()
        while True:
            figures = self.stack.app.figures
            committed = figures.committed
            if committed is not None and all(committed.get(p, 0) >= end for p, end in ends.items()):
                return True
            if figures.processed > seen or figures.cuts == 0:
                seen, since = figures.processed, time.monotonic()
            if time.monotonic() - since > _STALLED_S:
                raise HeadgateError(
                    f"the rules app processed nothing for {_STALLED_S:.0f} s; its log: {self.stack.shop.log}"
                )
            self._check()
            if self._signals.stop.wait(_POLL_S):
                return False

    def abandon(self) -> None:
        """Stop everything after an error, which is what matters then."""
        self._signals.setting_up = False
        self.stack.stop(self._signals.hurry)

    def close(self) -> None:
        """Stop everything; ``NotInOrderError`` when that took force."""
        self._signals.setting_up = False
        if not self.stack.stop(self._signals.hurry):
            raise NotInOrderError("stopped by force; the next start repeats what was open and loses nothing")
