"""Rows on their way to a lane: the columnar form equals the records one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.wire.lane_codec import decode_records, encode_records
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import Record

_SCHEMA = {
    "text": pl.String(),
    "number": pl.Int64(),
    "real": pl.Float64(),
    "flag": pl.Boolean(),
    "money": pl.Decimal(18, 2),
    "at": pl.Datetime("ms", "UTC"),
    "__event_ms": pl.Int64(),
}
_times = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
)
_rows = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(codec="utf-8"), max_size=8),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.booleans(),
        st.none() | st.integers(-(10**17), 10**17).map(lambda cents: Decimal(cents).scaleb(-2)),
        st.none() | _times,
        st.just(7),
    ),
    max_size=6,
)


def _frame(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


@settings(max_examples=100, deadline=None)
@given(_rows, st.sampled_from([(), ("text",), ("number",), ("text", "number")]))
def test_a_batch_equals_its_records_one_by_one(rows: list[tuple[object, ...]], key: tuple[str, ...]) -> None:
    lane = LaneRows("results", key, _frame(rows))
    first = Record("deadletters", None, b"{}", (("reason", b"no"),))
    assert list(decode_records(encode_records([first], [lane.batch()]))) == [first, *lane.records()]


@settings(max_examples=100, deadline=None)
@given(_rows)
def test_a_value_has_the_contents_of_the_row(rows: list[tuple[object, ...]]) -> None:
    for row, value in zip(rows, LaneRows("results", (), _frame(rows)).values(), strict=True):
        document = orjson.loads(value)
        assert [*document] == [name for name in _SCHEMA if name != "__event_ms"], "internal columns are left out"
        text, number, real, flag, money, at = document.values()
        assert (text, number, real, flag) == row[:4]
        assert (None if money is None else Decimal(money)) == row[4]
        assert (None if at is None else datetime.fromisoformat(at)) == row[5]


@pytest.mark.parametrize(
    ("key", "wanted"),
    [((), None), (("text",), b"a"), (("number",), b"1"), (("text", "number"), b'["a",1]'), (("flag",), None)],
)
def test_the_key_is_text_or_an_array_of_several_columns(key: tuple[str, ...], wanted: bytes | None) -> None:
    assert LaneRows("results", key, _frame([("a", 1, 0.5, None, None, None, 7)])).keys() == [wanted]


def test_rows_without_columns_of_their_own_are_empty_objects() -> None:
    assert LaneRows("out", (), pl.DataFrame({"__event_ms": [1, 2]})).values() == [b"{}", b"{}"]
    assert LaneRows("out", (), pl.DataFrame()).values() == []
