"""The state log: committed state reads back, uncommitted state is never used, and nothing grows without bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import CorruptState
from streamcore.state import KeyValueTable, MemoryBlobs, StateLog, StateSettings, StateTable
from streamcore.state.log_copies import KEPT, MIN_BYTES, LogCopies
from streamcore.state.state_log import HEAD

SETTINGS = StateSettings(buckets=4)
changes = st.lists(
    st.dictionaries(st.sampled_from([f"k{i}" for i in range(12)]), st.one_of(st.none(), st.binary(max_size=4))),
    min_size=1,
    max_size=25,
)


def reload(blobs: MemoryBlobs) -> tuple[StateLog, KeyValueTable]:
    log, table = StateLog(SETTINGS), KeyValueTable()
    log.load(blobs.get(HEAD), blobs, lambda name: table)
    return log, table


def write(log: StateLog, table: KeyValueTable, blobs: MemoryBlobs, change: dict[str, bytes | None], n: int) -> None:
    for key, value in change.items():
        table.put(key, value)
    tables: dict[str, StateTable] = {"kv": table}
    log.commit(blobs, tables, {"n": n})


@given(changes)
def test_after_every_commit_a_reload_holds_exactly_what_was_written(sequence: list[dict[str, bytes | None]]) -> None:
    blobs, log, table = MemoryBlobs(), StateLog(SETTINGS), KeyValueTable()
    expected: dict[str, bytes] = {}
    for n, change in enumerate(sequence):
        write(log, table, blobs, change, n)
        for key, value in change.items():
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        again, copy = reload(blobs)
        assert dict(copy) == expected
        assert again.head.cells == {"n": n}
        assert again.holds(blobs.get(HEAD))


@given(changes)
def test_continuing_from_a_reload_equals_never_having_stopped(sequence: list[dict[str, bytes | None]]) -> None:
    straight, broken = MemoryBlobs(), MemoryBlobs()
    log, table = StateLog(SETTINGS), KeyValueTable()
    for n, change in enumerate(sequence):
        write(log, table, straight, change, n)
        other_log, other_table = reload(broken)
        write(other_log, other_table, broken, change, n)
    assert dict(reload(straight)[1]) == dict(reload(broken)[1])


@given(changes, st.integers(0, 6))
def test_tables_that_are_a_few_cuts_behind_catch_up_from_the_log(
    sequence: list[dict[str, bytes | None]], behind: int
) -> None:
    blobs, log, table = MemoryBlobs(), StateLog(SETTINGS), KeyValueTable()
    other_log, other_table = StateLog(SETTINGS), KeyValueTable()
    for n, change in enumerate(sequence):
        write(log, table, blobs, change, n)
        if n == max(0, len(sequence) - 1 - behind):
            other_log, other_table = reload(blobs)
    head = blobs.get(HEAD) or b""
    missed = log.head.sequence - other_log.head.sequence
    assert other_log.catch_up(head, blobs, lambda name: other_table) is (0 < missed < SETTINGS.buckets)
    if missed < SETTINGS.buckets:
        assert dict(other_table) == dict(table)
        assert other_log.holds(head)


def test_tables_of_another_history_do_not_catch_up() -> None:
    blobs, log, table = MemoryBlobs(), StateLog(SETTINGS), KeyValueTable()
    write(log, table, blobs, {"a": b"1"}, 1)
    lost = MemoryBlobs(dict(blobs.blobs))
    other_log, other_table = reload(lost)
    write(other_log, other_table, lost, {"a": b"never committed"}, 2)
    for n in (2, 3):
        write(log, table, blobs, {"a": b"%d" % n}, n)
    assert not other_log.catch_up(blobs.get(HEAD) or b"", blobs, lambda name: other_table)


def test_the_number_of_blobs_is_bounded() -> None:
    blobs, log, table = MemoryBlobs(), StateLog(SETTINGS), KeyValueTable()
    for n in range(50):
        write(log, table, blobs, {f"k{n % 7}": b"x" * (n % 5)}, n)
    assert len(blobs.blobs) <= 2 * SETTINGS.buckets + 1


def test_a_cut_that_changes_nothing_writes_nothing() -> None:
    blobs, log, table = MemoryBlobs(), StateLog(SETTINGS), KeyValueTable()
    write(log, table, blobs, {"a": b"1"}, 1)
    before = dict(blobs.blobs)
    write(log, table, blobs, {"a": b"1"}, 1)
    assert blobs.blobs == before


def test_tables_of_an_uncommitted_attempt_are_not_reused() -> None:
    blobs, log, table = MemoryBlobs(), StateLog(SETTINGS), KeyValueTable()
    write(log, table, blobs, {"a": b"1"}, 1)
    committed = MemoryBlobs(dict(blobs.blobs))
    write(log, table, blobs, {"a": b"2"}, 2)
    assert not log.holds(committed.get(HEAD))
    assert not log.holds(None)
    other_log, other_table = reload(committed)
    write(other_log, other_table, committed, {"a": b"3"}, 2)
    assert not log.holds(committed.get(HEAD))


def test_a_missing_blob_is_corrupt_state_not_an_empty_table() -> None:
    blobs, log, table = MemoryBlobs(), StateLog(SETTINGS), KeyValueTable()
    for n in range(3):
        write(log, table, blobs, {f"k{n}": b"1"}, n)
    blobs.remove("log/2")
    with pytest.raises(CorruptState, match="log/2 is missing"):
        reload(blobs)


def test_a_head_of_another_format_is_rejected() -> None:
    with pytest.raises(CorruptState, match="format 99"):
        StateLog(SETTINGS).load(b'{"format": 99}', MemoryBlobs(), lambda name: KeyValueTable())


class CountedBlobs(MemoryBlobs):
    """Counts the blobs of the log that are read."""

    reads = 0

    def get(self, name: str) -> bytes | None:
        self.reads += name.startswith("log/")
        return super().get(name)


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:]),
        lambda path: path.write_bytes(b""),
    ],
    ids=["gone", "cut off", "a byte is another", "empty"],
)
@pytest.mark.quick_cases(2)
def test_a_shard_that_moves_reads_the_copies_of_the_log_and_the_store_where_one_is_lost(
    lost: int, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    blobs, settings = CountedBlobs(), StateSettings(buckets=16)
    logs = [StateLog(settings, copies=LogCopies(tmp_path, "shard")) for _ in range(2)]
    tables = [KeyValueTable(), KeyValueTable()]
    for n in range(12):
        write(logs[0], tables[0], blobs, {f"k{n}": bytes([n]) * MIN_BYTES}, n)
        if n == 8:
            logs[1].load(blobs.get(HEAD), blobs, lambda _: tables[1])
    assert len(list(tmp_path.iterdir())) == KEPT
    for path in sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)[-lost:] if lost else ():
        damage(path)
    blobs.reads = 0
    assert logs[1].catch_up(blobs.get(HEAD) or b"", blobs, lambda _: tables[1])
    assert dict(tables[1]) == dict(tables[0])
    assert blobs.reads == lost


def test_the_copy_of_an_attempt_that_was_not_committed_is_not_used(tmp_path: Path) -> None:
    blobs, copies = MemoryBlobs(), LogCopies(tmp_path, "shard")
    log, table = StateLog(SETTINGS, copies=copies), KeyValueTable()
    write(log, table, blobs, {"a": b"1" * MIN_BYTES}, 0)
    other_log, other_table = reload(blobs)
    lost_log, lost_table = reload(blobs)
    lost_log.copies = other_log.copies = copies
    write(lost_log, lost_table, MemoryBlobs(), {"a": b"2" * MIN_BYTES}, 1)
    write(log, table, blobs, {"a": b"3" * MIN_BYTES}, 1)
    assert other_log.catch_up(blobs.get(HEAD) or b"", blobs, lambda _: other_table)
    assert dict(other_table) == {"a": b"3" * MIN_BYTES}


def test_copies_that_cannot_be_written_change_nothing(tmp_path: Path) -> None:
    blobs, copies = MemoryBlobs(), LogCopies(tmp_path / "not there", "shard")
    log, table = StateLog(SETTINGS, copies=copies), KeyValueTable()
    write(log, table, blobs, {"a": b"1" * MIN_BYTES}, 0)
    assert dict(reload(blobs)[1]) == dict(table)
