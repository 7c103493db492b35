"""Syslog, key=value and patterns: how a line is decoded, and that the columnar decoder equals the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.decode.formats import InputFormat, Logfmt, Syslog, TextPattern
from streamcore.decode.text.patterns import NAMED
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema

MakeFormat = Callable[..., Any]


def part(**fields: object) -> StreamSchema:
    """Return a schema of values without an event time."""
    document: dict[str, object] = {"name": "log", "event_time": "at", "keys": [[]]}
    document["fields"] = {"at": {"type": "timestamp not null", "from": "_kafka.timestamp"}, **fields}
    from streamcore.schema.record_layout import layouts

    (layout,) = layouts(StreamSchema.parse(document)).values()
    return layout.value


SYSLOG = part(
    facility="long", severity="long", time="string", host="string", app="string", pid="string", message="string",
    message_id="string", structured_data="string", version="long",
)  # fmt: skip
OLD = b"<34>Oct 11 22:14:15 mymachine su[230]: 'su root' failed for lonvick on /dev/pts/8"
NEW = b'<165>1 2003-10-11T22:14:15.003Z web1 evntslog - ID47 [ex@32473 iut="3" s="a\\"\\]b"][e2@1] \xef\xbb\xbfAn event'


def rows(decoded: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = decoded.events.to_pylist()
    return [{name: value for name, value in row.items() if not name.startswith("__")} for row in found]


def test_a_line_of_each_syslog_has_its_parts(make_format: MakeFormat) -> None:
    decoded = make_format(SYSLOG, Syslog()).agree([OLD, NEW, b"<0>Jan  5 01:02:03 h no tag here", b"<13>1 - - - - - -"])
    assert not len(decoded.dead)
    old, new, bare, empty = rows(decoded)
    assert old == {
        "facility": 4, "severity": 2, "time": "Oct 11 22:14:15", "host": "mymachine", "app": "su", "pid": "230",
        "message": "'su root' failed for lonvick on /dev/pts/8", "message_id": None, "structured_data": None,
        "version": None,
    }  # fmt: skip
    assert new == {
        "facility": 20, "severity": 5, "time": "2003-10-11T22:14:15.003Z", "host": "web1", "app": "evntslog",
        "pid": None, "message": "An event", "message_id": "ID47",
        "structured_data": '[ex@32473 iut="3" s="a\\"\\]b"][e2@1]', "version": 1,
    }  # fmt: skip
    assert (bare["app"], bare["message"]) == (None, "no tag here")
    assert {name for name, value in empty.items() if value is not None} == {"facility", "severity", "version"}


PATTERN = TextPattern(
    r'%{IPORHOST:client} \[%{HTTPDATE:time}\] "%{WORD:method} %{URIPATH:path}(?:%{URIPARAM:query})?" %{INT:status}'
    r" (?:%{NUMBER:seconds:float}|-)( %{ORDER:order})?",
    {"ORDER": "[A-Z]{2}-[0-9]+"},
    ("GET",),
)
PATTERNED = part(client="string", time="string", method="string", path="string", query="string", status="long",
                 seconds="double", order="string")  # fmt: skip
LINE = b'10.0.0.1 [10/Oct/2026:13:55:36 -0700] "PUT /a/b?x=1" 200 0.25 AB-17'


def test_a_line_in_a_pattern_has_typed_columns(make_format: MakeFormat) -> None:
    decoded = make_format(PATTERNED, PATTERN).agree([LINE, LINE.replace(b"PUT", b"GET").replace(b" 0.25 AB-17", b" -")])
    first, second = rows(decoded)
    assert first == {
        "client": "10.0.0.1", "time": "10/Oct/2026:13:55:36 -0700", "method": "PUT", "path": "/a/b", "query": "?x=1",
        "status": 200, "seconds": 0.25, "order": "AB-17",
    }  # fmt: skip
    assert (second["method"], second["seconds"], second["order"]) == (None, None, None)


LOGFMT = part(level="string", msg="string", took={"type": "double", "from": "took"}, cached="boolean", user="string")


def test_a_line_of_pairs_has_the_values_of_its_keys(make_format: MakeFormat) -> None:
    lines = [
        b'level=info msg="user \\"bob\\" in=5" took=0.5 cached',
        b'user= msg=""  other=1 level=warn',
        b"cached=false",
    ]
    first, second, third = rows(make_format(LOGFMT, Logfmt()).agree(lines))
    assert first == {"level": "info", "msg": 'user "bob" in=5', "took": 0.5, "cached": True, "user": None}
    assert second == {"level": "warn", "msg": "", "took": None, "cached": None, "user": None}
    assert third["cached"] is False


BREAKS = [
    (SYSLOG, Syslog(), b"34>Oct 11 22:14:15 h m", "at character 0 "),
    (SYSLOG, Syslog(), b"<192>1 - - - - - -", "is not a priority <0> to <191>"),
    (SYSLOG, Syslog(), b"<34>Okt 11 h m", "at character 4 the text \"Okt 11 h m\" is not a time such as"),
    (SYSLOG, Syslog(), b"<34>1 - web1 app - - nodata x", "is not structured data"),
    (PATTERNED, PATTERN, LINE.replace(b"/Oct/", b"/Okt/"), "at character 10 the text \"10/Okt/2026"),
    (PATTERNED, PATTERN, LINE.replace(b"/Oct/", b"/Okt/"), "does not match %{HTTPDATE:time}"),
    (PATTERNED, PATTERN, LINE + b" more", 'the pattern ends at character 67, and the text " more" follows'),
    (LOGFMT, Logfmt(), b'level=info msg="open', "at character 11 the text \"msg=\\\"open\" is not a pair"),
    (LOGFMT, Logfmt(), b"", "accepted is one line of key=value"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "written", "line", "reason"), BREAKS)
def test_a_dead_letter_says_where_the_line_broke(
    make_format: MakeFormat, schema: StreamSchema, written: InputFormat, line: bytes, reason: str
) -> None:
    decoded = make_format(schema, written).agree([line])
    assert decoded.dead.column("code").to_pylist() == ["not_a_log_line"]
    assert reason in decoded.dead.column("reason")[0].as_py()


def test_a_key_that_is_there_twice_is_a_dead_letter(make_format: MakeFormat) -> None:
    decoded = make_format(LOGFMT, Logfmt()).agree([b"level=a level=b", b"other=1 other=2 level=x", b"level level=a"])
    assert decoded.dead.column("row").to_pylist() == [0, 2]
    assert decoded.dead.column("code").to_pylist() == ["duplicate_field"] * 2


PIECES = ["<34>", "<165>1 ", "Oct 11 22:14:15 ", "- ", "host ", "app[1]: ", "app: ", '[a b="c"]', "msg", "\\", '"',
          "level=", "info ", "msg=", '"a b"', '"x=1"', " ", "=", "level", "é", "10.0.0.1 ", "[", "]", "\n", "took=1.5 ",
          "2026-10-11T22:14:15Z ", "cached "]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), min_size=1, max_size=4))
def test_columns_and_reference_agree_on_any_line(make_format: MakeFormat, lines: list[str]) -> None:
    for schema, written in ((SYSLOG, Syslog()), (LOGFMT, Logfmt()), (PATTERNED, PATTERN)):
        make_format(schema, written).agree([line.encode() for line in lines])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("%{WRD:a}", "there is no %{WRD}"),
        ("%{WORD}", "no part is named"),
        ("%{WORD:a} %{WORD:a}", "two parts are named 'a'"),
        ("%{WORD:a}(?=x)", "look-around"),
        ("%{WORD:a} %{word:b}", "a part has the form"),
        ("%{WORD:a} (", "accepted is a Rust regular expression"),
    ],
)
def test_a_wrong_pattern_is_refused(make_format: MakeFormat, pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match="stream log: pattern") as caught:
        make_format(part(a="string"), TextPattern(pattern))
    assert message in str(caught.value)


def test_a_pattern_that_names_itself_is_refused(make_format: MakeFormat) -> None:
    with pytest.raises(ConfigError, match="names itself"):
        make_format(part(a="string"), TextPattern("%{X:a}", {"X": "a%{X}"}))


def test_each_named_expression_compiles(make_format: MakeFormat) -> None:
    for name in NAMED:
        make_format(part(a="string"), TextPattern(f"%{{{name}:a}}"))


def test_a_field_without_a_column_is_refused(make_format: MakeFormat) -> None:
    with pytest.raises(ConfigError, match="field hostname: no column 'hostname'; a line has priority"):
        make_format(part(hostname="string"), Syslog())
