"""Generated expressions and rows for tests: every node and function of the language, over columns of every type.

Hypothesis strategies and a generator from a seed. Values favour the edges: NULL, NaN, infinities, the
ends of 64 bits, decimals of 18 digits, empty and odd texts.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from math import inf, isfinite, nan
from random import Random
from typing import Any

import polars as pl
from hypothesis import strategies as st

from rulecore.errors import ExpressionTypeError
from rulecore.language import (
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    ColumnRef,
    Compare,
    Expr,
    HigherOrderCall,
    In,
    IntervalLiteral,
    IsNull,
    LambdaParameter,
    Like,
    Literal,
    MemberOf,
    Negate,
    Not,
    Or,
    Scope,
    When,
    to_logical,
    to_physical,
)
from rulecore.language.ast import ArithmeticOp, ComparisonOp, HigherOrderFunction
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.text_signatures import URL_PARTS
from rulecore.language.types import MAX_LONG, MIN_LONG, Value
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type, array_of, map_of

COLUMNS: Mapping[str, Type] = {
    "a": LONG,
    "b": LONG,
    "amount": Type(Kind.DECIMAL, 12, 2),
    "rate": Type(Kind.DECIMAL, 5, 5),
    "big": Type(Kind.DECIMAL, 18, 0),
    "fine": Type(Kind.DECIMAL, 18, 9),
    "x": DOUBLE,
    "y": DOUBLE,
    "s": STRING,
    "t": STRING,
    "ts": TIMESTAMP,
    "seen": TIMESTAMP,
    "ok": BOOLEAN,
    "end": BOOLEAN,
    "longs": array_of(LONG),
    "texts": array_of(STRING),
    "doubles": array_of(DOUBLE),
    "money": array_of(Type(Kind.DECIMAL, 9, 2)),
    "items": Type.parse("array<struct<sku: string, price: decimal(9,2), ids: array<long>, `at home`: boolean>>"),
    "who": Type.parse("struct<name: string, n: long, home: struct<city: string>>"),
    "tags": map_of(LONG),
}
NESTED = (Kind.ARRAY, Kind.STRUCT, Kind.MAP)
SIMPLE = tuple(kind for kind in Kind if kind not in NESTED)
SCOPE = Scope(COLUMNS)

LETTERS = "aAbBzZ09 %_\\'\"!.^$*(éÉßİıΣσςǅ\n\t\u00a0\u0301日😀"
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
REGEXES = ("^a", "[A-Z]+$", "(a+)+b", r"\d", ".", "É|ß", "(?i)z")
NETWORKS = ("10.0.0.0/8", "0.0.0.0/0", "192.168.4.0/22", "::/0", "2001:db8::/33", "::ffff:10.1.0.0/112")
UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
NUMERIC = (Kind.LONG, Kind.DECIMAL, Kind.DOUBLE)

_LONGS = (MIN_LONG, MIN_LONG + 1, MAX_LONG, MAX_LONG - 1, 2**53, 2**53 + 1, -(2**53) - 1, 10**18, 10**18 - 1, 0, 1, -1)
_TIMES = (0, -1, MIN_LONG, MAX_LONG, FIRST_MS, FIRST_MS - 1, LAST_MS, LAST_MS + 1)
_DOUBLES = (0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 1e18, 2.0**63, -(2.0**63), 1e308, 5e-324, 0.1, inf, -inf, nan)
_COMPARISONS: tuple[ComparisonOp, ...] = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_OPERATORS: tuple[ArithmeticOp, ...] = ("+", "-", "*", "/", "%")

Row = dict[str, Any]
Maker = Callable[["Generator", int], Expr]


def any_expressions() -> st.SearchStrategy[Expr]:
    """Generate expressions of every kind, often a single operation to reach its edge cases."""
    return _SEEDS.map(lambda seed: Generator(seed).any_expression())


def expressions(kind: Kind = Kind.BOOLEAN, depth: int = 3) -> st.SearchStrategy[Expr]:
    """Generate expressions of a kind, at most ``depth`` operators deep."""
    return _SEEDS.map(lambda seed: Generator(seed).expression(kind, depth))


def frames(rows: int) -> st.SearchStrategy[list[Row]]:
    """Lists of that many rows: all different, or one row again and again, where a columnar engine takes short cuts."""
    return _SEEDS.map(lambda seed: Generator(seed).rows(rows))


#: One number per example: hypothesis mutates what it drew, and of 500 trees drawn node by node only 130 were distinct.
_SEEDS = st.integers(0, 2**64 - 1)


def frame(rows: list[Row]) -> pl.DataFrame:
    """Return the rows as physical columns."""
    return pl.DataFrame(
        {
            name: pl.Series([to_physical(row[name], kind) for row in rows], dtype=polars_type(kind))
            for name, kind in COLUMNS.items()
        }
    )


def run(expr: Expr, rows: list[Row]) -> list[Any]:
    """Evaluate the expression over the rows with Polars; return logical values."""
    column = frame(rows).with_columns(to_polars(expr).alias("result"))["result"]
    return [to_logical(value, expr.type) for value in column.to_list()]


class Generator:
    """Expressions and rows that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.choice = self.random.choice
        self.whole = self.random.randint
        self.parameters: list[LambdaParameter] = []

    def any_expression(self) -> Expr:
        """Return an expression of any kind."""
        return self.expression(self.choice(list(Kind)), self.choice([1, 1, 2, 3]))

    def expression(self, kind: Kind, depth: int) -> Expr:
        """Return an expression of a kind, at most ``depth`` operators deep."""
        if depth > 0 and self.whole(0, 9):
            for _ in range(5):
                with contextlib.suppress(ExpressionTypeError):  # for instance a scale that is too large
                    made = self.choice(_MAKERS[kind])(self, depth - 1)
                    if made.type.kind is kind:
                        return made
        return self.leaf(kind)

    def leaf(self, kind: Kind) -> Expr:
        """Return a column, or half as often a constant; inside of a lambda, often its parameter or a member of it."""
        inside: list[Expr] = [p for p in self.parameters if p.type.kind is kind]
        inside += [
            MemberOf.of(p, name) for p in self.parameters for name, member in p.type.members if member.kind is kind
        ]
        if inside and self.whole(0, 3):
            return self.choice(inside)
        return self.column(kind) if kind in NESTED or self.whole(0, 2) else self.literal(kind)

    def column(self, kind: Kind) -> ColumnRef:
        """Return a column of that kind."""
        return self.choice([ColumnRef(name=n, type=t) for n, t in COLUMNS.items() if t.kind is kind])

    def literal(self, kind: Kind) -> Literal:
        """Return a constant that has a text."""
        if kind is Kind.TIMESTAMP:
            return Literal.of(self.whole(FIRST_MS, LAST_MS), TIMESTAMP)
        value = self.value(self.column(kind).type)
        return Literal.of(1.5 if isinstance(value, float) and not isfinite(value) else value)

    def rows(self, count: int) -> list[Row]:
        """Return rows of all columns, one in five values NULL."""
        if self.whole(0, 3) == 0:
            return [self.row()] * count
        return [self.row() for _ in range(count)]

    def row(self) -> Row:
        """Return one row."""
        return {name: self.value(kind) if self.whole(0, 4) else None for name, kind in COLUMNS.items()}

    def value(self, kind: Type) -> Any:
        """Return a value of that type, not NULL, often near an edge."""
        match kind.kind:
            case Kind.ARRAY:
                return [self.inner(kind.items) for _ in range(self.choice([0, 1, 1, 2, 4]))]
            case Kind.MAP:
                return {self.choice(_KEYS): self.inner(kind.items) for _ in range(self.whole(0, 3))}
            case Kind.STRUCT:
                return {name: self.inner(member) for name, member in kind.members}
            case Kind.BOOLEAN:
                return self.choice([True, False])
            case Kind.STRING:
                return self.text(6)
            case Kind.LONG:
                return self.choice([self.whole(-10, 10), self.choice(_LONGS), self.whole(MIN_LONG, MAX_LONG)])
            case Kind.TIMESTAMP:
                usual = self.whole(1_200_000_000_000, 1_800_000_000_000)
                return self.choice([usual, self.choice(_TIMES), self.whole(FIRST_MS, LAST_MS)])
            case Kind.DOUBLE:
                bits: float = struct.unpack("<d", self.random.randbytes(8))[0]
                return self.choice([self.choice(_DOUBLES), bits, self.random.uniform(-100, 100), self.whole(-9, 9) / 2])
        most = 10**kind.precision - 1
        digits = self.choice([self.whole(-most, most), self.whole(-1000, 1000), self.choice([most, -most, 0, 1])])
        return Decimal(max(-most, min(most, digits))).scaleb(-kind.scale)

    def inner(self, kind: Type) -> Any:
        """Return a value inside another one; one in six is NULL."""
        return self.value(kind) if self.whole(0, 5) else None

    def text(self, most: int) -> str:
        """Return a text of at most that many characters."""
        return "".join(self.random.choices(LETTERS, k=self.whole(0, most)))

    # operands of the makers below

    def number(self, depth: int) -> Expr:
        """Return an expression of any numeric kind."""
        return self.expression(self.choice(NUMERIC), depth)

    def whole_number(self, depth: int) -> Expr:
        """Return an expression of type long."""
        return self.expression(Kind.LONG, depth)

    def string(self, depth: int) -> Expr:
        """Return a text expression."""
        return self.expression(Kind.STRING, depth)

    def condition(self, depth: int) -> Expr:
        """Return a boolean expression."""
        return self.expression(Kind.BOOLEAN, depth)

    def time(self, depth: int) -> Expr:
        """Return a timestamp expression."""
        return self.expression(Kind.TIMESTAMP, depth)

    def array(self, depth: int) -> Expr:
        """Return an array expression."""
        return self.expression(Kind.ARRAY, depth)

    def element(self, depth: int) -> Expr:
        """Return an element of an array, or a value of a map."""
        if not self.whole(0, 3):
            return Call.of("element_at", (self.map(depth), _key(self, depth)))
        index = self.choice([Literal.of(self.whole(1, 3)), Literal.of(-self.whole(1, 3)), self.leaf(Kind.LONG)])
        return Call.of(self.choice(("get", "element_at")), (self.array(depth), index))

    def map(self, depth: int) -> Expr:
        """Return a map expression."""
        return self.expression(Kind.MAP, depth)

    def value_of(self, kind: Type, depth: int) -> Expr:
        """Return an expression whose values can be compared with those of a type."""
        return self.number(depth) if kind.kind in NUMERIC else self.expression(kind.kind, depth)


