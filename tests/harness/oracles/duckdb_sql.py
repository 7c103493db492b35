"""The expression language and DuckDB's SQL side by side: every function and operator, and what differs between them.

Each maker gives one expression in two texts. Where DuckDB would say something else than Spark (and so this language)
does, its text is written so that it says the same, and ``DIFFERENCES`` names the difference, with an example; what is
not named there is compared as it is. Expressions nest, and are generated from a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from rulecore.language import Scope
from rulecore.language.types import Value
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type


@dataclass(frozen=True, slots=True)
class Difference:
    """One constant expression that the two read differently, and the value of each; ``raises`` where DuckDB rejects."""

    words: str
    ours: str
    our_value: Value
    theirs: str
    their_value: Value = None
    raises: bool = False


DIFFERENCES: Mapping[str, Difference] = {
    "overflow of long": Difference(
        "DuckDB raises; here NULL (Spark raises in ANSI mode and wraps without; its `try_add` gives NULL)",
        "9223372036854775807 + 1",
        None,
        "9223372036854775807::bigint + 1::bigint",
        raises=True,
    ),
    "overflow of decimal": Difference(
        "DuckDB raises where its type is too narrow; here a value of more than 18 digits is NULL (Spark: of 38)",
        "99999999999999999.9 * 10.0",
        None,
        "99999999999999999.9 * 10.0",
        raises=True,
    ),
    "division by zero": Difference(
        "DuckDB gives an infinity; here NULL, as Spark without ANSI mode", "1 / 0", None, "1 / 0", math.inf
    ),
    "division of decimals": Difference(
        "both divide as doubles; Spark gives a decimal of its own rule",
        "1.00 / 3.00",
        1 / 3,
        "1.00 / 3.00",
        1 / 3,
    ),
    "concat": Difference(
        "DuckDB's concat passes over NULL, its || does not", "concat('a', s)", None, "concat('a', s)", "a"
    ),
    "substr from 0": Difference(
        "DuckDB counts a place before the first character; here, as in Spark, 0 is the first character",
        "substr('ab', 0, 2)",
        "ab",
        "substr('ab', 0, 2)",
        "a",
    ),
    "substr of less than nothing": Difference(
        "DuckDB goes backwards; here, as in Spark, there is nothing",
        "substr('abc', 2, -1)",
        "",
        "substr('abc', 2, -1)",
        "a",
    ),
    "letters": Difference(
        "DuckDB maps one character to one character; here as Spark and Unicode's full mapping",
        "upper('stra\u00dfe')",
        "STRASSE",
        "upper('stra\u00dfe')",
        "STRA\u1e9eE",
    ),
    "floor": Difference(
        "DuckDB gives a double; here a long, NULL where a long cannot hold it",
        "floor(1e300)",
        None,
        "floor(1e300)",
        1e300,
    ),
    "ln of zero": Difference("DuckDB gives an infinity; here NULL, as Spark", "ln(0)", None, "ln(0)", -math.inf),
    "ln below zero": Difference("DuckDB gives NaN; here NULL, as Spark", "ln(-1)", None, "ln(-1)", math.nan),
    "remainder by zero": Difference("DuckDB raises; here NULL", "n % 0", None, "5 % 0", raises=True),
    "days of the week": Difference(
        "DuckDB counts from 0 on Sunday; here from 1, as Spark",
        "dayofweek(timestamp '2026-01-04 00:00:00')",
        1,
        "dayofweek(timestamp '2026-01-04 00:00:00')",
        0,
    ),
    "difference of times": Difference(
        "DuckDB gives an interval, as Spark does; here milliseconds",
        "timestamp '2026-01-02 00:00:00' - timestamp '2026-01-01 00:00:00'",
        86_400_000,
        "(timestamp '2026-01-02 00:00:00' - timestamp '2026-01-01 00:00:00')::varchar",
        "1 day",
    ),
    "a local time that exists twice": Difference(
        "DuckDB takes the later one; here, as in Java and PostgreSQL, the earlier",
        "to_utc_timestamp(timestamp '2011-10-30 01:30:00', 'Europe/London')",
        1_319_934_600_000,
        "epoch_ms(timezone('UTC', timezone('Europe/London', timestamp '2011-10-30 01:30:00')))",
        1_319_938_200_000,
    ),
    "digits in regular expressions": Difference(
        "DuckDB and Spark know ten digits by default; here any Unicode digit is one",
        "regexp_like('\u0663', r'\\d')",
        True,
        "regexp_matches('\u0663', '\\d')",
        False,
    ),
}

MONEY, FINE = Type(Kind.DECIMAL, 9, 2), Type(Kind.DECIMAL, 18, 9)
COLUMNS: Mapping[str, Type] = {
    "n": LONG,
    "m": LONG,
    "d": MONEY,
    "e": FINE,
    "x": DOUBLE,
    "y": DOUBLE,
    "s": STRING,
    "t": STRING,
    "ts": TIMESTAMP,
    "seen": TIMESTAMP,
    "ok": BOOLEAN,
}
SCOPE = Scope(COLUMNS)
TABLE = (
    "create table events (i int, n bigint, m bigint, d decimal(9,2), e decimal(18,9), x double, y double, "
    "s varchar, t varchar, ts timestamp, seen timestamp, ok boolean)"
)
_MIN, _MAX = -(2**63), 2**63 - 1
_LONGS = (0, 1, -1, 2, 7, -7, 100, 2**31, 2**53 + 1, _MAX, _MIN, _MAX - 1)
_DOUBLES = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 7.0, 1e18, 1e19, 1e300, -1e300, math.nan, math.inf, -math.inf, 5e-324)
_TEXTS = ("", "a", "b", "ab", "Ab", "é", "e\u0301", "日本", "😀a", " a b ", "a%", "a_b", "ba\nb", "%", "_", "9")
_TIMES = (
    0,
    -1,
    1_300_000_000_000,
    1_299_974_400_000,
    1_325_375_999_999,
    951_782_400_000,
    -86_400_000,
    1_330_473_600_123,
)


@dataclass(frozen=True, slots=True)
class Both:
    """One expression as this language has it, and as DuckDB does."""

    ours: str
    theirs: str


Maker = Callable[["Pairs", int], Both]


def row(random: Random) -> dict[str, Value]:
    """Return a row of logical values, one in six NULL."""

    def some(values: Sequence[Value]) -> Value:
        return None if random.random() < 1 / 6 else random.choice(values)

    money = [Decimal(k).scaleb(-2) for k in (0, 1, -1, 50, 250, -125, 10_000, 999_999_999, random.randrange(10**6))]
    fine = [Decimal(k).scaleb(-9) for k in (0, 1, -1, 5 * 10**8, 10**18 - 1, 1 - 10**18, random.randrange(10**12))]
    return {
        "n": some([*_LONGS, random.randrange(-9, 10)]),
        "m": some([*_LONGS, random.randrange(-9, 10)]),
        "d": some(money),
        "e": some(fine),
        "x": some([*_DOUBLES, random.uniform(-50, 50)]),
        "y": some([*_DOUBLES, random.randrange(-9, 10) / 2]),
        "s": some(_TEXTS),
        "t": some(_TEXTS),
        "ts": some([*_TIMES, random.randrange(10**12, 2 * 10**12)]),
        "seen": some([*_TIMES, random.randrange(10**12, 2 * 10**12)]),
        "ok": some([True, False]),
    }


def of_columns(name: str) -> Both:
    """Return a column; times are milliseconds in rows and timestamps in the table."""
    return Both(name, name)


def null_if_too_long(text: str, scale: int) -> str:
    """Return a decimal of that scale, NULL where 18 digits are too few. ``text`` is exact in 38 digits."""
    return f"case when abs({text}) < 1e{18 - scale}::decimal(38,{scale}) then {text} end"


def long_or_null(text: str) -> str:
    """Return a hugeint as a long, NULL where it does not fit."""
    return f"case when {text} between -9223372036854775808::hugeint and 9223372036854775807 then ({text})::bigint end"


class Pairs:
    """Expressions that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.choice = self.random.choice

    def any(self, depth: int) -> Both:
        """Return an expression of any type."""
        return self.of(self.choice([*MAKERS]), depth)

    def of(self, kind: str, depth: int) -> Both:
        """Return an expression of a type, see ``MAKERS``; a column or a constant at depth 0.

        ``money`` is a decimal of two digits, so that DuckDB needs no rule for choosing among scales.
        """
        if kind == "money":
            return self.choice(LEAVES["decimal"])
        if depth <= 0 or self.random.random() < 0.15:
            return self.choice(LEAVES[kind])
        return self.choice([*MAKERS[kind].values()])(self, depth - 1)

    def numbers(self, depth: int) -> tuple[Both, Both]:
        """Return two numeric expressions that may be combined: with a double, the other may be of any type."""
        left, right = self.choice([("long", "long"), ("decimal", "decimal"), ("double", "double"), ("double", "long")])
        return self.of(left, depth), self.of(right, depth)

    def alike(self, depth: int) -> tuple[Both, Both]:
        """Return two expressions that can be compared."""
        kind = self.choice(["long", "decimal", "double", "text", "time", "numbers"])
        if kind == "numbers":
            return self.numbers(depth)
        return self.of(kind, depth), self.of(kind, depth)


