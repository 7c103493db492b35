"""Time to live: how long untouched state is kept.

A value written at time t, by its declared clock, is gone from ``t + after_ms`` on: no read gives it, whether it has
been cleaned up or not. In event time, "now" is the later of the event's own time (a timer's time) and the watermark, so
for a key whose events come in order it does not matter where the input was cut.

Memory is given back when the bucket that holds the key is written to the state log, one bucket a cut in turn, so no
cut visits all keys (as a RocksDB compaction filter does for Flink).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from streamcore.errors import ConfigError
from streamcore.keyed.call_scope import TimeDomain


class Refresh(StrEnum):
    """The accesses that extend the life of a value. ON_WRITE: writing it. ON_READ: writing or reading it."""

    ON_WRITE = "on_write"
    ON_READ = "on_read"


@dataclass(frozen=True, slots=True)
class Ttl:
    """Time to live: of a value, of each element of a list and of each entry of a map on its own."""

    after_ms: int
    domain: TimeDomain = TimeDomain.EVENT
    refresh: Refresh = Refresh.ON_WRITE

    def __post_init__(self) -> None:
        if self.after_ms <= 0:
            raise ConfigError(f"Ttl: after_ms must be positive, not {self.after_ms}; leave ttl out to keep state")
