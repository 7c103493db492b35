"""Cold rows of a table against a dictionary: any order of writes, evictions, recalls, merges and restarts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamcore.hashing import UInt64Array, bucket_for, hash_columns
from streamcore.limits import StateSettings
from streamcore.state import HASH, MemoryBlobs, StateLog
from streamcore.state.cold import cold_rows, run
from streamcore.state.cold.block import Block, concat_tables, encode_block, sort_rows
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.cold.paged_state import ColdTimes, Deadlines, Frames, gather, is_member, spread
from streamcore.state.cold.run import KeyFilter
from streamcore.state.state_log import HEAD

KEYS = 60


def hashes_of(keys: list[int]) -> UInt64Array:
    return hash_columns([pl.Series(keys, dtype=pl.Int64)], len(keys))


HASHES = hashes_of([*range(KEYS)])
KEY_OF = {int(key_hash): key for key, key_hash in enumerate(HASHES)}


class Lists:
    """A table of lists by key: one row for each element. An empty list is a tombstone. Key k is due at 10 * k."""

    tables = ("lists",)

    def __init__(self) -> None:
        self.lists: dict[int, list[str]] = {}
        self.dirty: set[int] = set()
        self.cold = 0

    def write(self, key: int, values: list[str]) -> None:
        if values:
            self.lists[key] = values
        else:
            self.lists.pop(key, None)
        self.dirty.add(key)

    # --- StateTable

    def changes(self) -> pl.DataFrame:
        dirty, self.dirty = sorted(self.dirty), set()
        return self._frame(dirty)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._frame([key for key in sorted(self.lists) if bucket_for(HASHES[[key]], buckets)[0] == bucket])

    def load(self, rows: pl.DataFrame) -> None:
        loaded: dict[int, list[str]] = {}
        for key, value in rows.select("key", "value").rows():
            loaded.setdefault(key, []).extend([] if value is None else [value])
        self.lists |= loaded
        self.lists = {key: values for key, values in self.lists.items() if values}

    def _frame(self, keys: list[int]) -> pl.DataFrame:
        empty: list[str | None] = [None]
        pairs = [(key, value) for key in keys for value in (self.lists.get(key) or empty)]
        numbers = [key for key, _ in pairs]
        frame = pl.DataFrame(
            {"key": numbers, "value": [value for _, value in pairs]}, schema={"key": pl.Int64, "value": pl.String}
        )
        return frame.insert_column(0, pl.Series(HASH, hashes_of(numbers), dtype=pl.UInt64))

    # --- PagedState

    def memory_bytes(self) -> int:
        return 100 * len(self.lists)

    def hashes(self) -> UInt64Array:
        return hashes_of(sorted(self.lists))

    def start_paging(self) -> None:
        pass

    def evict(self, share: float) -> Frames:
        assert not self.dirty
        keys = sorted(self.lists)[: max(1, round(share * len(self.lists)))]
        rows = self._frame(keys)
        for key in keys:
            del self.lists[key]
        self.cold += len(keys)
        return {"lists": rows}

    def forget(self, hashes: UInt64Array) -> None:
        for key_hash in hashes.tolist():
            self.lists.pop(KEY_OF[key_hash], None)

    def recall(self, frames: Frames) -> None:
        keys = set(frames["lists"]["key"].to_list())
        assert not keys & self.lists.keys(), "a key is in memory or cold, never both"
        self.cold -= len(keys)
        self.load(frames["lists"])

    def times(self, frames: Frames) -> ColdTimes:
        rows = frames["lists"]
        return ColdTimes(Deadlines(rows[HASH].to_numpy(), 10 * rows["key"].to_numpy()))

    def is_expired(self, newest_ms: int) -> bool:
        return False

    def without_expired(self, frames: Frames) -> Frames:
        return frames

    def count_cold(self, frames: Frames) -> None:
        self.cold += frames["lists"]["key"].n_unique()

    def cold_summary(self) -> Mapping[str, object]:
        return {"cold": self.cold}

    def restore_summary(self, summary: Mapping[str, Any]) -> None:
        self.cold = summary["cold"]


class Store:
    """The table with its log and its cold rows, in a process that may be restarted."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self.settings = StateSettings(buckets=3, memory_bytes=memory_bytes, local_dir=str(folder))
        self.blobs = MemoryBlobs()
        self.restart()

    def restart(self) -> None:
        self.table = Lists()
        self.cold = ColdState(self.settings, {"op": self.table}, "shard")
        self.cold.begin(self.blobs)
        self.log = StateLog(self.settings, self.cold)
        self.log.load(self.blobs.get(HEAD), self.blobs, lambda _: self.table)

    def cut(self, written: Mapping[int, list[str]], until_ms: int, read: Iterable[int] = ()) -> None:
        if self.cold.pages("op"):
            self.cold.recall("op", hashes_of([*written, *read]), until_ms, 0)
        for key, values in written.items():
            self.table.write(key, values)
        self.log.commit(self.blobs, {"op/lists": self.table}, {"until": until_ms})

    def all_lists(self) -> dict[int, list[str]]:
        cold = self.cold._rows["op"].live_rows()  # those of the shard forget the keys in memory
        every = [self.table.rows(0, 1), *(part["lists"] for part in cold)]
        found: dict[int, list[str]] = {}
        for rows in every:
            for key, value in rows.select("key", "value").rows():
                found.setdefault(key, []).append(value)
        assert sum(rows["key"].n_unique() for rows in every) == len(found), "a key is in memory or cold, never both"
        return found