def _constants(*texts: str) -> list[Both]:
    return [Both(text, text) for text in texts]


LEAVES: Mapping[str, Sequence[Both]] = {
    "long": [of_columns("n"), of_columns("m"), of_columns("n"), *_constants("1", "7", "(-3)", "0")],
    "decimal": [of_columns("d"), of_columns("d"), *_constants("1.50", "(-0.25)", "0.00")],
    "double": [of_columns("x"), of_columns("y"), *_constants("1.5e0", "2e0")],
    "text": [of_columns("s"), of_columns("t"), *_constants("'a'", "''", "'b%'", "'日'")],
    "time": [of_columns("ts"), of_columns("seen"), *_constants("timestamp '2011-03-13 10:00:00'")],
    "bool": [of_columns("ok"), Both("(n > 1)", "(n > 1)"), *_constants("true", "false")],
}


def _call(ours: str, *kinds: str, theirs: str | None = None) -> Maker:
    """``ours`` and ``theirs`` are templates of the arguments ``{0}``, ``{1}`` ..."""

    def make(p: Pairs, depth: int) -> Both:
        parts = [p.of(kind, depth) for kind in kinds]
        return Both(
            "(" + ours.format(*(part.ours for part in parts)) + ")",
            "(" + (theirs or ours).format(*(part.theirs for part in parts)) + ")",
        )

    return make


