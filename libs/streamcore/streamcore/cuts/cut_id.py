"""The identity of a cut: its number, and a digest of its input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CutId:
    """The identity under which a cut is written.

    ``batch``: its number. ``digest``: 15 hexadecimal digits, of its offsets and clock and, through the digest of the
    cut before it, of all earlier cuts since the epoch began (``offset_log.CutBounds``). Two processes that plan one
    batch differently have two digests, so a writer skips a batch as already written only if number and digest agree.
    """

    batch: int
    digest: str

    def __str__(self) -> str:
        return f"batch {self.batch}"
