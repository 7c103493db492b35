"""The two ways that `headgate up` runs: with a live view until somebody stops it, or for so many events and a verdict.

Promises: whatever ends it, the stack is stopped in order; the first signal asks for that, the second one hurries it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from rich.console import Console
from rich.live import Live

from headgate.errors import HeadgateError
from headgate.local.generator import Orders
from headgate.local.services.service import Screen, Verdict
from headgate.local.stack import Stack
from headgate.talk import Say
from headgate.timeline import Timeline
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
        with closing(self.stack.service.screen(self.stack, self._timeline)) as screen:
            if console.is_terminal:
                self._show(screen, console)
            else:
                self._tell(screen)

    def _show(self, screen: Screen, console: Console) -> None:
        """What would be said meanwhile is said afterwards: the view has the screen."""
        held: list[str] = []
        try:
            with self._timeline.saying(held.append), Live(console=console, screen=True, auto_refresh=False) as live:
                while not self._ended():
                    screen.poll()
                    phase = "running" if self.stack.app.figures.cuts else f"starting the {self.stack.service.name} app"
                    live.update(screen.picture(phase, *console.size), refresh=True)
                    self._signals.stop.wait(_REFRESH_S)
        finally:
            for line in held:
                self._say(line)
        screen.poll()
        self._say(screen.line())

    def _tell(self, screen: Screen) -> None:
        """No terminal: a line now and then."""
        next_s = 0.0
        while not self._ended():
            screen.poll()
            if time.monotonic() >= next_s:
                self._say(screen.line())
                next_s = time.monotonic() + _LINE_EVERY_S
            self._signals.stop.wait(_REFRESH_S)

    def _ended(self) -> bool:
        self._check()
        done = self.stack.generator.done and self.stack.app.figures.processed >= self.stack.generator.sent
        return self._signals.stop.is_set() or done

    def _check(self) -> None:
        """Raise when a part of the stack is gone; note what happened for the first time."""
        if time.monotonic() - self._checked_s > _CHILDREN_EVERY_S:
            self._checked_s = time.monotonic()
            self.stack.check()
        for what, happened in self.stack.service.milestones(self.stack.app.figures).items():
            if happened:
                self._timeline.mark(what)

    def counted(self, events: int, orders: Orders) -> Verdict | None:
        """Send so many events, wait until they are processed, stop the app, and compare. None when interrupted."""
        self._signals.setting_up = False
        if not self._caught_up():
            return None
        check = self.stack.service.check(self.stack)
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
        check.processed()
        self.stack.stop_app(self._signals.hurry)
        self._say("reading what came out and comparing")
        return check.verdict()

    def _caught_up(self) -> bool:
        """Wait until the app has processed what its topics hold now; False when interrupted."""
        ends = end_offsets(self.stack.kafka, self.stack.shop.names.read)
        seen, since = -1, time.monotonic()
        while True:
            figures = self.stack.app.figures
            committed = figures.committed
            if committed is not None and all(committed.get(p, 0) >= end for p, end in ends.items()):
                return True
            if figures.processed > seen or figures.cuts == 0:
                seen, since = figures.processed, time.monotonic()
            if time.monotonic() - since > _STALLED_S:
                what, log = self.stack.service.name, self.stack.shop.log
                raise HeadgateError(f"the {what} app processed nothing for {_STALLED_S:.0f} s; its log: {log}")
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
