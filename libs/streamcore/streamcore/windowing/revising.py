"""When a window is said, where each record of it replaces the one before: windows as a table that changes.

A window is one row of that table for as long as it lives, whatever becomes of it: it grows, it moves its start, it
takes other sessions in. Records of it carry its name (the key, and its start as it was first said) and a revision that
rises, so whoever keeps the greatest revision of each name has the table. A session that another one took in is said
once more, as deleted, in the same cut in which the other one is said with what it took in; of several that were said
the earliest goes on. Names are never used again.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamcore.errors import ConfigError


@dataclass(frozen=True)
class Revising:
    """Always: the final record, when the watermark has passed a window's end and the allowed lateness. Without more a
    window has exactly that one record.

    ``early_ms``: also when the clock is so far past the first change that no record has told; 0: not.
    ``at_end``: also when the watermark has passed its end, and after that with each cut that changes it.
    """

    early_ms: int = 0
    at_end: bool = False

    def __post_init__(self) -> None:
        if self.early_ms < 0:
            raise ConfigError(f"early_ms must not be negative: {self.early_ms}")

    @property
    def once(self) -> bool:
        """Whether a window has only its final record."""
        return self.early_ms == 0 and not self.at_end
