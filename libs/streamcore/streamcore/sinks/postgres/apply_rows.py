"""Staged rows into their tables, without those that the server refuses for their values.

A lane's rows go in by one statement. If that fails for the values of a row, halves are tried, the earlier one first,
each behind a savepoint, down to the single rows; so the rows that go in are those that would go in one after the other,
in order, and which those are depends on the cut and the tables' contents only. A cut costs one statement a lane without
refusals, and about ``2 * log2(rows)`` more for each refused row, each over a share of the rows.

Deletes come before everything else, the lanes in reverse order; rows go in after them, the lanes in their order: what
refers to a row goes before it and comes after it, and a value that must be unique can pass from one row to another.
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
    """``rows``: inserted or changed. ``refused``: by lanes in their order, then by rows."""

    rows: int
    rejected: Sequence[RejectedRow]


class RowApplier:
    """The rows of one cut, within the caller's transaction. ``cuts``: in the order of the lanes."""

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
        """Copy the winners of every lane; returns them."""
        self._check_limit()
        return self._stage({lane: cut.winners() for lane, cut in self._cuts.items()})

    def run(self, staged: Mapping[str, pl.DataFrame]) -> ApplyResult:
        """Write the staged rows, and then, as long as rows were refused, those whose turn it is in their place."""
        while staged:
            rejected = {lane: {one.row for one in refused} for lane, refused in self._round(staged).items() if refused}
            for lane in rejected:
                self._staging[lane].clear(self._connection)
            staged = self._stage({lane: self._next_winners(lane, now) for lane, now in rejected.items()})
        refused = [sorted([*cut.refused, *self._rejected[lane]], key=_row) for lane, cut in self._cuts.items()]
        return ApplyResult(self._rows, list(itertools.chain(*refused)))

    def _stage(self, winners: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        filled = {lane: rows for lane, rows in winners.items() if rows.height}
        for lane, rows in filled.items():
            self._staging[lane].fill(self._connection, rows)
        return filled

    def _next_winners(self, lane: str, now: Iterable[int]) -> pl.DataFrame:
        return self._cuts[lane].next_winners(now, map(_row, self._rejected[lane]))

    def _round(self, staged: Mapping[str, pl.DataFrame]) -> dict[str, list[RejectedRow]]:
        rejected: dict[str, list[RejectedRow]] = {lane: [] for lane in staged}
        for lane in reversed(list(staged)):
            if (delete := self._staging[lane].delete) is not None:
                _, refused = self._bisect(lane, delete, staged[lane])
                rejected[lane] += refused
        for lane, rows in staged.items():
            count, refused = self._bisect(lane, self._staging[lane].insert, rows)
            self._rows += count
            rejected[lane] += refused
        return rejected

    def _bisect(self, lane: str, statement: sql.Composed, rows: pl.DataFrame) -> tuple[int, list[RejectedRow]]:
        """Rows that the statement changed, and those that the server refused."""
        ranges, changed, refused, indexed = [(0, rows.height)], 0, [], False
        while ranges:
            low, high = ranges.pop()
            found = self._try(statement, low, high)
            if isinstance(found, int):
                changed += found
            elif high - low == 1:
                refused.append(_rejected_row(lane, rows.item(low, ROW), found))
                self._rejected[lane].append(refused[-1])
                self._check_limit()
            else:
                if not indexed:
                    self._staging[lane].index(self._connection)
                    indexed = True
                middle = (low + high) // 2
                ranges += [(middle, high), (low, middle)]
        if indexed:
            self._staging[lane].drop_index(self._connection)
        return changed, refused

    def _try(self, statement: sql.Composed, low: int, high: int) -> int | psycopg.Error:
        """Rows changed, or the server's refusal, after which nothing of the attempt is left."""
        try:
            with self._connection.transaction():  # a savepoint: the cut's transaction is open
                return self._connection.execute(statement, (low, high)).rowcount
        except psycopg.Error as error:
            if not is_data_error(error):
                raise
            return error

    def _check_limit(self) -> None:
        lists = [*(cut.refused for cut in self._cuts.values()), *self._rejected.values()]
        if sum(map(len, lists)) <= self._limit:
            return
        last = next(found[-1] for found in reversed(lists) if found)
        raise Permanent(
            f"postgres: more than {self._limit} rows of one cut are refused, as lane {last.lane}: {last.reason} "
            f"({last.code}); nothing of the cut was written; mend the table or raise max_refused"
        )


def _row(refused: RejectedRow) -> int:
    return refused.row


def _rejected_row(lane: str, row: int, error: psycopg.Error) -> RejectedRow:
    return RejectedRow(lane, row, error.sqlstate or "", error_text(error))
