"""Where the rows of a state table belong, so that a savepoint can be restored with another number of shards.

A table is keyed unless it declares another scope. A savepoint checks the declaration: the shard that writes keyed rows
must own them, and replicated rows must be equal in all shards.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import polars as pl

from streamcore.hashing import UInt64Array, hash_columns
from streamcore.state.table import HASH


class ScopeKind(enum.StrEnum):
    """How the rows of a table are divided among new shards.

    ``KEYED``: a row goes to the shard that owns its key. ``REPLICATED``: every shard has the same rows. ``MERGED``:
    each shard has one value of its own, and a new shard merges those of the shards whose key groups it gets.
    ``LOCAL``: the rows describe one shard, and another number of shards begins without them.
    """

    KEYED = "keyed"
    REPLICATED = "replicated"
    MERGED = "merged"
    LOCAL = "local"


#: Rows, each with the hash that decides its shard.
HashedRows = tuple[pl.DataFrame, UInt64Array]


def by_row_hash(rows: pl.DataFrame) -> HashedRows:
    """Return the rows with their column ``HASH``, which usually decides the shard of a row."""
    return rows, rows[HASH].to_numpy()


def keep_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows as they are: the table itself merges them when it loads them."""
    return rows


@dataclass(frozen=True, slots=True)
class TableScope:
    """The scope of a table.

    ``hashed``: of a keyed table, returns stored rows with the hashes that decide their shards, without rows that have
    no effect any more. ``merge``: of a merged table, returns one shard's rows from those of several.
    """

    kind: ScopeKind
    hashed: Callable[[pl.DataFrame], HashedRows] = by_row_hash
    merge: Callable[[pl.DataFrame], pl.DataFrame] = keep_rows


KEYED = TableScope(ScopeKind.KEYED)
REPLICATED = TableScope(ScopeKind.REPLICATED)
LOCAL = TableScope(ScopeKind.LOCAL)


def keyed_by(columns: Sequence[str]) -> TableScope:
    """Return the scope of a table whose rows belong to the key in these columns, which need not be all of its key."""
    names = [*columns]

    def hashed(rows: pl.DataFrame) -> HashedRows:
        return rows, hash_columns(rows.select(names).get_columns(), rows.height)

    return TableScope(ScopeKind.KEYED, hashed)


def merged(merge: Callable[[pl.DataFrame], pl.DataFrame]) -> TableScope:
    """Return the scope of a table whose rows of several shards ``merge`` makes into those of one."""
    return TableScope(ScopeKind.MERGED, merge=merge)


@runtime_checkable
class ScopedTable(Protocol):
    """A table that is not keyed by its column ``HASH``."""

    scope: TableScope


def get_scope(table: object) -> TableScope:
    """Return the declared scope of a table; ``KEYED`` if it declares none."""
    return table.scope if isinstance(table, ScopedTable) else KEYED