def _whole_arithmetic(op: str) -> Maker:
    wide = f"({{0}})::hugeint {op} ({{1}})::hugeint"
    return _call(f"{{0}} {op} {{1}}", "long", "long", theirs=long_or_null(wide))


def _decimal_arithmetic(op: str, scale: int) -> Maker:
    """Return exact arithmetic of two columns of decimals; nested ones would need digits that DuckDB does not have."""

    def make(p: Pairs, depth: int) -> Both:
        left, right = p.choice(LEAVES["decimal"]), p.choice(LEAVES["decimal"])
        wide = f"(({left.theirs})::decimal(18,2) {op} ({right.theirs})::decimal(18,2))::decimal(38,{scale})"
        return Both(f"({left.ours} {op} {right.ours})", f"({null_if_too_long(wide, scale)})")

    return make


def _mixed_decimals(p: Pairs, depth: int) -> Both:
    """Return arithmetic of decimals of two scales; the sum of 18 and 9 digits may need 19."""
    op, other = p.choice(["+", "-"]), p.choice(["d", "n"])
    kind = "decimal(38,9)"
    return Both(f"(e {op} {other})", f"({null_if_too_long(f'(e::{kind} {op} {other}::{kind})::{kind}', 9)})")


def _decimal_remainder(p: Pairs, depth: int) -> Both:
    left, right = p.choice(LEAVES["decimal"]), p.choice(LEAVES["decimal"])
    theirs = (
        f"(case when {right.theirs} <> 0 then ({left.theirs})::decimal(18,2) % ({right.theirs})::decimal(18,2) end)"
    )
    return Both(f"({left.ours} % {right.ours})", theirs)


def _fine_rounding(p: Pairs, depth: int) -> Both:
    places = p.random.randrange(12)
    return Both(f"round(e, {places})", f"round(e::decimal(38,9), {min(places, 9)})")


def _round_double(p: Pairs, depth: int) -> Both:
    operand, places = p.of("double", depth), p.random.randrange(6)
    power = 10.0**places
    scaled = f"(({operand.theirs}) * {power!r}::double)"
    theirs = f"(case when isfinite{scaled} then round{scaled} / {power!r}::double else {operand.theirs} end)"
    return Both(f"round({operand.ours}, {places})", theirs)


def _to_long(function: str, kind: str) -> Maker:
    theirs = f"{function}({{0}})"
    if kind == "double":
        inside = f"isfinite({theirs}) and abs({theirs}) < 9223372036854775808::double or {theirs} = -(2::double ^ 63)"
        return _call(f"{function}({{0}})", kind, theirs=f"case when {inside} then ({theirs})::bigint end")
    return _call(f"{function}({{0}})", kind, theirs=f"({theirs})::bigint")


