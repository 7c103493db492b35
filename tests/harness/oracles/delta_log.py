"""Reads a Delta table by its protocol alone: the log's JSON, and the Parquet files that it lists.

Shares no code with the sink or its library: the log is replayed from its first commit, files are read by pyarrow,
values of partitions are taken from the log as the protocol spells them.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

Row = Mapping[str, object]


def actions(table: Path) -> list[Mapping[str, Mapping[str, object]]]:
    """Return every action of every commit, in order."""
    files = sorted((table / "_delta_log").glob("[0-9]*[0-9].json"))
    return [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]


def live_files(table: Path) -> list[Mapping[str, object]]:
    """Return the files of the newest version."""
    there: dict[str, Mapping[str, object]] = {}
    for action in actions(table):
        if "add" in action:
            there[str(action["add"]["path"])] = action["add"]
        elif "remove" in action:
            del there[str(action["remove"]["path"])]
    return list(there.values())


def ledger(table: Path) -> dict[str, int]:
    """Return the last version of each application id."""
    marks = [action["txn"] for action in actions(table) if "txn" in action]
    return {str(mark["appId"]): int(str(mark["version"])) for mark in marks}


def columns(table: Path) -> dict[str, str]:
    """Return the Delta type of each column."""
    newest = [action["metaData"] for action in actions(table) if "metaData" in action][-1]
    fields = orjson.loads(str(newest["schemaString"]))["fields"]
    return {field["name"]: field["type"] for field in fields}


def rows(table: Path) -> list[Row]:
    """Return all rows of the newest version, in no order."""
    types = columns(table)
    return [row for file in live_files(table) for row in rows_of(table, file, types)]


def rows_of(table: Path, file: Mapping[str, object], types: Mapping[str, str]) -> list[Row]:
    """Return the rows of one file."""
    there = pq.ParquetFile(table / unquote(str(file["path"]))).read()
    partition = file["partitionValues"]
    assert isinstance(partition, dict)
    fixed = {name: _value(text, types[name]) for name, text in partition.items()}
    return [{**dict.fromkeys(types), **row, **fixed} for row in there.to_pylist()]


def _value(text: str | None, kind: str) -> object:
    if not text:  # by the protocol, empty text of any type is null
        return None
    match kind:
        case "long" | "integer":
            return int(text)
        case "boolean":
            return {"true": True, "false": False}[text]
        case "date":
            return datetime.date.fromisoformat(text)
        case _:
            return text


def table_of(schema: pa.Schema, *given: Row) -> pa.Table:
    """Return the rows of a lane as a table."""
    return pa.Table.from_pylist(list(given), schema=schema)
