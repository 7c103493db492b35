"""The records of the rows of a file: names, values and keys, and no row is lost."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import InputError
from headgate.records.file_rows import count_rows, open_parquet, read_rows, snake_case
from headgate.records.stream_files import load_stream
from streamcore.schema import StreamSchema

RETAIL = load_stream("retail")
SMALL = StreamSchema.parse(
    {
        "name": "small",
        "event_time": "ts",
        "keys": [["user", "country"], ["country"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string",
            "country": "string",
            "count": "long",
            "price": "decimal(18,4)",
            "ratio": "double",
        },
    }
)


def parquet(path: Path, **columns: pa.Array) -> Path:
    file = path / "rows.parquet"
    pq.write_table(pa.table(columns), file)
    return file


def lines(path: Path, *texts: bytes) -> Path:
    file = path / "rows.jsonl"
    file.write_bytes(b"\n".join(texts) + b"\n")
    return file


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("InvoiceNo", "invoice_no"),
        ("CustomerID", "customer_id"),
        ("Unit Price", "unit_price"),
        ("HTTPStatus", "http_status"),
        ("already_there", "already_there"),
    ],
)
def test_column_names_become_field_names(column: str, field: str) -> None:
    assert snake_case(column) == field


def test_an_invoice_line_has_the_fields_that_its_stream_declares(tmp_path: Path) -> None:
    file = parquet(
        tmp_path,
        InvoiceNo=pa.array(["536365"], pa.large_string()),
        StockCode=pa.array(["85123A"]),
        Quantity=pa.array([6.0]),
        InvoiceDate=pa.array([datetime.datetime(2010, 12, 1, 8, 26)], pa.timestamp("us")),
        UnitPrice=pa.array([2.55]),
        CustomerID=pa.array([17850.0]),
    )
    [row] = read_rows(file, RETAIL)
    assert row.value == (
        b'{"invoice_no":"536365","stock_code":"85123A","quantity":6,"invoice_date":"2010-12-01T08:26:00",'
        b'"unit_price":2.55,"customer_id":17850}'
    )
    assert row.key == b"17850"


def test_a_row_without_a_key_value_has_no_key(tmp_path: Path) -> None:
    when = pa.array([datetime.datetime(2020, 1, 1)] * 2, pa.timestamp("ms"))
    file = parquet(tmp_path, InvoiceDate=when, CustomerID=pa.array([None, float("nan")], pa.float64()))
    assert [row.key for row in read_rows(file, RETAIL)] == [None, None]
    assert [json.loads(row.value)["customer_id"] for row in read_rows(file, RETAIL)] == [None, None]


@pytest.mark.parametrize("constant", [b"NaN", b"Infinity", b"-Infinity"])
def test_nan_and_infinities_of_a_json_line_become_null_at_any_depth(tmp_path: Path, constant: bytes) -> None:
    file = lines(
        tmp_path,
        b'{"ts":1,"ratio":' + constant + b"}",
        b'{"ts":1,"a":[' + constant + b',{"b":' + constant + b"}]}",
        b'{"ts":1,"a":[' + constant + b'],"n":' + b"9" * 30 + b"}",
    )
    assert [orjson.loads(row.value) for row in read_rows(file, SMALL)][:2] == [
        {"ts": 1, "ratio": None},
        {"ts": 1, "a": [None, {"b": None}]},
    ]
    assert list(read_rows(file, SMALL))[2].value == b'{"ts":1,"a":[null],"n":' + b"9" * 30 + b"}"


def test_a_key_of_several_fields_contains_them_all(tmp_path: Path) -> None:
    file = lines(tmp_path, b'{"ts":1,"user":"u","country":"DE"}', b'{"ts":1,"user":"u"}')
    assert [row.key for row in read_rows(file, SMALL)] == [b'["u","DE"]', None]
    assert [row.key for row in read_rows(file, SMALL, ["user"])] == [b"u", b"u"]


def test_a_key_that_is_not_a_field_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shoe_size"):
        read_rows(lines(tmp_path, b"{}"), SMALL, ["shoe_size"])


def test_a_fraction_in_a_field_of_whole_numbers_is_sent_unchanged(tmp_path: Path) -> None:
    when = pa.array([1], pa.int64())
    [row] = read_rows(parquet(tmp_path, ts=when, count=pa.array([1.5])), SMALL)
    assert json.loads(row.value)["count"] == 1.5


def test_decimals_keep_every_digit(tmp_path: Path) -> None:
    price = decimal.Decimal("12345678901234.5678")
    file = parquet(tmp_path, ts=pa.array([1]), price=pa.array([price], pa.decimal128(18, 4)))
    [row] = read_rows(file, SMALL)
    assert b'"price":12345678901234.5678' in row.value


def test_a_time_zone_in_the_file_is_kept_and_a_missing_one_is_not_added(tmp_path: Path) -> None:
    when = [datetime.datetime(2020, 7, 1, 12)]
    [naive] = read_rows(parquet(tmp_path, ts=pa.array(when, pa.timestamp("ns"))), SMALL)
    [zoned] = read_rows(parquet(tmp_path, ts=pa.array(when, pa.timestamp("us", "UTC"))), SMALL)
    assert json.loads(naive.value)["ts"] == "2020-07-01T12:00:00"
    assert json.loads(zoned.value)["ts"] == "2020-07-01T12:00:00+00:00"


def test_a_column_without_a_field_is_sent_under_its_own_name(tmp_path: Path) -> None:
    [row] = read_rows(parquet(tmp_path, ts=pa.array([1]), LoyaltyTier=pa.array(["gold"])), SMALL)
    assert json.loads(row.value)["LoyaltyTier"] == "gold"


def test_two_columns_of_one_field_are_rejected(tmp_path: Path) -> None:
    file = parquet(tmp_path, ts=pa.array([1]), Count=pa.array([1]), count=pa.array([2]))
    with pytest.raises(InputError, match="several columns are count"):
        list(read_rows(file, SMALL))


def test_a_file_of_another_stream_is_rejected_with_its_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shoe"):
        list(read_rows(parquet(tmp_path, shoe=pa.array([1])), SMALL))


def test_a_file_that_is_not_parquet_is_rejected(tmp_path: Path) -> None:
    broken = tmp_path / "rows.parquet"
    broken.write_bytes(b"PAR1 but not really")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        list(read_rows(broken, SMALL))


def test_json_lines_in_place_of_parquet_are_rejected_with_the_way_to_convert_them(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(
        InputError, match=r"only Parquet is read here; convert JSON lines: python -c \"(.*)\"$"
    ) as caught:
        open_parquet(file)
    exec(str(caught.value).split('"')[1])  # the advice does what it says
    assert open_parquet(tmp_path / "rows.parquet").metadata.num_rows == 2


def test_an_unknown_kind_of_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="convert it first"):
        count_rows(tmp_path / "rows.csv")


def test_a_line_that_needs_no_change_is_sent_byte_for_byte(tmp_path: Path) -> None:
    text = b'{ "ts": 1, "price": 1.10, "ratio": 0.1000000000000000055 }'
    [row] = read_rows(lines(tmp_path, text), SMALL)
    assert row.value == text


def test_a_rewritten_line_keeps_the_digits_of_its_numbers(tmp_path: Path) -> None:
    [row] = read_rows(lines(tmp_path, b'{"Ts":1,"count":3.0,"price":1.10}'), SMALL)
    assert row.value == b'{"ts":1,"count":3,"price":1.10}'


@pytest.mark.parametrize("text", [b"{not json", b"[1,2]", b'"text"', b"\xff\xfe", b"[" * 100_000])
def test_a_line_that_is_no_json_object_is_sent_unchanged(tmp_path: Path, text: bytes) -> None:
    [row] = read_rows(lines(tmp_path, text), SMALL)
    assert (row.value, row.key, row.time_ms) == (text, None, None)


def test_a_line_whose_names_collide_is_sent_unchanged(tmp_path: Path) -> None:
    text = b'{"ts":1,"Count":1,"count":2}'
    assert [row.value for row in read_rows(lines(tmp_path, text), SMALL)] == [text]


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["ts", "Ts", "user", "count", "price", "ratio", "other"]),
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
        ),
        max_size=20,
    )
)
def test_every_line_becomes_one_json_record(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    file = lines(tmp_path_factory.mktemp("rows"), *(json.dumps(row).encode() for row in rows))
    read = list(read_rows(file, SMALL))
    assert len(read) == len(rows)
    for row, original in zip(read, rows, strict=True):
        assert len(json.loads(row.value)) == len(original)


@given(st.lists(st.floats(), min_size=1, max_size=50))
def test_every_double_of_a_parquet_file_survives_or_is_null(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float]
) -> None:
    file = parquet(
        tmp_path_factory.mktemp("rows"),
        ts=pa.array(range(len(numbers))),
        count=pa.array(numbers, pa.float64()),
        ratio=pa.array(numbers, pa.float64()),
    )
    for row, number in zip(read_rows(file, SMALL), numbers, strict=True):
        value = orjson.loads(row.value)
        expected = number if abs(number) < float("inf") else None
        assert value["ratio"] == expected
        assert value["count"] == expected