def _compare(g: Generator, depth: int) -> Expr:
    op = g.choice(_COMPARISONS)
    makers = [g.number, g.number, g.string, g.time] + ([g.condition] if op in ("=", "<>", "<=>") else [])
    maker = g.choice(makers)
    return Compare.of(op, maker(depth), maker(depth))


def _terms(g: Generator, depth: int) -> Expr:
    node = And if g.whole(0, 1) else Or
    terms: list[Expr] = []
    for _ in range(g.whole(2, 3)):
        term = g.condition(depth)
        terms += term.children if isinstance(term, node) else [term]
    return node(terms=tuple(terms))


def _in(g: Generator, depth: int) -> Expr:
    operand = g.choice([g.column(g.choice(SIMPLE)), g.string(depth)])
    kind = operand.type
    values = [
        Literal.of(g.value(kind)) if kind.kind is Kind.DECIMAL else g.literal(kind.kind) for _ in range(g.whole(1, 4))
    ]
    return In(operand=operand, values=tuple(values))


def _between(g: Generator, depth: int) -> Expr:
    maker = g.choice([g.number, g.string, g.time])
    return Between(operand=maker(depth), low=maker(depth), high=maker(depth))


def _like(g: Generator, depth: int) -> Expr:
    escape = g.choice(["\\", "!"])
    parts = ["%", "_", "a", "é", "😀", "\n", ".", escape * 2, escape + "%", escape + "_"]
    return Like(operand=g.string(depth), pattern="".join(g.random.choices(parts, k=g.whole(0, 5))), escape=escape)


