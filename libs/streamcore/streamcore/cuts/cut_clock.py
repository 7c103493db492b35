"""The times of a cut: its clock, which never goes back, and the time that the app has run.

The wall clock of a machine may be wrong and be set back. So a cut has three times. All of them are read when the cut is
planned, are stored with its offsets, and are the same in a replay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from streamcore.errors import ConfigError

#: How far the clock of the last cut may be ahead of the wall clock when an app starts, in milliseconds.
MAX_CLOCK_AHEAD_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class CutClock:
    """The times of a cut, in milliseconds.

    ``clock_ms``: the clock of the cut, since 1970: the latest time that the wall clock had in this or an earlier cut of
    the app. ``ahead_ms``: by how much ``clock_ms`` is later than the wall clock; 0 unless the wall clock was set back.
    ``elapsed_ms``: how long the app has run, by a monotonic clock; it stands still while no process runs the app.
    Durations that a wrong wall clock must not change, such as the idle time of a partition, are differences of
    ``elapsed_ms``.
    """

    clock_ms: int = 0
    ahead_ms: int = 0
    elapsed_ms: int = 0

    @property
    def wall_ms(self) -> int:
        """The wall clock when the cut was planned. The limit for events of the future counts from here."""
        return self.clock_ms - self.ahead_ms

    @classmethod
    def at(cls, clock_ms: int) -> Self:
        """Return the times of a cut whose clock the caller chooses: the app runs since 1970, and no clock is wrong."""
        return cls(clock_ms, 0, clock_ms)

    def to_json(self) -> dict[str, int]:
        """Convert to the entries of a JSON document that is stored."""
        return {"clock_ms": self.clock_ms, "ahead_ms": self.ahead_ms, "elapsed_ms": self.elapsed_ms}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> Self | None:
        """Parse the entries that ``to_json`` returned; None if one of them is missing."""
        times = [document.get(name) for name in ("clock_ms", "ahead_ms", "elapsed_ms")]
        clock_ms, ahead_ms, elapsed_ms = times
        if isinstance(clock_ms, int) and isinstance(ahead_ms, int) and isinstance(elapsed_ms, int):
            return cls(clock_ms, ahead_ms, elapsed_ms)
        return None


def wall_clock_ms() -> int:
    """Return the wall clock of this machine, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Return a clock of this process that cannot be set, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class CutTimer:
    """Reads the clocks of this process for the cuts that it plans.

    ``CutClock.elapsed_ms`` goes on from the last cut of the process before, from the moment when the timer is made.
    """

    def __init__(
        self, wall_ms: Callable[[], int] = wall_clock_ms, running_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._wall_ms = wall_ms
        self._running_ms = running_ms
        self._made_ms = running_ms()
        #: What to add to the monotonic clock to get ``elapsed_ms``; known with the first cut.
        self._offset_ms: int | None = None

    def read(self, before: CutClock) -> CutClock:
        """Return the times of a cut that is planned now, after the cut with the times ``before``."""
        if self._offset_ms is None:
            self._offset_ms = before.elapsed_ms - self._made_ms
        wall_ms = self._wall_ms()
        clock_ms = max(wall_ms, before.clock_ms)
        return CutClock(clock_ms, clock_ms - wall_ms, self._offset_ms + self._running_ms())


def reject_clock_ahead(before: CutClock, limit_ms: int, where: object, wall_ms: int) -> None:
    """Raise ``ConfigError`` if the wall clock is more than ``limit_ms`` behind the last cut's clock.

    ``before``: the times of the last cut. ``where``: its checkpoint, for the message.
    """
    ahead_ms = before.clock_ms - wall_ms
    if ahead_ms > limit_ms:
        raise ConfigError(
            f"{where}: the clock of the last cut, {_text(before.clock_ms)}, is {span_text(ahead_ms)} ahead of this "
            f"machine's clock, {_text(wall_ms)}; at most {span_text(limit_ms)} are accepted. If this machine's clock "
            "is wrong, correct it and start again. If it is right, the clock was wrong before: wait until it reaches "
            f"that time, or raise max_clock_ahead_ms above {ahead_ms}: then the app runs, and processing time stands "
            "still until then"
        )


def span_text(ms: int) -> str:
    """Return a time span for people, rounded down to its two largest units: ``1 d 2 h``, ``3 min 20 s``, ``0 s``."""
    rest_s, parts = ms // 1_000, list[str]()
    for size_s, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, rest_s = divmod(rest_s, size_s)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1_000, UTC).isoformat()
