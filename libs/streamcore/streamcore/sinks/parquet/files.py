"""Encodes the rows of a cut as Parquet files, one for each partition. Equal rows give equal names and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from streamcore.errors import ConfigError
from streamcore.sinks.lake.columns import DICTIONARY_BYTES

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
    if not partition_by:
        yield name, _encode(rows)
        return
    keys = list(partition_by)
    # The sort is stable: within a partition the order of the rows stays.
    rows = rows.take(pc.sort_indices(rows, [(key, "ascending") for key in keys]))
    groups = rows.select(keys).group_by(keys, use_threads=False).aggregate([([], "count_all")])
    first = 0
    for group in groups.to_pylist():
        count = group.pop("count_all")
        folders = [f"{quote(key, safe='')}={_to_folder(group[key])}" for key in keys]
        yield "/".join([*folders, name]), _encode(rows.slice(first, count).drop_columns(keys))
        first += count


def _to_folder(value: object) -> str:
    """Return a partition value as the name of a folder, as Hive and its readers write it."""
    if value is None:
        return _NULL
    return str(value).lower() if isinstance(value, bool) else quote(str(value), safe="")


def _encode(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", dictionary_pagesize_limit=DICTIONARY_BYTES)
    return sink.getvalue()
