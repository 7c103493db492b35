"""Runs ``headgate up``: with a live view until it is stopped, or for a number of events followed by a verification.

Promises: however the run ends, the stack is stopped in order. The first signal requests an orderly stop, the second one
stops without waiting.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from rich.console import Console, RenderableType
from rich.layout import Layout
from rich.live import Live
from rich.text import Text

from headgate.console.messages import Print
from headgate.console.timeline import Timeline
from headgate.demo.generator import GeneratorSettings
from headgate.demo.service import LiveView, VerifyResult
from headgate.demo.stack import DemoStack
from headgate.errors import HeadgateError
from streamcore.kafka.readers import end_offsets

#: The interval at which the live view is drawn.
_REFRESH_S: Final = 0.3
_POLL_S: Final = 0.1
_LINE_EVERY_S: Final = 5.0
#: How long a run waits, after the app's first cut, for another processed event.
_STALLED_S: Final = 180.0
_CHECK_EVERY_S: Final = 1.0


class ForcedStopError(HeadgateError):
    """The run was stopped by force. Nothing is lost: the next start repeats the unfinished cut."""


@dataclass(slots=True)
class Signals:
    """SIGINT and SIGTERM of a run. The first sets ``stop``, the second sets ``hurry``: stop without waiting. While
    ``setting_up`` is True, the first also raises ``KeyboardInterrupt``, which ends the set-up."""

    print_message: Print
    stop: threading.Event = field(default_factory=threading.Event)
    hurry: threading.Event = field(default_factory=threading.Event)
    setting_up: bool = True

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM inside this context, and restore their handlers afterwards."""
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


class DemoRun:
    """One run of a stack, started by ``headgate.commands.up``."""

    def __init__(self, stack: DemoStack, signals: Signals, print_message: Print, timeline: Timeline) -> None:
        self.stack = stack
        self._signals = signals
        self._print_message = print_message
        self._timeline = timeline
        self._checked_s = 0.0
        #: The last line of the live view.
        self.footer: Callable[[], str] = str

    def run_live(self, generator: GeneratorSettings, console: Console) -> None:
        """Start the generator, and show the live view until a signal arrives or all events are processed.

        Without a terminal the view is a status line every few seconds.
        """
        self.stack.generate(generator)
        self._signals.setting_up = False
        with closing(self.stack.service.live_view(self.stack, self._timeline)) as view:
            if console.is_terminal:
                self._draw(view, console)
            else:
                self._print_lines(view)

    def _draw(self, view: LiveView, console: Console) -> None:
        """Draw the view. Messages are printed after it is closed, because it fills the screen."""
        delayed: list[str] = []
        try:
            with (
                self._timeline.redirect(delayed.append),
                Live(console=console, screen=True, auto_refresh=False) as live,
            ):
                while not self._is_over():
                    view.poll()
                    phase = "running" if self.stack.app.metrics.cuts else f"starting the {self.stack.service.name} app"
                    live.update(self._screen(view, phase, *console.size), refresh=True)
                    self._signals.stop.wait(_REFRESH_S)
        finally:
            for line in delayed:
                self._print_message(line)
        view.poll()
        self._print_message(view.status_line())

    def _screen(self, view: LiveView, phase: str, width: int, height: int) -> RenderableType:
        """Return the view, with the footer below it if there is one."""
        footer = self.footer()
        if not footer:
            return view.render(phase, width, height)
        screen = Layout()
        screen.split_column(Layout(view.render(phase, width, height - 1)), Layout(Text(footer), size=1))
        return screen

    def _print_lines(self, view: LiveView) -> None:
        """Print the status line every ``_LINE_EVERY_S`` seconds, for output that is no terminal."""
        next_s = 0.0
        while not self._is_over():
            view.poll()
            if time.monotonic() >= next_s:
                self._print_message(view.status_line())
                next_s = time.monotonic() + _LINE_EVERY_S
            self._signals.stop.wait(_REFRESH_S)

    def _is_over(self) -> bool:
        self._check()
        done = self.stack.generator.done and self.stack.app.metrics.processed >= self.stack.generator.sent
        return self._signals.stop.is_set() or done

    def _check(self) -> None:
        """Raise an error if a part of the stack has ended, and mark new milestones on the timeline."""
        if time.monotonic() - self._checked_s > _CHECK_EVERY_S:
            self._checked_s = time.monotonic()
            self.stack.raise_if_ended()
        for milestone, is_reached in self.stack.service.milestones(self.stack.app.metrics).items():
            if is_reached:
                self._timeline.mark(milestone)

    def run_and_verify(self, events: int, generator: GeneratorSettings) -> VerifyResult | None:
        """Send the events of ``generator``, wait until they are processed, stop the app, and verify the output.

        The app first processes the events that its topics hold already. ``events``: their number, for the message.
        Returns None if a signal interrupts the run.
        """
        self._signals.setting_up = False
        if not self._wait_until_processed():
            return None
        verifier = self.stack.service.verifier(self.stack)
        self._print_message(f"sending {events:,} events")
        self.stack.generate(generator)
        while not self.stack.generator.done:
            self._check()
            if self._signals.stop.wait(_POLL_S):
                return None
        self._timeline.mark("all events are sent")
        if not self._wait_until_processed():
            return None
        self._timeline.mark("all events are processed")
        verifier.on_events_processed()
        self.stack.stop_app(self._signals.hurry)
        self._print_message("reading the output and comparing it with the expected output")
        return verifier.compare()

    def _wait_until_processed(self) -> bool:
        """Wait until the app has processed all records that are in its topics now. Return False if a signal arrives."""
        ends = end_offsets(self.stack.kafka, self.stack.workspace.names.read)
        processed, since_s = -1, time.monotonic()
        while True:
            metrics = self.stack.app.metrics
            committed = metrics.committed
            if committed is not None and all(committed.get(p, 0) >= end for p, end in ends.items()):
                return True
            if metrics.processed > processed or metrics.cuts == 0:
                processed, since_s = metrics.processed, time.monotonic()
            if time.monotonic() - since_s > _STALLED_S:
                name, log = self.stack.service.name, self.stack.workspace.log
                raise HeadgateError(f"the {name} app processed nothing for {_STALLED_S:.0f} s; its log: {log}")
            self._check()
            if self._signals.stop.wait(_POLL_S):
                return False

    def stop_after_error(self) -> None:
        """Stop everything after an error, without hiding that error."""
        self._signals.setting_up = False
        self.stack.stop(self._signals.hurry)

    def close(self) -> None:
        """Stop the stack. Raises ``ForcedStopError`` if a part had to be killed."""
        self._signals.setting_up = False
        if not self.stack.stop(self._signals.hurry):
            raise ForcedStopError("stopped by force; the next start repeats the unfinished cut and loses nothing")
