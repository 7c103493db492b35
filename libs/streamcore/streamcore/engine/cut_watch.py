"""Reports a cut that takes long, with its phase: once, then every minute, and once when it has ended.

A cut that waits for input is not slow: its first phase begins when its input is planned. No kernel uses this module: it
reads a clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from streamcore.outages import REPEAT_S

#: A cut is slow after this time.
SLOW_S = 20.0
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Cut:
    """A cut that runs. ``phases``: seconds of each phase that has ended."""

    batch: int
    phase: str
    began_s: float
    phase_began_s: float
    phases: dict[str, float] = field(default_factory=dict)
    reported_s: float | None = None

    def seconds(self, now_s: float) -> Mapping[str, float]:
        """Return the seconds of each phase until now, the longest first."""
        every = {**self.phases, self.phase: now_s - self.phase_began_s}
        return dict(sorted(every.items(), key=lambda item: -item[1]))


@dataclass(slots=True)
class CutWatch:
    """Watches the cuts of one app. One thread calls ``cut`` and ``enter``; another may call ``check``.

    ``now_s``: monotonic seconds.
    """

    log: logging.Logger = _LOG
    now_s: Callable[[], float] = time.monotonic
    _current: _Cut | None = field(default=None, init=False)

    @contextmanager
    def cut(self, batch: int, phase: str) -> Iterator[None]:
        """Watch the cut that the block runs; it begins with ``phase``."""
        now_s = self.now_s()
        self._current = current = _Cut(batch, phase, now_s, now_s)
        try:
            yield
        finally:
            self._current = None
            if current.reported_s is not None:
                now_s = self.now_s()
                took = ", ".join(f"{phase} {seconds:.0f} s" for phase, seconds in current.seconds(now_s).items())
                self.log.info("batch %d has ended after %.0f s: %s", batch, now_s - current.began_s, took)

    def enter(self, phase: str) -> None:
        """Begin the next phase of the cut that runs."""
        current, now_s = self._current, self.now_s()
        if current is not None:
            current.phases[current.phase] = now_s - current.phase_began_s
            current.phase, current.phase_began_s = phase, now_s

    def check(self) -> None:
        """Report a cut that takes long, if it is due."""
        current, now_s = self._current, self.now_s()
        if current is None:
            return
        since_s = current.began_s + SLOW_S if current.reported_s is None else current.reported_s + REPEAT_S
        if now_s >= since_s:
            current.reported_s = now_s
            text = "batch %d takes long: it runs for %.0f s, the last %.0f s of them in: %s"
            self.log.warning(text, current.batch, now_s - current.began_s, now_s - current.phase_began_s, current.phase)
