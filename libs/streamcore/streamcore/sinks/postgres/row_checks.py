"""Checks a lane's rows before they are sent, and picks the row to write for each key.

Rows with a value that PostgreSQL or its common clients do not accept are rejected here, before the staging table.

If a cut has several rows of one key, only the winner is sent: the row that would remain if all were written one by one.
If the server rejects the winner, the next candidate is sent. The table's contents therefore do not depend on the
division into cuts. The rejected rows do: a row that a later row of its cut replaces is never sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
import pyarrow as pa

from streamcore.codes import Code
from streamcore.sinks.postgres.settings import TableSpec
from streamcore.sinks.sink import RejectedRow

#: Column with the index of a row in its lane's table, from 0.
ROW = "__row"
#: Years 1 to 9999, in milliseconds since 1970: the range of ISO 8601 and of common clients.
_TIMES_MS = (-62_135_596_800_000, 253_402_300_799_999)


class PostgresRowCode(Code):
    """Codes of rows that the PostgreSQL sink rejects before it sends them; SQLSTATE has the same codes."""

    NULL = ("23502", "A column of the key, or the version, is null.", "Give the column a value.")
    ZERO_BYTE = ("22021", "A text contains a zero byte.", "Remove zero bytes from the field.")
    BAD_TIME = (
        "22008",
        "A timestamp is before the year 1 or after the year 9999.",
        "Correct the field.",
    )


class CheckedRows:
    """The rows of one lane in one cut. ``rejected``: the rows that failed a check; they are never sent."""

    def __init__(self, lane: str, spec: TableSpec, rows: pa.Table) -> None:
        self.lane = lane
        self.spec = spec
        frame = pl.DataFrame(pl.from_arrow(rows)).with_row_index(ROW)
        self.rejected: Sequence[RejectedRow] = _find_rejected(lane, spec, frame)
        self._rows = _without(frame, self.rejected)

    def winners(self) -> pl.DataFrame:
        """Return the rows to write, in order, with their index in the column ``ROW``."""
        return _winners(self.spec, self._rows)

    def next_winners(self, newly_rejected: Iterable[int], all_rejected: Iterable[int]) -> pl.DataFrame:
        """Return the next row to write for the key of each newly rejected row, if the key has one left.

        Rows are given by index. ``all_rejected``: every row of this cut that the server has rejected.
        """
        if not self.spec.key:
            return self._rows.clear()
        keys = self._rows.join(self._index_frame(newly_rejected), on=ROW, how="semi").select(self.spec.key)
        left = self._rows.join(self._index_frame(all_rejected), on=ROW, how="anti", maintain_order="left")
        return _winners(self.spec, left.join(keys, on=self.spec.key, how="semi", maintain_order="left"))

    def _index_frame(self, rows: Iterable[int]) -> pl.DataFrame:
        return pl.DataFrame({ROW: list(rows)}, {ROW: self._rows.schema[ROW]})


def _winners(spec: TableSpec, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the last row of each key; without a key, every row.

    With versions, return the row of the highest version, and of equal versions the first, because only a higher version
    replaces a row.
    """
    if not spec.key:
        return rows
    if spec.version is None:
        return rows.unique(list(spec.key), keep="last", maintain_order=True)
    highest_first = rows.sort(spec.version, descending=True, maintain_order=True)
    return highest_first.unique(list(spec.key), keep="first", maintain_order=True).sort(ROW)


def _without(rows: pl.DataFrame, rejected: Sequence[RejectedRow]) -> pl.DataFrame:
    if not rejected:
        return rows
    indexes = pl.Series([row.row for row in rejected], dtype=rows.schema[ROW])
    return rows.filter(~pl.col(ROW).is_in(indexes.implode()))


def _find_rejected(lane: str, spec: TableSpec, rows: pl.DataFrame) -> list[RejectedRow]:
    """Return the rows that fail a check, in order, each with its first fault."""
    rejected: dict[int, RejectedRow] = {}
    for column, is_faulty, code, reason in _checks(spec, rows):
        for row in rows.filter(is_faulty).get_column(ROW).to_list():
            rejected.setdefault(row, RejectedRow(lane, row, code, f'column "{column}": {reason}'))
    return [rejected[row] for row in sorted(rejected)]


def _checks(spec: TableSpec, rows: pl.DataFrame) -> Iterable[tuple[str, pl.Expr, str, str]]:
    """Yield each check as (column, expression that is true for a faulty row, code, reason)."""
    for name in (*spec.key, *([spec.version] if spec.version else ())):
        yield name, pl.col(name).is_null(), PostgresRowCode.NULL, "a null in a key or version"
    for name, kind in rows.schema.items():
        if kind == pl.String:
            yield (
                name,
                pl.col(name).str.contains("\0", literal=True),
                PostgresRowCode.ZERO_BYTE,
                "a zero byte in a text",
            )
        elif isinstance(kind, pl.Datetime):
            ms = pl.col(name).dt.epoch("ms")
            yield (
                name,
                ~ms.is_between(*_TIMES_MS),
                PostgresRowCode.BAD_TIME,
                "a time before year 1 or after year 9999",
            )