def _substr(p: Pairs, depth: int) -> Both:
    text, start, length = p.of("text", depth), p.random.randrange(-6, 7), p.choice([None, *range(-1, 6)])
    first = str(start - 1) if start > 0 else f"length({text.theirs}) + ({start})" if start < 0 else "0"
    last = f"length({text.theirs})" if length is None else f"{first} + ({length})"
    count = f"greatest({last}, 0) - greatest({first}, 0)"
    theirs = (
        f"(case when {count} > 0 then substr({text.theirs}, greatest({first}, 0) + 1, {count}) "
        f"when ({text.theirs}) is not null then '' end)"
    )
    return Both(f"substr({text.ours}, {start}{'' if length is None else f', {length}'})", theirs)


def _concat(p: Pairs, depth: int) -> Both:
    parts = [p.of("text", depth) for _ in range(p.random.randrange(2, 4))]
    return Both(f"concat({', '.join(x.ours for x in parts)})", "(" + " || ".join(x.theirs for x in parts) + ")")


def _variadic(name: str, kind: str) -> Maker:
    def make(p: Pairs, depth: int) -> Both:
        parts = [p.of(kind, depth) for _ in range(p.random.randrange(2, 4))]
        return Both(f"{name}({', '.join(x.ours for x in parts)})", f"{name}({', '.join(x.theirs for x in parts)})")

    return make


def _case(kind: str) -> Maker:
    def make(p: Pairs, depth: int) -> Both:
        when, then = p.of("bool", depth), p.of(kind, depth)
        other = p.of(kind, depth) if p.random.random() < 0.7 else None
        last = ("", "") if other is None else (f" else {other.ours}", f" else {other.theirs}")
        return Both(
            f"(case when {when.ours} then {then.ours}{last[0]} end)",
            f"(case when {when.theirs} then {then.theirs}{last[1]} end)",
        )

    return make


def _comparison(p: Pairs, depth: int) -> Both:
    left, right = p.alike(depth)
    op = p.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    other = "is not distinct from" if op == "<=>" else op
    return Both(f"({left.ours} {op} {right.ours})", f"({left.theirs} {other} {right.theirs})")


def _between(p: Pairs, depth: int) -> Both:
    (a, b), word = p.alike(depth), p.choice(["between", "not between"])
    return Both(f"({a.ours} {word} {b.ours} and {a.ours})", f"({a.theirs} {word} {b.theirs} and {a.theirs})")


def _in(p: Pairs, depth: int) -> Both:
    word = p.choice(["in", "not in"])
    kind, listed = p.choice([("long", "1, 7, -3"), ("decimal", "1.50, 0.00, 2.50"), ("text", "'a', '', '日本'")])
    operand = p.choice(LEAVES[kind]) if kind == "decimal" else p.of(kind, depth)
    return Both(f"({operand.ours} {word} ({listed}))", f"({operand.theirs} {word} ({listed}))")


def _is_null(p: Pairs, depth: int) -> Both:
    operand, word = p.any(depth), p.choice(["is null", "is not null"])
    return Both(f"({operand.ours} {word})", f"({operand.theirs} {word})")


def _like(p: Pairs, depth: int) -> Both:
    operand, word = p.of("text", depth), p.choice(["like", "not like"])
    pattern = p.choice(["a%", "%b", "%a%", "_", "a_", "%", "", "ab", "a!%", "a!_b", "%!%%", "_%_", "日%"])
    return Both(*(f"({text} {word} '{pattern}' escape '!')" for text in (operand.ours, operand.theirs)))


def _regexp(p: Pairs, depth: int) -> Both:
    operand = p.of("text", depth)
    pattern = p.choice(["^a", "b$", "[A-Z]", ".", "^.$", "(a|b)+", "(?i)B", "é|日", "^$", "a.b", "[0-9]"])
    return Both(f"regexp_like({operand.ours}, '{pattern}')", f"regexp_matches({operand.theirs}, '{pattern}')")


def _time_arithmetic(p: Pairs, depth: int) -> Both:
    amount = f"interval {p.random.randrange(100)} {p.choice(['seconds', 'minutes', 'hours', 'days', 'weeks'])}"
    op, operand = p.choice("+-"), p.choice(LEAVES["time"])
    return Both(f"({operand.ours} {op} {amount})", f"({operand.theirs} {op} {amount})")


