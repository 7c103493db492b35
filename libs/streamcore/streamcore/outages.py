"""Reports a system outside the process that is away: once, then every minute, and once when it is back.

Clients report each failure and each success; ``attempt`` does both for a call, and notices a call that gets no answer.
A failure that a retry mends within ``Dependency.grace_s`` is not worth a message. ``OUTAGES`` is the reporter of this
process: however many clients of a system fail, people read one message. ``LastingWarning`` logs any other condition
that lasts, in the same rhythm.

No kernel uses this module: it reads clocks.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamcore.errors import Retryable

#: An outage is reported when it has lasted so long.
GRACE_S = 2.0
#: A call without an answer counts as a failure after this time.
SILENCE_S = 10.0
#: An outage that lasts is reported again after this time.
REPEAT_S = 60.0
_CHECK_S = 1.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A system outside the process that the app needs.

    ``name``: kind and address, such as ``PostgreSQL db:5432/shop``. ``meanwhile``: what the app does without it, a
    sentence. ``remedy``: what a person does, a sentence. ``grace_s``: how long it must be away before it is reported.
    ``part_of``: a system without which this one cannot work; while that one is away, this one is not reported too.
    """

    name: str
    meanwhile: str
    remedy: str
    grace_s: float = GRACE_S
    part_of: Dependency | None = None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A system that is away, for how many seconds, and why (one line)."""

    dependency: Dependency
    seconds: float
    reason: str


@dataclass(slots=True)
class _Outage:
    """``began_s``: of the first failure. ``failed_s``: of the last one. ``reported_s``: of the last message, or None
    before the first."""

    began_s: float
    failed_s: float
    reason: str
    reported_s: float | None = None


@dataclass(eq=False, slots=True)
class _Call:
    """A call that has no answer yet."""

    dependency: Dependency
    action: str
    began_s: float


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclass(eq=False, slots=True)
class Outages:
    """The outages of the systems that one process needs. Any thread may call any method.

    ``now_s``: monotonic seconds, for durations. ``utc_now``: the time of day, for messages. ``thread``: whether a
    thread calls ``check`` every second, from the first call on.
    """

    log: logging.Logger = _LOG
    now_s: Callable[[], float] = time.monotonic
    utc_now: Callable[[], datetime.datetime] = _utc_now
    thread: bool = False
    _outages: dict[Dependency, _Outage] = field(default_factory=dict, init=False)
    _answered_s: dict[Dependency, float] = field(default_factory=dict, init=False)
    _calls: set[_Call] = field(default_factory=set, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def failed(self, dependency: Dependency, reason: str, asked_s: float | None = None) -> None:
        """Record that a call failed because the system is away. ``reason``: one line. ``asked_s``: when the call began
        (by ``now_s``), if it has waited for an answer; the outage began then."""
        with self._lock:
            self._start_thread()
            self._begin(dependency, self.now_s() if asked_s is None else asked_s, reason)
            self._report_due()

    def answered(self, dependency: Dependency) -> None:
        """Record an answer to a part of a call, which may yet fail: the call does not wait in vain."""
        self._answered_s[dependency] = self.now_s()

    def succeeded(self, dependency: Dependency) -> None:
        """Record that a call succeeded. This ends the outage of the system."""
        with self._lock:
            self._answered_s[dependency] = self.now_s()
            outage = self._outages.pop(dependency, None)
            if outage is not None and outage.reported_s is not None:
                self.log.info("%s is back after %.0f s", dependency.name, self.now_s() - outage.began_s)

    @contextmanager
    def attempt(self, dependency: Dependency, action: str) -> Iterator[None]:
        """Record the outcome of the block, which calls the system once: ``Retryable`` is a failure, and so is the time
        without an answer. Other errors do not count."""
        call = _Call(dependency, action, self.now_s())
        with self._lock:
            self._start_thread()
            self._calls.add(call)
        try:
            yield
        except Retryable as error:
            self.failed(dependency, str(error), call.began_s)
            raise
        else:
            self.succeeded(dependency)
        finally:
            with self._lock:
                self._calls.discard(call)

    def unavailable(self) -> list[Unavailable]:
        """Return the systems that are away for longer than their ``grace_s``."""
        with self._lock:
            found = []
            for dependency, outage in self._outages.items():
                lasted_s = self.now_s() - outage.began_s
                if lasted_s >= dependency.grace_s and dependency.part_of not in self._outages:
                    found.append(Unavailable(dependency, lasted_s, outage.reason))
            return found

    def check(self) -> None:
        """Report the outages that last, and the calls that have waited too long."""
        with self._lock:
            for call in self._calls:
                answered_s = self._answered_s.get(call.dependency, call.began_s)
                if self.now_s() - max(answered_s, call.began_s) >= SILENCE_S:
                    self._begin(call.dependency, call.began_s, f"no answer to {call.action}")
            self._report_due()

    def _begin(self, dependency: Dependency, began_s: float, reason: str) -> None:
        began_s = max(began_s, self._answered_s.get(dependency, began_s))
        outage = self._outages.setdefault(dependency, _Outage(began_s, began_s, reason))
        outage.failed_s, outage.reason = self.now_s(), reason

    def _report_due(self) -> None:
        now_s = self.now_s()
        for dependency, outage in [*self._outages.items()]:
            if now_s - outage.failed_s > REPEAT_S:  # no client calls the system any more
                del self._outages[dependency]
                continue
            if dependency.part_of in self._outages:
                outage.began_s = now_s
            lasted_s = now_s - outage.began_s
            if outage.reported_s is None and lasted_s >= dependency.grace_s:
                since = self.utc_now() - datetime.timedelta(seconds=lasted_s)
                text = "%s is unavailable since %s UTC: %s %s. %s"
                details = (_end_sentence(outage.reason), dependency.meanwhile, dependency.remedy)
                self.log.warning(text, dependency.name, f"{since:%H:%M:%S}", *details)
            elif outage.reported_s is not None and now_s - outage.reported_s >= REPEAT_S:
                text = "%s is still unavailable, after %.0f s: %s %s"
                self.log.warning(text, dependency.name, lasted_s, _end_sentence(outage.reason), dependency.remedy)
            else:
                continue
            outage.reported_s = now_s

    def _start_thread(self) -> None:
        if self.thread:
            self.thread = False
            threading.Thread(target=self._check_for_ever, name="outages", daemon=True).start()

    def _check_for_ever(self) -> None:
        while True:
            time.sleep(_CHECK_S)
            self.check()


def _end_sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


class LastingWarning:
    """Logs a condition that lasts: at once, then every minute, and its end. One thread at a time may call it.

    ``now_s``: monotonic seconds.
    """

    def __init__(self, log: logging.Logger, now_s: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._now_s = now_s
        self._began_s: float | None = None
        self._logged_s = 0.0

    @property
    def lasts(self) -> bool:
        """Whether the condition has begun and has not ended."""
        return self._began_s is not None

    @property
    def seconds(self) -> float:
        """For how long the condition lasts; 0 if it does not."""
        return 0.0 if self._began_s is None else self._now_s() - self._began_s

    def warn(self, first: str, again: str) -> None:
        """The condition is there: log ``first`` at its begin and ``again`` each minute."""
        now_s = self._now_s()
        if self._began_s is None:
            self._began_s = self._logged_s = now_s
            self._log.warning("%s", first)
        elif now_s - self._logged_s >= REPEAT_S:
            self._logged_s = now_s
            self._log.warning("%s", again)

    def end(self, text: str) -> None:
        """The condition is over: log ``text`` if it lasted."""
        if self._began_s is not None:
            self._began_s = None
            self._log.info("%s", text)


#: The reporter of this process.
OUTAGES = Outages(thread=True)
