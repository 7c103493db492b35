"""CSV: how a line is decoded, and that the columnar decoder equals the reference on every line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.decode.formats import Csv
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema

MakeFormat = Callable[..., Any]

SCHEMA = StreamSchema.parse(
    {
        "name": "t",
        "event_time": "ts",
        "keys": [[]],
        "zone": "Europe/London",
        "fields": {
            "ts": "timestamp not null",
            "s": "string",
            "n": "long",
            "d": "double",
            "m": "decimal(9,2)",
            "b": "boolean",
        },
    }
)
GOOD = b"1700000000000,a,1,1.5,12.25,true"
FORMATS = [Csv(), Csv(null_values=("NULL", "1")), Csv(("ts", "other", "s", "n", "d", "m", "b"), delimiter=";")]

DEAD: list[tuple[bytes | None, RejectCode]] = [
    (None, RejectCode.NO_VALUE),
    (b"x" * 300_000, RejectCode.TOO_LARGE),
    (b"1,\xff,1,1,1,true", RejectCode.NOT_UTF8),
    (b"1,a\x00b,1,1,1,true", RejectCode.NOT_CSV),
    (b"\xef\xbb\xbf" + GOOD, RejectCode.NOT_CSV),
    (b'1,"a,1,1,1,true', RejectCode.NOT_CSV),
    (b'1,a"b,1,1,1,true', RejectCode.NOT_CSV),
    (b'1,"a"b,1,1,1,true', RejectCode.NOT_CSV),
    (b'1,"a"" ,1,1,1,true', RejectCode.NOT_CSV),
    (b'1, "a",1,1,1,true', RejectCode.NOT_CSV),
    (b"1,a\nb,1,1,1,true", RejectCode.NOT_CSV),
    (GOOD + b"\n" + GOOD, RejectCode.NOT_CSV),
    (GOOD + b"\n\n", RejectCode.NOT_CSV),
    (GOOD + b"\r", RejectCode.NOT_CSV),
    (b"", RejectCode.WRONG_COLUMNS),
    (b"1", RejectCode.WRONG_COLUMNS),
    (GOOD + b",", RejectCode.WRONG_COLUMNS),
    (b"ts,s,n,d,m,b", RejectCode.BAD_TIMESTAMP),
    (b",a,1,1,1,true", RejectCode.MISSING_FIELD),
    (b"1,a,1.0,1,1,true", RejectCode.WRONG_TYPE),
    (b"1,a,01,1,1,true", RejectCode.WRONG_TYPE),
    (b"1,a, 1,1,1,true", RejectCode.WRONG_TYPE),
    (b'1,a,"",1,1,true', RejectCode.WRONG_TYPE),
    (b"1,a,1,NaN,1,true", RejectCode.WRONG_TYPE),
    (b"1,a,1,1,1,True", RejectCode.WRONG_TYPE),
    (b"1,a,9223372036854775808,1,1,true", RejectCode.OUT_OF_RANGE),
    (b"1,a,1,1e999,1,true", RejectCode.OUT_OF_RANGE),
    (b"1,a,1,1,12345678.00,true", RejectCode.OUT_OF_RANGE),
    (b"1,a,1,1,1.005,true", RejectCode.OUT_OF_RANGE),
    (b"2026-02-30T00:00:00Z,a,1,1,1,true", RejectCode.BAD_TIMESTAMP),
    (b"1800000300001,a,1,1,1,true", RejectCode.FROM_THE_FUTURE),
]

ALIVE: list[tuple[bytes, str, object]] = [
    (GOOD, "m", 1225),
    (GOOD + b"\n", "b", True),
    (GOOD + b"\r\n", "b", True),
    (b"1,,,,,", "s", None),
    (b'1,"",,,,', "s", ""),
    (b"1,,,,,", "n", None),
    (b'1,"a,""b""\r\nc",,,,', "s", 'a,"b"\r\nc'),
    (b"1, a ,,,,", "s", " a "),
    (b'1,a,"7",,,', "n", 7),
    (b"1,a,-0,,,", "n", 0),
    (b"1,a,,-0.0,,", "d", -0.0),
    (b"1,a,,,1e2,", "m", 10000),
    ("1,\u00e9\u2028,,,,".encode(), "s", "\u00e9\u2028"),
    (b"2026-07-31 12:00:00,,,,,", "ts", 1785495600000),  # London is an hour ahead in summer
    (b"2026-07-31T12:00Z,,,,,", "ts", 1785499200000),
]


@pytest.mark.parametrize(("raw", "code"), DEAD, ids=lambda value: str(value)[:50])
@pytest.mark.quick_cases(7)
def test_a_bad_line_is_a_dead_letter_and_affects_no_other_line(
    make_format: MakeFormat, raw: bytes | None, code: RejectCode
) -> None:
    decoded = make_format(SCHEMA, Csv()).agree([GOOD, raw, GOOD])
    assert decoded.dead.column("code").to_pylist() == [code.value]
    assert decoded.dead.column("row").to_pylist() == [1]
    reason = decoded.dead.column("reason")[0].as_py()
    assert 10 < len(reason) < 300
    assert reason.isascii()
    assert reason.isprintable()


@pytest.mark.parametrize(("raw", "field", "value"), ALIVE, ids=lambda value: str(value)[:50])
@pytest.mark.quick_cases(3)
def test_an_unusual_line_decodes_exactly(make_format: MakeFormat, raw: bytes, field: str, value: object) -> None:
    assert make_format(SCHEMA, Csv()).agree([raw]).events.column(field).to_pylist() == [value]


def test_the_reason_for_a_wrong_number_of_columns_has_both_numbers(make_format: MakeFormat) -> None:
    dead = make_format(SCHEMA, Csv()).agree([b"1,2"]).dead.to_pylist()
    assert dead[0]["reason"] == "the record has 2 columns; 6 are needed (ts, s, n, d, m, b)"


def test_null_words_are_null_without_quotes_and_text_inside_quotes(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, Csv(null_values=("NULL", "n/a")))
    decoded = both.agree([b"1,NULL,n/a,,,", b'1,"NULL",1,,,', b'1,"null",1,,,'])
    assert decoded.events.column("s").to_pylist() == [None, "NULL", "null"]
    assert decoded.events.column("n").to_pylist() == [None, 1, 1]


def test_columns_may_be_reordered_and_skipped(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, Csv(("s", "junk", "ts"), delimiter="\t"))
    decoded = both.agree([b'x\tnot "read" at all\t5', b"x\t\xc3\xa9\t5"])
    assert decoded.dead.column("code").to_pylist() == ["not_csv"]
    assert decoded.events.select(["ts", "s", "n"]).to_pylist() == [{"ts": 5, "s": "x", "n": None}]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (Csv(("s", "s", "ts")), "each name once"),
        (Csv(()), "at least one"),
        (Csv(("s",)), "field ts is not null"),
        (Csv(delimiter=",,"), "one ASCII character"),
        (Csv(delimiter='"'), "one ASCII character"),
        (Csv(delimiter="\n"), "one ASCII character"),
        (Csv(delimiter="."), "other than a-z"),
    ],
)
def test_an_invalid_format_is_rejected_when_it_is_built(make_format: MakeFormat, written: Csv, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_format(SCHEMA, written)


cells = st.one_of(
    st.sampled_from(
        ["", '""', '"a"', '"a,b"', '"a""b"', '"\n"', "a", "NULL", '"NULL"', "1", '"1"', "01", "-0", "1.5", "1e3",
         "true", '"true"', "12.25", "1234567.89", "12345678.9", "999999999999999999", "9223372036854775808", "0.1",
         "-0.0",
         "1e308", "1e309", "2026-01-31T12:00:00Z", "2026-02-30T12:00:00Z", "2026-03-29 01:30:00", "\u00e9", " a", '"',
         "2026-01-31T12:00:00.1239+05:30", "253402300800000", "\ufeff", "\r", "\x00", ";", "\t", "#x"]
    ),
    st.floats().map(repr),
    st.integers(-(10**19), 10**19).map(str),
    st.text(max_size=5),
)  # fmt: skip
good_rows = st.tuples(
    st.sampled_from(["1700000000000", "2026-01-31T12:00:00Z", '"2026-07-31 12:00:00.25"', "2026-10-25T01:30:00+05:30"]),
    st.sampled_from(["a", '"a,b"', "", '""']),
    st.integers(-(10**17), 10**17).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-99999, 99999, places=2).map(str),
    st.sampled_from(["true", "false", ""]),
).map(list)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes | None]:
    records: list[bytes | None] = []
    mark = draw(st.sampled_from([",", ";"]))
    for _ in range(draw(st.integers(1, 20))):
        row = draw(good_rows)
        for _ in range(draw(st.integers(0, 2))):
            row[draw(st.integers(0, len(row) - 1))] = draw(cells)
        if mark == ";":
            row.insert(1, draw(cells))
        if draw(st.integers(0, 9)) == 0:
            row = [*row, draw(cells)] if draw(st.booleans()) else row[1:]
        record = (mark.join(row) + draw(st.sampled_from(["", "", "\n", "\r\n"]))).encode()
        if draw(st.integers(0, 9)) == 0:
            cut = draw(st.integers(0, len(record)))
            record = record[:cut] + draw(st.binary(max_size=3)) + record[cut + draw(st.integers(0, 2)) :]
        records.append(record)
    return records


def test_ordinary_lines_take_the_columnar_path(make_format: MakeFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    both = make_format(SCHEMA, Csv(null_values=("NULL",)))
    monkeypatch.setattr(both.fast, "_decode_one", None)
    lines = [GOOD, GOOD + b"\r\n", b'1,"a,b",-5,1e3,"12.5",false', b"2026-01-31T12:00:00.5Z,NULL,,,,", b'5,"",,,,']
    assert both.fast.decode(both.batch(lines)).events.num_rows == len(lines)


@settings(max_examples=200, deadline=None)
@given(records=batches(), written=st.sampled_from(FORMATS))
def test_the_columnar_decoder_equals_the_reference(
    make_format: MakeFormat, records: list[bytes | None], written: Csv
) -> None:
    make_format(SCHEMA, written).agree(records)


@settings(max_examples=200, deadline=None)
@given(records=st.lists(st.one_of(st.none(), st.binary(max_size=60), st.text().map(str.encode)), max_size=20))
def test_no_bytes_make_the_decoder_raise(make_format: MakeFormat, records: list[bytes | None]) -> None:
    make_format(SCHEMA, FORMATS[0]).agree(records)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=20)
)
def test_lines_of_the_csv_module_read_back(make_format: MakeFormat, rows: list[str]) -> None:
    records = []
    for text in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(["1", text])
        records.append(line.getvalue().encode())
    decoded = make_format(SCHEMA, Csv(("ts", "s"))).agree(records)
    assert decoded.events.column("s").to_pylist() == rows


def test_a_single_column_decodes(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, Csv(("ts",)))
    assert both.agree([b"1", b"", b'"2"', b"\n", b" "]).events.column("ts").to_pylist() == [1, 2]


@pytest.mark.slow
def test_a_record_of_twenty_megabytes_is_one_dead_letter(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, Csv(), limits=DecodeLimits())
    decoded = both.agree([GOOD, b"," * 20_000_000, GOOD])
    assert decoded.dead.column("code").to_pylist() == ["too_large"]
    assert decoded.events.num_rows == 2
