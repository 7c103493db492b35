"""Keys to key slots, and the hash table under it, against dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.columnar.hash_table import Hashes, HashTable
from streamcore.columnar.key_slots import KeySlots
from streamcore.hashing import hash_columns

numbers = st.lists(st.integers(0, 40) | st.integers(0, 2**64 - 1), max_size=60)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), numbers), max_size=8))
def test_the_hash_table_equals_a_dictionary(steps: list[tuple[bool, list[int]]]) -> None:
    table, known, value = HashTable(), dict[int, int](), 0
    for adds, given_numbers in steps:
        some = [n for n in dict.fromkeys(given_numbers) if (n in known) is not adds]
        column = np.array(some, dtype=np.uint64)
        if adds:
            table.add(column, np.arange(value, value + len(some)))
            known |= {n: value + i for i, n in enumerate(some)}
            value += len(some)
        else:
            table.remove(column)
            known = {n: v for n, v in known.items() if n not in some}
        numbers = np.array(given_numbers, dtype=np.uint64)
        assert table.find(numbers).tolist() == [known.get(n, -1) for n in given_numbers]
        assert len(table) == len(known)
        assert dict(zip(*(column.tolist() for column in table.items()), strict=True)) == known


words = st.none() | st.sampled_from(["", "a", "b", "ab", "a longer key than twelve bytes", "x" * 70])
frames = st.lists(st.tuples(words, st.none() | st.integers(-2, 2)), max_size=30)


def three_hashes(columns: Sequence[pl.Series], height: int) -> Hashes:
    return hash_columns(columns, height) % np.uint64(3)


@pytest.mark.parametrize("few_hashes", [False, True])
@settings(deadline=None)
@given(st.lists(frames, max_size=8), st.data())
def test_equal_keys_share_a_key_slot_and_different_keys_do_not(
    few_hashes: bool, cuts: list[list[tuple[str | None, int | None]]], data: st.DataObject
) -> None:
    """Many keys share a hash; held keys keep their key slots, and the others come and go."""
    with pytest.MonkeyPatch.context() as patched:
        if few_hashes:
            patched.setattr("streamcore.columnar.key_slots.hash_columns", three_hashes)
        key_slots, held = KeySlots({"k": pl.String(), "n": pl.Int64()}), dict[tuple[str | None, int | None], int]()
        for rows in cuts:
            key_slots.sweep()
            frame = pl.DataFrame(rows, schema={"k": pl.String, "n": pl.Int64}, orient="row")
            found = key_slots.assign(frame)
            assert key_slots.frame(found).equals(frame)
            assert len(set(found.tolist())) == len(set(rows))
            now = dict(zip(rows, found.tolist(), strict=True))
            assert all(held[key] == key_slot for key, key_slot in now.items() if key in held)
            coming = [key for key in now if key not in held and data.draw(st.booleans())]
            going = [key for key in held if data.draw(st.booleans())]
            key_slots.hold(np.array([now[key] for key in coming], dtype=np.int64))
            key_slots.release(np.array([held[key] for key in going], dtype=np.int64))
            held = {key: key_slot for key, key_slot in held.items() if key not in going} | {
                key: now[key] for key in coming
            }


@pytest.mark.slow
def test_unused_keys_do_not_accumulate() -> None:
    key_slots = KeySlots({"k": pl.Int64()})
    for cut in range(200):
        key_slots.sweep()
        found = key_slots.assign(pl.DataFrame({"k": range(1000 * cut, 1000 * cut + 1000)}))
        key_slots.hold(found)
        key_slots.release(found)
    assert len(key_slots) < 10_000


def test_grouping_without_columns_gives_one_key() -> None:
    key_slots = KeySlots({})
    assert key_slots.assign(pl.DataFrame({"v": [1, 2, 3]})).tolist() == [0, 0, 0]
    key_slots.hold(np.array([0]))
    assert key_slots.assign(pl.DataFrame({"v": [1]})).tolist() == [0]


@settings(deadline=None)
@given(st.lists(st.lists(st.none() | st.integers(0, 30), max_size=30), max_size=8), st.data())
def test_retained_keys_keep_their_key_slots_and_all_others_are_dropped(
    cuts: list[list[int | None]], data: st.DataObject
) -> None:
    key_slots, used = KeySlots({"k": pl.Int64()}), dict[int | None, int]()
    for keys in cuts:
        frame = pl.DataFrame({"k": keys}, schema={"k": pl.Int64})
        found = dict(zip(keys, key_slots.assign(frame).tolist(), strict=True))
        assert all(used.get(key, key_slot) == key_slot for key, key_slot in found.items())
        used = {key: key_slot for key, key_slot in (used | found).items() if data.draw(st.booleans())}
        key_slots.keep(np.fromiter(used.values(), np.int64, len(used)))
        assert key_slots.used().tolist() == sorted(used.values())
        kept = np.fromiter(used.values(), np.int64, len(used))
        assert key_slots.frame(kept).equals(pl.DataFrame({"k": list(used)}, schema={"k": pl.Int64}))


def test_all_nans_are_one_key_and_negative_zero_equals_zero() -> None:
    key_slots = KeySlots({"f": pl.Float64()})
    frame = pl.DataFrame({"f": [float("nan"), 0.0, None, float("nan"), -0.0]})
    first = key_slots.assign(frame)
    assert len(key_slots) == 3
    assert first.tolist() == key_slots.assign(frame).tolist()


def test_take_added_returns_each_new_key_slot_once() -> None:
    key_slots = KeySlots({"k": pl.Int64()})
    found = key_slots.assign(pl.DataFrame({"k": [1, 2, 1]}))
    assert sorted(key_slots.take_added().tolist()) == sorted(set(found.tolist()))
    key_slots.forget(found[:1])
    assert key_slots.used().tolist() == [int(found[1])]
    assert not key_slots.take_added().size
