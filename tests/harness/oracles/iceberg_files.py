"""Reads an Iceberg table of an SQLite catalogue by the format alone: metadata, manifest list, manifests, Parquet files.

Shares no code with the sink or its library: the catalogue is read by SQL, Avro by fastavro, Parquet by pyarrow.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq


def metadata(folder: Path, table: str) -> Mapping[str, Any]:
    """Return the newest metadata of the table, ``namespace.name``, in the folder's catalogue."""
    namespace, name = table.split(".")
    query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with sqlite3.connect(folder / "catalog.db") as catalog:
        (place,) = catalog.execute(query, (namespace, name)).fetchone()
    found: Mapping[str, Any] = json.loads(_path(place).read_bytes())
    return found


def live_files(folder: Path, table: str) -> list[Path]:
    """Return the data files of the newest snapshot."""
    document = metadata(folder, table)
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
    newest = snapshots[document["current-snapshot-id"]]
    manifests = [entry["manifest_path"] for entry in _avro(newest["manifest-list"])]
    entries = [entry for manifest in manifests for entry in _avro(manifest)]
    return [_path(entry["data_file"]["file_path"]) for entry in entries if entry["status"] != 2]  # 2: deleted


def ids(folder: Path, table: str) -> list[int]:
    """Return the ids of the table's rows, sorted."""
    return sorted(i for file in live_files(folder, table) for i in pq.ParquetFile(file).read(["id"])["id"].to_pylist())


def _avro(place: str) -> list[Any]:
    with _path(place).open("rb") as file:
        return [*fastavro.reader(file)]


def _path(place: str) -> Path:
    return Path(place.removeprefix("file://"))
