"""Time to live: how long state is kept that is not written or read.

A value written at time t of its time domain has expired from ``t + after_ms`` on: no read returns it, even if its
memory is not freed yet. In event time, "now" is the later of the time of the event (or timer) and the watermark, so for
a key whose events arrive in order the division into cuts does not matter.

Memory is freed when the key's bucket is rewritten in the state log. Each cut rewrites one bucket in turn, so no cut
visits all keys (in Flink, a RocksDB compaction filter does this).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.keyed.call_scope import TimeDomain


class Refresh(StrEnum):
    """The accesses that restart the time to live. ON_WRITE: writes. ON_READ: writes and reads."""

    ON_WRITE = "on_write"
    ON_READ = "on_read"


@dataclass(frozen=True)
class Ttl:
    """The time to live of a value, or of each single item of a list or map.

    ``after_ms``: how long it is, in milliseconds. ``domain``: the time that counts. ``refresh``: what restarts it.
    """

    after_ms: DurationField = DurationField()
    domain: TimeDomain = TimeDomain.EVENT
    refresh: Refresh = Refresh.ON_WRITE

    def __post_init__(self) -> None:
        if self.after_ms <= 0:
            raise ConfigError(f"Ttl: after_ms must be positive, not {self.after_ms}; leave ttl out to keep state")
