"""Generated expressions and rows for tests: every node and function of the language, over columns of every type.

Hypothesis strategies, for this package's tests and for those of whoever runs expressions in another way; nothing else
needs hypothesis. Values favour the edges: NULL, NaN, infinities, the ends of 64 bits, decimals of 18 digits, empty
and odd texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import polars as pl
from hypothesis import strategies as st

from rulecore.errors import TypeMismatch
from rulecore.lang import (
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Column,
    Compare,
    Expr,
    In,
    Interval,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Scope,
    When,
    to_logical,
    to_physical,
    to_polars,
)
from rulecore.lang.tree import ArithmeticOp, ComparisonOp
from rulecore.lang.types import MAX_LONG, MIN_LONG, Value
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Kind, Type

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
}
SCOPE = Scope(COLUMNS)

LETTERS = "aAbBzZ09 %_\\'\"!.^$*(éÉßİıΣσςǅ\n\t\u00a0\u0301日😀"

TEXTS = st.text(st.sampled_from(LETTERS), max_size=6)
LONGS = st.one_of(
    st.integers(-10, 10),
    st.sampled_from(
        [MIN_LONG, MIN_LONG + 1, MAX_LONG, MAX_LONG - 1, 2**53, 2**53 + 1, -(2**53) - 1, 10**18, 10**18 - 1]
    ),
    st.integers(MIN_LONG, MAX_LONG),
)
TIMES = st.one_of(
    st.integers(1_200_000_000_000, 1_800_000_000_000),
    st.sampled_from([0, -1, 1, MIN_LONG, MAX_LONG, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999]),
    st.integers(-62_135_596_800_000, 253_402_300_799_999),
)
DOUBLES = st.one_of(
    st.floats(), st.floats(-100, 100), st.sampled_from([0.0, -0.0, 0.5, 1.5, 2.5, 1e18, 2.0**63, 1e308])
)
FINITE = DOUBLES.filter(lambda v: abs(v) < float("inf"))


def decimals(kind: Type) -> st.SearchStrategy[Decimal]:
    """Values of a decimal type, often near its ends."""
    most = 10**kind.precision - 1
    digits = st.one_of(st.integers(-most, most), st.integers(-1000, 1000), st.sampled_from([most, -most, 0]))
    return digits.filter(lambda n: abs(n) <= most).map(lambda n: Decimal(n).scaleb(-kind.scale))


def values(kind: Type) -> st.SearchStrategy[Value]:
    """Values of a column, without NULL."""
    if kind.kind is Kind.DECIMAL:
        return decimals(kind)
    by_kind: Mapping[Kind, st.SearchStrategy[Value]] = {
        Kind.BOOLEAN: st.booleans(),
        Kind.LONG: LONGS,
        Kind.DOUBLE: DOUBLES,
        Kind.STRING: TEXTS,
        Kind.TIMESTAMP: TIMES,
    }
    return by_kind[kind.kind]


ROWS = st.fixed_dictionaries({name: st.none() | values(kind) for name, kind in COLUMNS.items()})


def frames(rows: int) -> st.SearchStrategy[list[dict[str, Value]]]:
    """Lists of that many rows: all different, or one row again and again, where a columnar engine takes short cuts."""
    return st.one_of(st.lists(ROWS, min_size=rows, max_size=rows), ROWS.map(lambda row: [row] * rows))


def frame(rows: list[dict[str, Value]]) -> pl.DataFrame:
    """The rows as physical columns."""
    dtypes = {Kind.BOOLEAN: pl.Boolean, Kind.DOUBLE: pl.Float64, Kind.STRING: pl.String}
    return pl.DataFrame(
        {
            name: pl.Series([to_physical(row[name], kind) for row in rows], dtype=dtypes.get(kind.kind, pl.Int64))
            for name, kind in COLUMNS.items()
        }
    )


def run(expr: Expr, rows: list[dict[str, Value]]) -> list[Value]:
    """Logical values of the expression over the rows, by Polars."""
    column = frame(rows).with_columns(to_polars(expr).alias("result"))["result"]
    return [to_logical(value, expr.type) for value in column.to_list()]


def literals(kind: Kind) -> st.SearchStrategy[Expr]:
    """Constants that have a text."""
    numbers = {Kind.DECIMAL: st.sampled_from([c for c in COLUMNS.values() if c.kind is Kind.DECIMAL]).flatmap(decimals)}
    by_kind: Mapping[Kind, st.SearchStrategy[Value]] = {
        Kind.BOOLEAN: st.booleans(),
        Kind.LONG: LONGS,
        Kind.DOUBLE: FINITE,
        Kind.STRING: TEXTS,
        Kind.TIMESTAMP: st.integers(-62_135_596_800_000, 253_402_300_799_999),
        **numbers,
    }
    return by_kind[kind].map(lambda value: Literal.of(value, TIMESTAMP if kind is Kind.TIMESTAMP else LONG))


def column_refs(kind: Kind) -> st.SearchStrategy[Expr]:
    """Columns of a kind."""
    return st.sampled_from([Column(name=n, type=t) for n, t in COLUMNS.items() if t.kind is kind])


def leaves(kind: Kind) -> st.SearchStrategy[Expr]:
    """Columns twice as often as constants."""
    return st.one_of(column_refs(kind), column_refs(kind), literals(kind))


_COMPARISONS: tuple[ComparisonOp, ...] = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_OPERATORS: tuple[ArithmeticOp, ...] = ("+", "-", "*", "/", "%")
NUMERIC = (Kind.LONG, Kind.DECIMAL, Kind.DOUBLE)
REGEXES = ("^a", "[A-Z]+$", "(a+)+b", r"\d", ".", "É|ß", "(?i)z")
UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")


@st.composite
def expressions(draw: st.DrawFn, kind: Kind = Kind.BOOLEAN, depth: int = 3) -> Expr:
    """An expression of that kind, at most ``depth`` operators deep."""
    if depth <= 0 or draw(st.integers(0, 9)) == 0:
        return draw(leaves(kind))
    choices = _MAKERS[kind]
    for _ in range(5):
        try:
            made = draw(st.sampled_from(choices))(draw, depth - 1)
        except TypeMismatch:
            continue
        if made.type.kind is kind:
            return made
    return draw(leaves(kind))


def _number(draw: st.DrawFn, depth: int) -> Expr:
    return draw(expressions(draw(st.sampled_from(NUMERIC)), depth))


def _text(draw: st.DrawFn, depth: int) -> Expr:
    return draw(expressions(Kind.STRING, depth))


def _condition(draw: st.DrawFn, depth: int) -> Expr:
    return draw(expressions(Kind.BOOLEAN, depth))


def _time(draw: st.DrawFn, depth: int) -> Expr:
    return draw(expressions(Kind.TIMESTAMP, depth))


def _pair(draw: st.DrawFn, depth: int, *, ordered: bool = True) -> tuple[Expr, Expr]:
    makers = [_number, _number, _text, _time] + ([] if ordered else [_condition])
    maker = draw(st.sampled_from(makers))
    return maker(draw, depth), maker(draw, depth)


def _compare(draw: st.DrawFn, depth: int) -> Expr:
    op = draw(st.sampled_from(_COMPARISONS))
    left, right = _pair(draw, depth, ordered=op in ("<", "<=", ">", ">="))
    return Compare.of(op, left, right)


def _terms(draw: st.DrawFn, depth: int) -> Expr:
    node = And if draw(st.booleans()) else Or
    terms: list[Expr] = []
    for _ in range(draw(st.integers(2, 3))):
        term = _condition(draw, depth)
        terms += term.children if isinstance(term, node) else [term]
    return node(terms=tuple(terms))


def _in(draw: st.DrawFn, depth: int) -> Expr:
    operand = draw(st.one_of(column_refs(draw(st.sampled_from(list(Kind)))), expressions(Kind.STRING, depth)))
    kind = operand.type
    members = decimals(kind).map(Literal.of) if kind.kind is Kind.DECIMAL else literals(kind.kind)
    found = draw(st.lists(members, min_size=1, max_size=4))
    return In(operand=operand, values=tuple(m for m in found if isinstance(m, Literal)))


def _between(draw: st.DrawFn, depth: int) -> Expr:
    maker = draw(st.sampled_from([_number, _text, _time]))
    return Between(operand=maker(draw, depth), low=maker(draw, depth), high=maker(draw, depth))


def _like(draw: st.DrawFn, depth: int) -> Expr:
    escape = draw(st.sampled_from(["\\", "!"]))
    parts = st.sampled_from(["%", "_", "a", "é", "😀", "\n", ".", escape * 2, escape + "%", escape + "_"])
    return Like(operand=_text(draw, depth), pattern="".join(draw(st.lists(parts, max_size=5))), escape=escape)


def _case(kind: Kind) -> Callable[[st.DrawFn, int], Expr]:
    def make(draw: st.DrawFn, depth: int) -> Expr:
        whens = tuple(
            When(condition=_condition(draw, depth - 1), result=draw(expressions(kind, depth - 1)))
            for _ in range(draw(st.integers(1, 2)))
        )
        otherwise = draw(
            st.none() | expressions(draw(st.sampled_from(NUMERIC)) if kind in NUMERIC else kind, depth - 1)
        )
        return Case.of(whens, otherwise)

    return make


def _choice(kind: Kind) -> Callable[[st.DrawFn, int], Expr]:
    def make(draw: st.DrawFn, depth: int) -> Expr:
        other = draw(st.sampled_from(NUMERIC)) if kind in NUMERIC else kind
        names = ["coalesce", "nullif"] + ([] if kind is Kind.BOOLEAN else ["greatest", "least"])
        arguments = (draw(expressions(kind, depth)), draw(expressions(other, depth)))
        return Call.of(draw(st.sampled_from(names)), arguments)

    return make


def _call(name: str, *makers: Callable[[st.DrawFn, int], Expr]) -> Callable[[st.DrawFn, int], Expr]:
    return lambda draw, depth: Call.of(name, tuple(maker(draw, depth) for maker in makers))


def _constant(values: st.SearchStrategy[Value]) -> Callable[[st.DrawFn, int], Expr]:
    return lambda draw, _: Literal.of(draw(values))


def _arithmetic(draw: st.DrawFn, depth: int) -> Expr:
    op = draw(st.sampled_from(_OPERATORS))
    return Arithmetic.of(op, _number(draw, depth), _number(draw, depth))


def _negate(draw: st.DrawFn, depth: int) -> Expr:
    operand = _number(draw, depth)
    if isinstance(operand, Literal) and operand.value != MIN_LONG:
        return operand
    return Negate.of(operand)


def _times(draw: st.DrawFn, depth: int) -> Expr:
    interval = Interval(ms=draw(st.one_of(st.integers(0, 10_000_000_000), st.just(MAX_LONG))))
    time = _time(draw, depth)
    if draw(st.booleans()):
        return Arithmetic.of(draw(st.sampled_from(["+", "-"])), time, interval)
    return Arithmetic.of("+", interval, time)


_NUMBERS = [
    _arithmetic,
    _arithmetic,
    _negate,
    _call("abs", _number),
    _call("round", _number),
    _call("round", _number, _constant(st.integers(0, 12))),
]
_MAKERS: Mapping[Kind, list[Callable[[st.DrawFn, int], Expr]]] = {
    Kind.BOOLEAN: [
        _compare,
        _compare,
        _terms,
        _in,
        _between,
        _like,
        lambda draw, depth: Not(operand=_condition(draw, depth)),
        lambda draw, depth: IsNull(operand=draw(expressions(draw(st.sampled_from(list(Kind))), depth))),
        _call("starts_with", _text, _text),
        _call("ends_with", _text, _text),
        _call("contains", _text, _text),
        _call("regexp_like", _text, _constant(st.sampled_from(REGEXES))),
        _case(Kind.BOOLEAN),
        _choice(Kind.BOOLEAN),
    ],
    Kind.LONG: [
        *_NUMBERS,
        _call("length", _text),
        _call("floor", _number),
        _call("ceil", _number),
        _call("hour", _time),
        _call("minute", _time),
        _call("dayofweek", _time),
        lambda draw, depth: Arithmetic.of("-", _time(draw, depth), _time(draw, depth)),
        _case(Kind.LONG),
        _choice(Kind.LONG),
    ],
    Kind.DECIMAL: [*_NUMBERS, _case(Kind.DECIMAL), _choice(Kind.DECIMAL)],
    Kind.DOUBLE: [
        *_NUMBERS,
        _call("sqrt", _number),
        _call("ln", _number),
        _call("exp", _number),
        _call("power", _number, _number),
        _case(Kind.DOUBLE),
        _choice(Kind.DOUBLE),
    ],
    Kind.STRING: [
        _call("lower", _text),
        _call("upper", _text),
        _call("trim", _text),
        _call("substr", _text, _constant(st.integers(-8, 8))),
        _call("substr", _text, _constant(st.integers(-8, 8)), _constant(st.integers(-2, 8))),
        _call("concat", _text, _text),
        _call("replace", _text, _constant(TEXTS.filter(bool)), _constant(TEXTS)),
        _case(Kind.STRING),
        _choice(Kind.STRING),
    ],
    Kind.TIMESTAMP: [
        _times,
        _call("date_trunc", _constant(st.sampled_from(UNITS)), _time),
        _case(Kind.TIMESTAMP),
        _choice(Kind.TIMESTAMP),
    ],
}
