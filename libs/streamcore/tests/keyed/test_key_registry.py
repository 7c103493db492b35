"""Keys of keyed functions: admitted in order of arrival up to a limit."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from streamcore.keyed.key_registry import KeyRegistry

keys = st.none() | st.sampled_from(["a", "b", "c", "d", "e", "f"])


@given(st.lists(st.lists(keys, max_size=12), max_size=6), st.integers(1, 5), st.data())
def test_keys_are_admitted_in_order_of_arrival_up_to_the_limit(
    cuts: list[list[str | None]], most: int, data: st.DataObject
) -> None:
    registry, known, added = KeyRegistry({"k": pl.String()}), list[str | None](), list[int]()
    for cut in cuts:
        for key in dict.fromkeys(cut):
            if key not in known and len(known) < most:
                known.append(key)
        key_slots = registry.admit(pl.DataFrame({"k": cut}, schema={"k": pl.String}), most)
        assert [key_slot >= 0 for key_slot in key_slots] == [key in known for key in cut]
        assert [registry.keys[key_slot] for key_slot in key_slots if key_slot >= 0] == [
            key for key in cut if key in known
        ]
        assert len(registry) == len(known)
        added += registry.take_added()
        assert sorted(registry.in_bucket(0, 1)) == sorted(added)
        gone = [key_slot for key_slot in added if data.draw(st.booleans())]
        known = [key for key in known if key not in [registry.keys[key_slot] for key_slot in gone]]
        added = [key_slot for key_slot in added if key_slot not in gone]
        registry.forget(gone)


def test_a_key_of_several_columns_is_a_tuple_and_one_of_no_columns_is_empty() -> None:
    several = KeyRegistry({"k": pl.String(), "n": pl.Int64()})
    (key_slot,) = several.admit(pl.DataFrame({"k": ["a"], "n": [1]}), 9)
    assert several.keys[key_slot] == ("a", 1)
    none = KeyRegistry({})
    assert none.keys[none.admit(pl.DataFrame({"v": [1, 2]}), 9)[1]] == ()