def _truncation(p: Pairs, depth: int) -> Both:
    unit = p.choice(["second", "minute", "hour", "day", "week", "month", "quarter", "year"])
    operand = p.of("time", depth)
    return Both(
        f"date_trunc('{unit}', {operand.ours})", f"date_trunc('{unit}', ({operand.theirs})::timestamp)::timestamp"
    )


def _power(p: Pairs, depth: int) -> Both:
    base, exponent = p.of("double", depth), p.choice(["2", "0", "3", "0.5e0", "(-1)"])
    return Both(f"power({base.ours}, {exponent})", f"power({base.theirs}, {exponent}::double)")


def _numeral(p: Pairs, depth: int) -> Both:
    """Return text that is a number, or nearly."""
    kind = p.choice(["long", "decimal"])
    if p.random.random() < 0.5:
        one = of_columns("n") if kind == "long" else of_columns("d")
        return Both(f"to_text({one.ours})", f"({one.theirs})::varchar")
    numbers = ("7", "+07", "-12.50", ".5", "5.", "9223372036854775808", "1.5e1", "12 ", "0.005")
    written, other = p.choice(numbers), p.of("text", 0)
    return Both(*(f"(case when ok then '{written}' else {text} end)" for text in (other.ours, other.theirs)))


_ZONES = ("UTC", "Europe/London", "America/New_York", "Asia/Kolkata")


def _moment(p: Pairs, depth: int) -> Both:
    zone, other = p.choice(_ZONES), p.of("text", 0)
    written = p.choice(
        ["31/01/2026 09:05", "30/02/2026 00:00", "30/10/2011 02:30", "1/1/2026 00:00", "01/07/1999 23:59"]
    )
    ours = f"to_timestamp(case when ok then '{written}' else {other.ours} end, 'dd/MM/yyyy HH:mm', '{zone}')"
    text = f"(case when ok then '{written}' else {other.theirs} end)"
    exact = f"regexp_full_match({text}, '[0-9][0-9]/[0-9][0-9]/[0-9]{{4}} [0-9][0-9]:[0-9][0-9]')"
    local = f"(case when {exact} then try_strptime({text}, '%d/%m/%Y %H:%M') end)"
    return Both(ours, f"timezone('UTC', timezone('{zone}', {local}))")


def _to_utc(p: Pairs, depth: int) -> Both:
    zone, operand = p.choice(_ZONES), p.choice(LEAVES["time"])
    theirs = f"timezone('UTC', timezone('{zone}', ({operand.theirs})::timestamp))"
    return Both(f"to_utc_timestamp({operand.ours}, '{zone}')", theirs)


def _conversion(name: str, pattern: str, kind: str) -> Maker:
    """Return a conversion; DuckDB evaluates it only where the text is a valid number of this language."""

    def make(p: Pairs, depth: int) -> Both:
        text = _numeral(p, depth)
        matched = f"regexp_full_match({text.theirs}, '{pattern}')"
        return Both(f"{name}({text.ours})", f"(case when {matched} then try_cast({text.theirs} as {kind}) end)")

    return make


def _to_decimal(p: Pairs, depth: int) -> Both:
    """Return a conversion to decimal; DuckDB rounds, while this language returns NULL rather than lose digits."""
    text, scale = _numeral(p, depth), p.random.randrange(4)
    matched = rf"regexp_full_match({text.theirs}, '[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)')"
    wide, narrow = (f"try_cast({text.theirs} as decimal({size}))" for size in ("38,12", f"9,{scale}"))
    theirs = f"(case when {matched} and {wide} = {narrow} then {narrow} end)"
    return Both(f"to_decimal({text.ours}, 9, {scale})", theirs)


def _extract(p: Pairs, depth: int) -> Both:
    operand, pattern = p.of("text", depth), p.choice(["(a)", "(.)b", "([A-Z])", "(é|日)"])
    found = f"regexp_extract({operand.theirs}, '{pattern}', 1)"
    theirs = f"(case when regexp_matches({operand.theirs}, '{pattern}') then {found} end)"
    return Both(f"regexp_extract({operand.ours}, '{pattern}')", theirs)


_DIVISION = "case when ({1})::double <> 0 then ({0})::double / ({1})::double end"
_MANY = ("coalesce", "greatest", "least")


