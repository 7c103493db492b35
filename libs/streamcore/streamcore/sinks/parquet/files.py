"""Encodes the rows of a cut as Parquet files, one for each partition. Equal rows give equal names and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from streamcore.errors import ConfigError
from streamcore.sinks.lake.columns import DICTIONARY_BYTES, choose_dictionary_columns
from streamcore.sinks.lake.rows import split_by_partition

_NULL = "__HIVE_DEFAULT_PARTITION__"


def in_parquet(lane: str, columns: pa.Schema) -> pa.Schema:
    """Return the schema of the files of a lane. Raise ``ConfigError`` if readers could not tell two columns apart."""
    twice = [name for name, count in Counter(name.lower() for name in columns.names).items() if count > 1]
    if twice:
        raise ConfigError(f"lane {lane}: many readers ignore case in names, and {twice[0]!r} is there twice")
    fields = [c.with_type(pa.string()) if types.is_large_string(c.type) else c for c in columns]
    return pa.schema([field.remove_metadata() for field in fields])


def encode_files(rows: pa.Table, partition_by: Sequence[str], name: str) -> Iterator[tuple[str, pa.Buffer]]:
    """Yield path and content of each file; ``name``: its name in the folder of its partition."""
    dictionaries = choose_dictionary_columns(rows)
    if not partition_by:
        yield name, _encode(rows, dictionaries)
        return
    for values, part in split_by_partition(rows, partition_by):
        folders = [f"{quote(key, safe='')}={_to_folder(value)}" for key, value in values.items()]
        yield "/".join([*folders, name]), _encode(part.drop_columns(list(partition_by)), dictionaries)


def _to_folder(value: object) -> str:
    """Return a partition value as the name of a folder, as Hive and its readers write it."""
    if value is None:
        return _NULL
    return str(value).lower() if isinstance(value, bool) else quote(str(value), safe="")


def _encode(rows: pa.Table, dictionaries: list[str]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        use_dictionary=[name for name in dictionaries if name in rows.column_names],
        dictionary_pagesize_limit=DICTIONARY_BYTES,
    )
    return sink.getvalue()