def _is_null(g: Generator, depth: int) -> Expr:
    return IsNull(operand=g.expression(g.choice(list(Kind)), depth))


def _not(g: Generator, depth: int) -> Expr:
    return Not(operand=g.condition(depth))


def _similar(g: Generator, kind: Kind) -> Kind:
    return g.choice(NUMERIC) if kind in NUMERIC else kind


def _case(kind: Kind) -> Maker:
    def make(g: Generator, depth: int) -> Expr:
        whens = tuple(
            When(condition=g.condition(depth), result=g.expression(_similar(g, kind), depth))
            for _ in range(g.whole(1, 2))
        )
        return Case.of(whens, g.choice([None, g.expression(kind, depth), g.expression(kind, depth)]))

    return make


def _choice(kind: Kind) -> Maker:
    def make(g: Generator, depth: int) -> Expr:
        names = ["coalesce", "nullif"] + ([] if kind is Kind.BOOLEAN else ["greatest", "least"])
        return Call.of(g.choice(names), (g.expression(kind, depth), g.expression(_similar(g, kind), depth)))

    return make


def _call(name: str, *makers: Maker) -> Maker:
    return lambda g, depth: Call.of(name, tuple(maker(g, depth) for maker in makers))


def _from(values: Sequence[Value]) -> Maker:
    return lambda g, _: Literal.of(g.choice(values))