cuts = st.lists(
    st.tuples(
        st.dictionaries(
            st.integers(0, KEYS - 1), st.lists(st.text("abc", min_size=1, max_size=3), max_size=3), max_size=20
        ),
        st.integers(0, 40),
        st.lists(st.integers(0, KEYS - 1), max_size=5),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@given(history=cuts, memory_bytes=st.sampled_from([1, 500, 1_500]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_rows_in_memory_and_on_disk_are_those_of_a_dictionary(
    history: list[tuple[dict[int, list[str]], int, list[int], bool]], memory_bytes: int, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "BLOCK_BYTES", 200)
        patch.setattr(cold_rows, "BLOCK_BYTES", 200)
        patch.setattr(cold_rows, "_MIN_MERGED", 10)
        patch.setattr(cold_rows, "_MIN_RECALLED", 2)
        store, expected = Store(tmp_path, memory_bytes), dict[int, list[str]]()
        for written, until_ms, read, restart in history:
            if restart:
                store.restart()
            store.cut(written, until_ms, read)
            expected |= written
            expected = {key: values for key, values in expected.items() if values}
            assert store.all_lists() == expected
            assert store.table.cold == len(expected) - len(store.table.lists)
            if memory_bytes == 1 or not store.table.lists:
                continue
            assert store.table.memory_bytes() <= memory_bytes
        stored = {name for name in store.blobs.blobs if name.startswith("cold/")}
        assert len(stored) <= 33 * (2 * cold_rows._MAX_RUNS + 1)


def test_a_block_may_have_nothing_but_keys_without_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BLOCK_BYTES", 200)
    monkeypatch.setattr(cold_rows, "BLOCK_BYTES", 200)
    monkeypatch.setattr(cold_rows, "_MIN_RECALLED", 2)
    store = Store(tmp_path, 1)
    store.cut({key: ["a"] for key in range(20)}, -1)
    store.cut({**{key: [] for key in range(20)}, 20: ["long" * 250]}, -1)  # one key's rows, in one of several blocks
    assert store.all_lists() == {20: ["long" * 250]}
    store.restart()
    assert store.all_lists() == {20: ["long" * 250]}


def test_a_restart_has_the_keys_that_were_recalled_and_not_written(tmp_path: Path) -> None:
    store = Store(tmp_path, 1)
    lists = {key: [f"v{key}"] for key in range(KEYS)}
    store.cut(lists, -1)
    store.settings = StateSettings(buckets=3, memory_bytes=1_000_000, local_dir=str(tmp_path))
    store.restart()
    assert not store.table.lists
    store.cut({}, -1, range(KEYS))
    assert store.table.lists == lists
    store.restart()
    assert store.table.lists == lists


@pytest.mark.parametrize("lost", ["cold/in/", "cold/out/", "cold/rows/"])
def test_a_restart_needs_each_table_of_the_log(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protections off: the log has no recalled keys, no evicted keys, or no rows of recalled keys."""
    commit = ColdState.commit

    def without(cold: ColdState, changed: Mapping[str, pl.DataFrame]) -> tuple[dict[str, pl.DataFrame], list[str], int]:
        frames, digests, written = commit(cold, changed)
        return {name: rows for name, rows in frames.items() if not name.startswith(lost)}, digests, written

    expected = {key: [f"new{key}" if key < 5 else f"v{key}"] for key in range(11)}
    assert _restarted_lists(tmp_path / "with") == expected
    monkeypatch.setattr(ColdState, "commit", without)
    if lost == "cold/in/":  # buckets have them too
        monkeypatch.setattr(ColdState, "rows", lambda *_: {})
    with pytest.raises(AssertionError):
        assert _restarted_lists(tmp_path / "without") == expected


def _restarted_lists(folder: Path) -> dict[int, list[str]]:
    """Return what a process has that starts after writes, an eviction, recalls and new writes."""
    store = Store(folder, 10_000)
    store.cut({key: [f"v{key}"] for key in range(10)}, -1)
    store.settings = StateSettings(buckets=3, memory_bytes=1, local_dir=str(folder))
    store.restart()
    store.cut({10: ["v10"]}, -1)
    store.settings = StateSettings(buckets=3, memory_bytes=10_000, local_dir=str(folder))
    store.restart()
    assert len(store.all_lists()) == 11
    store.cut({key: [f"new{key}"] for key in range(5)}, -1, range(7))
    store.restart()
    store.cut({}, -1, range(11))
    return store.all_lists()


def test_keys_that_are_due_are_recalled(tmp_path: Path) -> None:
    store = Store(tmp_path, 1)
    store.cut({key: [f"v{key}"] for key in range(20)}, 0)
    assert not store.table.lists
    store.cold.recall("op", hashes_of([]), 55, 0)
    assert sorted(store.table.lists) == [0, 1, 2, 3, 4, 5]
    store.cold.recall("op", hashes_of([]), 70, 0)
    assert sorted(store.table.lists) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_process_that_starts_reads_only_the_blocks_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold_rows, "BLOCK_BYTES", 100)
    store = Store(tmp_path, 1)
    store.cut({key: [f"v{key}"] for key in range(KEYS)}, -1)
    blocks = [name for name in store.blobs.blobs if name.startswith("cold/") and not name.endswith("filter")]
    assert len(blocks) >= 8
    read: list[str] = []

    class Counted(MemoryBlobs):
        def get(self, name: str) -> bytes | None:
            read.append(name)
            return super().get(name)

    store.settings = StateSettings(buckets=3, memory_bytes=1, local_dir=str(tmp_path / "new"))
    store.blobs = Counted(store.blobs.blobs)
    store.restart()
    assert not {*read} & {*blocks}
    store.cut({7: ["new"]}, -1)
    assert len({*read} & {*blocks}) == 1


@given(st.lists(st.integers(0, 2**64 - 1), unique=True), st.lists(st.integers(0, 2**64 - 1)))
def test_members_and_filters_find_every_key(members: list[int], others: list[int]) -> None:
    known, asked = np.array(members, np.uint64), np.array([*others, *members], np.uint64)
    assert is_member(asked, known).tolist() == [one in set(members) for one in asked.tolist()]
    assert gather(spread(asked)).tolist() == asked.tolist()
    key_filter = KeyFilter.for_keys(len(known))
    key_filter.add(spread(known))
    again = KeyFilter.from_bytes(key_filter.bitmap.tobytes())
    assert again.bits == key_filter.bits
    assert again.may_have(spread(known)).all()


def test_a_filter_passes_few_absent_keys() -> None:
    random = np.random.default_rng(3)
    keys = spread(random.integers(0, 2**63, 100_000).astype(np.uint64))
    key_filter = KeyFilter.for_keys(len(keys))
    key_filter.add(keys)
    absent = spread(random.integers(2**63, 2**64 - 1, 100_000, dtype=np.uint64))
    assert 0.05 < key_filter.may_have(absent).mean() < 0.13


def test_a_block_gives_back_rows_of_every_column_type() -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    rows = pl.DataFrame(
        {
            HASH: pl.Series([3, 1, 2, 1], dtype=pl.UInt64),
            "text": ["a", None, "ccc", "d"],
            "number": [1, 2**40, None, -5],
            "price": pl.Series([Decimal("1.50"), None, Decimal("-2.25"), Decimal(0)], dtype=pl.Decimal(12, 2)),
            "time": pl.Series([datetime(2026, 1, 1, tzinfo=UTC)] * 4, dtype=pl.Datetime("ms", "UTC")),
            "flag": [True, None, False, True],
            "list": [[1, 2], [], None, [3]],
            "blob": [b"x", b"", None, b"zz"],
            "none": pl.Series([None] * 4, dtype=pl.Null),
        }
    )
    import pyarrow as pa

    content = encode_block({"t": sort_rows(rows)}, Deadlines(), Deadlines(), np.empty(0, np.uint64))
    block = Block(pa.py_buffer(content))
    keys = np.sort(spread(np.array([1, 2, 9], np.uint64)))
    found, frames = block.find(keys)
    assert sorted(gather(keys[found]).tolist()) == [1, 2]
    assert frames["t"].sort(HASH, "text").equals(rows.filter(pl.col(HASH) < 3).sort(HASH, "text"))
    assert concat_tables([frames, frames])["t"].height == 6