def _functions_of_every_type(kind: str) -> dict[str, Maker]:
    """Return the functions that exist for every type; the name of an entry ends with the type."""
    found = {f"{name} of {kind}": _variadic(name, kind) for name in _MANY}
    found |= {f"nullif of {kind}": _call("nullif({0}, {1})", kind, kind), f"case of {kind}": _case(kind)}
    return found | {f"if of {kind}": _call("if({0}, {1}, {2})", "bool", kind, kind)}


#: By type of the result, and by name: what is called, or an operator.
MAKERS: Mapping[str, Mapping[str, Maker]] = {
    "long": {
        **{op: _whole_arithmetic(op) for op in "+-*"},
        "%": _call(
            "{0} % {1}",
            "long",
            "long",
            theirs="case when ({1}) <> 0 then (({0})::hugeint % ({1})::hugeint)::bigint end",
        ),
        "- (sign)": _call("-{0}", "long", theirs=long_or_null("-(({0})::hugeint)")),
        "abs": _call("abs({0})", "long", theirs=long_or_null("abs(({0})::hugeint)")),
        "round of long": _call("round({0})", "long", theirs="{0}"),
        "length": _call("length({0})", "text"),
        "floor": _to_long("floor", "double"),
        "ceil": _to_long("ceil", "double"),
        "floor of decimal": _to_long("floor", "decimal"),
        "ceil of decimal": _to_long("ceil", "decimal"),
        "hour": _call("hour({0})", "time"),
        "minute": _call("minute({0})", "time"),
        "dayofweek": _call("dayofweek({0})", "time", theirs="dayofweek({0}) + 1"),
        "to_long": _conversion("to_long", "[+-]?[0-9]{1,19}", "bigint"),
        "difference of times": _call("{0} - {1}", "time", "time", theirs="epoch_ms({0}) - epoch_ms({1})"),
        **_functions_of_every_type("long"),
    },
    "decimal": {
        "+ of decimal": _decimal_arithmetic("+", 2),
        "- of decimal": _decimal_arithmetic("-", 2),
        "* of decimal": _decimal_arithmetic("*", 4),
        "% of decimal": _decimal_remainder,
        "two scales": _mixed_decimals,
        "- (sign) of decimal": _call("-{0}", "decimal"),
        "abs of decimal": _call("abs({0})", "decimal"),
        "round": _fine_rounding,
        "to_decimal": _to_decimal,
        **{name: maker for name, maker in _functions_of_every_type("money").items() if not name.startswith("nullif")},
    },
    "double": {
        "/": _call("{0} / {1}", "long", "long", theirs=_DIVISION),
        "/ of decimal": _call("{0} / {1}", "decimal", "decimal", theirs=_DIVISION),
        "/ of double": _call("{0} / {1}", "double", "double", theirs=_DIVISION),
        **{f"{op} of double": _call(f"{{0}} {op} {{1}}", "double", "double") for op in "+-*"},
        "round of double": _round_double,
        "sqrt": _call("sqrt({0})", "double"),
        "ln": _call("ln({0})", "double", theirs="case when {0} > 0 then ln({0}) end"),
        "exp": _call("exp({0})", "double"),
        "power": _power,
        "to_double": _conversion("to_double", r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", "double"),
        **_functions_of_every_type("double"),
    },
    "text": {
        "lower": _call("lower({0})", "text"),
        "upper": _call("upper({0})", "text"),
        "trim": _call("trim({0})", "text"),
        "substr": _substr,
        "concat": _concat,
        "||": _call("{0} || {1}", "text", "text"),
        "replace": _call("replace({0}, 'a', 'xy')", "text"),
        "regexp_extract": _extract,
        "to_text": _numeral,
        "to_text of bool": _call("to_text({0})", "bool", theirs="({0})::varchar"),
        **_functions_of_every_type("text"),
    },
    "time": {
        "interval": _time_arithmetic,
        "date_trunc": _truncation,
        "to_timestamp": _moment,
        "to_utc_timestamp": _to_utc,
        **_functions_of_every_type("time"),
    },
    "bool": {
        "comparison": _comparison,
        "between": _between,
        "in": _in,
        "is null": _is_null,
        "like": _like,
        "regexp_like": _regexp,
        "starts_with": _call("starts_with({0}, {1})", "text", "text"),
        "ends_with": _call("ends_with({0}, {1})", "text", "text"),
        "contains": _call("contains({0}, {1})", "text", "text"),
        "and": _call("{0} and {1}", "bool", "bool"),
        "or": _call("{0} or {1}", "bool", "bool"),
        "not": _call("not {0}", "bool"),
        "case of bool": _case("bool"),
    },
}
