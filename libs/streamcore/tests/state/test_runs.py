"""Rows that never change and expire are stored as runs: a reload has them, each is written about once, and what has
expired is removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import CorruptState
from streamcore.operators.deduplication.paging import PagedIds
from streamcore.operators.deduplication.seen_ids import IdHashes, SeenIds
from streamcore.state import MemoryBlobs, StateLog, StateSettings, runs
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.log_copies import LogCopies
from streamcore.state.state_log import HEAD, fresh_log

HORIZON_MS = 6_400  # a slice has 100
BUCKETS = 4
SETTINGS = StateSettings(buckets=BUCKETS)
#: By cut: the number of its ids, and how far time goes on.
cuts = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900)), min_size=1, max_size=40)


class Shard:
    """A table of ids with its log."""

    def __init__(self, blobs: MemoryBlobs, copies: LogCopies | None = None, memory_bytes: int | None = None) -> None:
        self.blobs = blobs
        self.table = SeenIds(HORIZON_MS)
        cold = ColdState(StateSettings(BUCKETS, memory_bytes), {"one": PagedIds(self.table)}, "shard", local=False)
        cold.begin(blobs)
        self.log = StateLog(SETTINGS, cold, copies)
        self.next_id = 0

    @classmethod
    def load(cls, blobs: MemoryBlobs, memory_bytes: int | None = None) -> Shard:
        """Return the shard that is stored."""
        shard = cls(blobs, memory_bytes=memory_bytes)
        shard.log.load(blobs.get(HEAD), blobs, lambda _: shard.table, {"one/seen": shard.table})
        return shard

    def cut(self, count: int, at_ms: int) -> int:
        """Forget what is older than the horizon, add new ids and commit; return the bytes written."""
        self.table.forget(at_ms - HORIZON_MS)
        ids = np.arange(self.next_id, self.next_id + count, dtype=np.uint64)
        self.next_id += count
        self.table.add(IdHashes(ids, ids + np.uint64(7), np.full(count, at_ms, np.int64)))
        return self.log.commit(self.blobs, {"one/seen": self.table}, {"at": at_ms})

    def rows(self, since_ms: int) -> pl.DataFrame:
        """Return the ids that still count."""
        return self.table.rows(0, 1).filter(pl.col("__event_ms") >= since_ms).sort("__hash")

    def stored(self, kind: str) -> list[str]:
        """Return the names of the blobs of a kind."""
        return [name for name in self.blobs.blobs if name.startswith(kind)]


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs be merged that have up to five rows."""
    monkeypatch.setattr(runs, "SMALL_ROWS", 5)
    monkeypatch.setattr(runs, "MERGED_ROWS", 20)


@given(cuts)
def test_a_reload_has_the_ids_that_count_and_no_blob_that_has_expired(steps: list[tuple[int, int]]) -> None:
    shard, at_ms = Shard(MemoryBlobs()), 0
    for count, more_ms in steps:
        at_ms += more_ms
        shard.cut(count, at_ms)
        again = Shard.load(shard.blobs)
        live = at_ms - HORIZON_MS
        assert again.rows(live).equals(shard.rows(live))
        assert again.log.holds(shard.blobs.get(HEAD))
        assert sorted(shard.stored("run/")) == sorted(run.blob for run in shard.log.head.runs)
        assert all(run.newest_ms["one/seen"] >= live - shard.table.slice_ms for run in shard.log.head.runs if run.rows)
        small = [run for run in shard.log.head.runs if run.rows <= runs.SMALL_ROWS]
        assert len(small) <= 2 * BUCKETS + 1


@given(cuts, st.integers(1, BUCKETS - 1))
def test_tables_a_few_cuts_behind_catch_up(steps: list[tuple[int, int]], behind: int) -> None:
    shard, at_ms, other = Shard(MemoryBlobs()), 0, Shard(MemoryBlobs())
    for number, (count, more_ms) in enumerate(steps):
        at_ms += more_ms
        if number == len(steps) - behind:
            other = Shard.load(shard.blobs)
        shard.cut(count, at_ms)
    head = shard.blobs.get(HEAD) or b""
    if other.log.head.sequence and other.log.catch_up(head, shard.blobs, lambda _: other.table):
        assert other.rows(at_ms - HORIZON_MS).equals(shard.rows(at_ms - HORIZON_MS))
        assert other.log.holds(head)


def test_a_shard_that_moves_reads_the_copies_of_runs(tmp_path: Path) -> None:
    blobs, copies = MemoryBlobs(), LogCopies(tmp_path, "shard")
    shard = Shard(blobs, copies)
    shard.cut(5_000, 1)
    other = Shard.load(blobs)
    other.log.copies = copies
    shard.cut(5_000, 2)
    blobs.blobs |= {"run/2": b"", "log/2": b""}
    assert other.log.catch_up(blobs.get(HEAD) or b"", blobs, lambda _: other.table)
    assert other.rows(0).equals(shard.rows(0))


def test_a_cut_writes_its_own_ids_and_not_those_of_before() -> None:
    shard = Shard(MemoryBlobs())
    shard.cut(100_000, 0)
    first, later = shard.cut(1_000, 1), [shard.cut(1_000, 1) for _ in range(3 * BUCKETS)]
    assert max(later) < first + 1_000 < 30_000
    assert sum(len(shard.blobs.blobs[name]) for name in shard.stored("bucket/")) < 100


def test_state_of_before_that_is_in_buckets_goes_on_there_until_it_expires() -> None:
    before = Shard(MemoryBlobs())
    before.cut(50, 0)
    blobs = MemoryBlobs(dict(fresh_log({"one/seen": before.table.rows(0, 1)}, BUCKETS, {}, {})))
    shard = Shard.load(blobs)
    shard.next_id = 50
    for number in range(2 * BUCKETS):
        shard.cut(3, 10 + number)
        assert shard.rows(0).height == 53 + 3 * number
        assert Shard.load(blobs).rows(0).equals(shard.rows(0))
    shard.cut(3, HORIZON_MS + 200)
    for _ in range(BUCKETS):
        shard.cut(1, HORIZON_MS + 200)
    assert sum(len(blobs.blobs[name]) for name in shard.stored("bucket/")) < 100


def test_a_shard_whose_keys_may_be_cold_has_no_runs_and_keeps_what_was_in_some() -> None:
    blobs = MemoryBlobs()
    shard = Shard(blobs)
    for number in range(6):
        shard.cut(20, number)
    paging = Shard.load(blobs, memory_bytes=1)
    paging.next_id = 120
    for number in range(6, 2 * BUCKETS + 6):
        paging.cut(20, number)
        assert not paging.stored("run/")
        assert len(Shard.load(blobs, memory_bytes=1).table) == 20 * (number + 1)


def test_runs_begin_again_when_nothing_is_cold() -> None:
    blobs = MemoryBlobs()
    paging = Shard(blobs, memory_bytes=1 << 30)  # nothing is evicted
    paging.cut(20, 0)
    shard = Shard.load(blobs)
    shard.next_id = 20
    for number in range(1, 2 * BUCKETS):
        shard.cut(20, number)
        assert Shard.load(blobs).rows(0).equals(shard.rows(0))
        assert len(shard.table) == 20 * (number + 1)
    assert len(shard.stored("run/")) == 2 * BUCKETS - 1


def test_a_run_that_is_missing_is_corrupt_state() -> None:
    shard = Shard(MemoryBlobs())
    shard.cut(3, 0)
    shard.blobs.remove("run/1")
    with pytest.raises(CorruptState, match="run/1 is missing"):
        Shard.load(shard.blobs)
