"""The functions of texts and times give what Python's standard library and DuckDB give, where they mean the same."""

from __future__ import annotations

import base64
import calendar
import hashlib
import hmac
import ipaddress
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlsplit
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.errors import ExpressionError
from rulecore.language import Scope, evaluate, fingerprint, parse, render
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.physical import to_logical
from streamcore.errors import ConfigError
from streamcore.schema import LONG, STRING, TIMESTAMP

TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=12), min_size=1, max_size=5)
TIMES = st.lists(st.integers(-60_000_000_000_000, 253_000_000_000_000), min_size=1, max_size=5)
SCOPE = Scope({"s": STRING, "n": LONG, "at": TIMESTAMP})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def column(text: str, values: list[Any], name: str = "s", scope: Scope = SCOPE) -> list[Any]:
    """Return the values of an expression over a column, which the reference gives as well."""
    tree = parse(text, scope, expect=None)
    kind = pl.String if name == "s" else pl.Int64
    found = pl.DataFrame({name: pl.Series(values, dtype=kind)}).select(to_polars(tree).alias("x"))["x"].to_list()
    assert found == [evaluate(tree, {name: value}) for value in values]
    return found


@settings(max_examples=80, deadline=None)
@given(TEXTS)
def test_digests_and_encodings_are_those_of_the_standard_library(texts: list[str]) -> None:
    for name in ("md5", "sha1", "sha256"):
        assert column(f"{name}(s)", texts) == [hashlib.new(name, t.encode()).hexdigest() for t in texts]
    assert column("sha2(s, 512)", texts) == [hashlib.sha512(t.encode()).hexdigest() for t in texts]
    assert column("base64(s)", texts) == [base64.b64encode(t.encode()).decode() for t in texts]
    assert column("unbase64(base64(s))", texts) == texts
    assert column("url_decode(url_encode(s))", texts) == texts
    quoted = [quote_plus(t, safe="*").replace("~", "%7E") for t in texts]
    assert column("url_encode(s)", texts) == quoted


@settings(max_examples=80, deadline=None)
@given(TIMES, st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]))
def test_times_are_written_and_read_as_datetime_does(times: list[int], zone: str) -> None:
    moments = [(EPOCH + timedelta(milliseconds=ms)).astimezone(ZoneInfo(zone)) for ms in times]
    known = [zone == "UTC" or 1900 <= (EPOCH + timedelta(milliseconds=ms)).year <= 2099 for ms in times]
    pattern = "dd/MMM/yyyy:HH:mm:ss.SSS Z"
    written = column(f"date_format(at, '{pattern}', '{zone}')", times, "at")
    for found, moment, is_known in zip(written, moments, known, strict=True):
        if is_known and (moment.utcoffset() or timedelta()) % timedelta(minutes=1) == timedelta():
            head = f"{moment:%d}/{calendar.month_abbr[moment.month]}/{moment.year:04d}:{moment:%H:%M:%S}"
            assert found == f"{head}.{moment.microsecond // 1000:03d} {moment:%z}"
    whole = [(moment.utcoffset() or timedelta()) % timedelta(minutes=1) == timedelta() for moment in moments]
    texts = [text for text, is_whole in zip(written, whole, strict=True) if text is not None and is_whole]
    back = [datetime.strptime(t, "%d/%b/%Y:%H:%M:%S.%f %z") for t in texts]
    assert column(f"to_timestamp(s, '{pattern}')", texts) == [(m - EPOCH) // timedelta(milliseconds=1) for m in back]


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4_000_000_000), st.sampled_from(ZONES)), min_size=1, max_size=6))
def test_times_that_name_their_zone_are_read_as_zoneinfo_does(times: list[tuple[int, str]]) -> None:
    local = [datetime.fromtimestamp(second, ZoneInfo(zone)) for second, zone in times]
    texts = [f"{one:%Y-%m-%d %H:%M:%S} {zone}" for one, (_, zone) in zip(local, times, strict=True)]
    first = [one.replace(fold=0).timestamp() * 1000 for one in local]  # a time that exists twice is the earlier one
    assert column("to_timestamp(s, 'yyyy-MM-dd HH:mm:ss VV')", texts) == first
    assert column("to_timestamp(s, 'yyyy-MM-dd HH:mm:ss[ zzz]')", texts) == first
    sure = [f"{f'{one:%Y-%m-%d %H:%M:%S%z}'[:22]}:{f'{one:%z}'[3:5]} {zone}"
            for one, (_, zone) in zip(local, times, strict=True)]  # fmt: skip
    assert column("to_timestamp(s, 'yyyy-MM-dd HH:mm:ssxxx VV')", sure) == [second * 1000 for second, _ in times]


