"""Divides the state of an app among another number of shards.

A new shard takes its part of each table by the table's scope (``streamcore.state.scope``), from the stored shards that
share key groups with it. The rows of a new shard depend on the stored rows alone, so that it takes equal rows at each
attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from streamcore.app import App
from streamcore.kernel import Kernel
from streamcore.key_space import KeySpace
from streamcore.savepoint.state_files import Frames, initial_log, live_rows, read_cells
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.scope import ScopeKind


def overlapping_shards(stored: KeySpace | None, shards: Collection[int], wanted: KeySpace, shard: int) -> list[int]:
    """Return those of the stored ``shards``, ascending, that may have rows of the key groups of a new shard.

    ``stored``: the division of the stored keys; None if it is unknown, so that any of them may.
    """
    if stored is None or stored.key_groups != wanted.key_groups:
        return sorted(shards)
    groups = wanted.get_groups(shard)
    return [one for one in sorted(shards) if _overlap(stored.get_groups(one), groups)]


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def divide_rows(app: App, stage: int, shard: int, stored: Sequence[Frames]) -> dict[str, pl.DataFrame]:
    """Return the rows by table that a shard of the app begins with.

    ``stored``: the rows by table of each overlapping shard, ascending.
    """
    kernel: Kernel = app.stages[stage]()
    kinds = {name: kernel.scope(name).kind for name in sorted({name for frames in stored for name in frames})}
    rows: dict[str, pl.DataFrame] = {}
    for name, kind in kinds.items():
        if kind is ScopeKind.REPLICATED:  # every stored shard has the same rows
            rows[name] = next(frames[name] for frames in stored if name in frames)
            kernel.table(name).load(rows[name])
    kernel.on_state_loaded()
    for name, kind in kinds.items():
        if kind is ScopeKind.KEYED:
            kept, hashes = kernel.scope(name).hashed(_concat(name, stored))
            rows[name] = kept.filter(pl.Series(app.key_space.shard_for(hashes) == shard))
        elif kind is ScopeKind.MERGED:
            rows[name] = kernel.scope(name).merge(_concat(name, stored))
    return rows


def _concat(name: str, stored: Sequence[Frames]) -> pl.DataFrame:
    """Return the rows of a table in several shards; their columns may differ: nulls only, or of an older version."""
    frames = [shard[name] for shard in stored if name in shard]
    return pl.concat(frames, how="diagonal_relaxed") if len(frames) > 1 else frames[0]


def divide_state(
    blobs: Mapping[tuple[int, int], MemoryBlobs], stored: App, app: App
) -> dict[tuple[int, int], MemoryBlobs]:
    """Return the state of an app in this process, divided among the shards of ``app``, as a savepoint divides it.

    ``blobs``: the state of ``stored``, by stage and shard; so a simulation continues with another number of shards.
    """
    divided = {}
    for stage in range(len(app.stages)):
        rows = {shard: live_rows(stored, stage, one) for (at, shard), one in blobs.items() if at == stage}
        frames = {shard: {n: f for n, f in tables.items() if f.height} for shard, tables in rows.items()}
        cells = next((read_cells(one) for (at, _), one in blobs.items() if at == stage), {})
        for shard in range(app.shards):
            taken = overlapping_shards(stored.key_space, frames, app.key_space, shard)
            new = divide_rows(app, stage, shard, [frames[one] for one in taken])
            divided[stage, shard] = MemoryBlobs(dict(initial_log(app, stage, shard, new, app.state.buckets, cells)))
    return divided
