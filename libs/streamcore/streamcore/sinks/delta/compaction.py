"""Puts a partition's small files together, in a commit that goes in only if all of them are still there.

The library has a compaction of its own, which cannot be used: two of them that began at the same version both get in
(1.6.6), and every row of their files is there twice from then on; so does one that meets another's DELETE. Nothing but
appends may go on beside it, and an owner of an earlier epoch may be in the midst of one. Hence, for some files:

1. Write their rows to one new file, batch by batch. No reader sees it yet.
2. Read the newest version. If one of the files is not in it any more, give up: another one was faster.
3. Commit the new file in place of the others as *the very next version*, or not at all; if another writer made that
version, begin again at 2.

A crash after 1 or 2 leaves a file that no version lists, for the next vacuum. The commit has no application versions:
contents and ledger stay unchanged.
"""

from __future__ import annotations

import datetime
import decimal
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from streamcore.sinks.delta.schema import without_bounds
from streamcore.sinks.delta.table import NOTHING_AFTER

#: Values of a partition's columns, in their order.
Partition = tuple[object, ...]

_FOLDER = "compacted"
_TRIES = 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file; ``path`` is escaped, as in the log. ``bounds``: ``min.<column>`` and so on, flattened."""

    path: str
    size: int
    partition: Partition
    bounds: Mapping[str, Any]


def small_files(table: DeltaTable, target_bytes: int) -> dict[Partition, list[DataFile]]:
    """Files that are smaller than they should be, by partition, the oldest first."""
    names = [f"partition.{name}" for name in table.metadata().partition_columns]
    small: dict[Partition, list[DataFile]] = {}
    for row in sorted(_files(table), key=lambda row: (row["modification_time"], row["path"])):
        if row["size_bytes"] < target_bytes:
            file = DataFile(row["path"], row["size_bytes"], tuple(row[name] for name in names), row)
            small.setdefault(file.partition, []).append(file)
    return small


def pack_bins(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Files in turn, as many as make one of the target size; alone, a file stays unchanged."""
    one: list[DataFile] = []
    size = 0
    for file in files:
        one.append(file)
        size += file.size
        if size >= target_bytes:
            yield one
            one, size = [], 0
    if len(one) > 1:
        yield one


def compact(table: DeltaTable, files: Sequence[DataFile]) -> bool:
    """One file in place of these, all of one partition. False if it was given up."""
    # 1. Their rows.
    path = f"{_FOLDER}/{uuid.uuid4()}.parquet"
    size = _rewrite(table, files, path)
    added = _add(table, files, path, size)
    for _ in range(_TRIES):
        # 2. Nobody else removed one of them.
        table.update_incremental()
        if not {file.path for file in files} <= {row["path"] for row in _files(table)}:
            return False
        # 3. The very next version, or begin again.
        try:
            _commit(table, files, added)
        except CommitFailedError:
            continue
        table.update_incremental()
        return True
    return False


def _commit(table: DeltaTable, files: Sequence[DataFile], added: AddAction) -> None:
    now_ms, partition = int(time.time() * 1000), dict(added.partition_values)
    table.create_write_transaction(
        [*(RemoveAction(unquote(f.path), False, now_ms, f.size, partition) for f in files), added],
        "append",
        table.schema(),
        table.metadata().partition_columns,
        commit_properties=CommitProperties(max_commit_retries=0),
        post_commithook_properties=NOTHING_AFTER,
    )


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return rows


def _rewrite(table: DeltaTable, files: Sequence[DataFile], path: str) -> int:
    """Return the size of the new file."""
    dataset = table.to_pyarrow_dataset()
    wanted = {unquote(file.path) for file in files}
    parts = set(table.metadata().partition_columns)
    schema = pa.schema([column for column in dataset.schema if column.name not in parts])
    store = dataset.filesystem
    store.create_dir(_FOLDER)
    with store.open_output_stream(path) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for fragment in dataset.get_fragments():
            if fragment.path in wanted:
                wanted.remove(fragment.path)
                for batch in fragment.to_batches(schema=schema):
                    writer.write_batch(batch)
    assert not wanted, "the version that lists the files is the one that is read"
    return int(store.get_file_info(path).size)


def _add(table: DeltaTable, files: Sequence[DataFile], path: str, size: int) -> AddAction:
    columns = table.metadata().partition_columns
    partition = {name: _spelt(value) for name, value in zip(columns, files[0].partition, strict=True)}
    stats = orjson.dumps(_stats(table, files)).decode()
    return AddAction(path, size, partition, int(time.time() * 1000), False, stats)


def _spelt(value: object) -> str | None:
    """Return a partition's value in the words of the log."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _stats(table: DeltaTable, files: Sequence[DataFile]) -> Mapping[str, object]:
    """Of the rows together: bounds where every file has them, and they are right (``schema.without_bounds``)."""
    schema = pa.schema(table.schema().to_arrow())
    names = [column.name for column in schema if column.name not in without_bounds(schema)]
    lowest: dict[str, object] = {}
    highest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for name in names:
        lows, highs, count = (_column(files, f"{kind}.{name}") for kind in ("min", "max", "null_count"))
        if lows and highs:
            lowest[name], highest[name] = _json(min(lows)), _json(max(highs))
        if count:
            nulls[name] = sum(count)
    rows = sum(_column(files, "num_records"))
    return {"numRecords": rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _column(files: Sequence[DataFile], name: str) -> list[Any]:
    """Return the figure of each file, or none of all."""
    values = [file.bounds.get(name) for file in files]
    return [] if any(value is None for value in values) else values


def _json(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return float(value) if isinstance(value, decimal.Decimal) else value
