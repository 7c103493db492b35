"""Staging tables: one temporary table per lane and connection, and the statements that move its rows to their table.

Polars writes the rows as CSV for COPY. Measured, that costs the client less than a binary COPY from Python rows, even
without the cost of building those rows (``bench/sinks/postgres.py``). Quotes distinguish an empty text from null;
numbers are exact. A staging table accepts every value, so the server rejects rows only when they move to their table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl
from psycopg import sql

from streamcore.sinks.postgres.catalog import PostgresColumn
from streamcore.sinks.postgres.connection import Connection
from streamcore.sinks.postgres.lane_table import LaneTable

#: Column with the position of a row in its staging table, from 0 without gaps.
PLACE = "__place"
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S%.f"
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging table of a lane. ``insert`` and ``delete`` apply the staged rows ``[low, high)`` to the lane's table;
    their parameters are low and high."""

    name: sql.Identifier
    columns: tuple[str, ...]
    create: sql.Composed
    copy: sql.Composed
    insert: sql.Composed
    delete: sql.Composed | None

    @classmethod
    def of(cls, number: int, wanted: LaneTable, table: Mapping[str, PostgresColumn]) -> Staging:
        """Build the statements of a lane.

        ``number``: position of the lane in the sink, part of the staging table's name. ``table``: columns of the
        target table, by name.
        """
        name = sql.Identifier("pg_temp", f"headgate_{number}")
        columns = tuple(wanted.columns)
        types = [sql.SQL("{} int").format(sql.Identifier(PLACE))]
        types += [sql.SQL("{} {}").format(sql.Identifier(n), _raw(c.staged)) for n, c in wanted.columns.items()]
        create = sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DELETE ROWS").format(name, _list(types))
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            name, _list(map(sql.Identifier, (PLACE, *columns)))
        )
        return cls(name, columns, create, copy, _insert(name, wanted, table), _delete(name, wanted))

    def fill(self, connection: Connection, rows: pl.DataFrame) -> None:
        """Copy ``rows`` into the staging table, in order. The table must be empty, as it is when a transaction
        begins."""
        numbered = rows.select(self.columns).with_row_index(PLACE)
        text = memoryview(numbered.write_csv(include_header=False, datetime_format=_TIME_FORMAT).encode())
        with connection.cursor() as cursor, cursor.copy(self.copy) as copy:
            for start in range(0, len(text), _COPY_BYTES):
                copy.write(text[start : start + _COPY_BYTES])

    def clear(self, connection: Connection) -> None:
        """Delete the staged rows."""
        connection.execute(sql.SQL("TRUNCATE {}").format(self.name))

    def index(self, connection: Connection) -> None:
        """Create an index on the positions, so that bisecting finds small ranges quickly. A rollback drops it too."""
        connection.execute(sql.SQL("CREATE INDEX headgate_places ON {} ({})").format(self.name, sql.Identifier(PLACE)))

    def drop_index(self, connection: Connection) -> None:
        """Drop the index, so that the next cut's COPY need not maintain it."""
        connection.execute("DROP INDEX pg_temp.headgate_places")


_PLACES = "s.{place} >= %s AND s.{place} < %s"


def _insert(name: sql.Identifier, wanted: LaneTable, table: Mapping[str, PostgresColumn]) -> sql.Composed:
    written = [sql.Identifier(column) for column in wanted.written_columns]
    values = [
        sql.SQL("s.{}{}").format(sql.Identifier(n), _raw(wanted.columns[n].cast(table[n].type)))
        for n in wanted.written_columns
    ]
    parts = [
        sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM {} s WHERE {}").format(
            _target(wanted), _list(written), _list(values), name, _places()
        )
    ]
    if wanted.spec.deleted:
        parts.append(sql.SQL("AND s.{} IS NOT TRUE").format(sql.Identifier(wanted.spec.deleted)))
    return sql.SQL(" ").join([*parts, *_on_conflict(wanted)])


def _on_conflict(wanted: LaneTable) -> list[sql.Composable]:
    if not wanted.spec.key:
        return []
    key = _list(map(sql.Identifier, wanted.spec.key))
    others = [sql.Identifier(name) for name in wanted.written_columns if name not in wanted.spec.key]
    if not others:
        return [sql.SQL("ON CONFLICT ({}) DO NOTHING").format(key)]
    update = _list([sql.SQL("{0} = EXCLUDED.{0}").format(column) for column in others])
    parts: list[sql.Composable] = [sql.SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(key, update)]
    if wanted.spec.version:
        parts.append(sql.SQL("WHERE EXCLUDED.{0} > t.{0}").format(sql.Identifier(wanted.spec.version)))
    return parts


def _delete(name: sql.Identifier, wanted: LaneTable) -> sql.Composed | None:
    if not wanted.spec.deleted:
        return None
    same = sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(column)) for column in wanted.spec.key)
    return sql.SQL("DELETE FROM {} AS t USING {} s WHERE {} AND s.{} AND {}").format(
        _target(wanted), name, _places(), sql.Identifier(wanted.spec.deleted), same
    )


def _places() -> sql.Composed:
    return sql.SQL(_PLACES).format(place=sql.Identifier(PLACE))


def _target(wanted: LaneTable) -> sql.Identifier:
    return sql.Identifier(wanted.spec.table.schema, wanted.spec.table.table)


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _raw(text: str) -> sql.SQL:
    # psycopg's types demand literal texts, so that no value gets into them; these texts are names of SQL types.
    return sql.SQL(text)
