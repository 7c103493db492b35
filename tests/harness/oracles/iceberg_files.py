"""Reads an Iceberg table of an SQLite catalogue by the format alone: metadata, manifest list, manifests, Parquet files.

Shares no code with the sink or its library: the catalogue is read by SQL, Avro by fastavro, Parquet by pyarrow. The
files are on a disk, or in the bucket of the tests (``s3_server``).
"""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.harness.servers import s3_server


def metadata(folder: Path, table: str) -> Mapping[str, Any]:
    """Return the newest metadata of the table, ``namespace.name``, in the folder's catalogue."""
    namespace, name = table.split(".")
    query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    with sqlite3.connect(folder / "catalog.db") as catalog:
        (place,) = catalog.execute(query, (namespace, name)).fetchone()
    found: Mapping[str, Any] = json.loads(_read(place))
    return found


def live_files(folder: Path, table: str) -> list[Path]:
    """Return the data files of the newest snapshot of a table on a disk."""
    return [_to_path(place) for place in _live_places(folder, table)]


def ids(folder: Path, table: str) -> list[int]:
    """Return the ids of the table's rows, sorted."""
    files = [pq.ParquetFile(pa.BufferReader(_read(place))) for place in _live_places(folder, table)]
    return sorted(i for file in files for i in file.read(["id"])["id"].to_pylist())


def _live_places(folder: Path, table: str) -> list[str]:
    document = metadata(folder, table)
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in document["snapshots"]}
    newest = snapshots[document["current-snapshot-id"]]
    manifests = [entry["manifest_path"] for entry in _avro(newest["manifest-list"])]
    entries = [entry for manifest in manifests for entry in _avro(manifest)]
    return [entry["data_file"]["file_path"] for entry in entries if entry["status"] != 2]  # 2: deleted


def _avro(place: str) -> list[Any]:
    return [*fastavro.reader(io.BytesIO(_read(place)))]


def _read(place: str) -> bytes:
    """Return the content of a file, by its URI."""
    if place.startswith("s3://"):
        with s3_server.file_system().open_input_file(place.removeprefix("s3://")) as file:
            content: bytes = file.read()
            return content
    return _to_path(place).read_bytes()


def _to_path(place: str) -> Path:
    """Return the path of a ``file:`` URI, which Hadoop writes without an authority."""
    return Path(place.removeprefix("file:").removeprefix("//"))
