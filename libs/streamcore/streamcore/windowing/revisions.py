"""When a window is emitted, where each record of it replaces the one before: windows as a table that changes.

A window is one row of that table for as long as it lives, whatever becomes of it: it grows, it moves its start, it
takes other sessions in. Records of it carry its name (the key, and its start as it was first emitted) and a revision
that rises, so a sink that keeps the greatest revision of each name has the table. A session that another one absorbed
is emitted once more, as deleted, in the same cut in which the other one is emitted with its contents; of several
sessions that were emitted the earliest survives. Names are never used again.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.errors import ConfigError


@dataclass(frozen=True)
class RevisionPolicy:
    """Always: the final record, when the watermark has passed a window's end and the allowed lateness. Without more a
    window has exactly that one record.

    ``early_ms``: also when the clock is so far past the first change that no record has; 0: not.
    ``at_end``: also when the watermark has passed its end, and after that with each cut that changes it.
    """

    early_ms: int = 0
    at_end: bool = False

    def __post_init__(self) -> None:
        if self.early_ms < 0:
            raise ConfigError(f"early_ms must not be negative: {self.early_ms}")

    @property
    def once(self) -> bool:
        """Return whether a window has only its final record."""
        return self.early_ms == 0 and not self.at_end
