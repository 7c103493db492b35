"""Other settings for a running app, without another process. A crash after a step leaves the state that its line gives:

1. Read them. Settings that do not validate, or that are fixed for the life of a process, are refused.
2. Build the runner with them, beside the one that runs, and refuse an app with other streams, operators or state:
such a change needs a plan, with a savepoint. So far the app has run on untouched.
3. Ask the one that runs to stop between two batches; batches that an earlier process began run first. A crash leaves a
checkpoint that the next process goes on with, by its own settings file: so from here on.
4. Run the new one, on the same checkpoint, in the same epoch.
5. Its first cut is committed: they are taken. It failed before: one with the settings of before is built and runs, and
   the answer is no.

``LiveReconfiguration`` receives cuts as a ``CutListener``. Does not know the module that runs runners, ``life``.
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
    """The app that runs, or is about to: a runner, and the settings that it was built with."""

    settings: S
    runner: Runner


@dataclass(slots=True)
class PendingChange(Generic[S]):
    """One that was asked for: from ``before`` to ``after``. ``failed``: why its first cut was none."""

    id: str
    before: ActiveRunner[S]
    after: ActiveRunner[S]
    failed: BaseException | None = None


class LiveReconfiguration(Generic[S]):
    """Of one app. ``ask`` from any thread; the others from the one that runs the app, ``begin`` first of all."""

    def __init__(self, reporter: StatusReporter, build: Callable[[S], ActiveRunner[S]]) -> None:
        self._reporter, self._build = reporter, build
        self._lock = threading.Lock()
        self._waits: PendingChange[S] | None = None
        self._tried: PendingChange[S] | None = None
        #: None where nothing runs: one has ended, and what follows it is being built.
        self._current: ActiveRunner[S] | None = None
        self._open = True

    def start(self, current: ActiveRunner[S]) -> None:
        """From here on this one runs."""
        with self._lock:
            self._current = current

    def request(self, asked: Configure) -> CommandResult | None:
        """Execute steps 1 to 3; return None when the answer comes later. Raises ``StreamError`` for a refusal."""
        with self._lock:
            current = self._unchanging()
        # 1. As a new process would read them.
        settings = checked_document(asked.settings, type(current.settings), "configure")
        if settings == current.settings:
            return CommandResult(True, "it runs with these already")
        if fixed := settings.fixed_differences(current.settings):
            raise ConfigError(f"another process is needed for another {', '.join(fixed)}")
        # 2. Nothing is stopped for what cannot be built.
        after = self._build(settings)
        _refuse_other_state(current, after)
        # 3. At the next boundary.
        with self._lock:
            if self._unchanging() is not current:  # another was asked for and taken meanwhile
                raise ConfigError(_UNDER_WAY)
            self._waits = PendingChange(asked.id, current, after)
        current.runner.drain(finish_open_batch=True)
        return None

    def _unchanging(self) -> ActiveRunner[S]:
        """Return the runner that runs and stays; ``ConfigError`` while a change is under way."""
        if not self._open:
            raise ConfigError("it is stopping")
        if self._current is None or self._waits or self._tried:
            raise ConfigError(_UNDER_WAY)
        return self._current

    def next_runner(self, *, stopping: bool) -> ActiveRunner[S] | None:
        """After a runner has ended: which one follows. None to stop."""
        with self._lock:
            change, tried = self._waits, self._tried
            self._waits = self._tried = self._current = None
            # 4. The new one is tried, if there is one.
            if change is not None and not stopping:
                self._tried, self._current = change, change.after
                return change.after
        ended = tried or change
        if ended is None or stopping:
            self.close()
            self._refuse(ended, "it was stopped before a cut was committed with them")
            return None
        # 5. It was tried in vain.
        self._refuse(ended, f"it goes back to the settings of before: {ended.failed}")
        back = self._build(ended.before.settings)
        self.start(back)
        return back

    def roll_back(self, error: BaseException) -> bool:
        """Whether this failure of a runner is one of new settings, after which ``next`` goes back."""
        if self._tried is None or isinstance(error, Fenced):
            return False
        self._tried.failed = error
        return True

    def close(self, why: str = "") -> None:
        """Nothing is changed any more."""
        with self._lock:
            self._open = False
            left, self._waits, self._tried = self._waits or self._tried, None, None
        self._refuse(left, why)

    def cut(self, report: CutReport) -> None:
        """See ``CutListener``: step 5."""
        with self._lock:
            taken, self._tried = self._tried, None
        if taken is not None:
            self._reporter.respond(taken.id, CommandResult(True, f"taken with batch {report.batch}"))

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``CutListener``."""

    def failure(self, error: Retryable) -> None:
        """See ``CutListener``: settings that fail at once are not tried again."""
        tried = self._tried
        if tried is not None:
            tried.failed = error
            tried.after.runner.drain()

    def _refuse(self, change: PendingChange[S] | None, why: str) -> None:
        if change is not None:
            self._reporter.reject(change.id, why)


def _refuse_other_state(before: ActiveRunner[S], after: ActiveRunner[S]) -> None:
    from streamcore.savepoint.app_description import describe

    old, new = describe(before.runner.app), describe(after.runner.app)
    other = [field.name for field in fields(old) if getattr(old, field.name) != getattr(new, field.name)]
    if other:
        raise ConfigError(f"its state would be another, which needs a savepoint: {', '.join(other)}")
