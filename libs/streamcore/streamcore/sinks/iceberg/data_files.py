"""Writes rows to the data files of an Iceberg table.

What depends on the table alone, such as the schema of files and which statistics they have, is made once for a version
of the table. Statistics come from the writer; no file is read again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    _get_parquet_writer_kwargs,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_int

from streamcore.sinks.iceberg.schema import plain_type
from streamcore.sinks.lake.columns import choose_dictionary_columns
from streamcore.sinks.lake.rows import split_by_partition

if TYPE_CHECKING:
    from pyiceberg.table import Table


class DataFileWriter:
    """Writes data files of one version of a table, partitioned by the values of ``partition_by``."""

    def __init__(self, table: Table, partition_by: tuple[str, ...]) -> None:
        self._io = table.io
        self._locations = table.location_provider()
        self._schema = table.schema()
        self._spec = table.spec()
        self._partition_by = partition_by
        in_file, properties = sanitize_column_names(self._schema), table.properties
        fields = [field.with_type(plain_type(field.type)) for field in schema_to_pyarrow(in_file)]
        self._file_schema = pa.schema(fields)
        self._options = _get_parquet_writer_kwargs(properties)
        self._statistics = compute_statistics_plan(in_file, properties)
        self._ids = parquet_path_to_id_mapping(in_file)
        self._group_rows = _read_number(properties, TableProperties.PARQUET_ROW_GROUP_LIMIT, 1_048_576)
        self._file_bytes = _read_number(properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, 512 * 1024 * 1024)

    def write(self, rows: pa.Table) -> list[DataFile]:
        """Write ``rows``, which have the table's columns, to new files; the table does not have them yet."""
        write_id = uuid.uuid4()
        # The names of the columns in a file may differ from those of the table: Avro's rules hold there.
        dictionaries = choose_dictionary_columns(rows.rename_columns(self._file_schema.names))
        files = [
            (f"00000-{number}-{write_id}.parquet", key, part, dictionaries)
            for number, (key, part) in enumerate(self._split(rows))
        ]
        if len(files) == 1:
            return [self._write(*files[0])]
        return list(ExecutorFactory.get_or_create().map(lambda file: self._write(*file), files))

    def _split(self, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
        """Yield the rows of each file, with its partition. Files are bounded by the bytes of their rows in memory."""
        for key, part in self._split_by_partition(rows):
            count = max(1, part.num_rows * self._file_bytes // max(1, part.nbytes))
            for first in range(0, part.num_rows, count):
                yield key, part.slice(first, count)

    def _split_by_partition(self, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
        if not self._partition_by:
            yield None, rows
            return
        for values, part in split_by_partition(rows, self._partition_by):
            fields = [
                PartitionFieldValue(field, value)
                for field, value in zip(self._spec.fields, values.values(), strict=True)
            ]
            yield PartitionKey(fields, self._spec, self._schema), part

    def _write(self, name: str, key: PartitionKey | None, rows: pa.Table, dictionaries: list[str]) -> DataFile:
        location = self._locations.new_data_location(name, key)
        file = self._io.new_output(location)
        with file.create(overwrite=True) as stream:
            with pq.ParquetWriter(
                cast("IO[Any]", stream),
                self._file_schema,
                store_decimal_as_integer=True,
                use_dictionary=dictionaries,
                **self._options,
            ) as writer:
                writer.write_table(pa.Table.from_arrays(rows.columns, schema=self._file_schema), self._group_rows)
            size = stream.tell()
        statistics = data_file_statistics_from_parquet_metadata(writer.writer.metadata, self._statistics, self._ids)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=key.partition if key else Record(),
            file_size_in_bytes=size,
            sort_order_id=None,
            spec_id=self._spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def _read_number(properties: Mapping[str, str], name: str, default: int) -> int:
    return property_as_int(dict(properties), name, default) or default
