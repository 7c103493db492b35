"""Runs one process of a service: it starts, waits for promotion if it is a standby, runs the app, and drains.

Commands arrive and the status leaves through a ``StatusReporter``; signals request a drain. The promotion of a standby,
step by step (each line names the state that a crash just after it leaves):

1. Check whether the checkpoint of that epoch exists or may be created. A rejection has changed nothing.
2. Acquire it, in that epoch. A crash leaves a lease that goes stale, in a folder that is no checkpoint yet.
3. Create it, if it does not exist (``promotion``). A crash leaves a partial one, which the next owner replaces, or a
   complete checkpoint.
4. Build the runner, report ``running``, respond. A crash leaves a dead owner; the next process continues. A failure
   here ends the process and leaves the command without a result, as a crash does.
5. Run. A ``configure`` command (``reconfigure``) replaces the settings in the same epoch, or the old ones stay.

After a rejection in steps 1 to 3 the process stays a standby and can be promoted again. This module does not import
Spark: the JVM starts first, and Spark's and the service's own modules are imported while it starts.
"""

from __future__ import annotations

import gc
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
from types import FrameType
from typing import TYPE_CHECKING, Generic, TypeVar

from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.control.channel import ControlChannel
from streamcore.control.commands import Command, Configure, Drain, InvalidCommand, Promote, TakeSavepoint, Verify
from streamcore.control.reporter import StatusReporter
from streamcore.control.status import CommandResult, DriverPhase, SavepointInfo
from streamcore.engine.lag import Lag
from streamcore.errors import ConfigError, StreamError
from streamcore.kafka.delivery import AT_LEAST_ONCE_TEXT, CheckpointingMode
from streamcore.memory.memory_use import MemoryReader
from streamcore.memory.memory_warning import MemoryWarning
from streamcore.service.clock_warning import ClockWarning
from streamcore.service.config.settings import CheckpointRetention, ServiceSettings
from streamcore.service.cut_lines import CutLines
from streamcore.service.lineage_hook import lineage_for, lineage_job
from streamcore.service.observers import CutListener, StartMessage, StdoutListener, combine_listeners, ignore_waiting
from streamcore.service.promotion import settings_for_epoch, standalone_checkpoint, take_over
from streamcore.service.reconfigure import ActiveRunner, LiveReconfiguration
from streamcore.service.savepoint_api import Savepoints, SavepointsFactory
from streamcore.service.telemetry_hook import NoTelemetry, TelemetryHook, telemetry_for
from streamcore.spark.runtime import Runtime
from streamcore.wire import no_pandas

if TYPE_CHECKING:
    from streamcore.engine.report import Listeners
    from streamcore.lineage.reporter import LineageReporter
    from streamcore.spark.runner import Runner

S = TypeVar("S", bound=ServiceSettings)
#: Builds a service's runner from its settings, the entered ``Runtime`` and the listeners.
RunnerFactory = Callable[[S, Runtime, "Listeners"], "Runner"]

_JVM_CHECK_S = 5.0
_NO_STANDBY = "this process is no standby: it runs, or is about to"


@dataclass(frozen=True, slots=True)
class StartMode:
    """How the process starts.

    ``standby``: it owns no checkpoint until a ``Promote`` command arrives. ``restore_from``: name of the savepoint
    whose compatibility a standby reports while it waits. ``reports``: each cut is a JSON object on standard output,
    instead of a line in the log.
    """

    standby: bool = False
    restore_from: str | None = None
    reports: bool = False