def _word(least: int) -> Maker:
    return lambda g, _: Literal.of(g.choice("aéß ")[:least] + g.text(3))


def _arithmetic(g: Generator, depth: int) -> Expr:
    return Arithmetic.of(g.choice(_OPERATORS), g.number(depth), g.number(depth))


def _negate(g: Generator, depth: int) -> Expr:
    operand = g.number(depth)
    return operand if isinstance(operand, Literal) and operand.value != MIN_LONG else Negate.of(operand)


def _time_arithmetic(g: Generator, depth: int) -> Expr:
    interval = IntervalLiteral(ms=g.choice([g.whole(0, 10_000_000_000), MAX_LONG]))
    if g.whole(0, 1):
        return Arithmetic.of(g.choice(("+", "-")), g.time(depth), interval)
    return Arithmetic.of("+", interval, g.time(depth))


def _time_difference(g: Generator, depth: int) -> Expr:
    return Arithmetic.of("-", g.time(depth), g.time(depth))


_NUMERALS = (
    "",
    "7",
    "+07",
    "-12.50",
    ".5",
    "5.",
    "1e3",
    "-1E-2",
    "9223372036854775808",
    "12 ",
    "\u0661",
    "1.000000000000000001",
)
_MOMENTS = (
    "2011-03-27T01:30:00",
    "2011-10-30 01:30",
    "2026-01-31T12:00:00.1234Z",
    "2026-02-30T00:00:00",
    "2026-01-31T12:00:00+05:30",
    "0000-01-01T00:00",
    "31/01/2026 9:05",
    "2026-01-31T24:00:00",
)
_ZONES = ("UTC", "Europe/London", "Australia/Lord_Howe", "America/New_York", "Pacific/Apia")


def _numeral(g: Generator, depth: int) -> Expr:
    """Return text that is a number, or nearly."""
    if g.whole(0, 1):
        return Call.of("to_text", (g.expression(g.choice((Kind.LONG, Kind.DECIMAL)), depth),))
    return Case.of((When(condition=g.condition(depth), result=Literal.of(g.choice(_NUMERALS))),), g.string(depth))


