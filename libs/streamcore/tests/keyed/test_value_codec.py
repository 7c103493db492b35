"""The binary form of plain values: they read back with their type; all other values are rejected."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import CorruptState
from streamcore.keyed.value_codec import ValueTypeMismatch, check_value, decode, encode

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(),
    st.decimals(),
    st.text(),
    st.binary(max_size=300),
    st.datetimes(timezones=st.just(UTC), min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=200).map(tuple), max_leaves=20)


def describe(value: object) -> object:
    """Return a text that is equal only for the same value of the same type and digits; NaN equals itself."""
    return tuple(describe(item) for item in value) if isinstance(value, tuple) else (type(value), repr(value))


@given(values)
def test_a_plain_value_reads_back_with_its_type_and_digits(value: object) -> None:
    assert describe(decode(encode(check_value(value)))) == describe(check_value(value))


@given(values)
def test_check_value_changes_nothing_but_the_zone_of_a_time(value: object) -> None:
    if not isinstance(value, datetime | tuple):
        assert describe(check_value(value)) == describe(value)


def test_an_instant_is_stored_in_utc() -> None:
    summer = datetime(2024, 7, 1, 12, 0, 0, 5, tzinfo=ZoneInfo("Europe/Paris"))
    assert decode(encode(check_value(summer))) == summer
    assert repr(check_value(summer.astimezone(timezone(timedelta(hours=5))))) == repr(
        decode(encode(check_value(summer)))
    )


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("value", [[1], {}, set(), object(), Text("a"), (1, [2]), datetime(2024, 1, 1), "\udc00"])
def test_a_value_that_would_not_read_back_is_rejected(value: object) -> None:
    with pytest.raises(ValueTypeMismatch):
        check_value(value)


@given(values, st.integers(0, 400), st.integers(1, 255))
def test_truncated_or_foreign_bytes_decode_to_corrupt_state_or_another_value(value: object, at: int, by: int) -> None:
    blob = encode(check_value(value))
    with pytest.raises(CorruptState):
        decode(blob[:-1])
    with pytest.raises(CorruptState):
        decode(blob + b"N")
    changed = bytearray(blob)
    changed[at % len(blob)] ^= by
    with contextlib.suppress(CorruptState):
        decode(bytes(changed))
