"""Checks of a lane's rows that need no server.

Some values no table of PostgreSQL takes; those rows are refused here, for the staging table could not take them
either. Of several rows with one key, the one that would stand at the end were they written one by one is the winner;
when the server refuses it, the one before it has its turn. So a table's contents do not depend on how rows are cut.
(What is refused does: a row that another one of its cut replaces is never shown to the server.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
import pyarrow as pa

from streamcore.codes import Code
from streamcore.sinks.postgres.settings import TableSpec
from streamcore.sinks.sink import RejectedRow

#: Place of a row in its lane's table.
ROW = "__row"
#: Years 1 to 9999, in milliseconds since 1970: what ISO 8601 can say and common clients can read.
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
    """The rows of one lane in one cut. ``refused``: those that no server needs to see."""

    def __init__(self, lane: str, spec: TableSpec, rows: pa.Table) -> None:
        self.lane = lane
        self.spec = spec
        frame = pl.DataFrame(pl.from_arrow(rows)).with_row_index(ROW)
        self.refused: Sequence[RejectedRow] = _find_rejected(lane, spec, frame)
        self._rows = _without(frame, self.refused)

    def winners(self) -> pl.DataFrame:
        """Return the rows to write, in order, with their places in ``ROW``."""
        return _winners(self.spec, self._rows)

    def next_winners(self, now: Iterable[int], gone: Iterable[int]) -> pl.DataFrame:
        """Whose turn it is after the server has refused the rows ``now``, and ``gone`` in all."""
        if not self.spec.key:
            return self._rows.clear()
        keys = self._rows.join(self._places(now), on=ROW, how="semi").select(self.spec.key)
        left = self._rows.join(self._places(gone), on=ROW, how="anti", maintain_order="left")
        return _winners(self.spec, left.join(keys, on=self.spec.key, how="semi", maintain_order="left"))

    def _places(self, rows: Iterable[int]) -> pl.DataFrame:
        return pl.DataFrame({ROW: list(rows)}, {ROW: self._rows.schema[ROW]})


def _winners(spec: TableSpec, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the last row of a key; with versions, the highest, and of equal ones the first, as none of them
    replaces it."""
    if not spec.key:
        return rows
    if spec.version is None:
        return rows.unique(list(spec.key), keep="last", maintain_order=True)
    highest_first = rows.sort(spec.version, descending=True, maintain_order=True)
    return highest_first.unique(list(spec.key), keep="first", maintain_order=True).sort(ROW)


def _without(rows: pl.DataFrame, refused: Sequence[RejectedRow]) -> pl.DataFrame:
    if not refused:
        return rows
    gone = pl.Series([one.row for one in refused], dtype=rows.schema[ROW])
    return rows.filter(~pl.col(ROW).is_in(gone.implode()))


def _find_rejected(lane: str, spec: TableSpec, rows: pl.DataFrame) -> list[RejectedRow]:
    """At most one a row, in order of rows: the first thing that is wrong with it."""
    found: dict[int, RejectedRow] = {}
    for column, bad, code, reason in _questions(spec, rows):
        wrong = rows.filter(bad)
        for row in wrong.get_column(ROW).to_list():
            found.setdefault(row, RejectedRow(lane, row, code, f'column "{column}": {reason}'))
    return [found[row] for row in sorted(found)]


def _questions(spec: TableSpec, rows: pl.DataFrame) -> Iterable[tuple[str, pl.Expr, str, str]]:
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
