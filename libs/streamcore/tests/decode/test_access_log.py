"""Access logs: how a line is decoded, and that the columnar decoder equals the reference on every line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.decode.formats import AccessLog
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.text.access_log import LogLayout
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema

MakeFormat = Callable[..., Any]


def schema(**fields: object) -> StreamSchema:
    all_fields = {"ts": {"type": "timestamp not null", "from": "time"}} | fields
    return StreamSchema.parse({"name": "log", "event_time": "ts", "keys": [[]], "fields": all_fields})


TEXTS = ("remote_host", "ident", "user", "request", "method", "path", "query", "protocol")
COMMON_SCHEMA = schema(status="long", bytes="long", **dict.fromkeys(TEXTS, "string"))
SCHEMA = schema(status="long", bytes="long", **dict.fromkeys((*TEXTS, "referer", "agent"), "string"))
TIMED = schema(path="string", seconds={"type": "decimal(9,3)", "from": "request_time"})
COMMON = AccessLog(LogLayout.COMMON)
COMBINED = AccessLog()
WITH_TIME = AccessLog(request_time=True)
HEAD = rb"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700]"
# The examples of Apache's manual, which every other description of the formats copies.
APACHE_COMMON = HEAD + rb' "GET /apache_pb.gif HTTP/1.0" 200 2326'
APACHE = APACHE_COMMON + rb' "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'


def line(request: bytes = b"GET / HTTP/1.1", end: bytes = b"200 5", agent: bytes = b"x") -> bytes:
    return HEAD + b' "' + request + b'" ' + end + b' "-" "' + agent + b'"'


DEAD: list[tuple[bytes | None, RejectCode]] = [
    (None, RejectCode.NO_VALUE),
    (b"x" * 20_000_000, RejectCode.TOO_LARGE),
    (line(agent=b"\xff"), RejectCode.NOT_UTF8),
    (line(agent=b"\x00"), RejectCode.NOT_A_LOG_LINE),
    (b"\x16\x03\x01\x02\x00\x01", RejectCode.NOT_A_LOG_LINE),
    (b"", RejectCode.NOT_A_LOG_LINE),
    (APACHE_COMMON, RejectCode.NOT_A_LOG_LINE),  # a line in the common format is not in the combined one
    (APACHE + b" ", RejectCode.NOT_A_LOG_LINE),
    (APACHE + b"\n" + APACHE, RejectCode.NOT_A_LOG_LINE),
    (APACHE[:-1], RejectCode.NOT_A_LOG_LINE),
    (line(agent=b'a"b'), RejectCode.NOT_A_LOG_LINE),
    (line(agent=b"a\\"), RejectCode.NOT_A_LOG_LINE),
    (line(end=b"2000 5"), RejectCode.NOT_A_LOG_LINE),
    (line(end=b"200 5k"), RejectCode.NOT_A_LOG_LINE),
    (line().replace(b"10/Oct/2000", b"10/Okt/2000"), RejectCode.BAD_TIMESTAMP),
    (line().replace(b"10/Oct/2000", b"31/Sep/2000"), RejectCode.BAD_TIMESTAMP),
    (line().replace(b"-0700", b"-2500"), RejectCode.BAD_TIMESTAMP),
    (line().replace(b"13:55:36", b"24:00:00"), RejectCode.BAD_TIMESTAMP),
    (line().replace(b"10/Oct/2000:13:55:36 -0700", b"-"), RejectCode.MISSING_FIELD),
    (line(end=b"012 5"), RejectCode.WRONG_TYPE),
    (line(end=b"200 9223372036854775808"), RejectCode.OUT_OF_RANGE),
    (line().replace(b"/2000", b"/1969"), RejectCode.OUT_OF_RANGE),
    (line().replace(b"/2000", b"/2099"), RejectCode.FROM_THE_FUTURE),
]


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("raw", "code"), DEAD, ids=lambda value: str(value)[:60])
def test_a_bad_line_is_a_dead_letter_and_affects_no_other_line(
    make_format: MakeFormat, raw: bytes | None, code: RejectCode
) -> None:
    decoded = make_format(SCHEMA, COMBINED).agree([APACHE, raw, APACHE])
    assert decoded.dead.column("code").to_pylist() == [code.value]
    reason = decoded.dead.column("reason")[0].as_py()
    assert 10 < len(reason) < 300
    assert reason.isascii()
    assert reason.isprintable()


def test_the_examples_of_the_apache_manual_parse(make_format: MakeFormat) -> None:
    common = {
        "ts": 971211336000,
        "status": 200,
        "bytes": 2326,
        "remote_host": "127.0.0.1",
        "ident": None,
        "user": "frank",
        "request": "GET /apache_pb.gif HTTP/1.0",
        "method": "GET",
        "path": "/apache_pb.gif",
        "query": None,
        "protocol": "HTTP/1.0",
    }
    found = make_format(COMMON_SCHEMA, COMMON).agree([APACHE_COMMON]).events.select(COMMON_SCHEMA.names).to_pylist()
    assert found == [common]
    more = {"referer": "http://www.example.com/start.html", "agent": "Mozilla/4.08 [en] (Win98; I ;Nav)"}
    assert make_format(SCHEMA, COMBINED).agree([APACHE]).events.select(SCHEMA.names).to_pylist() == [common | more]


@pytest.mark.parametrize(
    ("record", "place"),
    [
        (b"", "from character 0 on it has no remote_host"),
        (HEAD, f"from character {len(HEAD)} on it has no request"),
        (APACHE_COMMON, f"from character {len(APACHE_COMMON)} on it has no referer"),
        (APACHE[:-1], "on it has no agent"),
        (APACHE + b" ", f"at character {len(APACHE)}, after agent, it does not end"),
    ],
)
def test_a_line_that_is_none_of_a_log_is_rejected_with_the_place_where_it_breaks(
    make_format: MakeFormat, record: bytes, place: str
) -> None:
    (reason,) = make_format(SCHEMA, COMBINED).agree([record]).dead.column("reason").to_pylist()
    assert reason.endswith(place)


@pytest.mark.parametrize(
    ("request_line", "found"),
    [
        (b"GET /a?b=c?d HTTP/2", ("GET", "/a", "b=c?d", "HTTP/2")),
        (b"GET /a? HTTP/1.1", ("GET", "/a", "", "HTTP/1.1")),
        (b"GET /a", ("GET", "/a", None, None)),
        (b"OPTIONS * HTTP/1.1", ("OPTIONS", "*", None, "HTTP/1.1")),
        (b"GET - HTTP/1.1", ("GET", "-", None, "HTTP/1.1")),
        (b"GET /a?- HTTP/1.1", ("GET", "/a", "-", "HTTP/1.1")),
        (b"-", (None, None, None, None)),
        (b"", (None, None, None, None)),
        (b"GET /a b HTTP/1.1", (None, None, None, None)),
        (b"GET  HTTP/1.1", (None, None, None, None)),
        (rb"\x16\x03\x01", (None, None, None, None)),
        (b"GET /\xc3\xa9 HTTP/1.1", ("GET", "/\u00e9", None, "HTTP/1.1")),
        (rb"GET /\xc3\xa9\"\\ HTTP/1.1", ("GET", '/\u00e9"\\', None, "HTTP/1.1")),
    ],
)
@pytest.mark.quick_cases(3)
def test_a_request_line_is_split_into_method_path_query_and_protocol(
    make_format: MakeFormat, request_line: bytes, found: tuple[str | None, ...]
) -> None:
    events = make_format(SCHEMA, COMBINED).agree([line(request_line)]).events
    assert tuple(events.column(name)[0].as_py() for name in ("method", "path", "query", "protocol")) == found


@pytest.mark.parametrize(
    ("agent", "found"),
    [
        (rb"a\"b", 'a"b'),
        (rb"a\\b", "a\\b"),
        (rb"\x22\x5C", '"\\'),
        (rb"\xe2\x82\xac", "\u20ac"),
        (rb"\xff\x22", r"\xff\x22"),  # not UTF-8: kept as it is written
        (rb"\x16\x00", "\x16\x00"),
        (rb"\t\n", "\t\n"),
        (rb"\q\xZZ", "qxZZ"),
        (b"", ""),
        (b"-", None),
    ],
)
def test_quoted_escapes_are_decoded(make_format: MakeFormat, agent: bytes, found: str | None) -> None:
    assert make_format(SCHEMA, COMBINED).agree([line(agent=agent)]).events.column("agent").to_pylist() == [found]


def test_unquoted_escapes_are_decoded(make_format: MakeFormat) -> None:
    escaped = line().replace(b"frank", rb"fr\x41nk")
    assert make_format(SCHEMA, COMBINED).agree([line(), escaped]).events.column("user").to_pylist() == [
        "frank",
        "frAnk",
    ]


def test_a_dash_is_null_and_a_request_time_has_the_unit_of_its_field(make_format: MakeFormat) -> None:
    both = make_format(TIMED, WITH_TIME)
    decoded = both.agree([line() + b" 0.250", line() + b" -", line(end=b"- -") + b" 7", line()])
    assert decoded.events.column("seconds").to_pylist() == [250, None, 7000]
    assert decoded.dead.column("code").to_pylist() == ["not_a_log_line"]


def test_times_have_the_time_zone_of_the_line(make_format: MakeFormat) -> None:
    both = make_format(SCHEMA, COMBINED)
    decoded = both.agree([line(), line().replace(b"-0700", b"+0530"), line().replace(b"-0700", b"+0000") + b"\r\n"])
    assert decoded.events.column("ts").to_pylist() == [971211336000, 971166336000, 971186136000]


@pytest.mark.parametrize(
    ("stream", "written", "says"),
    [
        (schema(ts="timestamp not null", path="string"), AccessLog(), "no column 'ts'"),
        (schema(agent="string"), COMMON, "no column 'agent'"),
        (schema(other="string"), COMBINED, "no column 'other'"),
        (schema(x={"type": "string", "from": "path.inner"}), COMBINED, "no column 'path.inner'"),
        (schema(status="timestamp"), COMBINED, "only timestamp of a log"),
    ],
)
def test_an_invalid_format_is_rejected_when_it_is_built(
    make_format: MakeFormat, stream: StreamSchema, written: AccessLog, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        make_format(stream, written)


def test_ordinary_lines_take_the_columnar_path(make_format: MakeFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    both = make_format(SCHEMA, COMBINED)
    monkeypatch.setattr(both.fast, "_decode_one", None)
    lines = [APACHE, APACHE + b"\n", line(b"GET /a?b=c HTTP/2.0", b"404 -"), line(agent="\u00e9".encode())]
    assert both.fast.decode(both.batch(lines)).events.num_rows == len(lines)


pieces = st.sampled_from(
    ["", "-", "a", "\u00e9", " ", '"', "\\", r"\"", r"\x41", r"\xff", "\x00", "GET / HTTP/1.1", "POST /x?y=1 HTTP/2.0",
     "get /", "200", "1", "007", "0.5", "[", "]", "10/Oct/2000:13:55:36 -0700", "31/Feb/2000:13:55:36 +0000", "?"]
)  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> list[bytes | None]:
    records: list[bytes | None] = []
    for _ in range(draw(st.integers(1, 20))):
        parts = [
            draw(st.sampled_from(["10.0.0.1", "::1", "host"])),
            draw(st.sampled_from(["-", "i"])),
            draw(st.sampled_from(["-", "frank"])),
            draw(st.sampled_from(["10/Oct/2000:13:55:36 -0700", "29/Feb/2024:00:00:00 +0530"])),
            draw(st.sampled_from(["GET /a HTTP/1.0", "GET /a?b=c HTTP/1.1", "-", "PUT /\u00e9? HTTP/2"])),
            draw(st.sampled_from(["200", "404", "-"])),
            draw(st.sampled_from(["0", "123456", "-"])),
            draw(st.sampled_from(["-", "http://x/", ""])),
            draw(st.sampled_from(["-", "Mozilla (x; y)", r"a\x41"])),
        ]
        for _ in range(draw(st.integers(0, 2))):
            parts[draw(st.integers(0, 8))] = draw(st.one_of(pieces, st.text(max_size=5)))
        form = '{} {} {} [{}] "{}" {} {} "{}" "{}"' + draw(st.sampled_from(["", "", " 0.5", "\n", " "]))
        record = form.format(*parts).encode()
        if draw(st.integers(0, 9)) == 0:
            cut = draw(st.integers(0, len(record)))
            record = record[:cut] + draw(st.binary(max_size=3)) + record[cut + draw(st.integers(0, 2)) :]
        records.append(record)
    return records


@settings(max_examples=200, deadline=None)
@given(records=batches())
def test_the_columnar_decoder_equals_the_reference(make_format: MakeFormat, records: list[bytes | None]) -> None:
    make_format(SCHEMA, COMBINED).agree(records)
    make_format(TIMED, WITH_TIME).agree(records)


@settings(max_examples=200, deadline=None)
@given(records=st.lists(st.one_of(st.none(), st.binary(max_size=60), st.text().map(str.encode)), max_size=20))
def test_no_bytes_make_the_decoder_raise(make_format: MakeFormat, records: list[bytes | None]) -> None:
    make_format(COMMON_SCHEMA, COMMON).agree(records)
