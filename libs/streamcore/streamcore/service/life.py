"""The life of one process of a service: start, perhaps wait as a standby, run, stop exactly.

What it is asked (``requests``) and what it says (``report``) go through a ``Voice``; signals ask for a drain. A standby
that is told to go, step by step (a crash after a step leaves what its line says):

1. Look whether the checkpoint of that epoch is there, or may be made. A refusal has changed nothing.
2. Own it, in that epoch. A crash leaves a lease that goes stale, in a folder that counts for nothing.
3. Make it, if it is not there (``going``). A crash leaves what the next one makes anew, or a checkpoint that is whole.
4. Build the runner, say ``running``, answer. A crash leaves an owner that is gone; whoever starts next goes on. What
   fails here ends the process and leaves the request without an answer, as a crash does.
5. Run. Asked for other settings (``changing``), it runs with those, in the same epoch, or goes on as it was.

Refused up to step 3, it stays a standby and can be asked again. Knows no Spark before the service's own modules are
imported, which happens while the JVM starts.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from streamcore.errors import ConfigError, StreamError
from streamcore.service.changing import Changes, Current
from streamcore.service.going import alone, owned, within
from streamcore.service.mailbox import Mailbox
from streamcore.service.observers import Observer, Printer, listeners_of
from streamcore.service.report import Answer, Phase, SavepointSaid
from streamcore.service.requests import Configure, Drain, Go, Request, TakeSavepoint, Unreadable, Verify
from streamcore.service.savepoints import Savepoints, SavepointsOf
from streamcore.service.settings import ServiceSettings
from streamcore.service.telling import Silent, Telling, telling
from streamcore.service.voice import Voice
from streamcore.spark.start import Start

if TYPE_CHECKING:
    from streamcore.spark.runner import Listeners, Runner

S = TypeVar("S", bound=ServiceSettings)
#: Builds a service's runner.
Make = Callable[[S, Start, "Listeners"], "Runner"]

_CHECK_S = 5.0
_NO_STANDBY = "it is no standby: it runs, or is about to"


@dataclass(frozen=True, slots=True)
class Mode:
    """``standby``: own nothing before the request ``go``; ``restore_from``: the savepoint to plan with meanwhile."""

    standby: bool = False
    restore_from: str | None = None


class Life(Generic[S]):
    """``run`` blocks until the service has stopped as it was asked, or raises ``StreamError``."""

    def __init__(
        self,
        name: str,
        settings: S,
        build: Callable[[], Make[S]],
        mailbox: Mailbox,
        mode: Mode,
        savepoints: SavepointsOf[S],
    ) -> None:
        self._log = logging.getLogger(name)
        self._settings = settings
        self._build = build
        self._mode = mode
        self._savepoints_of = savepoints
        self._savepoints: Savepoints | None = None
        self._current: Current[S] | None = None
        self._changes: Changes[S] | None = None
        self._epoch: int | None = None
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._running = threading.Event()
        self._orders: queue.SimpleQueue[Go | None] = queue.SimpleQueue()
        self._drain: Drain | None = None
        self._go: Go | None = None
        self._drain_ns = self._go_ns = 0  # when they began to be carried out
        self._telemetry: Telling = Silent()
        self._mailbox = mailbox
        self._voice = Voice(mailbox, self._carry_out)

    def run(self) -> None:
        """Live."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                # In a thread: a handler that took a lock could meet its own thread holding it.
                signal.signal(number, lambda *_: threading.Thread(target=self.stop, name="stop").start())
        with self._attending(own=True):
            self._live()

    @contextmanager
    def _attending(self, *, own: bool) -> Iterator[None]:
        """Requests are heard and reports are said in here, if the mailbox is of this kind. One that is the owner's is
        left alone by a process that owns nothing: another one's requests would be answered, and its report hidden."""
        if self._mailbox.is_own is not own:
            yield
            return
        with self._voice.attending:
            try:
                yield
            except BaseException as error:
                self._fail(error)
                raise
            self._voice.phase(Phase.DRAINED)

    def stop(self) -> None:
        """Stop at the next batch boundary; from any thread, as often as one likes."""
        self._stopping.set()
        self._running.set()
        self._orders.put(None)
        current = self._current
        if current is not None:
            self._voice.phase(Phase.DRAINING)
            current.runner.drain(settle=self._saves)

    @property
    def _saves(self) -> bool:
        """Whether a savepoint is to be made of what it stops with, for which no batch may be left unfinished."""
        return self._drain is not None and self._drain.savepoint is not None

    @property
    def _waits_to_go(self) -> bool:
        """Whether it is a standby that owns nothing yet."""
        return self._mode.standby and not self._running.is_set()

    def _live(self) -> None:
        settings = self._settings
        checkpoint = None if self._mode.standby else alone(settings)
        with Start(settings.app, checkpoint, settings.spark_session) as start, self._attending(own=False):
            make = self._build()
            self._savepoints = self._savepoints_of(settings, start)
            self._ready.set()
            if not self._mode.standby or self._stand_by(make, start):
                self._run_app(make, start)
            else:
                self._seal()

    def _stand_by(self, make: Make[S], start: Start) -> bool:
        """Wait until it is told to go, and may, or, False, to stop."""
        start.session()
        if self._mode.restore_from is not None:
            self._voice.plan(self._store().plan(self._mode.restore_from))
        self._rehearse(make, start)
        self._voice.phase(Phase.STANDBY)
        while (go := self._next_order(start)) is not None:
            self._go, self._go_ns = go, time.time_ns()
            try:
                # 1. to 3. From here on nobody else.
                owned(go, self._settings, self._store(), start)
            except StreamError as error:
                self._log.warning("go is refused: %s", error)
                self._voice.refuse(go.id, error)
                self._go = None
            else:
                self._epoch = go.epoch
                self._voice.owns(go.epoch)
                return True
        return False

    def _next_order(self, start: Start) -> Go | None:
        while True:
            start.check()
            with suppress(queue.Empty):
                return self._orders.get(timeout=_CHECK_S)

    def _rehearse(self, make: Make[S], start: Start) -> None:
        """Until it is done, or there is something to do."""
        settings = self._settings
        scratch = settings.checkpoint.parent / f".{settings.app}-rehearsal-{socket.gethostname()}-{os.getpid()}"
        if self._orders.empty():
            runner = make(settings, start, listeners_of((), self._log))
            runner.rehearse(scratch, lambda: not self._orders.empty())

    def _run_app(self, make: Make[S], start: Start) -> None:
        with telling(self._settings) as telemetry:
            self._telemetry = telemetry

            def build(settings: S) -> Current[S]:
                placed = settings if self._epoch is None else within(settings, self._epoch)
                return Current(settings, make(placed, start, listeners))

            self._changes = changes = Changes(self._voice, build)
            observers: tuple[Observer, ...] = (Printer(), self._voice, *telemetry.observers(), changes)
            listeners = listeners_of(observers, self._log)
            # 4. Everything is ours.
            first = build(self._settings)
            changes.begin(first)
            start.session()
            if self._go is not None:
                self._voice.answer(self._go.id, Answer(True, f"runs in epoch {self._go.epoch}"))
                telemetry.carried_out("go", self._go.traceparent, self._go_ns)
                self._go = None
            if not self._stopping.is_set():
                self._voice.phase(Phase.RUNNING)
            # 5. Until it was asked to stop.
            current: Current[S] | None = first
            while current is not None:
                self._adopt(current, start)
                self._run_one(current, changes)
                current = changes.next(stopping=self._stopping.is_set())
            self._seal()

    def _adopt(self, current: Current[S], start: Start) -> None:
        """From here on this one is what is asked, drained and saved."""
        if current.settings is not self._settings:
            self._settings, self._savepoints = current.settings, self._savepoints_of(current.settings, start)
        self._current = current
        self._voice.watch(current.runner.lag)
        self._telemetry.watch(current.runner.lag)
        self._running.set()
        if self._stopping.is_set():
            current.runner.drain(settle=self._saves)

    @staticmethod
    def _run_one(current: Current[S], changes: Changes[S]) -> None:
        try:
            current.runner.run()
        except StreamError as error:
            if not changes.take_back(error):
                changes.close(f"{type(error).__name__}: {error}")
                raise

    def _seal(self) -> None:
        """Answer the drain that was asked for, with its savepoint."""
        drain = self._drain
        if drain is None:
            return
        made = None
        if drain.savepoint is not None:
            if self._current is None:
                raise ConfigError(f"savepoint {drain.savepoint}: a standby that never ran has nothing to save")
            made = self._created(drain.savepoint, self._current.runner, drain.traceparent)
        self._drain = None
        self._voice.answer(drain.id, Answer(True, "stopped", made))
        self._telemetry.carried_out("drain", drain.traceparent, self._drain_ns)

    def _carry_out(self, request: Request) -> Answer | None:
        """Called by the clerk, one request after the other."""
        match request:
            case Drain():
                self._drain, self._drain_ns = request, time.time_ns()
                self.stop()
                return None
            case Go():
                return self._told_to_go(request)
            case TakeSavepoint():
                return self._told_to_save(request)
            case Verify():
                return self._told_to_verify(request)
            case Configure():
                return self._told_to_change(request)
            case Unreadable(_, why):
                return Answer(False, why)

    def _told_to_go(self, go: Go) -> Answer | None:
        if not self._waits_to_go:
            return Answer(False, _NO_STANDBY)
        self._orders.put(go)
        return None

    def _told_to_save(self, asked: TakeSavepoint) -> Answer | None:
        if self._waits_to_go:
            return Answer(False, "a standby has nothing to save")
        self._voice.later(asked.id, lambda: self._save(asked))
        return None

    def _told_to_verify(self, asked: Verify) -> Answer | None:
        if not self._waits_to_go:
            return Answer(False, _NO_STANDBY)
        self._voice.later(asked.id, lambda: self._verify(asked))
        return None

    def _told_to_change(self, asked: Configure) -> Answer | None:
        if self._waits_to_go:
            return Answer(False, "a standby keeps the settings that it was started with")
        self._voice.later(asked.id, lambda: self._change(asked))
        return None

    def _verify(self, asked: Verify) -> Answer:
        self._ready.wait()
        return Answer(True, self._store().verify(asked.savepoint))

    def _save(self, asked: TakeSavepoint) -> Answer:
        self._running.wait()
        if self._current is None or self._stopping.is_set():
            raise ConfigError("it is stopping; ask for the savepoint with the drain")
        return Answer(True, "", self._created(asked.name, self._current.runner, asked.traceparent))

    def _change(self, asked: Configure) -> Answer | None:
        self._running.wait()
        if self._current is None or self._changes is None or self._stopping.is_set():
            raise ConfigError("it is stopping")
        return self._changes.ask(asked)

    def _created(self, name: str, runner: Runner, traceparent: str | None) -> SavepointSaid:
        began_ns = time.time_ns()
        made = self._store().create(name, runner)
        self._telemetry.carried_out("savepoint", traceparent, began_ns)
        self._telemetry.saved(time.time_ns() // 1_000_000)
        return made

    def _store(self) -> Savepoints:
        assert self._savepoints is not None, "made before anything is asked"
        return self._savepoints

    def _fail(self, error: BaseException) -> None:
        why = f"{type(error).__name__}: {error}"
        # A no would say that nothing was made. Told again, another process goes on from what is there.
        refused_go = self._go if self._epoch is None else None
        for request in (self._drain, refused_go):
            if request is not None:
                self._voice.refuse(request.id, why)
        self._voice.fail(why)