def _moment(g: Generator, depth: int) -> Expr:
    """Return text that is a time, or nearly."""
    if g.whole(0, 1):
        return Call.of("to_text", (g.time(depth),))
    return Case.of((When(condition=g.condition(depth), result=Literal.of(g.choice(_MOMENTS))),), g.string(depth))


def _to_decimal(g: Generator, depth: int) -> Expr:
    precision = g.whole(1, 18)
    digits = (Literal.of(precision), Literal.of(g.whole(0, precision)))
    return Call.of("to_decimal", (g.choice((_numeral, Generator.number))(g, depth), *digits))


URLS = (
    "https://u:p@shop.example:8443/a/b?x=1&a=2&b=#top",
    "http://[2001:db8::1]/?a=&b=é",
    "mailto:a@b.org",
    "http://a.example?x#y",
    "file:///etc/a",
    "/only/path",
    "http://a b/",
    "http://a]b/",
    "s3://bucket",
)
JSON_TEXTS = (
    '{"a": [1.50, {"x": "é"}, -0], "b c": {"d": true}}',
    '{"a": "t\\u00e9xt", "a": null}',
    "[1, 2]",
    '{"a": "\\ud800"}',
    '{"a": NaN}',
    '"text"',
    "[" * 200 + "]" * 200,
    "{",
)
ADDRESSES = ("203.0.113.77", "10.0.0.256", "2001:db8:ffff::1", "::ffff:10.0.0.1", "fe80::1%eth0", "01.2.3.4")
TIME_PATTERNS = (
    "yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "dd/MMM/yyyy:HH:mm:ss Z",
    "E, d MMMM yyyy hh:mm a",
    "M/d/yy h:m:s.SSSSSS a xxx",
    "yyyyMMddHHmmssX",
    "''yyyy'%'-MM-dd[HH] XX",
)
_NESTED_COLUMNS = ("longs", "texts", "money", "items", "who", "tags")


def _written_time(g: Generator, depth: int) -> Expr:
    """Return a text of a time in one of the patterns, or nearly."""
    return Call.of("date_format", (g.time(depth), Literal.of(g.choice(TIME_PATTERNS)), Literal.of(g.choice(_ZONES))))


def _cast(kind: str) -> Maker:
    def make(g: Generator, depth: int) -> Expr:
        given: list[Maker] = [Generator.number, _numeral, Generator.condition]
        if kind in ("long", "double", "decimal(18,0)"):
            given.append(Generator.time)
        if kind == "string":
            given = [Generator.whole_number, Generator.time, Generator.condition, Generator.string]
        if kind == "timestamp":
            given = [Generator.whole_number, _moment]
        if kind == "boolean":
            given.append(_from((" Yes", "f", "TRUE", "0", "maybe")))
        return Call.of(g.choice(("cast", "try_cast")), (g.choice(given)(g, depth), Literal.of(kind)))

    return make


def _choose(*makers: Maker) -> Maker:
    return lambda g, depth: g.choice(makers)(g, depth)


_KEYS = ("", "a", "env", "É", "日")


def _lambda(*functions: HigherOrderFunction) -> Maker:
    def make(g: Generator, depth: int) -> Expr:
        array, function = g.array(min(depth, 1)), g.choice(functions)
        parameter = LambdaParameter(name=f"p{len(g.parameters)}", type=array.type.items)
        g.parameters.append(parameter)
        kind = g.choice((*SIMPLE, Kind.ARRAY)) if function == "transform" else Kind.BOOLEAN
        body = g.expression(kind, depth)
        g.parameters.pop()
        return HigherOrderCall.of(function, array, parameter.name, body)

    return make


def _member(g: Generator, depth: int) -> Expr:
    operand = g.choice([g.column(Kind.STRUCT), ColumnRef(name="items", type=COLUMNS["items"]), g.element(depth)])
    struct = operand.type.items if operand.type.kind is Kind.ARRAY else operand.type
    return MemberOf.of(operand, g.choice(struct.members)[0]) if struct.members else operand


