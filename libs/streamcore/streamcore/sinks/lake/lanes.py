"""Joins the results of lanes that are written one after the other, each to a table of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.sinks.sink import WriteOutcome, WriteResult


def newest_cut(cuts: Iterable[CutId | None]) -> CutId | None:
    """Return the last of the cuts that the lanes have written; None if no lane has written one."""
    return max((cut for cut in cuts if cut is not None), key=lambda cut: cut.batch, default=None)


def write_lanes(write: Callable[[str, pa.Table], WriteResult], rows: Mapping[str, pa.Table]) -> WriteResult:
    """Write the lanes that have rows, in order of their names. Return one result: of a cut that some lanes skip and
    others commit, it is committed."""
    parts = [write(lane, rows[lane]) for lane in sorted(rows) if rows[lane].num_rows]
    results = {part.outcome for part in parts}
    result = next((r for r in (WriteOutcome.COMMITTED, WriteOutcome.SKIPPED) if r in results), WriteOutcome.EMPTY)
    return WriteResult(result, sum(p.rows for p in parts), [row for p in parts for row in p.rejected])
