"""The hash that assigns keys to shards must never change: these tests fix its values."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.hashing import bucket_for, fingerprint_columns, hash_columns, hash_contents, mix, rows_in_bucket
from streamcore.key_space import KeySpace
from streamcore.wire.map_entries import KEY, VALUE


def hashes(*columns: pl.Series) -> list[str]:
    return [f"{int(h):016x}" for h in hash_columns(columns, len(columns[0]))]


def test_the_hash_of_known_keys_never_changes() -> None:
    assert hashes(pl.Series(["", "a", "user-17", "Zürich", None])) == STRINGS
    assert hashes(pl.Series([0, 1, -1, 17850, None], dtype=pl.Int64)) == LONGS
    assert hashes(pl.Series(["a", "b"]), pl.Series([1, 2], dtype=pl.Int64)) == PAIRS


STRINGS = ["ce1474aab47a4403", "6f302834f25217d8", "d9b839c3fe290895", "63c148eb1b571318", "da44c99091995a91"]
LONGS = ["af26426117f7f682", "0807664739529136", "0c9569f6401cb0c0", "8c93e2c6451c32cd", "da44c99091995a91"]
PAIRS = ["cc13afe52f835652", "7a8f4baeed68308d"]


def plain_hash(text: str) -> str:
    """Hash one string at a time by the definition, in whole numbers."""
    data, word = text.encode(), 0x2545F4914F6CDD1D
    if len(data) > 64:
        word = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
    else:
        for start in range(0, len(data), 8):
            word = plain_mix(word ^ int.from_bytes(data[start : start + 8], "little"))
    return f"{plain_mix(0x2545F4914F6CDD1D ^ plain_mix(word ^ len(data))):016x}"


def plain_mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


LENGTHS = (0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 66, 300)


@given(st.lists(st.text(max_size=80) | st.sampled_from([n * "x" for n in LENGTHS]), min_size=1))
def test_a_column_of_strings_is_hashed_like_each_string(texts: list[str]) -> None:
    assert hashes(pl.Series(texts)) == [plain_hash(t) for t in texts]


@given(st.sampled_from(LENGTHS), st.integers(1, 20), st.integers(0, 3))
def test_strings_of_one_length_are_hashed_like_each_string(length: int, count: int, skipped: int) -> None:
    texts = [f"{n:x}" * length for n in range(count)]
    texts = [text[:length] for text in texts]
    assert hashes(pl.Series(["other", *texts])[1:][skipped:]) == [plain_hash(t) for t in texts[skipped:]]


def test_a_slice_of_a_column_is_hashed_like_the_whole() -> None:
    texts = pl.Series([n * "é" for n in LENGTHS])
    assert hashes(texts[3:9]) == hashes(texts)[3:9]


def test_the_empty_key_sends_every_row_to_one_shard() -> None:
    assert len(set(KeySpace(8).shard_for(hash_columns([], 5)).tolist())) == 1


@given(st.lists(st.one_of(st.none(), st.text(max_size=8)), min_size=1, max_size=50), st.integers(1, 64))
def test_equal_keys_share_a_shard_and_a_bucket_at_any_position(keys: list[str | None], parts: int) -> None:
    column = pl.Series("k", keys, dtype=pl.String)
    together = hash_columns([column], len(keys))
    apart = np.concatenate([hash_columns([column[i : i + 1]], 1) for i in range(len(keys))])
    assert (together == apart).all()
    assert (KeySpace(parts).shard_for(together) < parts).all()
    assert (bucket_for(together, parts) < parts).all()


def test_keys_spread_evenly() -> None:
    column = pl.Series([f"user-{i}" for i in range(20_000)])
    counts = np.bincount(KeySpace(16).shard_for(hash_columns([column], 20_000)), minlength=16)
    assert counts.min() > 1_100
    assert counts.max() < 1_400


def test_minus_zero_and_zero_are_one_key() -> None:
    assert len(set(hashes(pl.Series([0.0, -0.0])))) == 1


def test_the_first_hash_of_a_fingerprint_is_the_key_hash_and_the_second_never_changes() -> None:
    columns = [pl.Series(["", "a", "user-17", "x" * 65, None]), pl.Series([0, 1, -1, 2, None], dtype=pl.Int64)]
    one, other = fingerprint_columns(columns, 5)
    assert one.tolist() == hash_columns(columns, 5).tolist()
    assert [f"{int(h):016x}" for h in other] == SECOND


@given(st.lists(st.text(max_size=80), unique=True, min_size=2))
def test_the_two_hashes_of_a_fingerprint_are_independent(texts: list[str]) -> None:
    one, other = fingerprint_columns([pl.Series(texts)], len(texts))
    assert len({*one.tolist(), *other.tolist()}) == 2 * len(texts)


ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=20),
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from([1.5, -1.5, 0.0]),
        st.none() | st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


@given(ROWS)
def test_rows_have_equal_contents_if_and_only_if_their_values_are_equal(
    rows: list[tuple[str | None, int | None, float | None, bool | None]],
) -> None:
    columns = [
        pl.Series(values, dtype=dtype)
        for values, dtype in zip(zip(*rows, strict=True), (pl.String, pl.Int64, pl.Float64, pl.Boolean), strict=True)
    ]
    together = hash_contents(columns, len(rows)).tolist()
    assert len(set(together)) == len(set(rows))
    alone = [hash_contents([column[n : n + 1] for column in columns], 1)[0] for n in range(len(rows))]
    assert together == alone, "whatever rows are beside it"


def test_contents_differ_where_words_could_cancel_each_other() -> None:
    signs = [pl.Series([1.0, -1.0]), pl.Series([2.0, -2.0])]
    moved = [pl.Series(["ab", "a"]), pl.Series(["", "b"])]
    nulls = [pl.Series([None, ""], dtype=pl.String)]
    long = [pl.Series(["x" * 2_000 + "a", "x" * 2_000 + "b"])]
    nested = [pl.Series([{"a": [1, 2]}, {"a": [1, 3]}])]
    for columns in (signs, moved, nulls, long, nested):
        one, other = hash_contents(columns, 2).tolist()
        assert one != other


NUMBERS = [None, 0.0, 1.5, math.inf, -math.inf, math.nan]
TAGS = pa.large_list(pa.struct([(KEY, pa.large_string()), (VALUE, pa.large_list(pa.float64()))]))
NESTED = pa.struct([("n", pa.large_list(pa.float64())), ("s", pa.struct([("t", pa.large_string())])), ("m", TAGS)])
numbers = st.lists(st.sampled_from([*NUMBERS, -0.0]), max_size=3)
nested = st.none() | st.fixed_dictionaries(
    {
        "n": st.none() | numbers,
        "s": st.none() | st.fixed_dictionaries({"t": st.sampled_from([None, "", "a", "b"])}),
        "m": st.none() | st.lists(st.tuples(st.sampled_from("abc"), st.none() | numbers), unique_by=lambda one: one[0]),
    }
)


def plain(value: Any) -> Any:
    """Return the value with equal representations for equal values: maps by key, one NaN, one zero."""
    if isinstance(value, dict):
        return tuple((name, plain(one)) for name, one in sorted(value.items()))
    if isinstance(value, list):
        items = [plain(one) for one in value]
        return ("map", *sorted(items, key=repr)) if any(isinstance(one, tuple) for one in value) else ("array", *items)
    if isinstance(value, tuple):
        return (value[0], plain(value[1]))
    return repr(value + 0.0) if isinstance(value, float) else value


def column(values: Sequence[Any]) -> pa.Array:
    """Return the values as a column, maps as lists of entries."""
    rows = [
        None
        if value is None
        else value | {"m": None if value["m"] is None else [{KEY: k, VALUE: v} for k, v in value["m"]]}
        for value in values
    ]
    return pa.array(rows, NESTED)


@given(st.lists(nested, min_size=1, max_size=12))
def test_nested_contents_are_equal_if_and_only_if_their_values_are(values: list[Any]) -> None:
    together = hash_contents([column(values)], len(values)).tolist()
    wanted = [plain(value) for value in values]
    for one, other in itertools.combinations(range(len(values)), 2):
        assert (together[one] == together[other]) == (wanted[one] == wanted[other])
    assert together == hash_contents([pl.Series(column(values))], len(values)).tolist(), "frames agree with Arrow"
    padded = column([None, values[0], *values, values[-1]])
    assert together == hash_contents([padded[2:-1]], len(values)).tolist(), "whatever rows are beside it"


def test_what_json_does_not_tell_apart_is_another_content_in_nested_values() -> None:
    rows = pl.Series([[one] for one in NUMBERS])
    assert len(set(hash_contents([rows], len(rows)).tolist())) == len(NUMBERS)
    zeros = pl.Series([[0.0], [-0.0]])
    assert len(set(hash_contents([zeros], 2).tolist())) == 1
    maps = pl.Series([[{KEY: "a", VALUE: 1}, {KEY: "b", VALUE: 2}], [{KEY: "b", VALUE: 2}, {KEY: "a", VALUE: 1}]])
    assert len(set(hash_contents([maps], 2).tolist())) == 1
    swapped = pl.Series([[{KEY: "a", VALUE: 1}, {KEY: "b", VALUE: 2}], [{KEY: "a", VALUE: 2}, {KEY: "b", VALUE: 1}]])
    assert len(set(hash_contents([swapped], 2).tolist())) == 2
    orders = pl.Series([[1, 2], [2, 1]])
    assert len(set(hash_contents([orders], 2).tolist())) == 2


def test_the_hash_of_a_content_never_changes() -> None:
    columns = [pl.Series(["", "user-17", "x" * 1_025, None]), pl.Series([0, -1, 2, None], dtype=pl.Int64)]
    assert [f"{int(h):016x}" for h in hash_contents(columns, 4)] == CONTENTS
    value = {"n": [1.5, None], "s": {"t": "a"}, "m": [("b", [math.nan]), ("a", None)]}
    assert [f"{int(h):016x}" for h in hash_contents([column([value, None])], 2)] == NESTED_CONTENTS


NESTED_CONTENTS = ["bcdadd2fad9fc691", "a8180a7a97f11d13"]
SECOND = ["4856b1e6a8522060", "b5300c331a061b19", "5fe011161da21698", "c2fbde3432af31ef", "8fdd14964a1ef521"]


@pytest.mark.parametrize("buckets", [1, 2, 7, 32, 100, 256])
def test_a_bucket_is_the_lower_half_of_the_hash_modulo_their_number(buckets: int) -> None:
    hashes = mix(np.arange(1_000, dtype=np.uint64))
    wanted = [int(one) % 2**32 % buckets for one in hashes]
    assert bucket_for(hashes, buckets).tolist() == wanted
    for bucket in range(0, buckets, 3):
        assert rows_in_bucket(hashes, bucket, buckets).tolist() == [n for n, b in enumerate(wanted) if b == bucket]


CONTENTS = ["155f1b28f6d5ed3f", "1f02068689e8cf62", "f054a990469239bb", "91ccef5752f4f68d"]
