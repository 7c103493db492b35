"""The life of one process of a service: start, perhaps wait as a standby, run, stop exactly.

What it is asked (``requests``) and what it says (``report``) go through a ``Voice``; signals ask for a drain. A standby
that is told to go, step by step (a crash after a step leaves what its line says):

1. Restore, when a savepoint is named: a new checkpoint is there, and nobody owns it. Asked again, it is found.
2. Own the checkpoint, in the epoch that was named. A crash leaves a lease that goes stale.
3. Build the runner, say ``running``, answer. A crash leaves an owner that is gone; whoever starts next goes on.
4. Run.

Refused at step 2, for somebody else owns it still, it stays a standby and can be asked again. Knows no Spark before the
service's own modules are imported, which happens while the JVM starts.
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

from streamcore.errors import ConfigError
from streamcore.service.mailbox import Mailbox
from streamcore.service.observers import Observer, Printer, listeners_of
from streamcore.service.report import Answer, Phase, SavepointSaid
from streamcore.service.requests import Drain, Go, Request, TakeSavepoint, Unreadable
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
        savepoints: SavepointsOf[S] | None = None,
    ) -> None:
        self._log = logging.getLogger(name)
        self._settings = settings
        self._build = build
        self._mode = mode
        self._savepoints_of = savepoints
        self._savepoints: Savepoints | None = None
        self._runner: Runner | None = None
        self._stopping = threading.Event()
        self._running = threading.Event()
        self._orders: queue.SimpleQueue[Go | None] = queue.SimpleQueue()
        self._drain: Drain | None = None
        self._go: Go | None = None
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
        runner = self._runner
        if runner is not None:
            self._voice.phase(Phase.DRAINING)
            runner.drain(settle=self._saves)

    @property
    def _saves(self) -> bool:
        """Whether a savepoint is to be made of what it stops with, for which no batch may be left unfinished."""
        return self._drain is not None and self._drain.savepoint is not None

    def _live(self) -> None:
        settings = self._settings
        owned = None if self._mode.standby else settings.checkpoint
        with Start(settings.app, owned, settings.spark_session) as start, self._attending(own=False):
            make = self._build()
            if self._savepoints_of is not None:
                self._savepoints = self._savepoints_of(settings, start)
            told = self._stand_by(make, start) if self._mode.standby else settings
            if told is not None:
                self._run_app(make, told, start)
            self._seal()

    def _stand_by(self, make: Make[S], start: Start) -> S | None:
        """Wait until it is told to go, and with which settings, or, None, to stop."""
        start.session()
        if self._mode.restore_from is not None:
            plan = self._store().plan(self._mode.restore_from)
            self._voice.plan(plan)
        self._rehearse(make, start)
        self._voice.phase(Phase.STANDBY)
        while (go := self._next_order(start)) is not None:
            self._go = go
            try:
                return self._owned(go, start)
            except ConfigError as error:
                self._log.warning("go is refused: %s", error)
                self._voice.refuse(go.id, str(error))
                self._go = None
        return None

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

    def _owned(self, go: Go, start: Start) -> S:
        settings = self._settings
        # 1. A checkpoint of its own.
        if go.restore is not None:
            checkpoint = self._store().restore(go.restore, go.epoch)
            settings = settings.model_copy(update={"checkpoint": checkpoint})
        # 2. From here on nobody else.
        start.own(settings.checkpoint, go.epoch)
        self._voice.owns(go.epoch)
        return settings

    def _run_app(self, make: Make[S], settings: S, start: Start) -> None:
        with telling(settings) as telemetry:
            # 3. Everything is ours.
            observers: tuple[Observer, ...] = (Printer(), self._voice, *telemetry.observers())
            self._runner = runner = make(settings, start, listeners_of(observers, self._log))
            self._voice.watch(runner.lag)
            telemetry.watch(runner.lag)
            self._telemetry = telemetry
            start.session()
            if self._go is not None:
                self._voice.answer(self._go.id, Answer(True, f"runs in epoch {self._go.epoch}"))
                self._go = None
            if self._stopping.is_set():
                runner.drain(settle=self._saves)
            else:
                self._voice.phase(Phase.RUNNING)
            self._running.set()
            # 4. Until it was asked to stop.
            runner.run()

    def _seal(self) -> None:
        """Answer the drain that was asked for, with its savepoint."""
        drain = self._drain
        if drain is None:
            return
        made = None
        if drain.savepoint is not None:
            if self._runner is None:
                raise ConfigError(f"savepoint {drain.savepoint}: a standby that never ran has nothing to save")
            made = self._created(drain.savepoint, self._runner)
        self._drain = None
        self._voice.answer(drain.id, Answer(True, "stopped", made))

    def _carry_out(self, request: Request) -> Answer | None:
        """Called by the clerk, one request after the other."""
        match request:
            case Drain():
                self._drain = request
                self.stop()
                return None
            case Go():
                return self._told_to_go(request)
            case TakeSavepoint():
                return self._told_to_save(request)
            case Unreadable(_, why):
                return Answer(False, why)

    def _told_to_go(self, go: Go) -> Answer | None:
        if not self._mode.standby or self._running.is_set():
            return Answer(False, "it is no standby: it runs, or is about to")
        self._orders.put(go)
        return None

    def _told_to_save(self, asked: TakeSavepoint) -> Answer | None:
        """In a thread: it takes its time, and a drain must be heard meanwhile."""
        if self._mode.standby and not self._running.is_set():
            return Answer(False, "a standby has nothing to save")
        threading.Thread(target=self._save, args=(asked,), name="savepoint", daemon=True).start()
        return None

    def _save(self, asked: TakeSavepoint) -> None:
        self._running.wait()
        try:
            if self._runner is None or self._stopping.is_set():
                raise ConfigError("it is stopping; ask for the savepoint with the drain")
            made = self._created(asked.name, self._runner)
        except Exception as error:
            self._log.exception("savepoint %s", asked.name)
            self._voice.refuse(asked.id, f"{type(error).__name__}: {error}")
        else:
            self._voice.answer(asked.id, Answer(True, "", made))

    def _created(self, name: str, runner: Runner) -> SavepointSaid:
        made = self._store().create(name, runner)
        self._telemetry.saved(time.time_ns() // 1_000_000)
        return made

    def _store(self) -> Savepoints:
        if self._savepoints is None:
            raise ConfigError("savepoints: this service has no place for them")
        return self._savepoints

    def _fail(self, error: BaseException) -> None:
        why = f"{type(error).__name__}: {error}"
        for request in (self._drain, self._go):
            if request is not None:
                self._voice.refuse(request.id, why)
        self._voice.fail(why)
