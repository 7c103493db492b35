"""Versions of stored rows: older ones are migrated, also beside newer ones; unreadable ones are rejected."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.hashing import bucket_for, hash_columns
from streamcore.state import HASH, MemoryBlobs, StateLog, StateSettings
from streamcore.state.row_versions import VERSION, VersionedTable, Versions
from streamcore.state.state_log import HEAD


class Numbers:
    """A table of numbers by text, in a column whose name its version decides."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.values: dict[str, int] = {}
        self.dirty: set[str] = set()

    def put(self, key: str, value: int) -> None:
        self.values[key] = value
        self.dirty.add(key)

    def changes(self) -> pl.DataFrame:
        keys, self.dirty = sorted(self.dirty), set()
        return self._frame(keys)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        rows = self._frame(sorted(self.values))
        return rows.filter(pl.Series(bucket_for(rows[HASH].to_numpy(), buckets) == bucket))

    def load(self, rows: pl.DataFrame) -> None:
        self.values.update(zip(rows["key"].to_list(), rows[self.column].to_list(), strict=True))

    def _frame(self, keys: list[str]) -> pl.DataFrame:
        column = pl.Series("key", keys, dtype=pl.String)
        values = pl.Series(self.column, [self.values[k] for k in keys], dtype=pl.Int64)
        return pl.DataFrame([pl.Series(HASH, hash_columns([column], len(keys)), dtype=pl.UInt64), column, values])


def to_two(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.rename({"euros": "cents"}).with_columns(pl.col("cents") * 100)


def to_three(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.rename({"cents": "mills"}).with_columns(pl.col("mills") * 10)


COLUMNS = {1: "euros", 2: "cents", 3: "mills"}
STEPS = {1: to_two, 2: to_three}


def versions(current: int) -> Versions[pl.DataFrame]:
    return Versions("numbers", current, {n: step for n, step in STEPS.items() if n < current})


def open_log(blobs: MemoryBlobs, current: int) -> tuple[StateLog, Numbers, VersionedTable]:
    numbers = Numbers(COLUMNS[current])
    table = VersionedTable(numbers, versions(current))
    log = StateLog(StateSettings(buckets=3))
    log.load(blobs.get(HEAD), blobs, lambda name: table)
    return log, numbers, table


writes = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=3), max_size=5)


@given(writes, writes, writes)
def test_rows_of_three_versions_in_one_log_read_as_the_last_version(
    one: list[dict[str, int]], two: list[dict[str, int]], three: list[dict[str, int]]
) -> None:
    blobs, expected = MemoryBlobs(), dict[str, int]()
    for current, factor, cuts in ((1, 1000, one), (2, 10, two), (3, 1, three)):
        log, numbers, table = open_log(blobs, current)
        for n, cut in enumerate(cuts):
            for key, value in cut.items():
                numbers.put(key, value)
                expected[key] = value * factor
            log.commit(blobs, {"numbers": table}, {"cut": [current, n]})
    assert open_log(blobs, 3)[1].values == expected


def test_rows_without_a_version_are_of_version_1() -> None:
    numbers = Numbers("euros")
    numbers.put("a", 5)
    rows = numbers.changes()
    target = Numbers("cents")
    VersionedTable(target, versions(2)).load(rows)
    assert target.values == {"a": 500}


def test_every_row_has_its_version() -> None:
    numbers = Numbers("cents")
    numbers.put("a", 5)
    assert VersionedTable(numbers, versions(2)).changes()[VERSION].to_list() == [2]


def test_rows_of_a_newer_version_or_without_a_migration_are_rejected_before_the_table_loads_them() -> None:
    numbers = Numbers("mills")
    numbers.put("a", 5)
    rows = VersionedTable(numbers, versions(3)).changes()
    target = Numbers("cents")
    with pytest.raises(ConfigError, match="numbers: state is of version 3 and this program of version 2"):
        VersionedTable(target, versions(2)).load(rows)
    old = rows.with_columns(pl.lit(1).alias(VERSION))
    with pytest.raises(ConfigError, match=r"numbers: .* give a migration from version 1"):
        VersionedTable(target, Versions("numbers", 3, {2: to_three})).load(old)
    with pytest.raises(ConfigError, match=r"numbers: the migration from version 1 failed: .*euros"):
        VersionedTable(target, versions(3)).load(old)
    assert target.values == {}


def test_invalid_versions_are_rejected() -> None:
    with pytest.raises(ConfigError, match="versions are 1, 2, 3"):
        Versions("numbers", 0, {})
    with pytest.raises(ConfigError, match="migrations from \\[2\\], which do not lead to version 2"):
        Versions("numbers", 2, {2: to_three})
