"""Merges the rows that several shards have about one thing into records, before the output of a cut is written.

A lane of ``App.merges`` has rows from each shard. Its merge is a pure function of all of them, in order of the shards,
so a cut that runs again gives the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from streamcore.app import App
from streamcore.wire.lanes import Record


def read_rows(values: Iterable[bytes | None]) -> Iterator[pa.Table]:
    """Yield the rows of a lane that a shard has packed whole: each value is an Arrow IPC stream."""
    for value in values:
        yield pa.ipc.open_stream(pa.py_buffer(value)).read_all()


def merge_rows(app: App, rows: Mapping[str, Sequence[pa.Table]]) -> list[Record]:
    """Return the records of all merged lanes. ``rows``: by lane, the tables in order of the shards."""
    return [
        record for lane, merge in app.merges.items() if lane in rows for record in merge(pa.concat_tables(rows[lane]))
    ]


def merge_records(app: App, records: Iterable[Record]) -> list[Record]:
    """Return the records, with those of merged lanes in place of their rows, at the end."""
    kept: list[Record] = []
    rows: dict[str, list[pa.Table]] = {}
    for record in records:
        if record.lane in app.merges:
            rows.setdefault(record.lane, []).extend(read_rows([record.value]))
        else:
            kept.append(record)
    return kept + merge_rows(app, rows)
