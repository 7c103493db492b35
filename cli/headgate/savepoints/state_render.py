"""Reads rows of a table in a savepoint, and renders them; reads only the files that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from headgate.console import tables
from headgate.console.output import Json
from headgate.errors import InputError
from streamcore.savepoint import Savepoint
from streamcore.savepoint.state_files import read_parts

SHARD = "shard"
_HASH = "__hash"


def read(savepoint: Savepoint, table: str, conditions: Sequence[str], shard: int | None, limit: int) -> pl.DataFrame:
    """Read at most ``limit`` rows that match all conditions, of one shard (None: all).

    ``conditions``: texts ``COLUMN=VALUE``. Raises ``InputError`` for an unknown table or column.
    """
    manifest = savepoint.manifest
    tables_by_name = {described.name: described for described in manifest.tables}
    if table not in tables_by_name:
        raise InputError(
            f"savepoint {manifest.name} has no table {table}; it has {', '.join(tables_by_name) or 'none'}"
        )
    predicates = [_condition(text, tables_by_name[table].columns) for text in conditions]
    frames: list[pl.DataFrame] = []
    height = 0
    for rows in _rows(savepoint, table, shard):
        matching = rows.filter(*predicates) if predicates else rows
        frames.append(matching.head(limit - height))
        height += frames[-1].height
        if height >= limit:
            break
    return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()


def data(rows: pl.DataFrame) -> list[Json]:
    """Return the rows as JSON; bytes become hexadecimal text."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows.iter_rows(named=True)]


def text(rows: pl.DataFrame) -> str:
    """Render the rows as a table."""
    lines = [[_short(value) for value in row] for row in rows.iter_rows()]
    return "\n".join(tables.table(rows.columns, lines)) if lines else "no rows"


def _rows(savepoint: Savepoint, table: str, shard: int | None) -> Iterator[pl.DataFrame]:
    for file in savepoint.manifest.files:
        if shard is None or file.shard == shard:
            for part in read_parts(savepoint.content(file), file.path):
                if part.table == table:
                    yield part.frame.drop(_HASH).with_columns(pl.lit(file.shard).alias(SHARD))


def _condition(text: str, columns: object) -> pl.Expr:
    name, equals, value = text.partition("=")
    assert isinstance(columns, dict)
    if not equals or name not in columns:
        raise InputError(f"--where {text}: write COLUMN=VALUE with one of {', '.join(columns)}")
    return pl.col(name).cast(pl.String) == value


def _plain(value: object) -> Json:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _short(value: object) -> str:
    if isinstance(value, bytes):
        try:
            shown = value.decode()
        except UnicodeDecodeError:
            shown = ""
        return shown if shown.isprintable() and shown else f"<{len(value)} bytes>"
    return "" if value is None else str(value)
