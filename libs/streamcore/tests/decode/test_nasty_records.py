"""What a stream accepts, record by record: the table that both decoders must satisfy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode

GOOD = b'"id":"x","ts":1700000000000'


def record(*pairs: str) -> bytes:
    """Return a record with the required fields and these pairs."""
    return b"{" + b",".join([GOOD, *(pair.encode() for pair in pairs)]) + b"}"


DEAD: list[tuple[bytes | None, RejectCode]] = [
    (None, RejectCode.NO_VALUE),
    (b"x" * 300_000, RejectCode.TOO_LARGE),
    (b"\xff\xfe", RejectCode.NOT_UTF8),
    (b'{"id":"\xc3"}', RejectCode.NOT_UTF8),
    (b'{"id":"\xed\xa0\x80","ts":1700000000000}', RejectCode.NOT_UTF8),  # a surrogate encoded as if it were a character
    (record(r'"s":"\ud800"'), RejectCode.NOT_UTF8),
    (record(r'"s":"\udc00\ud800"'), RejectCode.NOT_UTF8),
    (record(r'"s":["\ud800"]'), RejectCode.NOT_UTF8),
    (b"", RejectCode.NOT_JSON),
    (b" ", RejectCode.NOT_JSON),
    (b"\x00", RejectCode.NOT_JSON),
    (b"{", RejectCode.NOT_JSON),
    (record()[:-1], RejectCode.NOT_JSON),
    (record() + b"x", RejectCode.NOT_JSON),
    (record() + record(), RejectCode.NOT_JSON),
    (record() + b"\n" + record(), RejectCode.NOT_JSON),
    (b"\xef\xbb\xbf" + record(), RejectCode.NOT_JSON),
    (record('"d":NaN'), RejectCode.NOT_JSON),
    (record('"d":Infinity'), RejectCode.NOT_JSON),
    (record('"d":-Infinity'), RejectCode.NOT_JSON),
    (record('"n":01'), RejectCode.NOT_JSON),
    (record('"n":+1'), RejectCode.NOT_JSON),
    (record('"n":0x10'), RejectCode.NOT_JSON),
    (record('"d":1.'), RejectCode.NOT_JSON),
    (record('"d":.5'), RejectCode.NOT_JSON),
    (record("'s':'x'"), RejectCode.NOT_JSON),
    (record('"s":"a\nb"'), RejectCode.NOT_JSON),  # a raw line feed inside a text
    (record('"s":"\x00"'), RejectCode.NOT_JSON),
    (record('"s":"x",'), RejectCode.NOT_JSON),
    (record('"s":"\\x"'), RejectCode.NOT_JSON),
    (record('"s":True'), RejectCode.NOT_JSON),
    (record("// note"), RejectCode.NOT_JSON),
    (b"[" * 100_000, RejectCode.TOO_DEEP),
    (record('"s":' + "[" * 40 + "]" * 40), RejectCode.TOO_DEEP),
    (b"null", RejectCode.NOT_AN_OBJECT),
    (b"17", RejectCode.NOT_AN_OBJECT),
    (b'"text"', RejectCode.NOT_AN_OBJECT),
    (b"[" + record() + b"]", RejectCode.NOT_AN_OBJECT),
    (record('"s":"a"', '"s":"a"'), RejectCode.DUPLICATE_FIELD),
    (record('"s":null', '"s":"a"'), RejectCode.DUPLICATE_FIELD),
    (record('"ts":1700000000000'), RejectCode.DUPLICATE_FIELD),
    (record(r'"s":"a"', r'"\u0073":"b"'), RejectCode.DUPLICATE_FIELD),
    (record('"other":1'), RejectCode.EXTRA_FIELD),
    (record('"S":"x"'), RejectCode.EXTRA_FIELD),
    (record('"__offset":1'), RejectCode.EXTRA_FIELD),
    (b"{}", RejectCode.MISSING_FIELD),
    (b'{"id":"x"}', RejectCode.MISSING_FIELD),
    (b'{"id":null,"ts":1700000000000}', RejectCode.MISSING_FIELD),
    (record('"s":5'), RejectCode.WRONG_TYPE),
    (record('"s":true'), RejectCode.WRONG_TYPE),
    (record('"s":{}'), RejectCode.WRONG_TYPE),
    (record('"s":["x"]'), RejectCode.WRONG_TYPE),
    (record('"b":"true"'), RejectCode.WRONG_TYPE),
    (record('"b":1'), RejectCode.WRONG_TYPE),
    (record('"n":"5"'), RejectCode.WRONG_TYPE),
    (record('"n":1.0'), RejectCode.WRONG_TYPE),
    (record('"n":1e3'), RejectCode.WRONG_TYPE),
    (record('"n":true'), RejectCode.WRONG_TYPE),
    (record('"d":"1.5"'), RejectCode.WRONG_TYPE),
    (record('"m":"12,5"'), RejectCode.WRONG_TYPE),
    (record('"m":" 12.5"'), RejectCode.WRONG_TYPE),
    (record('"m":"+1"'), RejectCode.WRONG_TYPE),
    (record('"m":"NaN"'), RejectCode.WRONG_TYPE),
    (record('"m":"Infinity"'), RejectCode.WRONG_TYPE),
    (record('"m":"1_000"'), RejectCode.WRONG_TYPE),
    (record('"m":""'), RejectCode.WRONG_TYPE),
    (record('"m":"\u0661"'), RejectCode.WRONG_TYPE),  # an Arabic one
    (record('"m":false'), RejectCode.WRONG_TYPE),
    (record('"u":1700000000000.0'), RejectCode.WRONG_TYPE),
    (record('"u":1.7e12'), RejectCode.WRONG_TYPE),
    (record('"u":true'), RejectCode.WRONG_TYPE),
    (record('"n":9223372036854775808'), RejectCode.OUT_OF_RANGE),
    (record('"n":-9223372036854775809'), RejectCode.OUT_OF_RANGE),
    (record('"n":' + "9" * 5000), RejectCode.OUT_OF_RANGE),
    (record('"d":1e999'), RejectCode.OUT_OF_RANGE),
    (record('"m":1.005'), RejectCode.OUT_OF_RANGE),
    (record('"m":"1.005"'), RejectCode.OUT_OF_RANGE),
    (record('"m":10000000000000000'), RejectCode.OUT_OF_RANGE),
    (record('"m":1e16'), RejectCode.OUT_OF_RANGE),
    (record('"m":1e-3'), RejectCode.OUT_OF_RANGE),
    (record('"m":1e999999999999999999999'), RejectCode.OUT_OF_RANGE),
    (record('"m":1e-999999999999999999999'), RejectCode.OUT_OF_RANGE),
    (record('"r":1'), RejectCode.OUT_OF_RANGE),
    (record('"r":0.12345'), RejectCode.OUT_OF_RANGE),
    (record('"u":-1'), RejectCode.OUT_OF_RANGE),
    (record('"u":253402300800000'), RejectCode.OUT_OF_RANGE),
    (record('"u":' + "9" * 5000), RejectCode.OUT_OF_RANGE),
    (record('"u":"1969-12-31T23:59:59Z"'), RejectCode.OUT_OF_RANGE),
    (record('"u":"1970-01-01T00:00:00+01:00"'), RejectCode.OUT_OF_RANGE),
    (record('"u":"9999-12-31T23:59:59-01:00"'), RejectCode.OUT_OF_RANGE),
    (record('"u":"0001-01-01T00:00:00"'), RejectCode.OUT_OF_RANGE),
    (record('"u":""'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"1700000000000"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-02-30T00:00:00"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31T24:00:00"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-06-30T23:59:60Z"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31T12:00:00.Z"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31T12:00.5Z"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31T12:00:00+24:00"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31T12:00:00 Europe/London"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31t12:00:00z"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"0000-01-31T12:00:00Z"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":" 2026-01-31T12:00:00Z"'), RejectCode.BAD_TIMESTAMP),
    (record('"u":"2026-01-31T12:00:00Z\\n"'), RejectCode.BAD_TIMESTAMP),
    (b'{"id":"x","ts":1800000300001}', RejectCode.FROM_THE_FUTURE),
    (b'{"id":"x","ts":"2099-01-01T00:00:00Z"}', RejectCode.FROM_THE_FUTURE),
    (b'{"id":"x","ts":253402300799999}', RejectCode.FROM_THE_FUTURE),
]

ALIVE: list[tuple[bytes, str, object]] = [
    (record(), "s", None),
    (record('"s":null'), "s", None),
    (b" \t\r\n" + record() + b" \t\r\n", "id", "x"),
    (record('"s":"x"').replace(b",", b" ,\n\t").replace(b":", b" : "), "s", "x"),
    (record('"s":""'), "s", ""),
    (record('"s":"null"'), "s", "null"),
    (record('"s":"a, b: {c}"'), "s", "a, b: {c}"),
    (record(r'"s":"\u0000"'), "s", "\0"),
    (record(r'"s":"\ud83d\ude00\n\u00e9\/\"\\"'), "s", '\U0001f600\n\xe9/"\\'),
    (record(r'"s":"\\ud800"'), "s", r"\ud800"),
    (record('"s":"\u2028\x7f\U0001f600"'), "s", "\u2028\x7f\U0001f600"),
    (record(r'"\u0073":"escaped name"'), "s", "escaped name"),
    (record('"b":true'), "b", True),
    (record('"n":9223372036854775807'), "n", 2**63 - 1),
    (record('"n":-9223372036854775808'), "n", -(2**63)),
    (record('"n":999999999999999999'), "n", 10**18 - 1),
    (record('"n":-0'), "n", 0),
    (record('"d":5'), "d", 5.0),
    (record('"d":-0'), "d", -0.0),
    (record('"d":-0.0'), "d", -0.0),
    (record('"d":1e3'), "d", 1000.0),
    (record('"d":1e-999'), "d", 0.0),
    (record('"d":9007199254740993'), "d", 9007199254740992.0),
    (record('"d":0.1'), "d", 0.1),
    (record('"m":12.5'), "m", 1250),
    (record('"m":-0.00'), "m", 0),
    (record('"m":1.500'), "m", 150),
    (record('"m":1.5e2'), "m", 15000),
    (record('"m":0e999999999'), "m", 0),
    (record('"m":9999999999999.99'), "m", 999999999999999),
    (record('"m":9999999999999999.99'), "m", 999999999999999999),
    (record('"m":-1234567890123456.78'), "m", -123456789012345678),
    (record('"m":"1234567890123456.78"'), "m", 123456789012345678),
    (record('"m":"12.5"'), "m", 1250),
    (record('"r":0.1234'), "r", 1234),
    (record('"r":"-0.0001"'), "r", -1),
    (record('"u":0'), "u", 0),
    (record('"u":253402300799999'), "u", 253402300799999),
    (record('"u":"1970-01-01T00:00:00Z"'), "u", 0),
    (record('"u":"2026-01-31T12:00Z"'), "u", 1769860800000),
    (record('"u":"2026-01-31 12:00:00"'), "u", 1769860800000),  # London is on UTC in winter
    (record('"u":"2026-07-31T12:00:00"'), "u", 1785495600000),  # and an hour ahead in summer
    (record('"u":"2026-01-31T12:00:00.1239Z"'), "u", 1769860800123),
    (record('"u":"2026-01-31T12:00:00.123456789Z"'), "u", 1769860800123),
    (record('"u":"2026-01-31T12:00:00.5+05:30"'), "u", 1769841000500),
    (record('"u":"2026-01-31T12:00:00-0530"'), "u", 1769880600000),
    (record('"u":"2026-01-31T12:00:00+00"'), "u", 1769860800000),
    (b'{"id":"x","ts":1800000300000}', "ts", 1_800_000_300_000),  # exactly as far ahead as is allowed
]


@pytest.mark.parametrize(("raw", "code"), DEAD, ids=lambda value: str(value)[:50])
@pytest.mark.quick_cases(27)
def test_a_bad_record_is_a_dead_letter_with_its_code_and_a_reason(
    make_both: Callable[..., Any], raw: bytes | None, code: RejectCode
) -> None:
    dead = make_both().agree([raw]).dead.to_pylist()
    assert [row["code"] for row in dead] == [code.value]
    assert 10 < len(dead[0]["reason"]) < 300
    assert dead[0]["reason"].isascii()
    assert dead[0]["reason"].isprintable()


@pytest.mark.parametrize(("raw", "field", "value"), ALIVE, ids=lambda value: str(value)[:50])
def test_an_unusual_record_decodes_exactly(
    make_both: Callable[..., Any], raw: bytes, field: str, value: object
) -> None:
    assert make_both().agree([raw]).events.column(field).to_pylist() == [value]


def test_one_bad_record_affects_no_other_record(make_both: Callable[..., Any]) -> None:
    mixed: list[bytes | None] = []
    for raw, _ in DEAD:
        mixed += [record('"s":"before"'), raw, record('"s":"after"')]
    decoded = make_both().agree(mixed)
    assert decoded.dead.num_rows == len(DEAD)
    assert decoded.events.num_rows == 2 * len(DEAD)


def test_a_reason_names_the_field_the_found_value_and_the_accepted_ones(make_both: Callable[..., Any]) -> None:
    dead = make_both().agree([record('"m":"12,5"'), b'{"id":"x","ts":4070908800000}']).dead.to_pylist()
    assert dead[0]["reason"] == (
        'field m: found the text "12,5"; accepted is a number, or a number as text, of at most 16 digits before and'
        " 2 after the point (decimal(18,2))"
    )
    assert dead[1]["reason"] == (
        "field ts: 2099-01-01T00:00:00.000Z is 2270908800 s ahead of the clock (2027-01-15T08:00:00.000Z); at most"
        " 300 s are accepted"
    )


def test_limits_are_settings(make_both: Callable[..., Any]) -> None:
    both = make_both(limits=DecodeLimits(max_record_bytes=40, max_future_ms=0, max_depth=1))
    codes = both.agree(
        [record(), record('"s":"0123456789"'), b'{"id":"x","ts":1800000000001}', b'{"id":["x"]}']
    ).dead.column("code")
    assert codes.to_pylist() == ["too_large", "from_the_future", "too_deep"]


def test_extra_fields_of_any_content_can_be_ignored(make_both: Callable[..., Any]) -> None:
    both = make_both(extra_fields=ExtraFields.IGNORE)
    extras = ['"x":1', '"x":{"s":[1,{"id":null}]}', '"x":1,"x":2', '"S":"y"', r'"\u00e9":"\ud83d\ude00"']
    decoded = both.agree([record('"s":"x"', extra) for extra in extras])
    assert decoded.events.column("s").to_pylist() == ["x"] * len(extras)


def test_an_ignored_field_must_be_valid_json_and_a_declared_one_unique(make_both: Callable[..., Any]) -> None:
    both = make_both(extra_fields=ExtraFields.IGNORE)
    records = [record('"x":NaN'), record(r'"x":"\ud800"'), record('"x":1', '"s":"a"', '"s":"b"')]
    assert both.agree(records).dead.column("code").to_pylist() == ["not_json", "not_utf8", "duplicate_field"]


def test_an_empty_batch_gives_two_empty_tables(make_both: Callable[..., Any]) -> None:
    decoded = make_both().agree([])
    assert (decoded.events.num_rows, decoded.dead.num_rows) == (0, 0)
