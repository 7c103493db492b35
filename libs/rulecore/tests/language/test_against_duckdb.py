"""Where the semantics agree, DuckDB gives the same: an evaluator and a parser by other people.

Not covered is what DuckDB does differently: integer overflow and ``%`` by zero raise there, ``x / 0`` is infinite, a
difference of timestamps is an interval, ``concat`` skips NULL. The texts are generated flat, so precedence is
compared as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rulecore.language import Scope, evaluate, parse
from rulecore.language.types import Value
from streamcore.schema import DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type

SCOPE = Scope(
    {"n": LONG, "m": LONG, "d": Type(Kind.DECIMAL, 9, 2), "x": DOUBLE, "s": STRING, "t": STRING, "ts": TIMESTAMP}
)
NAN = float("nan")
START_MS = 1_300_000_000_000
ROWS: list[dict[str, Value]] = [
    {
        "n": (None, 0, 1, -1, 7, -7, 2, 100)[i % 8],
        "m": (3, None, -3, 1, 0, 2, -2)[i % 7],
        "d": (Decimal("0.50"), Decimal("-1.25"), None, Decimal("100.00"), Decimal("7.00"))[i % 5],
        "x": (0.5, None, NAN, -0.0, float("inf"), 7.0, float("-inf"), 2.5, -1.5)[i % 9],
        "s": ("", "a", None, "ab", "Ab", "é", "日本", "a b ", "ba", "abc")[i % 10],
        "t": ("a", "b", "ab", None, "%", "")[i % 6],
        "ts": (START_MS, None, START_MS + 86_399_999, START_MS + 3_600_000)[i % 4],
    }
    for i in range(60)
]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(":memory:")
    connection.execute(
        "create table events (i int, n bigint, m bigint, d decimal(9,2), x double, s varchar, t varchar, ts timestamp)"
    )
    for i, row in enumerate(ROWS):
        ms = row["ts"]
        moment = None
        if isinstance(ms, int):
            moment = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(milliseconds=ms)
        values = [i, *(row[name] for name in ("n", "m", "d", "x", "s", "t")), moment]
        connection.execute("insert into events values (?, ?, ?, ?, ?, ?, ?, ?)", values)
    yield connection
    connection.close()


LONGS = st.sampled_from(["n", "m", "1", "2", "10", "(n + m)", "abs(n)", "length(s)", "coalesce(n, m)", "nullif(n, 1)"])
DECIMALS = st.sampled_from(["d", "1.5", "0.25", "coalesce(d, 0.5)", "abs(d)", "greatest(d, 1.50)", "least(d, n)"])
NUMBERS = st.one_of(LONGS, DECIMALS, st.sampled_from(["x", "x", "1.5e0", "n / 2", "d / 4", "sqrt(abs(n))"]))
_TEXTS = (
    "s;t;'a';'ab';lower(s);upper(t);trim(s);s || t;replace(s, 'a', 'bb');substr(s, 2);substr(s, 1, 1);"
    "coalesce(s, t, 'x');case when n > 1 then s else t end"
)
_TIMES = (
    "ts;ts + interval 5 minutes;ts - interval 1 hour;timestamp '2011-03-13 10:00:00';date_trunc('hour', ts);"
    "date_trunc('week', ts);date_trunc('month', ts);coalesce(ts, timestamp '2011-03-13 07:06:40')"
)
TEXTS, TIMES = st.sampled_from(_TEXTS.split(";")), st.sampled_from(_TIMES.split(";"))
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
PATTERNS = st.sampled_from(["a%", "%b", "%a%", "_", "a_", "%", "", "ab", "a%b", "%_b%"])


@st.composite
def sums(draw: st.DrawFn, atoms: st.SearchStrategy[str]) -> str:
    """Draw a flat chain, to be parsed by precedence. ``%`` only by a constant that is not zero."""
    text: str = draw(atoms)
    for _ in range(draw(st.integers(0, 3))):
        op = draw(st.sampled_from(["+", "-", "*", "%"]))
        text += f" {op} {draw(st.sampled_from(['3', '7'])) if op == '%' else draw(atoms)}"
    return text


SMALL = st.sampled_from(["n", "m", "d", "1", "2.5", "-n", "abs(m)"])
PREDICATES = st.one_of(
    st.builds("{} {} {}".format, NUMBERS, COMPARISONS, NUMBERS),
    st.builds("{} {} {}".format, sums(SMALL), COMPARISONS, sums(SMALL)),
    st.builds("{} {} {}".format, TEXTS, COMPARISONS, TEXTS),
    st.builds("{} {} {}".format, TIMES, COMPARISONS, TIMES),
    st.builds("{} {}between {} and {}".format, NUMBERS, st.sampled_from(["", "not "]), NUMBERS, NUMBERS),
    st.builds("{} {}in ('a', 'ab', '')".format, TEXTS, st.sampled_from(["", "not "])),
    st.builds("n {}in (1, 7, -1)".format, st.sampled_from(["", "not "])),
    st.builds("{} is {}null".format, st.one_of(NUMBERS, TEXTS, TIMES), st.sampled_from(["", "not "])),
    st.builds("{} {}like '{}'".format, st.sampled_from(["s", "t"]), st.sampled_from(["", "not "]), PATTERNS),
    st.builds("{}({}, {})".format, st.sampled_from(["starts_with", "contains", "ends_with"]), TEXTS, TEXTS),
    st.builds("hour(ts) = {}".format, st.integers(0, 23)),
    st.builds("(n > 1) = ({} {} {})".format, TEXTS, COMPARISONS, TEXTS),
)


@st.composite
def conditions(draw: st.DrawFn) -> str:
    """Draw a flat chain of and, or and not, sometimes with brackets."""
    text: str = draw(PREDICATES)
    for _ in range(draw(st.integers(0, 3))):
        negation = draw(st.sampled_from(["", "", "not "]))
        term = f"{negation}{draw(PREDICATES)}"
        text = f"{text} {draw(st.sampled_from(['and', 'or']))} {term}"
        if draw(st.integers(0, 3)) == 0:
            text = f"{draw(st.sampled_from(['', 'not ']))}({text})"
    return text


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=conditions())
def test_duckdb_gives_the_same_truth_value_for_every_row(text: str, database: duckdb.DuckDBPyConnection) -> None:
    expr = parse(text, SCOPE)
    expected = [row[0] for row in database.execute(f"select {text} from events order by i").fetchall()]
    assert [evaluate(expr, row) for row in ROWS] == expected
