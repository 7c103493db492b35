"""Tables for people and for ``awk``: columns as wide as their longest entry, numbers to the right."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> list[str]:
    """Return the lines. ``right``: heads of columns that are aligned to the right."""
    everything = [head, *rows]
    widths = [max(len(row[i]) for row in everything) for i in range(len(head))]
    sides = [">" if name in right else "<" for name in head]
    return [
        "  ".join(f"{v:{side}{w}}" for v, side, w in zip(row, sides, widths, strict=True)).rstrip()
        for row in everything
    ]
