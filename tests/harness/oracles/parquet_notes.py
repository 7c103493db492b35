"""Reads a folder of the Parquet sink as its documentation tells any reader to: DuckDB, by the notes alone.

Shares no code with the sink.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

_FILES = "SELECT list($1 || '/' || file) FROM (SELECT unnest(files) AS file FROM read_json($1 || '/_headgate/*.json'))"


def counted_files(folder: Path) -> list[str]:
    """Return the paths of the files that count, with repetition."""
    with duckdb.connect() as connection:
        (files,) = connection.execute(_FILES, [str(folder)]).fetchone() or (None,)
    return [*(files or [])]


def ids(folder: Path) -> list[int]:
    """Return the ids of the rows that count, sorted."""
    with duckdb.connect() as connection:
        query = "SELECT id FROM read_parquet(?, hive_partitioning = true) ORDER BY id"
        # A file that is named twice is read twice.
        rows = [row for file in counted_files(folder) for row in connection.execute(query, [file]).fetchall()]
    return sorted(int(row[0]) for row in rows)


def listed_ids(folder: Path) -> list[int]:
    """Return the ids of the rows in all files, as a reader sees them that lists the folder."""
    with duckdb.connect() as connection:
        query = "SELECT id FROM read_parquet(?, hive_partitioning = true) ORDER BY id"
        return [int(row[0]) for row in connection.execute(query, [f"{folder}/**/*.parquet"]).fetchall()]
