"""Other settings for an app that runs, without another process. A crash after a step leaves what its line says:

1. Read them. What does not validate, or is decided once in a process' life, is refused.
2. Build the runner with them, beside the one that runs, and refuse an app with other streams, operators or state: that
   is a plan's to judge, with a savepoint. So far the app has run on untouched.
3. Ask the one that runs to stop between two batches; what an earlier process began runs first. A crash leaves a
   checkpoint that whoever starts next goes on with, by its own settings file: so from here on.
4. Run the new one, on the same checkpoint, in the same epoch.
5. Its first cut is committed: they are taken. It failed before: one with the settings of before is built and runs, and
   the answer is no.

``Changes`` is told of cuts as an ``Observer``. Refuses to know what runs a runner: that is ``life``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Generic, TypeVar

from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.service.documents import checked_document
from streamcore.service.report import Answer
from streamcore.service.requests import Configure
from streamcore.service.settings import ServiceSettings
from streamcore.service.voice import Voice

if TYPE_CHECKING:
    from streamcore.spark.runner import CutReport, Runner

S = TypeVar("S", bound=ServiceSettings)
_UNDER_WAY = "another change is under way; ask again"


@dataclass(frozen=True, slots=True)
class Current(Generic[S]):
    """What runs, or is about to: a runner, and the settings that it was built with."""

    settings: S
    runner: Runner


@dataclass(slots=True)
class _Change(Generic[S]):
    """One that was asked for: from ``before`` to ``after``. ``failed``: why its first cut was none."""

    id: str
    before: Current[S]
    after: Current[S]
    failed: BaseException | None = None


class Changes(Generic[S]):
    """Of one app. ``ask`` from any thread; the others from the one that runs the app, ``begin`` first of all."""

    def __init__(self, voice: Voice, build: Callable[[S], Current[S]]) -> None:
        self._voice, self._build = voice, build
        self._lock = threading.Lock()
        self._waits: _Change[S] | None = None
        self._tried: _Change[S] | None = None
        #: None where nothing runs: one has ended, and what follows it is being built.
        self._current: Current[S] | None = None
        self._open = True

    def begin(self, current: Current[S]) -> None:
        """From here on this one runs."""
        with self._lock:
            self._current = current

    def ask(self, asked: Configure) -> Answer | None:
        """Steps 1 to 3; None when the answer comes later. ``StreamError`` for a no."""
        with self._lock:
            current = self._unchanging()
        # 1. As a new process would read them.
        settings = checked_document(asked.settings, type(current.settings), "configure")
        if settings == current.settings:
            return Answer(True, "it runs with these already")
        if fixed := settings.fixed(current.settings):
            raise ConfigError(f"another process is needed for another {', '.join(fixed)}")
        # 2. Nothing is stopped for what cannot be built.
        after = self._build(settings)
        _refuse_other_state(current, after)
        # 3. At the next boundary.
        with self._lock:
            if self._unchanging() is not current:  # another was asked for and taken meanwhile
                raise ConfigError(_UNDER_WAY)
            self._waits = _Change(asked.id, current, after)
        current.runner.drain(settle=True)
        return None

    def _unchanging(self) -> Current[S]:
        """What runs, and will: ``ConfigError`` where that is being decided."""
        if not self._open:
            raise ConfigError("it is stopping")
        if self._current is None or self._waits or self._tried:
            raise ConfigError(_UNDER_WAY)
        return self._current

    def next(self, *, stopping: bool) -> Current[S] | None:
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
        self.begin(back)
        return back

    def take_back(self, error: BaseException) -> bool:
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
        """See ``Observer``: step 5."""
        with self._lock:
            taken, self._tried = self._tried, None
        if taken is not None:
            self._voice.answer(taken.id, Answer(True, f"taken with batch {report.batch}"))

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``Observer``."""

    def failure(self, error: Retryable) -> None:
        """See ``Observer``: what fails at once with new settings is not tried again with them."""
        tried = self._tried
        if tried is not None:
            tried.failed = error
            tried.after.runner.drain()

    def _refuse(self, change: _Change[S] | None, why: str) -> None:
        if change is not None:
            self._voice.refuse(change.id, why)


def _refuse_other_state(before: Current[S], after: Current[S]) -> None:
    from streamcore.savepoint.describe import describe

    old, new = describe(before.runner.app), describe(after.runner.app)
    other = [field.name for field in fields(old) if getattr(old, field.name) != getattr(new, field.name)]
    if other:
        raise ConfigError(f"its state would be another, which needs a savepoint: {', '.join(other)}")
