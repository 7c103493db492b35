"""The life of one process of a service: start, perhaps wait as a standby, run, stop at a batch boundary.

Commands arrive and the status leaves through a ``StatusReporter``; signals request a drain. The promotion of a standby,
step by step (each line names the state that a crash just after it leaves):

1. Check whether the checkpoint of that epoch exists or may be created. A rejection has changed nothing.
2. Acquire it, in that epoch. A crash leaves a lease that goes stale, in a folder that counts for nothing.
3. Create it, if it does not exist (``promotion``). A crash leaves a partial one, which the next owner replaces, or a
   complete checkpoint.
4. Build the runner, report ``running``, respond. A crash leaves a dead owner; the next process continues. A failure
   here ends the process and leaves the command without a result, as a crash does.
5. Run. A ``configure`` command (``reconfigure``) replaces the settings in the same epoch, or the old ones stay.

Rejected up to step 3, it stays a standby and can be promoted again. Does not import Spark before the service's own
modules are imported, which happens while the JVM starts.
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

from streamcore.control.channel import ControlChannel
from streamcore.control.commands import Command, Configure, Drain, InvalidCommand, Promote, TakeSavepoint, Verify
from streamcore.control.reporter import StatusReporter
from streamcore.control.status import CommandResult, DriverPhase, SavepointInfo
from streamcore.errors import ConfigError, StreamError
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.observers import CutListener, StdoutListener, combine_listeners
from streamcore.service.promotion import settings_for_epoch, standalone_checkpoint, take_over
from streamcore.service.reconfigure import ActiveRunner, LiveReconfiguration
from streamcore.service.savepoint_api import Savepoints, SavepointsFactory
from streamcore.service.telemetry_hook import NoTelemetry, TelemetryHook, telemetry_for
from streamcore.spark.runtime import Runtime

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.spark.runner import Runner

S = TypeVar("S", bound=ServiceSettings)
#: Builds a service's runner.
RunnerFactory = Callable[[S, Runtime, "Listeners"], "Runner"]

_CHECK_S = 5.0
_NO_STANDBY = "this process is no standby: it runs, or is about to"


@dataclass(frozen=True, slots=True)
class StartMode:
    """``standby``: own nothing before the command ``promote``; ``restore_from``: the savepoint to plan with
    meanwhile."""

    standby: bool = False
    restore_from: str | None = None


class ServiceProcess(Generic[S]):
    """``run`` blocks until the service has stopped as it was asked, or raises ``StreamError``."""

    def __init__(
        self,
        name: str,
        settings: S,
        build: Callable[[], RunnerFactory[S]],
        channel: ControlChannel,
        mode: StartMode,
        savepoints: SavepointsFactory[S],
    ) -> None:
        self._log = logging.getLogger(name)
        self._settings = settings
        self._build = build
        self._mode = mode
        self._savepoints_of = savepoints
        self._savepoints: Savepoints | None = None
        self._current: ActiveRunner[S] | None = None
        self._changes: LiveReconfiguration[S] | None = None
        self._epoch: int | None = None
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._running = threading.Event()
        self._orders: queue.SimpleQueue[Promote | None] = queue.SimpleQueue()
        self._drain: Drain | None = None
        self._go: Promote | None = None
        self._drain_ns = self._go_ns = 0  # when they began to be carried out
        self._telemetry: TelemetryHook = NoTelemetry()
        self._channel = channel
        self._reporter = StatusReporter(channel, self._dispatch)

    def run(self) -> None:
        """Run until the service has stopped."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                # In a thread: a handler that took a lock could meet its own thread holding it.
                signal.signal(number, lambda *_: threading.Thread(target=self.stop, name="stop").start())
        with self._serving(own=True):
            self._run()

    @contextmanager
    def _serving(self, *, own: bool) -> Iterator[None]:
        """Serve the control channel within this context, if the channel's ``exclusive`` equals ``own``.

        A channel that is not exclusive belongs to the owner of the checkpoint: any other process would execute the
        owner's commands and overwrite its status.
        """
        if self._channel.exclusive is not own:
            yield
            return
        with self._reporter.server:
            try:
                yield
            except BaseException as error:
                self._fail(error)
                raise
            self._reporter.set_phase(DriverPhase.DRAINED)

    def stop(self) -> None:
        """Stop at the next batch boundary. Any thread may call it, repeatedly."""
        self._stopping.set()
        self._running.set()
        self._orders.put(None)
        current = self._current
        if current is not None:
            self._reporter.set_phase(DriverPhase.DRAINING)
            current.runner.drain(finish_open_batch=self._drain_needs_savepoint)

    @property
    def _drain_needs_savepoint(self) -> bool:
        """Return whether the drain ends with a savepoint, for which no batch may be left unfinished."""
        return self._drain is not None and self._drain.savepoint is not None

    @property
    def _awaits_promotion(self) -> bool:
        """Return whether this is a standby that owns nothing yet."""
        return self._mode.standby and not self._running.is_set()

    def _run(self) -> None:
        settings = self._settings
        checkpoint = None if self._mode.standby else standalone_checkpoint(settings)
        with Runtime(settings.app, checkpoint, settings.spark_session) as start, self._serving(own=False):
            make = self._build()
            self._savepoints = self._savepoints_of(settings, start)
            self._ready.set()
            if not self._mode.standby or self._wait_as_standby(make, start):
                self._run_app(make, start)
            else:
                self._finish_drain()

    def _wait_as_standby(self, make: RunnerFactory[S], start: Runtime) -> bool:
        """Wait until this process is promoted; return False when it must stop instead."""
        start.session()
        if self._mode.restore_from is not None:
            self._reporter.set_compatibility(self._store().plan(self._mode.restore_from))
        self._rehearse(make, start)
        self._reporter.set_phase(DriverPhase.STANDBY)
        while (go := self._next_order(start)) is not None:
            self._go, self._go_ns = go, time.time_ns()
            try:
                # 1. to 3. From here on nobody else.
                take_over(go, self._settings, self._store(), start)
            except StreamError as error:
                self._log.warning("promotion rejected: %s", error)
                self._reporter.reject(go.id, error)
                self._go = None
            else:
                self._epoch = go.epoch
                self._reporter.set_epoch(go.epoch)
                return True
        return False

    def _next_order(self, start: Runtime) -> Promote | None:
        while True:
            start.check_alive()
            with suppress(queue.Empty):
                return self._orders.get(timeout=_CHECK_S)

    def _rehearse(self, make: RunnerFactory[S], start: Runtime) -> None:
        """Warm up until that is done, or a command arrives."""
        settings = self._settings
        scratch = settings.checkpoint.parent / f".{settings.app}-rehearsal-{socket.gethostname()}-{os.getpid()}"
        if self._orders.empty():
            runner = make(settings, start, combine_listeners((), self._log))
            runner.warm_up(scratch, lambda: not self._orders.empty())

    def _run_app(self, make: RunnerFactory[S], start: Runtime) -> None:
        with telemetry_for(self._settings) as telemetry:
            self._telemetry = telemetry

            def build(settings: S) -> ActiveRunner[S]:
                placed = settings if self._epoch is None else settings_for_epoch(settings, self._epoch)
                return ActiveRunner(settings, make(placed, start, listeners))

            self._changes = changes = LiveReconfiguration(self._reporter, build)
            observers: tuple[CutListener, ...] = (StdoutListener(), self._reporter, *telemetry.observers(), changes)
            listeners = combine_listeners(observers, self._log)
            # 4. Everything is ours.
            first = build(self._settings)
            changes.start(first)
            start.session()
            if self._go is not None:
                self._reporter.respond(self._go.id, CommandResult(True, f"runs in epoch {self._go.epoch}"))
                telemetry.command_done("promote", self._go.traceparent, self._go_ns)
                self._go = None
            if not self._stopping.is_set():
                self._reporter.set_phase(DriverPhase.RUNNING)
            # 5. Until it was asked to stop.
            current: ActiveRunner[S] | None = first
            while current is not None:
                self._activate(current, start)
                self._run_one(current, changes)
                current = changes.next_runner(stopping=self._stopping.is_set())
            self._finish_drain()

    def _activate(self, current: ActiveRunner[S], start: Runtime) -> None:
        """Make this runner the one that commands apply to."""
        if current.settings is not self._settings:
            self._settings, self._savepoints = current.settings, self._savepoints_of(current.settings, start)
        self._current = current
        self._reporter.track_lag(current.runner.lag)
        self._telemetry.watch(current.runner.lag)
        self._running.set()
        if self._stopping.is_set():
            current.runner.drain(finish_open_batch=self._drain_needs_savepoint)

    @staticmethod
    def _run_one(current: ActiveRunner[S], changes: LiveReconfiguration[S]) -> None:
        try:
            current.runner.run()
        except StreamError as error:
            if not changes.roll_back(error):
                changes.close(f"{type(error).__name__}: {error}")
                raise

    def _finish_drain(self) -> None:
        """Publish the result of the drain, with its savepoint."""
        drain = self._drain
        if drain is None:
            return
        made = None
        if drain.savepoint is not None:
            if self._current is None:
                raise ConfigError(f"savepoint {drain.savepoint}: a standby that never ran has nothing to save")
            made = self._create_savepoint(drain.savepoint, self._current.runner, drain.traceparent)
        self._drain = None
        self._reporter.respond(drain.id, CommandResult(True, "stopped", made))
        self._telemetry.command_done("drain", drain.traceparent, self._drain_ns)

    def _dispatch(self, request: Command) -> CommandResult | None:
        """Execute one command; the server calls this for one after the other."""
        match request:
            case Drain():
                self._drain, self._drain_ns = request, time.time_ns()
                self.stop()
                return None
            case Promote():
                return self._on_promote(request)
            case TakeSavepoint():
                return self._on_savepoint(request)
            case Verify():
                return self._on_verify(request)
            case Configure():
                return self._on_configure(request)
            case InvalidCommand(_, why):
                return CommandResult(False, why)

    def _on_promote(self, go: Promote) -> CommandResult | None:
        if not self._awaits_promotion:
            return CommandResult(False, _NO_STANDBY)
        self._orders.put(go)
        return None

    def _on_savepoint(self, asked: TakeSavepoint) -> CommandResult | None:
        if self._awaits_promotion:
            return CommandResult(False, "a standby has nothing to save")
        self._reporter.run_async(asked.id, lambda: self._save(asked))
        return None

    def _on_verify(self, asked: Verify) -> CommandResult | None:
        if not self._awaits_promotion:
            return CommandResult(False, _NO_STANDBY)
        self._reporter.run_async(asked.id, lambda: self._verify(asked))
        return None

    def _on_configure(self, asked: Configure) -> CommandResult | None:
        if self._awaits_promotion:
            return CommandResult(False, "a standby keeps the settings that it was started with")
        self._reporter.run_async(asked.id, lambda: self._change(asked))
        return None

    def _verify(self, asked: Verify) -> CommandResult:
        self._ready.wait()
        return CommandResult(True, self._store().verify(asked.savepoint))

    def _save(self, asked: TakeSavepoint) -> CommandResult:
        self._running.wait()
        if self._current is None or self._stopping.is_set():
            raise ConfigError("it is stopping; ask for the savepoint with the drain")
        return CommandResult(True, "", self._create_savepoint(asked.name, self._current.runner, asked.traceparent))

    def _change(self, asked: Configure) -> CommandResult | None:
        self._running.wait()
        if self._current is None or self._changes is None or self._stopping.is_set():
            raise ConfigError("it is stopping")
        return self._changes.request(asked)

    def _create_savepoint(self, name: str, runner: Runner, traceparent: str | None) -> SavepointInfo:
        began_ns = time.time_ns()
        made = self._store().create(name, runner)
        self._telemetry.command_done("savepoint", traceparent, began_ns)
        self._telemetry.savepoint_done(time.time_ns() // 1_000_000)
        return made

    def _store(self) -> Savepoints:
        assert self._savepoints is not None, "made before anything is asked"
        return self._savepoints

    def _fail(self, error: BaseException) -> None:
        why = f"{type(error).__name__}: {error}"
        # A promotion is rejected only if it created nothing. Otherwise the command stays open, and the next process
        # that gets it continues with the existing checkpoint.
        refused_go = self._go if self._epoch is None else None
        for request in (self._drain, refused_go):
            if request is not None:
                self._reporter.reject(request.id, why)
        self._reporter.fail(why)
