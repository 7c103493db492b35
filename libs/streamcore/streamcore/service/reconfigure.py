"""Replaces the settings of a running app without another process.

Each step is listed with the state that a crash after it leaves:

1. Read the settings. Settings that do not validate, or that are fixed for the life of a process, are rejected.
2. Build a runner with the new settings, and reject an app with other streams, operators or state: such a change needs
   a savepoint. Until here the app has run undisturbed with the old settings.
3. Drain the old runner; a batch that an earlier process began runs first. From here on, after a crash the next process
   continues from the checkpoint with the settings in its own settings file.
4. Run the new runner, on the same checkpoint, in the same epoch.
5. When its first cut is committed, the command succeeds. If it fails before, a runner with the old settings is built
   and runs, and the command is rejected.

``LiveReconfiguration`` receives cuts as a ``CutListener``. ``lifecycle`` runs the runners; this module only chooses
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Generic, TypeVar

from streamcore.control.commands import Configure
from streamcore.control.reporter import StatusReporter
from streamcore.control.status import CommandResult
from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.service.config.documents import checked_document
from streamcore.service.config.settings import ServiceSettings

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport
    from streamcore.spark.runner import Runner

S = TypeVar("S", bound=ServiceSettings)
_UNDER_WAY = "another change is under way; ask again"


@dataclass(frozen=True, slots=True)
class ActiveRunner(Generic[S]):
    """A runner that runs, or will run next, and the settings that it was built with."""

    settings: S
    runner: Runner


@dataclass(slots=True)
class PendingChange(Generic[S]):
    """The change from runner ``before`` to runner ``after``.

    ``id``: of the ``Configure`` command. ``failed``: the error before the first cut of ``after`` was committed.
    """

    id: str
    before: ActiveRunner[S]
    after: ActiveRunner[S]
    failed: BaseException | None = None


class LiveReconfiguration(Generic[S]):
    """Chooses the next runner of one app: step 1 to 5 of the module's docstring.

    Any thread may call ``request``. The thread that runs the app calls the other methods, ``start`` first. ``build``
    builds a runner from settings.
    """

    def __init__(self, reporter: StatusReporter, build: Callable[[S], ActiveRunner[S]]) -> None:
        self._reporter, self._build = reporter, build
        self._lock = threading.Lock()
        self._requested: PendingChange[S] | None = None
        self._on_trial: PendingChange[S] | None = None
        #: None between the end of a runner and the start of the next.
        self._current: ActiveRunner[S] | None = None
        self._open = True

    def start(self, current: ActiveRunner[S]) -> None:
        """Record the runner that is about to run."""
        with self._lock:
            self._current = current

    def request(self, command: Configure) -> CommandResult | None:
        """Execute steps 1 to 3. Return the result, or None if it is reported later. Raise ``StreamError`` to reject."""
        with self._lock:
            current = self._runner_without_change()
        # 1. The settings are validated as a new process would validate them.
        settings = checked_document(command.settings, type(current.settings), "configure")
        if settings == current.settings:
            return CommandResult(True, "it runs with these already")
        if fixed := settings.fixed_differences(current.settings):
            raise ConfigError(f"another process is needed for another {', '.join(fixed)}")
        # 2. The old runner still runs if the new one cannot be built.
        after = self._build(settings)
        _reject_other_state(current, after)
        # 3. The old runner drains at the next batch boundary.
        with self._lock:
            if self._runner_without_change() is not current:  # another change came first while this one was built
                raise ConfigError(_UNDER_WAY)
            self._requested = PendingChange(command.id, current, after)
        current.runner.drain(finish_open_batch=True)
        return None

    def _runner_without_change(self) -> ActiveRunner[S]:
        """Return the current runner. Raise ``ConfigError`` if a change is pending or the app stops."""
        if not self._open:
            raise ConfigError("it is stopping")
        if self._current is None or self._requested or self._on_trial:
            raise ConfigError(_UNDER_WAY)
        return self._current

    def next_runner(self, *, stopping: bool) -> ActiveRunner[S] | None:
        """Return the runner to run after one has ended, or None to stop."""
        with self._lock:
            change, on_trial = self._requested, self._on_trial
            self._requested = self._on_trial = self._current = None
            # 4. The new runner, if a change is requested.
            if change is not None and not stopping:
                self._on_trial, self._current = change, change.after
                return change.after
        ended = on_trial or change
        if ended is None or stopping:
            self.close()
            self._reject(ended, "it was stopped before a cut was committed with them")
            return None
        # 5. The new runner failed before its first cut was committed.
        self._reject(ended, f"it goes back to the settings of before: {ended.failed}")
        previous = self._build(ended.before.settings)
        self.start(previous)
        return previous

    def roll_back(self, error: BaseException) -> bool:
        """Record the error if it ended a runner with new settings, and return whether it did.

        If so, ``next_runner`` returns a runner with the old settings. ``Fenced`` is never blamed on the settings.
        """
        if self._on_trial is None or isinstance(error, Fenced):
            return False
        self._on_trial.failed = error
        return True

    def close(self, why: str = "") -> None:
        """Reject the pending change, for the reason ``why``, and all later ones."""
        with self._lock:
            self._open = False
            pending, self._requested, self._on_trial = self._requested or self._on_trial, None, None
        self._reject(pending, why)

    def cut(self, report: CutReport) -> None:
        """Complete the change that is on trial (step 5): its first cut is committed."""
        with self._lock:
            committed, self._on_trial = self._on_trial, None
        if committed is not None:
            self._reporter.respond(committed.id, CommandResult(True, f"taken with batch {report.batch}"))

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``."""

    def failure(self, error: Retryable) -> None:
        """Drain a runner with new settings at its first failure, instead of restarting its query."""
        on_trial = self._on_trial
        if on_trial is not None:
            on_trial.failed = error
            on_trial.after.runner.drain()

    def _reject(self, change: PendingChange[S] | None, why: str) -> None:
        if change is not None:
            self._reporter.reject(change.id, why)


def _reject_other_state(before: ActiveRunner[S], after: ActiveRunner[S]) -> None:
    """Raise ``ConfigError`` if the two apps differ in a field of their ``AppDescription``."""
    from streamcore.savepoint.app_description import describe

    old, new = describe(before.runner.app), describe(after.runner.app)
    other = [field.name for field in fields(old) if getattr(old, field.name) != getattr(new, field.name)]
    if other:
        raise ConfigError(f"its state would be another, which needs a savepoint: {', '.join(other)}")