@settings(max_examples=60, deadline=None)
@given(TIMES, st.sampled_from(ZONES[1:3]))
def test_zones_are_written_as_zoneinfo_names_them(times: list[int], zone: str) -> None:
    recent = [ms % 4_000_000_000_000 for ms in times]
    local = [datetime.fromtimestamp(ms // 1000, ZoneInfo(zone)) for ms in recent]
    assert column(f"date_format(at, 'zzz', '{zone}')", recent, "at") == [one.tzname() for one in local]
    assert column(f"date_format(at, 'yy[ VV]', '{zone}')", recent, "at") == [f"{one:%y} {zone}" for one in local]


@settings(max_examples=60, deadline=None)
@given(TIMES, st.sampled_from([10, 16, 19, 23]))
def test_optional_parts_of_a_time_may_be_missing(times: list[int], length: int) -> None:
    moments = [EPOCH + timedelta(milliseconds=ms) for ms in times]
    texts = [f"{m.year:04d}{m:-%m-%d %H:%M:%S}.{m.microsecond // 1000:03d}"[:length] for m in moments]
    unit = {10: 86_400_000, 16: 60_000, 19: 1_000, 23: 1}[length]
    wrong = ["", "2026-01-05 ", "2026-01-05 10:17:", "2026-01-05 10:17:01.5"]
    found = column("to_timestamp(s, 'yyyy-MM-dd[ HH:mm[:ss[.SSS]]]')", [*texts, *wrong])
    assert found == [*(ms // unit * unit for ms in times), *[None] * len(wrong)]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("text", "pattern", "iso"),
    [
        ("05/01/2026 01:05 PM", "dd/MM/yyyy[ hh:mm a]", "2026-01-05T13:05:00Z"),
        ("05/01/2026", "dd/MM/yyyy[ hh:mm a]", "2026-01-05T00:00:00Z"),
        ("2026-07-05 10:17 PDT", "yyyy-MM-dd HH:mm z", "2026-07-05T17:17:00Z"),
        ("2026-07-05 10:17 CET", "yyyy-MM-dd HH:mm z", "2026-07-05T09:17:00Z"),
        ("2026-07-05 10:17 -08:30", "yyyy-MM-dd HH:mm VV", "2026-07-05T18:47:00Z"),
        ("2026-07-05T10:17:00.123456", r"yyyy-MM-dd\'T\'HH:mm:ss[.SSS][.SSSSSS]", "2026-07-05T10:17:00.123Z"),
        ("2026-07-05 10:17 Z", "yyyy-MM-dd HH:mm[ VV][ XXX]", "2026-07-05T10:17:00Z"),
        ("2026-07-05 10:17 localtime", "yyyy-MM-dd HH:mm VV", None),
        ("2026-07-05 10:17 ../etc/passwd", "yyyy-MM-dd HH:mm VV", None),
        ("2026-07-05 10:17 NOPE", "yyyy-MM-dd HH:mm zzz", None),
        ("05 \u017fep 2026", "dd MMM yyyy", None),
        ("05 sEP 2026", "dd MMM yyyy", "2026-09-05T00:00:00Z"),
        ("\u017fun 05 07 2026", "EEE dd MM yyyy", None),
        ("2026-07-05 10:17 (Europe/Berlin)", "yyyy-MM-dd HH:mm[ VV][ (VV)]", "2026-07-05T08:17:00Z"),
        ("2026-07-05 10:17 Europe/Berlin", "yyyy-MM-dd HH:mm[ VV][ (VV)]", "2026-07-05T08:17:00Z"),
        ("<2026-07-05>", "<yyyy-MM-dd>", "2026-07-05T00:00:00Z"),
    ],
)
def test_a_time_with_optional_parts_and_zones(text: str, pattern: str, iso: str | None) -> None:
    wanted = None if iso is None else (datetime.fromisoformat(iso) - EPOCH) // timedelta(milliseconds=1)
    assert column(f"to_timestamp(s, '{pattern}')", [text, None]) == [wanted, None]


@settings(max_examples=60, deadline=None)
@given(TIMES)
def test_parts_of_times_are_those_of_datetime(times: list[int]) -> None:
    moments = [EPOCH + timedelta(milliseconds=ms) for ms in times]
    assert column("year(at)", times, "at") == [m.year for m in moments]
    assert column("day(at) + 100 * month(at)", times, "at") == [m.day + 100 * m.month for m in moments]
    assert column("weekofyear(at)", times, "at") == [m.isocalendar().week for m in moments]
    assert column("dayofyear(at)", times, "at") == [m.timetuple().tm_yday for m in moments]
    assert column("unix_timestamp(at)", times, "at") == [ms // 1000 for ms in times]
    assert column("timestamp_millis(n)", times, "n") == times
    spoken = [f"{m.year:04d}{m:-%m-%d} {m:%I:%M:%S} {'AM' if m.hour < 12 else 'PM'}" for m in moments]
    assert column("to_timestamp(s, 'yyyy-MM-dd hh:mm:ss a')", spoken) == [ms // 1000 * 1000 for ms in times]


URLS = [
    "https://u:p@shop.example:8443/a/b?x=1&a=2&b=#top",
    "http://[2001:db8::1]/?a=&b=%C3%A9",
    "http://a.example",
    "http://a.example?x#y",
    "s3://bucket/key/with=equals?list",
]


@pytest.mark.parametrize("url", URLS)
def test_the_parts_of_a_url_are_those_of_urllib(url: str) -> None:
    parts = urlsplit(url)
    for name, value in {
        "PROTOCOL": parts.scheme,
        "AUTHORITY": parts.netloc,
        "PATH": parts.path,
        "QUERY": parts.query if "?" in url else None,
        "REF": parts.fragment if "#" in url else None,
        "USERINFO": parts.netloc.rpartition("@")[0] or None,
    }.items():
        assert column(f"parse_url(s, '{name}')", [url]) == [value], name
    assert (column("parse_url(s, 'HOST')", [url])[0] or "").strip("[]") == parts.hostname
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if f"{key}=" in parts.query:
            assert column(f"url_decode(parse_url(s, 'QUERY', '{key}'))", [url]) == [value]


@pytest.mark.parametrize("text", ["/path", "no url", "http://a b/", "http://h]x/", "http:///x?[", "", "1http://x/"])
def test_what_is_no_url_has_no_host(text: str) -> None:
    assert column("parse_url(s, 'HOST')", [text, None]) == [None, None]


@settings(max_examples=60, deadline=None)
@given(st.ip_addresses(), st.integers(0, 32))
def test_networks_are_those_of_ipaddress(address: Any, bits: int) -> None:
    network = ipaddress.ip_network(f"{address}/{bits if address.version == 4 else 4 * bits}", strict=False)
    assert column(f"ip_network(s, {bits}, {4 * bits})", [str(address)]) == [str(network)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_a_value_of_json_is_the_one_at_its_path(value: Any) -> None:
    text = json.dumps(value)
    paths: dict[str, list[str | int]] = {"$": [], "$.a": ["a"], "$.a[1]": ["a", 1], "$['c d'].b": ["c d", "b"]}
    for path, steps in paths.items():
        found: Any = value
        for step in steps:
            fits = isinstance(found, dict) if isinstance(step, str) else isinstance(found, list) and step < len(found)
            found = (found.get(step) if isinstance(step, str) else found[step]) if fits else None
        shown = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        expected = None if found is None else found if isinstance(found, str) else shown
        quoted = path.replace("'", "\\'")
        assert column(f"get_json_object(s, '{quoted}')", [text]) == [expected]


def json_column(kind: str, texts: Sequence[str | None]) -> list[Any]:
    """Return what ``from_json`` makes of texts, which the reference gives as well."""
    tree = parse(f"from_json(s, '{kind}')", SCOPE, expect=None)
    frame = pl.DataFrame({"s": pl.Series(texts, dtype=pl.String)})
    found = [to_logical(value, tree.type) for value in frame.select(to_polars(tree).alias("x"))["x"].to_list()]
    assert found == [evaluate(tree, {"s": text}) for text in texts]
    return found


NUMBERS = st.sampled_from(["0", "-0", "1.0", "1e3", "12.345", "1e400", "-9223372036854775808", "9223372036854775808",
                           "0.5e-1", "123456789012345678", "1e-9999", "00", "1.", "true", "null",
                           "1767608220000"])  # fmt: skip
LEAVES = (
    NUMBERS | NUMBERS.map(lambda text: f'"{text}"') | st.sampled_from(['"2026-01-05T10:17:00Z"', '"x"', '""', "{}"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(st.sampled_from("abc"), inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f'"{name}": {value}' for name, value in pairs) + "}"
        )
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["long", "double", "decimal(9,2)", "string", "boolean", "timestamp", "array<long>"]),
    st.sampled_from(["array<{0}>", "map<string, {0}>", "struct<a: {0}, b: array<{0}>>"]),
    st.lists(VALUES, min_size=1, max_size=4),
)
def test_from_json_is_that_of_the_reference(kind: str, outer: str, texts: list[str]) -> None:
    json_column(outer.format(kind), texts)


def test_a_backslash_before_a_u_is_no_half_of_a_character() -> None:
    texts = [r'["\\ud800"]', r'["\ud800"]']
    assert json_column("array<string>", texts) == [[r"\ud800"], None]


def test_from_json_gives_types_and_guesses_none() -> None:
    kind = "struct<a: long, b: array<decimal(9,2)>>"
    texts = [
        '{"a": 1, "b": ["1.50", 2], "c": 3}',
        "{}",
        '{"a": 1.0}',
        '{"a": "1"}',
        "null",
        "{",
        '{"a": 1, "a": 2}',
        None,
    ]
    assert json_column(kind, [*texts]) == [
        {"a": 1, "b": [Decimal("1.50"), Decimal(2)]},
        {"a": None, "b": None},
        *[None] * 6,
    ]
    deep = "[" * 5_000 + "]" * 5_000
    assert json_column("array<long>", ['{"a": NaN}', deep, "[1, 2] x", '["\\ud800"]', "[]"]) == [*[None] * 4, []]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4), TEXTS)
def test_from_json_reads_what_to_json_and_the_standard_library_write(
    numbers: list[int | None], names: list[str]
) -> None:
    assert json_column("array<long>", [json.dumps(numbers)]) == [numbers]
    record = {name: [name] for name in names}
    assert json_column("map<string, array<string>>", [json.dumps(record, ensure_ascii=False)]) == [record]


def test_text_that_is_not_json_has_no_values() -> None:
    texts = ["{", "", "{'a': 1}", '{"a": NaN}', "[" * 5_000 + "]" * 5_000, '{"a": "\\ud800"}', None]
    assert column("get_json_object(s, '$.a')", texts) == [None] * len(texts)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        yield connection


PAIRS = {
    "regexp_replace(s, '[ab]+', '<$0>')": r"regexp_replace(s, '[ab]+', '<\0>', 'g')",
    "regexp_replace(s, '(a)(.)', '$2$1')": r"regexp_replace(s, '(a)(.)', '\2\1', 'g')",
    "split(s, '[ab]')": "string_split_regex(s, '[ab]')",
    "split_part(s, 'a', 2)": "split_part(s, 'a', 2)",
    "split_part(s, 'a', -1)": "split_part(s, 'a', -1)",
    "instr(s, 'b')": "instr(s, 'b')",
    "left(s, 3)": "left(s, 3)",
    "right(s, 3)": "right(s, 3)",
    "repeat(s, 3)": "repeat(s, 3)",
    "lpad(s, 5, 'xy')": "lpad(s, 5, 'xy')",
    "rpad(s, 5, 'xy')": "rpad(s, 5, 'xy')",
    "ltrim(s)": "ltrim(s)",
    "rtrim(s)": "rtrim(s)",
    "concat_ws('-', s, 'x', nullif(s, s))": "concat_ws('-', s, 'x', null)",
    "cast(s as decimal(9,2))": r"case when regexp_full_match(trim(s), '[+-]?([0-9]{1,18}(\.[0-9]*)?|\.[0-9]+)')"
    " then try_cast(s as decimal(9,2)) end",
    "cast(s as long)": "case when regexp_full_match(trim(s), '[+-]?[0-9]{1,19}') then try_cast(s as bigint) end",
}
WRITTEN = ["12.345", "-12.345", " 7 ", "+0.005", "9999999.994", "9999999.995", "1e3", ".5", "5.", "9223372036854775808"]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("ours", PAIRS)
def test_a_function_gives_what_duckdb_gives(ours: str, database: duckdb.DuckDBPyConnection) -> None:
    @settings(max_examples=25, deadline=None)
    @given(st.lists(st.text("abxAé 1.9日", max_size=9) | st.sampled_from(WRITTEN) | st.none(), min_size=1, max_size=20))
    def compare(texts: list[str | None]) -> None:
        query = f"select {PAIRS[ours]} from (select unnest(?::varchar[]) as s)"
        theirs = database.execute(query, [texts]).fetchall()
        tree = parse(ours, SCOPE, expect=None)
        assert [evaluate(tree, {"s": t}) for t in texts] == [found for (found,) in theirs]

    compare()


def test_a_secret_is_in_no_text_of_an_expression(tmp_path: Path) -> None:
    key = "0123456789abcdef0123456789abcdef"
    (tmp_path / "key").write_text(f"{key}\n")
    scope = Scope({"s": STRING}, secrets={"cards": str(tmp_path / "key")})
    text = "hmac_sha256(s, secret('cards'))"
    expected = hmac.new(key.encode(), b"4111", hashlib.sha256).hexdigest()
    assert column(text, ["4111", None], scope=scope) == [expected, None]
    tree = parse(text, scope, expect=None)
    assert key not in f"{tree!r}{render(tree)}{fingerprint(tree)}{tree.model_dump_json()}{to_polars(tree)!r}"
    assert render(tree) == text


def test_a_secret_that_cannot_be_read_is_an_error_without_its_content(tmp_path: Path) -> None:
    from rulecore.language.secrets import read_secret

    (tmp_path / "short").write_text("hunter2")
    with pytest.raises(ConfigError, match="at least 16 bytes") as caught:
        read_secret(str(tmp_path / "short"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_secret(str(tmp_path / "missing"))


def test_a_text_may_grow_only_so_much() -> None:
    with pytest.raises(ExpressionError, match="may grow more than 64 times"):
        parse("regexp_replace(repeat(s, 30), '.', 'abc') = ''", SCOPE)
