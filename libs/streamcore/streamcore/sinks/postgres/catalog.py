"""Checks at start that the lane's table exists and can hold its rows; each error gives the statement that mends it.

Rejects a key without a unique index of exactly those columns (``ON CONFLICT`` needs it), columns that would change a
value silently, and missing permissions. Reads PostgreSQL's system catalogue only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import psycopg

from streamcore.errors import ConfigError
from streamcore.sinks.postgres.columns import ColumnType
from streamcore.sinks.postgres.connection import Connection
from streamcore.sinks.postgres.errors import error_text
from streamcore.sinks.postgres.lane_table import LaneTable
from streamcore.sinks.postgres.settings import TableName

_TABLE = """
SELECT c.oid::bigint, c.relkind::text,
    has_table_privilege(c.oid, 'SELECT'), has_table_privilege(c.oid, 'INSERT'),
    has_table_privilege(c.oid, 'UPDATE'), has_table_privilege(c.oid, 'DELETE')
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
    a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
    coalesce(l.collisdeterministic, true)
FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN pg_attribute a
    ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_DATABASE = """
SELECT has_database_privilege(current_database(), 'TEMP'), current_setting('server_encoding'), current_database()::text
"""


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """A column of a table, as the catalogue describes it.

    ``fixed``: generated, so that no row may give a value. ``deterministic``: its collation considers texts equal only
    if their bytes are equal.
    """

    name: str
    type: str
    not_null: bool
    has_default: bool
    fixed: bool
    deterministic: bool


def check_database(connection: Connection) -> None:
    """Raise ``ConfigError`` if the user may not create temporary tables, or the database's encoding is not UTF-8."""
    row = connection.execute(_DATABASE).fetchone()
    assert row is not None
    if not row[0]:
        raise ConfigError(
            f"postgres: temporary tables are needed; run: GRANT TEMPORARY ON DATABASE {row[2]} TO {_user(connection)}"
        )
    if row[1] != "UTF8":
        raise ConfigError(f"postgres: database {row[2]} has encoding {row[1]}, which cannot hold every text; UTF8 can")


def exists(connection: Connection, table: TableName) -> bool:
    """Return whether the table exists; False if its schema is missing.

    Raises ``psycopg.errors.InsufficientPrivilege`` if the user may not use the schema.
    """
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f'"{table.schema}"."{table.table}"',)).fetchone()
    return row == (True,)


def check_table(connection: Connection, wanted: LaneTable) -> dict[str, PostgresColumn]:
    """Return the table's columns; raise ``ConfigError`` with the missing part and the statement that makes it."""
    oid = _checked_rights(connection, wanted)
    columns = {c.name: c for c in (_column(row) for row in connection.execute(_COLUMNS, (oid,)))}
    for problem in _problems(wanted, columns, lambda: _unique_keys(connection, oid)):
        raise ConfigError(f"postgres lane {wanted.lane}: table {wanted.spec.table} {problem}")
    return columns


def _checked_rights(connection: Connection, wanted: LaneTable) -> object:
    """Return the table's object id. Raise ``ConfigError`` if the table or a permission is missing."""
    where = f"postgres lane {wanted.lane}: table {wanted.spec.table}"
    try:
        row = connection.execute(_TABLE, (wanted.sql_name,)).fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigError(
            f"{where}: {error_text(error)}; "
            f"run: GRANT USAGE ON SCHEMA {wanted.spec.table.schema} TO {_user(connection)}"
        ) from error
    if row is None:
        raise ConfigError(f"{where} does not exist; run:\n{wanted.create_table()};")
    oid, kind, *rights = row
    if kind not in ("r", "p"):
        raise ConfigError(f"{where} is a view or another object, not a table; name the table behind it")
    names = ["SELECT", "INSERT", "UPDATE", "DELETE"]
    needed = [n for n, held in zip(names, rights, strict=True) if not held and _needs(wanted, n)]
    if needed:
        raise ConfigError(
            f"{where}: a permission is missing; "
            f"run: GRANT {', '.join(needed)} ON {wanted.sql_name} TO {_user(connection)}"
        )
    return oid


def _needs(wanted: LaneTable, right: str) -> bool:
    """Return whether writing the lane needs this permission."""
    match right:
        case "INSERT":
            return True
        case "DELETE":
            return wanted.spec.deleted is not None
        case _:
            return bool(wanted.spec.key)


def _problems(
    wanted: LaneTable, columns: Mapping[str, PostgresColumn], unique_keys: Callable[[], list[frozenset[str]]]
) -> Iterable[str]:
    """Yield what is wrong with the table, each as the rest of a sentence that begins with its name."""
    for name in wanted.written_columns:
        yield from _column_problems(wanted, columns, name, wanted.columns[name])
    for column in columns.values():
        if (
            column.name not in wanted.written_columns
            and column.not_null
            and not column.has_default
            and not column.fixed
        ):
            yield f"needs a value for column {column.name!r}, which the lane does not have; give it a default"
    for name in wanted.required_columns:
        if not columns[name].not_null:
            yield f'may hold nulls in column {name!r}; run: ALTER TABLE {wanted.sql_name} ALTER "{name}" SET NOT NULL;'
    if wanted.spec.key and frozenset(wanted.spec.key) not in unique_keys():
        yield (
            f"has no primary key or unique constraint of exactly ({wanted.key_list}) that is checked at once; "
            f"run: ALTER TABLE {wanted.sql_name} ADD PRIMARY KEY ({wanted.key_list});"
        )


def _column_problems(
    wanted: LaneTable, columns: Mapping[str, PostgresColumn], name: str, ours: ColumnType
) -> Iterable[str]:
    column = columns.get(name)
    if column is None:
        yield f'has no column {name!r}; run: ALTER TABLE {wanted.sql_name} ADD COLUMN "{name}" {ours.create};'
        return
    key = name in wanted.spec.key
    if not ours.is_compatible(column.type, key=key):
        manner = "as a key" if key else "without loss"
        yield f"has column {name!r} as {column.type}, which does not hold {ours.arrow} {manner}; make it {ours.create}"
    if column.fixed:
        yield f"computes column {name!r} by itself; leave it out of the lane"
    if key and not column.deterministic:
        yield f"compares the text of key column {name!r} by its own rules; give it a deterministic collation"


def _unique_keys(connection: Connection, oid: object) -> list[frozenset[str]]:
    rows = connection.execute(_UNIQUE, (oid,)).fetchall()
    return [frozenset(names) for (names,) in rows if isinstance(names, list)]


def _column(row: tuple[object, ...]) -> PostgresColumn:
    name, kind, not_null, has_default, fixed, deterministic = row
    return PostgresColumn(str(name), str(kind), bool(not_null), bool(has_default), bool(fixed), bool(deterministic))


def _user(connection: Connection) -> str:
    return f'"{connection.info.user}"'
