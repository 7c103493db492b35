"""The protocol by which the state log stores a table.

A table is in memory in any form that is fast for its operator. It is stored as rows: a frame with the columns of the
table and ``__hash``, the stable hash of the row's key (``streamcore.hashing``). The hash determines the row's bucket in
the log, and its shard after a restore, so tables do not know buckets and shards.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

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


@runtime_checkable
class RunTable(StateTable, Protocol):
    """A table whose rows never change, and expire: the log keeps them as runs (``streamcore.state.runs``).

    A row that is loaded by ``load`` is in a bucket of the log, and stays there until it expires.
    """

    def load_run(self, rows: pl.DataFrame) -> None:
        """Load the rows of a run, after all rows of buckets."""
        ...

    def rows_outside_runs(self, bucket: int, buckets: int) -> pl.DataFrame:
        """Return the live rows of a bucket that are in no run."""
        ...

    def leave_runs(self) -> None:
        """Take all rows as in no run any more."""
        ...

    def newest_ms(self, rows: pl.DataFrame) -> int:
        """Return the time of the one of these rows that expires last."""
        ...

    def is_expired(self, newest_ms: int) -> bool:
        """Return whether rows up to this time have no effect any more."""
        ...

    def live(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return those of these rows that may still have an effect."""
        ...