class ServiceProcess(Generic[S]):
    """One process of a service; ``run`` runs it to its end.

    ``build`` imports the service's modules and returns the function that builds its runners.
    """

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
        self._keep_checkpoint = False
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._running = threading.Event()
        self._promotions: queue.SimpleQueue[Promote | None] = queue.SimpleQueue()
        self._drain: Drain | None = None
        self._promotion: Promote | None = None
        self._drain_ns = self._promote_ns = 0  # when the execution of each command began, in ns since 1970
        self._telemetry: TelemetryHook = NoTelemetry()
        self._lineage: LineageReporter | None = None
        self._reports = StdoutListener(self._lag) if mode.reports else None
        self._waiting = ignore_waiting if self._reports is None else self._reports.waiting
        self._channel = channel
        self._reporter = StatusReporter(channel, self._dispatch)

    def run(self) -> None:
        """Block until the service has drained. Raise ``StreamError`` if it fails."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._on_signal)
        with self._serving(own=True):
            self._run()

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """Stop. A machine that goes down sends SIGTERM, so that is no reason to delete the checkpoint."""
        self._keep_checkpoint |= number == signal.SIGTERM
        # In a thread: ``stop`` takes locks, and the interrupted thread may hold one of them.
        threading.Thread(target=self.stop, name="stop").start()

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
        """Request a drain and return. Any thread may call this, repeatedly."""
        self._stopping.set()
        self._running.set()
        self._promotions.put(None)
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
        if self._mode.standby and settings.checkpoint_retention is CheckpointRetention.DELETE:
            raise ConfigError(
                f"checkpoint_retention: {settings.checkpoint_retention} is not for a standby: the next version and a "
                "rollback go on from the checkpoint of the one before. Leave it out, and let deletionPolicy of the "
                "StreamApp, or `headgate savepoint purge`, delete what an app that has ended has stored"
            )
        checkpoint = None if self._mode.standby else standalone_checkpoint(settings)
        self._waiting("Spark's JVM, and the modules of the service")
        with Runtime(settings.app, checkpoint, settings.spark_session) as runtime, self._serving(own=False):
            make_runner = self._load()
            self._savepoints = self._savepoints_of(settings, runtime)
            self._ready.set()
            if not self._mode.standby or self._wait_as_standby(make_runner, runtime):
                self._run_app(make_runner, runtime)
            else:
                self._finish_drain()

    def _load(self) -> RunnerFactory[S]:
        """Import the service's modules while the JVM starts. No garbage is looked for: what is loaded stays."""
        gc.disable()
        try:
            no_pandas.hide_from_pyarrow()
            return self._build()
        finally:
            gc.enable()

    def _wait_as_standby(self, make_runner: RunnerFactory[S], runtime: Runtime) -> bool:
        """Warm up and wait until this process is promoted; return False if it must stop instead."""
        runtime.session()
        if self._mode.restore_from is not None:
            self._reporter.set_compatibility(self._store().plan(self._mode.restore_from))
        self._warm_up(make_runner, runtime)
        self._reporter.set_phase(DriverPhase.STANDBY)
        while (command := self._next_promotion(runtime)) is not None:
            self._promotion, self._promote_ns = command, time.time_ns()
            try:
                # 1. to 3. After this, no other process can own the checkpoint.
                take_over(command, self._settings, self._store(), runtime)
            except StreamError as error:
                self._log.warning("promotion rejected: %s", error)
                self._reporter.reject(command.id, error)
                self._promotion = None
            else:
                self._epoch = command.epoch
                self._reporter.set_epoch(command.epoch)
                return True
        return False

    def _next_promotion(self, runtime: Runtime) -> Promote | None:
        """Wait for a command to promote this process; return None if it must stop. Raise if the JVM died."""
        while True:
            runtime.check_alive()
            with suppress(queue.Empty):
                return self._promotions.get(timeout=_JVM_CHECK_S)

    def _warm_up(self, make_runner: RunnerFactory[S], runtime: Runtime) -> None:
        """Run the warm-up, unless a command waits. A command that arrives ends the warm-up."""
        settings = self._settings
        scratch = settings.checkpoint.parent / f".{settings.app}-rehearsal-{socket.gethostname()}-{os.getpid()}"
        if self._promotions.empty():
            runner = make_runner(settings, runtime, combine_listeners((), self._log))
            runner.warm_up(scratch, lambda: not self._promotions.empty())

    def _run_app(self, make_runner: RunnerFactory[S], runtime: Runtime) -> None:
        """Run steps 4 and 5 of the module's docstring."""
        memory = MemoryWarning(self._log, MemoryReader(self._settings.memory_limit_bytes).read)
        with telemetry_for(self._settings) as telemetry, lineage_for(self._settings) as lineage, memory:
            self._telemetry, self._lineage = telemetry, lineage
            telemetry.watch_memory(lambda: memory.latest)

            def build(settings: S) -> ActiveRunner[S]:
                epoch_settings = settings if self._epoch is None else settings_for_epoch(settings, self._epoch)
                return ActiveRunner(settings, make_runner(epoch_settings, runtime, listeners))

            self._changes = changes = LiveReconfiguration(self._reporter, build)
            started = StartMessage(self._settings.app, self._settings.telemetry.pages, self._log)
            if (mode := self._settings.checkpointing_mode) is CheckpointingMode.AT_LEAST_ONCE:
                self._log.info("checkpointing_mode %s: %s", mode, AT_LEAST_ONCE_TEXT)
            told = self._reports or CutLines(self._settings.app, self._log, self._lag)
            own: tuple[CutListener, ...] = (told, started, ClockWarning(self._log), self._reporter)
            sent = () if lineage is None else (lineage,)
            observers = (*own, *telemetry.observers(), *sent, changes)
            listeners = combine_listeners(observers, self._log, self._waiting)
            # 4. This process owns the checkpoint of its epoch.
            first = build(self._settings)
            changes.start(first)
            if self._promotion is not None:
                runtime.session()
                self._reporter.respond(
                    self._promotion.id, CommandResult(True, f"runs in epoch {self._promotion.epoch}")
                )
                telemetry.command_done("promote", self._promotion.traceparent, self._promote_ns)
                self._promotion = None
            if not self._stopping.is_set():
                self._reporter.set_phase(DriverPhase.RUNNING)
            # 5. Until a drain; each reconfiguration starts another runner.
            current: ActiveRunner[S] | None = first
            while current is not None:
                self._activate(current, runtime)
                self._run_one(current, changes)
                current = changes.next_runner(stopping=self._stopping.is_set())
            self._finish_drain()
            if self._settings.checkpoint_retention is CheckpointRetention.DELETE and not self._keep_checkpoint:
                self._delete_checkpoint(runtime)

    def _delete_checkpoint(self, runtime: Runtime) -> None:
        """Delete the checkpoint on exit, unless a batch is open: its output may be there in part, and its next run
        completes it."""
        where = self._settings.checkpoint
        root = CheckpointRoot(where)
        if (planned := root.last_planned()) != root.last_committed():
            text = "checkpoint %s stays, because batch %s is not complete: the next start completes it"
            self._log.warning(text, where, planned)
            return
        self._log.info("checkpoint %s is deleted, because the app has ended", where)
        runtime.delete_checkpoint_on_exit()

    def _activate(self, current: ActiveRunner[S], runtime: Runtime) -> None:
        """Make this runner the one that commands apply to."""
        if current.settings is not self._settings:
            self._settings, self._savepoints = current.settings, self._savepoints_of(current.settings, runtime)
        self._current = current
        self._reporter.track_lag(current.runner.lag)
        self._telemetry.watch(current.runner.lag)
        if self._lineage is not None:
            self._lineage.describe(lineage_job(current.settings, current.runner.app))
            self._telemetry.watch_lineage(self._lineage.counts)
        self._reporter.set_checkpointing_mode(current.settings.checkpointing_mode)
        self._running.set()
        if self._stopping.is_set():
            current.runner.drain(finish_open_batch=self._drain_needs_savepoint)

    def _lag(self) -> Lag:
        """Return how far the app is behind its inputs, none before it runs."""
        current = self._current
        return Lag() if current is None else current.runner.lag()

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
        savepoint = None
        if drain.savepoint is not None:
            if self._current is None:
                raise ConfigError(f"savepoint {drain.savepoint}: a standby that never ran has nothing to save")
            savepoint = self._create_savepoint(drain.savepoint, self._current.runner, drain.traceparent)
        self._drain = None
        self._reporter.respond(drain.id, CommandResult(True, "stopped", savepoint))
        self._telemetry.command_done("drain", drain.traceparent, self._drain_ns)

    def _dispatch(self, request: Command) -> CommandResult | None:
        """Execute a command and return its result, or None if the result is reported later. The control server calls
        this for one command at a time."""
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

    def _on_promote(self, command: Promote) -> CommandResult | None:
        if not self._awaits_promotion:
            return CommandResult(False, _NO_STANDBY)
        self._promotions.put(command)
        return None

    def _on_savepoint(self, command: TakeSavepoint) -> CommandResult | None:
        if self._awaits_promotion:
            return CommandResult(False, "a standby has nothing to save")
        self._reporter.run_async(command.id, lambda: self._save(command))
        return None

    def _on_verify(self, command: Verify) -> CommandResult | None:
        if not self._awaits_promotion:
            return CommandResult(False, _NO_STANDBY)
        self._reporter.run_async(command.id, lambda: self._verify(command))
        return None

    def _on_configure(self, command: Configure) -> CommandResult | None:
        if self._awaits_promotion:
            return CommandResult(False, "a standby keeps the settings that it was started with")
        self._reporter.run_async(command.id, lambda: self._change(command))
        return None

    def _verify(self, command: Verify) -> CommandResult:
        """Verify a savepoint, once the savepoint store is built. Runs in a thread of the reporter."""
        self._ready.wait()
        return CommandResult(True, self._store().verify(command.savepoint))

    def _save(self, command: TakeSavepoint) -> CommandResult:
        """Take a savepoint, once the app runs. Runs in a thread of the reporter."""
        self._running.wait()
        if self._current is None or self._stopping.is_set():
            raise ConfigError("it is stopping; ask for the savepoint with the drain")
        return CommandResult(True, "", self._create_savepoint(command.name, self._current.runner, command.traceparent))

    def _change(self, command: Configure) -> CommandResult | None:
        """Begin a reconfiguration, once the app runs. Runs in a thread of the reporter."""
        self._running.wait()
        if self._current is None or self._changes is None or self._stopping.is_set():
            raise ConfigError("it is stopping")
        return self._changes.request(command)

    def _create_savepoint(self, name: str, runner: Runner, traceparent: str | None) -> SavepointInfo:
        """Take a savepoint at the next batch boundary, and report it to telemetry."""
        began_ns = time.time_ns()
        savepoint = self._store().create(name, runner)
        self._telemetry.command_done("savepoint", traceparent, began_ns)
        self._telemetry.savepoint_done(time.time_ns() // 1_000_000)
        return savepoint

    def _store(self) -> Savepoints:
        assert self._savepoints is not None, "built before any command is executed"
        return self._savepoints

    def _fail(self, error: BaseException) -> None:
        """Reject the open commands and report the phase ``failed``."""
        why = f"{type(error).__name__}: {error}"
        # A promotion is rejected only if it created nothing. Otherwise the command stays open, and the next process
        # that gets it continues with the existing checkpoint.
        rejected_promotion = self._promotion if self._epoch is None else None
        for request in (self._drain, rejected_promotion):
            if request is not None:
                self._reporter.reject(request.id, why)
        self._reporter.fail(why)
