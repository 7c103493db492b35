"""Windows as a changing table: each record of a window replaces the one before. When are records emitted?

A window is one row of the table, also when it grows, moves its start or absorbs other sessions. Its records have its
name (the key, and the start with which it was first emitted) and a rising revision, so a sink that keeps the highest
revision of each name has the table. If sessions are merged, the earliest emitted one survives. An absorbed session is
emitted a last time, as deleted, in the cut in which the surviving session is emitted with its contents. Names are never
reused.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.durations import DurationField
from streamcore.errors import ConfigError


@dataclass(frozen=True)
class RevisionPolicy:
    """When records of a window are emitted. The final one always is, after its end and the allowed lateness."""

    #: Milliseconds of the clock after the first change that was not emitted, at which a record is emitted; 0: none is.
    early_ms: DurationField = DurationField(0)
    #: Whether a record is emitted when the watermark passes the end, and then in each cut that changes the window.
    at_end: bool = False

    def __post_init__(self) -> None:
        if self.early_ms < 0:
            raise ConfigError(f"early_ms must not be negative: {self.early_ms}")

    @property
    def once(self) -> bool:
        """Return whether a window has only its final record."""
        return self.early_ms == 0 and not self.at_end
