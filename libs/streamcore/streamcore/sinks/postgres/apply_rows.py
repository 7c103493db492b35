"""Moves staged rows into their tables, without the rows that the server rejects for their values.

One statement inserts all rows of a lane. If it fails for the values of a row, the rows are bisected: each half is
inserted behind an SQL savepoint, the earlier half first, down to single rows. The inserted rows are therefore those
that would succeed one by one, in order, and depend only on the cut and the tables' contents. A lane without rejected
rows costs one statement; each rejected row costs about ``2 * log2(rows)`` more, over ever smaller ranges.

All deletes come before all inserts. Deletes run in reverse order of the lanes and inserts in their order, so that
foreign keys hold (a referring row is deleted before and inserted after the row that it refers to), and so that a unique
value can move from a deleted row to a new one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import psycopg
from psycopg import sql

from streamcore.errors import Permanent
from streamcore.sinks.postgres.connection import Connection
from streamcore.sinks.postgres.errors import error_text, is_data_error
from streamcore.sinks.postgres.row_checks import ROW, CheckedRows
from streamcore.sinks.postgres.staging import Staging
from streamcore.sinks.sink import RejectedRow


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """``rows``: number of rows inserted or changed. ``rejected``: in order of the lanes, then of the rows."""

    rows: int
    rejected: Sequence[RejectedRow]


class RowApplier:
    """Applies the rows of one cut within the caller's transaction.

    ``cuts``: the checked rows of each lane, in the order of the lanes. ``limit``: how many rows may be rejected.
    """

    def __init__(
        self, connection: Connection, staging: Mapping[str, Staging], cuts: Sequence[CheckedRows], limit: int
    ) -> None:
        self._connection = connection
        self._staging = staging
        self._cuts = {cut.lane: cut for cut in cuts}
        self._limit = limit
        self._rejected: dict[str, list[RejectedRow]] = {cut.lane: [] for cut in cuts}
        self._rows = 0

    def stage(self) -> dict[str, pl.DataFrame]:
        """Copy the winning rows of every lane (the last one of each key) to its staging table, and return them."""
        self._check_limit()
        return self._stage({lane: cut.winners() for lane, cut in self._cuts.items()})

    def run(self, staged: Mapping[str, pl.DataFrame]) -> ApplyResult:
        """Write the staged rows. While rows are rejected, stage and write the previous row of each rejected key.

        Raises ``Permanent`` if more than ``limit`` rows are rejected.
        """
        while staged:
            newly_rejected = {
                lane: {row.row for row in rows} for lane, rows in self._write_once(staged).items() if rows
            }
            for lane in newly_rejected:
                self._staging[lane].clear(self._connection)
            staged = self._stage({lane: self._next_winners(lane, rows) for lane, rows in newly_rejected.items()})
        rejected = [sorted([*cut.rejected, *self._rejected[lane]], key=_row) for lane, cut in self._cuts.items()]
        return ApplyResult(self._rows, list(itertools.chain(*rejected)))

    def _stage(self, winners: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        filled = {lane: rows for lane, rows in winners.items() if rows.height}
        for lane, rows in filled.items():
            self._staging[lane].fill(self._connection, rows)
        return filled

    def _next_winners(self, lane: str, newly_rejected: Iterable[int]) -> pl.DataFrame:
        return self._cuts[lane].next_winners(newly_rejected, map(_row, self._rejected[lane]))

    def _write_once(self, staged: Mapping[str, pl.DataFrame]) -> dict[str, list[RejectedRow]]:
        """Run the deletes, then the inserts, and return the rows that the server rejected, by lane."""
        rejected: dict[str, list[RejectedRow]] = {lane: [] for lane in staged}
        for lane in reversed(list(staged)):
            if (delete := self._staging[lane].delete) is not None:
                _, newly_rejected = self._bisect(lane, delete, staged[lane])
                rejected[lane] += newly_rejected
        for lane, rows in staged.items():
            count, newly_rejected = self._bisect(lane, self._staging[lane].insert, rows)
            self._rows += count
            rejected[lane] += newly_rejected
        return rejected

    def _bisect(self, lane: str, statement: sql.Composed, rows: pl.DataFrame) -> tuple[int, list[RejectedRow]]:
        """Run the statement on all staged rows but those that the server rejects.

        Returns the number of rows that it changed, and the rejected rows.
        """
        ranges, changed, rejected, indexed = [(0, rows.height)], 0, [], False
        while ranges:
            low, high = ranges.pop()
            outcome = self._try(statement, low, high)
            if isinstance(outcome, int):
                changed += outcome
            elif high - low == 1:
                rejected.append(_rejected_row(lane, rows.item(low, ROW), outcome))
                self._rejected[lane].append(rejected[-1])
                self._check_limit()
            else:
                if not indexed:
                    self._staging[lane].index(self._connection)
                    indexed = True
                middle = (low + high) // 2
                ranges += [(middle, high), (low, middle)]
        if indexed:
            self._staging[lane].drop_index(self._connection)
        return changed, rejected

    def _try(self, statement: sql.Composed, low: int, high: int) -> int | psycopg.Error:
        """Run the statement on the staged rows ``[low, high)``.

        Returns the number of rows changed, or the data error, after rolling back to the SQL savepoint.
        """
        try:
            with self._connection.transaction():  # a savepoint: the cut's transaction is open
                return self._connection.execute(statement, (low, high)).rowcount
        except psycopg.Error as error:
            if not is_data_error(error):
                raise
            return error

    def _check_limit(self) -> None:
        """Raise ``Permanent`` if more than ``limit`` rows of the cut were rejected."""
        by_lane = [*(cut.rejected for cut in self._cuts.values()), *self._rejected.values()]
        if sum(map(len, by_lane)) <= self._limit:
            return
        last = next(rows[-1] for rows in reversed(by_lane) if rows)
        raise Permanent(
            f"postgres: more than {self._limit} rows of one cut were rejected, the last one of lane {last.lane}: "
            f"{last.reason} ({last.code}); nothing of the cut was written; correct the table or raise max_rejected"
        )


def _row(rejected: RejectedRow) -> int:
    return rejected.row


def _rejected_row(lane: str, row: int, error: psycopg.Error) -> RejectedRow:
    return RejectedRow(lane, row, error.sqlstate or "", error_text(error))
