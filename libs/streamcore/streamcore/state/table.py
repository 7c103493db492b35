"""The protocol by which the state log stores a table.

A table is in memory in any form that is fast for its operator. It is stored as rows: a frame with the columns of the
table and ``__hash``, the stable hash of the row's key (``streamcore.hashing``). The hash determines the row's bucket in
the log, and its shard after a restore, so tables do not know buckets and shards.
"""

from __future__ import annotations

from typing import Protocol

import polars as pl

#: uint64 column: the stable hash of the row's key.
HASH = "__hash"


class StateTable(Protocol):
    """One named table of a shard."""

    def changes(self) -> pl.DataFrame:
        """Return the rows written since the last call, with all columns and their present values, and reset the list.

        The log may still have a deleted row until its bucket is rewritten, so ``load`` must be able to repeat the
        deletion: by an expired window, or by a row with a flag (a tombstone).
        """
        ...

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        """Return all live rows of one of ``buckets`` buckets (``hashing.bucket_for``)."""
        ...

    def load(self, rows: pl.DataFrame) -> None:
        """Load stored rows, oldest first. A row replaces an earlier one of its key."""
        ...
