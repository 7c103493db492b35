"""The protocol of a state table, which lets the log make it durable.

A table lives in memory, in whatever shape its kernel works on fastest. It is written out as rows: a frame with the
table's own columns and ``__hash``, the stable hash of the row's key (``streamcore.hashing``). The hash puts a row
into a bucket here and into a shard after a restore, so a table never has to know either.
"""

from __future__ import annotations

from typing import Protocol

import polars as pl

#: uint64 column: the stable hash of the row's key.
HASH = "__hash"


class StateTable(Protocol):
    """One named table of a shard."""

    def changes(self) -> pl.DataFrame:
        """Rows written since the last call, each whole, as they are now. A deleted row is not among them.

        A table may keep a row that it deleted until the row's bucket is written again, so deletion must be
        something that ``load`` can repeat (an expired window, a flag in the row).
        """
        ...

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        """All live rows of one bucket (``hashing.bucket_for``)."""
        ...

    def load(self, rows: pl.DataFrame) -> None:
        """Take rows in; a row replaces an earlier one of the same key. Called on an empty table, oldest first."""
        ...
