"""Compaction: replaces the small files of a partition by one file, if no other writer has removed one of them.

The library's own compaction (deltalake 1.6.6) is not safe beside another compaction or a DELETE: if two began at the
same version, both commit, and the table has the rows of their files twice. A process of an earlier epoch may still be
in the middle of a compaction. So this module compacts some files in three steps:

1. Write their rows to one new file, batch by batch. No reader sees it yet.
2. Read the newest version of the table. If it no longer has one of the files, give up: another writer replaced it.
3. Commit the new file in place of the others as exactly the next version. If another writer has made that version,
   continue at 2.

A crash after 1 or 2 leaves a file that no version has; the next vacuum deletes it. The commit has no application
transactions: the rows and the ledger stay unchanged.
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
_MAX_TRIES = 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a version.

    ``path``: escaped as in a URL, like in the table's log. ``size``: in bytes. ``statistics``: those in the log, by
    ``num_records``, ``min.<column>``, ``max.<column>`` and ``null_count.<column>``.
    """

    path: str
    size: int
    partition: Partition
    statistics: Mapping[str, Any]


def small_files(table: DeltaTable, target_bytes: int) -> dict[Partition, list[DataFile]]:
    """Return the files of less than ``target_bytes`` by partition, each partition's oldest first."""
    names = [f"partition.{name}" for name in table.metadata().partition_columns]
    small: dict[Partition, list[DataFile]] = {}
    for row in sorted(_read_files(table), key=lambda row: (row["modification_time"], row["path"])):
        if row["size_bytes"] < target_bytes:
            file = DataFile(row["path"], row["size_bytes"], tuple(row[name] for name in names), row)
            small.setdefault(file.partition, []).append(file)
    return small


def pack_bins(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Split the files, in order, into groups of at least the target size; the last group may be smaller.

    A last group of one file is left out, because compaction would not change it.
    """
    group: list[DataFile] = []
    size = 0
    for file in files:
        group.append(file)
        size += file.size
        if size >= target_bytes:
            yield group
            group, size = [], 0
    if len(group) > 1:
        yield group


def compact(table: DeltaTable, files: Sequence[DataFile]) -> bool:
    """Replace the files, all of one partition, by one file; return False if that is given up.

    It gives up if another writer has removed one of the files, or commits first ``_MAX_TRIES`` times.
    """
    # Step 1 of the module's docstring.
    path = f"{_FOLDER}/{uuid.uuid4()}.parquet"
    size = _rewrite(table, files, path)
    added = _add_action(table, files, path, size)
    for _ in range(_MAX_TRIES):
        # Step 2.
        table.update_incremental()
        if not {file.path for file in files} <= {row["path"] for row in _read_files(table)}:
            return False
        # Step 3.
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


def _read_files(table: DeltaTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return rows


def _rewrite(table: DeltaTable, files: Sequence[DataFile], path: str) -> int:
    """Write the rows of the files to a new file; return its size in bytes."""
    dataset = table.to_pyarrow_dataset()
    wanted = {unquote(file.path) for file in files}
    partition_columns = set(table.metadata().partition_columns)
    schema = pa.schema([column for column in dataset.schema if column.name not in partition_columns])
    store = dataset.filesystem
    store.create_dir(_FOLDER)
    with store.open_output_stream(path) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for fragment in dataset.get_fragments():
            if fragment.path in wanted:
                wanted.remove(fragment.path)
                for batch in fragment.to_batches(schema=schema):
                    writer.write_batch(batch)
    assert not wanted, "the table is at a version that has all the files"
    return int(store.get_file_info(path).size)


def _add_action(table: DeltaTable, files: Sequence[DataFile], path: str, size: int) -> AddAction:
    columns = table.metadata().partition_columns
    partition = {name: _to_log_text(value) for name, value in zip(columns, files[0].partition, strict=True)}
    stats = orjson.dumps(_merge_statistics(table, files)).decode()
    return AddAction(path, size, partition, int(time.time() * 1000), False, stats)


def _to_log_text(value: object) -> str | None:
    """Return a partition value as the table's log writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)


def _merge_statistics(table: DeltaTable, files: Sequence[DataFile]) -> Mapping[str, object]:
    """Return the statistics of the new file, as in the log.

    Columns without a minimum or maximum in one of the files, and those of ``schema.without_bounds``, have no bounds.
    """
    schema = pa.schema(table.schema().to_arrow())
    names = [column.name for column in schema if column.name not in without_bounds(schema)]
    lowest: dict[str, object] = {}
    highest: dict[str, object] = {}
    nulls: dict[str, int] = {}
    for name in names:
        lows, highs, count = (_statistic(files, f"{kind}.{name}") for kind in ("min", "max", "null_count"))
        if lows and highs:
            lowest[name], highest[name] = _to_json(min(lows)), _to_json(max(highs))
        if count:
            nulls[name] = sum(count)
    rows = sum(_statistic(files, "num_records"))
    return {"numRecords": rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _statistic(files: Sequence[DataFile], name: str) -> list[Any]:
    """Return the statistic of each file; empty if a file does not have it."""
    values = [file.statistics.get(name) for file in files]
    return [] if any(value is None for value in values) else values


def _to_json(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return float(value) if isinstance(value, decimal.Decimal) else value
