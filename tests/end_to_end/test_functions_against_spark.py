"""The functions of texts and times give what Spark gives, but for the differences that the function page lists."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rulecore.language import Scope, evaluate, parse
from streamcore.schema import BOOLEAN, LONG, STRING, TIMESTAMP, Kind, Type

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

SCOPE = Scope({"s": STRING, "u": STRING, "w": STRING, "j": STRING, "n": LONG, "d": Type.parse("decimal(12,4)"),
               "ms": LONG, "ok": BOOLEAN, "tags": Type.parse("array<string>"), "at": TIMESTAMP})  # fmt: skip
DDL = "s STRING, u STRING, w STRING, j STRING, n BIGINT, d DECIMAL(12,4), ms BIGINT, ok BOOLEAN, tags ARRAY<STRING>"
AT = "timestamp_millis(ms)"
PATTERNS = [
    "yyyy-MM-dd HH:mm:ss.SSS",
    "dd/MMM/yyyy:HH:mm:ss Z",
    "E, d MMMM yyyy hh:mm a",
    "M/d/yyyy H:m:s",
    "yyMMddHHmmss",
    "HH:mmXXX",
    "hh a, EEEE",
]
#: Expressions of both; ``{at}`` is the time.
SAME = [
    "regexp_replace(s, '[ab]+', '<$0>')",
    "regexp_replace(s, '(a)(.)', '$2$1')",
    "split(s, '[ab]')",
    "split_part(s, 'a', 2)",
    "split_part(s, 'a', -1)",
    "concat_ws('-', s, 'x', u)",
    "lpad(s, 5, 'xy')",
    "rpad(s, 5, 'xy')",
    "lpad(s, 3)",
    "ltrim(s)",
    "rtrim(s)",
    "left(s, 3)",
    "right(s, 3)",
    "repeat(s, 2)",
    "instr(s, 'b')",
    "instr(s, u)",
    "initcap(s)",
    "reverse(s)",
    "url_encode(s)",
    "md5(s)",
    "sha1(s)",
    "sha2(s, 256)",
    "sha2(s, 0)",
    "sha2(s, 512)",
    *(
        f"parse_url(u, '{part}')"
        for part in ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")
    ),
    "parse_url(u, 'QUERY', 'a')",
    "get_json_object(j, '$.a.b[1]')",
    "to_json(tags)",
    "cast(d as decimal(8,2))",
    "cast(d as decimal(5,0))",
    "cast(d as long)",
    "cast(d as boolean)",
    "cast(n as boolean)",
    "cast(n as string)",
    "cast(d as string)",
    "cast(ok as long)",
    "cast(ok as string)",
    "cast(w as decimal(9,2))",
    "cast(w as boolean)",
    *(
        f"{part}({{at}})"
        for part in ("year", "quarter", "month", "day", "dayofyear", "weekofyear", "dayofweek", "hour")
    ),
    "minute({at})",
    "cast({at} as long)",
    "cast({at} as string)",
    "unix_seconds({at})",
    "unix_millis({at})",
    "unix_micros({at})",
    "from_unixtime(n)",
    "hour(from_utc_timestamp({at}, 'Europe/Berlin'))",
    *(f"date_format({{at}}, '{pattern}')" for pattern in PATTERNS),
    *(f"unix_millis(to_timestamp(date_format({{at}}, '{pattern}'), '{pattern}'))" for pattern in PATTERNS[:2]),
    "unix_millis(to_timestamp(date_format({at}, 'MM/dd/yyyy hh:mm:ss a'), 'MM/dd/yyyy hh:mm:ss a'))",
]
#: Ours and Spark's.
TRANSLATED = {
    "base64(s)": "base64(encode(s, 'utf-8'))",
    "unbase64(base64(s))": "decode(unbase64(base64(encode(s, 'utf-8'))), 'utf-8')",
    "url_decode(replace(s, '%', '%25'))": "try_url_decode(replace(s, '%', '%25'))",
    "cast(w as long)": "case when w rlike '^ *[+-]?[0-9]+ *$' then cast(w as bigint) end",
    "try_cast(w as long)": "case when w rlike '^ *[+-]?[0-9]+ *$' then cast(w as bigint) end",
    # a number keeps its digits here
    "replace(get_json_object(j, '$.a'), '1.50', '1.5')": "get_json_object(j, '$.a')",
    "replace(get_json_object(j, '$'), '1.50', '1.5')": "get_json_object(j, '$')",
    "sha256(s)": "sha2(s, 256)",
    "timestamp_seconds(n) is null": "n is null",
}
URLS = ["https://u:p@shop.example:8443/a/b?x=1&a=2&b=#top", "http://a.example", "http://a.example/?a=&b=%C3%A9",
        "s3://bucket/key", "mailto:a@b.org", "http://h/p#r"]  # fmt: skip
WRITTEN = [
    "12",
    " 7 ",
    "-3",
    "12.345",
    "-12.345",
    "0.005",
    "9999999.995",
    "x",
    "",
    "true",
    "No",
    "T",
    "1",
    "0",
    "9223372036854775807",
]
JSONS = [
    '{"a": 1.50}',
    '{"a": {"b": [1, {"c": "x y"}]}}',
    '{"a": "t\\u00e9"}',
    '{"a": null}',
    "[1, 2]",
    "{",
    '{"a": true, "b": [ ]}',
]


def make_rows() -> list[dict[str, Any]]:
    draw = Random(5)

    def text() -> str:
        return "".join(draw.choice("abAB xé日%+.") for _ in range(draw.randrange(9)))

    def some(value: Any) -> Any:
        return None if draw.random() < 0.1 else value

    return [
        {
            "s": some(text()),
            "u": some(draw.choice(URLS)),
            "w": some(draw.choice(WRITTEN)),
            "j": some(draw.choice(JSONS)),
            "n": some(draw.choice([0, 5, -7, 1_767_608_220, 4_000_000_000])),
            "d": some(f"{draw.randrange(-(10**9), 10**9) / 10_000:.4f}"),
            "ms": some(draw.choice([0, 1_767_608_220_123, 951_782_400_000, 1_711_846_799_999, 4_070_908_799_000])),
            "ok": some(draw.random() < 0.5),
            "tags": some([some(text()) for _ in range(draw.randrange(3))]),
        }
        for _ in range(150)
    ]


def test_the_functions_of_texts_and_times_give_what_spark_gives(spark_jars: Path) -> None:
    rows = make_rows()
    pairs = [(text.format(at="at"), text.format(at=AT)) for text in SAME] + [*TRANSLATED.items()]
    asked = {"schema": DDL, "rows": rows, "expressions": [theirs for _, theirs in pairs], "jars": str(spark_jars)}
    command = [sys.executable, "-m", "tests.harness.oracles.spark_expressions"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    wrong = []
    for number, (ours, theirs) in enumerate(pairs):
        tree = parse(ours, SCOPE, expect=None)
        for row, spark in zip(rows, found, strict=True):
            given = {**row, "d": row["d"] and Decimal(row["d"]), "at": row["ms"]}
            value = evaluate(tree, given)
            shown = float(value) if isinstance(value, Decimal) else value
            if shown != spark[number]:
                wrong.append(f"{ours}: {shown!r}, Spark {theirs}: {spark[number]!r} for {row}")
                break
        assert tree.type.kind is not Kind.TIMESTAMP
    assert not wrong, "\n".join(wrong)
