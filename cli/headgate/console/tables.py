"""Text tables: each column is as wide as its longest entry."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> list[str]:
    """Return the lines of a table. ``right``: the heads of the columns that are aligned to the right."""
    all_rows = [head, *rows]
    widths = [max(len(row[i]) for row in all_rows) for i in range(len(head))]
    sides = [">" if name in right else "<" for name in head]
    return [
        "  ".join(f"{v:{side}{w}}" for v, side, w in zip(row, sides, widths, strict=True)).rstrip() for row in all_rows
    ]