def _element(g: Generator, depth: int) -> Expr:
    """Return an element of an array, or a value of a map."""
    return g.element(depth)


def _searched(name: str) -> Maker:
    def make(g: Generator, depth: int) -> Expr:
        array = g.array(depth)
        other = array_of(array.type.items) if name == "arrays_overlap" else array.type.items
        if name == "arrays_overlap":
            return Call.of(
                name, (array, Call.of("array", (g.value_of(other.items, depth), g.value_of(other.items, 0))))
            )
        return Call.of(name, (array, g.value_of(other, depth)))

    return make


def _key(g: Generator, depth: int) -> Expr:
    return g.choice([Literal.of(g.choice(_KEYS)), g.string(depth)])


def _map(g: Generator, depth: int) -> Expr:
    return Call.of("map", (Literal.of("a"), g.expression(Kind.LONG, depth), Literal.of("env"), g.leaf(Kind.LONG)))


def _of_array(g: Generator, depth: int) -> Expr:
    return Call.of(g.choice(("array_sum", "array_min", "array_max")), (g.array(depth),))


_ELEMENTS: list[Maker] = [_member, _element, _of_array]
_number, _text, _time = Generator.number, Generator.string, Generator.time
_NUMBERS: list[Maker] = [
    _arithmetic,
    _arithmetic,
    _arithmetic,
    _negate,
    _call("abs", _number),
    _call("round", _number),
    _call("round", _number, _from(range(13))),
]
_MAKERS: Mapping[Kind, list[Maker]] = {
    Kind.BOOLEAN: [
        _compare,
        _compare,
        _terms,
        _in,
        _between,
        _like,
        _not,
        _is_null,
        _call("starts_with", _text, _text),
        _call("ends_with", _text, _text),
        _call("contains", _text, _text),
        _call("regexp_like", _text, _from(REGEXES)),
        _call("cidr_match", _text, _from(NETWORKS)),
        _lambda("exists", "forall"),
        _lambda("exists", "forall"),
        _searched("array_contains"),
        _searched("arrays_overlap"),
        _call("map_contains_key", Generator.map, _key),
        _cast("boolean"),
        *_ELEMENTS,
        _case(Kind.BOOLEAN),
        _choice(Kind.BOOLEAN),
    ],
    Kind.LONG: [
        *_NUMBERS,
        *_ELEMENTS,
        _call("cardinality", lambda g, depth: g.choice((g.array, g.map))(depth)),
        _call("length", _text),
        _call("floor", _number),
        _call("ceil", _number),
        _call("hour", _time),
        _call("minute", _time),
        *(_call(part, _time) for part in ("dayofweek", "second", "year", "quarter", "month", "day", "dayofyear")),
        *(_call(part, _time) for part in ("weekofyear", "unix_seconds", "unix_millis", "unix_micros")),
        _call("instr", _text, _text),
        _cast("long"),
        _call("to_long", _number),
        _call("to_long", _numeral),
        _time_difference,
        _case(Kind.LONG),
        _choice(Kind.LONG),
    ],
    Kind.DECIMAL: [
        *_NUMBERS,
        *_ELEMENTS,
        _to_decimal,
        _cast("decimal(9,2)"),
        _cast("decimal(18,0)"),
        _case(Kind.DECIMAL),
        _choice(Kind.DECIMAL),
    ],
    Kind.DOUBLE: [
        *_NUMBERS,
        *_ELEMENTS,
        _call("sqrt", _number),
        _call("ln", _number),
        _call("exp", _number),
        _call("power", _number, _number),
        _call("to_double", _number),
        _call("to_double", _numeral),
        _cast("double"),
        _case(Kind.DOUBLE),
        _choice(Kind.DOUBLE),
    ],
    Kind.STRING: [
        *_ELEMENTS,
        _call("lower", _text),
        _call("upper", _text),
        _call("trim", _text),
        _call("substr", _text, _from(range(-8, 9))),
        _call("substr", _text, _from(range(-8, 9)), _from(range(-2, 9))),
        _call("concat", _text, _text),
        _call("replace", _text, _word(1), _word(0)),
        *(_call(name, _text) for name in ("ltrim", "rtrim", "initcap", "reverse", "base64", "url_encode", "md5")),
        *(_call(name, _text) for name in ("sha1", "sha256", "user_agent_class")),
        _call("sha2", _text, _from((0, 224, 384, 512))),
        _call("unbase64", _choose(_text, lambda g, depth: Call.of("base64", (g.string(depth),)))),
        _call("url_decode", _choose(_text, _from(("a+b%20", "%C3%A9", "%C3", "%zz", "100%")))),
        _call("parse_url", _choose(_text, _from(URLS)), _from(URL_PARTS)),
        _call("parse_url", _from(URLS), _from(("QUERY",)), _from(("a", "b", "[x"))),
        _call("get_json_object", _choose(_text, _from(JSON_TEXTS)), _from(("$", "$.a", "$.a[1]", "$['b c'].d"))),
        _call("ip_network", _choose(_text, _from(ADDRESSES)), _from((0, 8, 23, 32)), _from((0, 33, 128))),
        *(_call(name, _text, _from(range(5))) for name in ("left", "right", "repeat")),
        *(_call(name, _text, _from(range(7)), _word(1)) for name in ("lpad", "rpad")),
        _call("concat_ws", _from(("", ", ")), _text, _text, _text),
        _call("split_part", _text, _word(1), _from((1, 2, -1, -2, 9))),
        _call("regexp_replace", _text, _from(("(a)|(b)", "[0-9]+", "x*", "é")), _from(("", "-$0-", r"\$$0", "日"))),
        _call("date_format", _time, _from(TIME_PATTERNS), _from(_ZONES)),
        _call("from_unixtime", Generator.whole_number),
        _call("to_json", lambda g, _: ColumnRef(name=(name := g.choice(_NESTED_COLUMNS)), type=COLUMNS[name])),
        _cast("string"),
        _call("regexp_extract", _text, _from(("(a)(b)?", ".(é)", "([0-9]+)"))),
        _numeral,
        _moment,
        lambda g, depth: Call.of("to_text", (g.condition(depth),)),
        _case(Kind.STRING),
        _choice(Kind.STRING),
    ],
    Kind.TIMESTAMP: [
        _time_arithmetic,
        _call("date_trunc", _from(UNITS), _time),
        _call("to_timestamp", _moment),
        _call("to_timestamp", _moment, _from(("iso", "dd/MM/yyyy H:mm")), _from(_ZONES)),
        _call("to_utc_timestamp", _time, _from(_ZONES)),
        _call("from_utc_timestamp", _time, _from(_ZONES)),
        _call("to_timestamp", _written_time, _from(TIME_PATTERNS[:-1]), _from(_ZONES)),
        *(_call(f"timestamp_{unit}", Generator.whole_number) for unit in ("seconds", "millis", "micros")),
        _cast("timestamp"),
        _case(Kind.TIMESTAMP),
        _choice(Kind.TIMESTAMP),
    ],
    Kind.ARRAY: [
        _lambda("filter", "transform"),
        _lambda("filter", "transform"),
        _call("array", _number, _number),
        _call("array", _text, _text, _text),
        _call("split", _text, _from((",", "[ab]+", "é", " +"))),
        lambda g, depth: Call.of("array", (g.array(depth),) * g.whole(1, 2)),
        lambda g, depth: Call.of("array", (g.expression(g.choice((Kind.STRUCT, Kind.MAP)), depth),)),
        _call("map_keys", Generator.map),
        _call("map_values", Generator.map),
        _member,
        _case(Kind.ARRAY),
    ],
    Kind.STRUCT: [_element, _member, _case(Kind.STRUCT)],
    Kind.MAP: [_map, _case(Kind.MAP)],
}
