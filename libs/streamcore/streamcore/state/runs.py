"""Runs: the durable form of rows that never change and that expire, in the order in which they arrived.

To write such a table bucket by bucket would write each row again and again until it expires. A run is written once, by
the cut in which its rows are new, and is removed when its newest row has expired. Small cuts write small runs; if there
are many old ones, the oldest are merged to one (as the tiers of an LSM tree). So a row is written once if a cut has
many, and about three times if it has few; a shard has at most one run for every ``SMALL_ROWS`` rows, and a few more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.state.table import RunTable

#: A run with more rows is not merged any more.
SMALL_ROWS = 8 * 1024
#: About the most rows of a merged run.
MERGED_ROWS = 64 * 1024
_MERGED = "+"


@dataclass(frozen=True, slots=True)
class IdRun:
    """A run in a head. ``name``: the number of the cut that wrote it; of a merged run that of its newest part, marked.
    ``rows``: their number. ``newest_ms``: by table, the time of the row that expires last."""

    name: str
    rows: int
    newest_ms: Mapping[str, int]

    @classmethod
    def of(cls, sequence: int, frames: Mapping[str, pl.DataFrame], tables: Mapping[str, RunTable]) -> IdRun:
        """Return the run of the new rows of a cut, by table."""
        return cls(str(sequence), sum(rows.height for rows in frames.values()), _newest(frames, tables))

    @property
    def blob(self) -> str:
        """The name of its blob."""
        return f"run/{self.name}"

    @property
    def sequence(self) -> int:
        """The number of the last cut whose rows it has."""
        return int(self.name.removesuffix(_MERGED))

    def is_expired(self, tables: Mapping[str, RunTable]) -> bool:
        """Return whether no row has an effect any more."""
        return all(tables[name].is_expired(newest_ms) for name, newest_ms in self.newest_ms.items())


def choose_small(runs: Sequence[IdRun], before: int, most: int) -> Sequence[IdRun]:
    """Return the runs to merge: the oldest small ones if there are more than ``most``, else none.

    ``before``: runs of this cut and later ones stay, for tables a few cuts behind to catch up.
    """
    small = [run for run in runs if run.rows <= SMALL_ROWS and run.sequence < before]
    if len(small) <= most:
        return ()
    chosen, total = 0, 0
    while chosen < len(small) and total < MERGED_ROWS:
        total += small[chosen].rows
        chosen += 1
    return small[:chosen]


def merge_runs(
    runs: Sequence[IdRun], contents: Sequence[Mapping[str, pl.DataFrame]], tables: Mapping[str, RunTable]
) -> tuple[IdRun, dict[str, pl.DataFrame]]:
    """Return the run in place of these ones, and its rows: those of them that may still have an effect."""
    merged = {}
    for name in sorted({name for frames in contents for name in frames}):
        rows = tables[name].live(pl.concat([frames[name] for frames in contents if name in frames]))
        if rows.height:
            merged[name] = rows
    last = max(run.sequence for run in runs)
    of = IdRun.of(last, merged, tables)
    return IdRun(f"{last}{_MERGED}", of.rows, of.newest_ms), merged


def _newest(frames: Mapping[str, pl.DataFrame], tables: Mapping[str, RunTable]) -> dict[str, int]:
    return {name: tables[name].newest_ms(rows) for name, rows in frames.items()}
