"""Conditions in two forms: the text of a rule, and what it means as a Python function of one event.

The function is the oracle: it is written next to the text, knows NULL by ``None``, and shares no code with the product.
Events are dictionaries of logical values (``Decimal``, epoch milliseconds); ``physical`` makes the frame of them. Rules
come in *shapes*, each made so that an index has to look it up by one particular path; values favour what a rule names
and its nearest neighbours, so that rules do match and boundaries are met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from random import Random

import polars as pl

from streamcore.schema import Kind, StreamSchema

Value = bool | int | float | Decimal | str | None
Event = Mapping[str, Value]
Truth = Callable[[Event], bool | None]

SCHEMA = StreamSchema.parse(
    {
        "name": "odd",
        "event_time": "t",
        "keys": [["s"]],
        "fields": {
            "t": "timestamp not null",
            "s": "string",
            "s2": "string",
            "b": "boolean",
            "b2": "boolean",
            "n": "long",
            "n2": "long",
            "d": "double",
            "d2": "double",
            "m": "decimal(8,2)",
            "whole": "decimal(18,0)",
            "fine": "decimal(18,18)",
            "u": "timestamp",
        },
    }
)
TYPES = {field.name: field.type for field in SCHEMA.fields}


@dataclass(frozen=True, slots=True)
class Predicate:
    """``truth`` gives True, False, or None for NULL. ``wanted``: values of an event that is likely to satisfy it."""

    text: str
    truth: Truth
    wanted: Event = field(default_factory=dict)


# What events hold and rules name.

LONG_TEXT = "long-" * 500
TEXTS = ["", "a", "A", "ab", "a%", "%", "_", " ", "ü", "u\u0308", "é", "e\u0301", "日本", "😀", "\U0010ffff", "\ue000"]
TEXTS += ["ß", "İ", "it's", "back\\slash", "x\ty", LONG_TEXT, LONG_TEXT + "!"]
_END = 2**63
_WIDE = Context(prec=400)
LONGS = [0, 1, -1, 2, 5, 7, 100, 2**31, 2**53, 2**53 + 1, _END - 2, _END - 1, 1 - _END]
DOUBLES = [0.0, 0.5, 1.0, 0.1, 2.5, 100.0, 1e300, 5e-324, 2.0**53, 2.0**63, 1.7976931348623157e308]
ODD_DOUBLES = [-0.0, math.nan, math.inf, -math.inf, -0.5, -2.5, -(2.0**63)]
MONEY = [Decimal(text) for text in ("0", "0.01", "-0.01", "0.50", "2.50", "10", "999999.99", "-999999.99", "100")]
WHOLE = [Decimal(text) for text in ("0", "1", "-1", "9007199254740993", "999999999999999999", "-999999999999999999")]
FINE = [Decimal(n).scaleb(-18) for n in (0, 1, -1, 123_456_789_012_345_678, 10**17, 5 * 10**17, 10**18 - 1)]
TIMES = [0, 1_577_836_800_000, 1_577_966_400_000, -86_400_000, 951_782_400_000]
POOLS: Mapping[str, Sequence[Value]] = {
    "t": TIMES,
    "s": TEXTS,
    "s2": TEXTS,
    "b": [True, False],
    "b2": [True, False],
    "n": LONGS,
    "n2": LONGS,
    "d": DOUBLES,
    "d2": DOUBLES,
    "m": MONEY,
    "whole": WHOLE,
    "fine": FINE,
    "u": TIMES,
}
ORDERED = ("n", "n2", "d", "d2", "m", "whole", "fine", "u")
KEYED = ("s", "s2", "n", "n2", "d", "m", "whole", "fine", "u", "b")
#: Decimals that no event holds exactly, so that a bound lies between two values, and such as 64 bits do not hold.
BETWEEN = ("0.005", "2.505", "9007199254740992.5", "-0.015", "-99.99999", "10.5", "0.1")
BEYOND = ("999999999999999999", "-999999999999999999", "99.5", "-99.5")


def column(name: str) -> str:
    """Return the name as a rule writes it."""
    return f"`{name}`"


def literal(value: Value) -> str:
    """Return a constant as a rule writes it; numbers below zero in brackets."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\t", "\\t") + "'"
        case float():
            return f"({value:.17e})" if value < 0 else f"{value:.17e}"
        case Decimal():
            text = format(value, "f")
            return f"({text})" if value < 0 else text
    return f"({value})" if isinstance(value, int) and value < 0 else str(value)


def time(ms: int) -> str:
    """Return a timestamp constant."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return f"timestamp '{moment:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}'"


def constant(name: str, value: Value) -> str:
    """Return a constant of that column's type."""
    return time(value) if TYPES[name].kind is Kind.TIMESTAMP and isinstance(value, int) else literal(value)


# What comparing means, from the beginning.


def as_double(value: Value) -> float:
    """Return a decimal as a double, as the language does: its digits, divided by a power of ten."""
    if not isinstance(value, Decimal):
        assert isinstance(value, int | float)
        return float(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)))
    return float(-number if sign else number) / 10.0**-exponent


def ordering_key(value: Value, *, double: bool) -> tuple[int, Value]:
    """Return a key of order: NaN is above all numbers and equal to itself."""
    if double:
        value = as_double(value)
        return (1, 0.0) if math.isnan(value) else (0, value)
    return (0, value)


def compare_values(left: Value, op: str, right: Value) -> bool | None:
    """Return ``left op right`` of two values of any types."""
    if left is None or right is None:
        return (left is right) if op == "<=>" else None
    double = isinstance(left, float) or isinstance(right, float)
    a, b = ordering_key(left, double=double), ordering_key(right, double=double)
    return {
        "=": a == b,
        "<=>": a == b,
        "<>": a != b,
        "<": a < b,
        "<=": a <= b,
        ">": a > b,
        ">=": a >= b,
    }[op]


def every(values: Sequence[bool | None]) -> bool | None:
    """Return the conjunction of truth values."""
    return False if False in values else None if None in values else True


def any_true(values: Sequence[bool | None]) -> bool | None:
    """Return the disjunction of truth values."""
    return True if True in values else None if None in values else False


def conjunction(parts: Sequence[Predicate]) -> Predicate:
    """Return the conjunction of predicates."""
    wanted = {name: value for part in parts for name, value in part.wanted.items()}
    return Predicate(" and ".join(f"({p.text})" for p in parts), lambda e: every([p.truth(e) for p in parts]), wanted)


def disjunction(parts: Sequence[Predicate]) -> Predicate:
    """Return the disjunction of predicates."""
    text, wanted = " or ".join(f"({p.text})" for p in parts), parts[-1].wanted
    return Predicate(text, lambda e: any_true([p.truth(e) for p in parts]), wanted)


def negation(part: Predicate) -> Predicate:
    """Return the negation of a predicate."""

    def truth(event: Event) -> bool | None:
        value = part.truth(event)
        return None if value is None else not value

    return Predicate(f"not ({part.text})", truth)


def compare(name: str, op: str, value: Value, text: str | None = None) -> Predicate:
    """Return a comparison of a column with a constant."""
    whole = f"{column(name)} {op} {text or constant(name, value)}"
    return Predicate(whole, lambda e: compare_values(e[name], op, value), {name: value} if text is None else {})


def member(name: str, values: Sequence[Value], *, negated: bool = False) -> Predicate:
    """Return a predicate with ``in`` or ``not in``."""

    def truth(event: Event) -> bool | None:
        if event[name] is None:
            return None
        return any(compare_values(event[name], "=", v) is True for v in values) != negated

    listed = ", ".join(constant(name, v) for v in values)
    text = f"{column(name)} {'not in' if negated else 'in'} ({listed})"
    return Predicate(text, truth, {} if negated else {name: values[-1]})


def between(name: str, low: Value, high: Value, *, negated: bool = False) -> Predicate:
    """Return a predicate with ``between``, which is false for every value if the ends are reversed."""

    def truth(event: Event) -> bool | None:
        inside = every([compare_values(low, "<=", event[name]), compare_values(event[name], "<=", high)])
        return None if inside is None else inside != negated

    ends = f"{constant(name, low)} and {constant(name, high)}"
    return Predicate(f"{column(name)} {'not between' if negated else 'between'} {ends}", truth, {name: low})


def is_null(name: str, *, negated: bool = False) -> Predicate:
    """Return a predicate with ``is null`` or ``is not null``."""
    text = f"{column(name)} is {'not null' if negated else 'null'}"
    return Predicate(text, lambda e: (e[name] is None) != negated, {} if negated else {name: None})


def truth_of(name: str) -> Predicate:
    """Return a boolean column as a condition."""

    def truth(event: Event) -> bool | None:
        value = event[name]
        return value if isinstance(value, bool) else None

    return Predicate(column(name), truth, {name: True})


def of_text(name: str, kind: str, part: str) -> Predicate:
    """Return a condition that no index knows: ``starts_with``, ``ends_with`` or ``contains``."""
    tests: Mapping[str, Callable[[str, str], bool]] = {
        "starts_with": str.startswith,
        "ends_with": str.endswith,
        "contains": str.__contains__,
    }

    def truth(event: Event) -> bool | None:
        value = event[name]
        return tests[kind](value, part) if isinstance(value, str) else None

    return Predicate(f"{kind}({column(name)}, {literal(part)})", truth, {name: f"{part}{part}"})


def two_columns(left: str, op: str, right: str) -> Predicate:
    """Return a comparison of two columns."""
    return Predicate(f"{column(left)} {op} {column(right)}", lambda e: compare_values(e[left], op, e[right]))


def product(op: str, value: int) -> Predicate:
    """Return a computed term; what does not fit into 64 bits is NULL."""

    def truth(event: Event) -> bool | None:
        a, b = event["n"], event["n2"]
        if not isinstance(a, int) or not isinstance(b, int) or not -_END <= a * b < _END:
            return None
        return compare_values(a * b, op, value)

    return Predicate(f"`n` * `n2` {op} {literal(value)}", truth)


class Shapes:
    """Rules that follow from a seed, by the path that they are made for."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.choice = self.random.choice

    def rule(self, shape: str) -> Predicate:
        """Return a rule of that shape, see ``SHAPES``."""
        return SHAPES[shape](self)

    def column_not(self, names: Sequence[str], *taken: str) -> str:
        """Return a column that is not used yet."""
        return self.choice([n for n in names if n not in taken])

    def equal(self, name: str) -> Predicate:
        """Return an equality that some events satisfy."""
        if name == "b" and self.random.random() < 0.5:
            return self.choice([truth_of("b"), negation(truth_of("b"))])
        return compare(name, self.choice(["=", "=", "<=>"]), self.choice(POOLS[name]))

    def bound(self, name: str, ops: Sequence[str] = ("<", "<=", ">", ">=")) -> Predicate:
        """Return a bound; on numbers sometimes by a constant of another type, on decimals also between two values."""
        op, chance = self.choice(ops), self.random.random()
        if name in ("n", "m", "whole", "fine") and chance < 0.2:
            text = self.choice(BEYOND if name == "fine" else [*BETWEEN, *BEYOND])
            return compare(name, op, Decimal(text), f"({text})")
        if name in ("n", "m", "whole", "fine", "d") and chance < 0.3:
            value = self.choice(DOUBLES)
            return compare(name, op, value, literal(value))
        if name == "d" and chance < 0.5:
            number = self.choice([*MONEY, *FINE])
            return compare(name, op, number, literal(number))
        return compare(name, op, self.choice(POOLS[name]))

    def any_list(self, name: str, most: int = 4, *, negated: bool = False) -> Predicate:
        """Return a list of two values or more."""
        values = self.random.sample(POOLS[name], min(len(POOLS[name]), self.random.randint(2, most)))
        return member(name, values, negated=negated)

    def between(self, name: str) -> Predicate:
        """Return a predicate with ``between`` or ``not between``."""
        low, high = self.choice(POOLS[name]), self.choice(POOLS[name])
        return between(name, low, high, negated=self.random.random() < 0.5)

    def opaque(self) -> Predicate:
        """Return a predicate that only Polars can evaluate."""
        text = self.choice(["a", "", "😀", "u", "\u0308", "long-", "!", "s", "%"])
        kind = self.choice(["starts_with", "ends_with", "contains"])
        name = self.choice(["s", "s2"])
        makers: list[Callable[[], Predicate]] = [
            lambda: of_text(name, kind, text),
            lambda: two_columns("n", self.choice(["<", "=", ">="]), "n2"),
            lambda: two_columns("d", self.choice(["<", "=", "<>", ">="]), "d2"),
            lambda: two_columns("s", self.choice(["<", "=", "<=>"]), "s2"),
            lambda: two_columns("whole", self.choice(["<", "=", "<>"]), "n"),
            lambda: compare("s", self.choice(["<", "<=", ">", ">="]), self.choice(TEXTS)),
        ]
        return self.choice(makers)()

    def any_scanned_leaf(self) -> Predicate:
        """Return a predicate that is neither an equality nor a bound."""
        name = self.choice(KEYED)
        makers: list[Callable[[], Predicate]] = [
            lambda: compare(name, "<>", self.choice(POOLS[name])),
            lambda: self.any_list(self.column_not(KEYED, "b"), negated=True),
            lambda: is_null(name),
            lambda: is_null(name, negated=True),
            self.opaque,
        ]
        return self.choice(makers)()

    def any_leaf(self) -> Predicate:
        """Return one condition of any kind."""
        makers: list[Callable[[], Predicate]] = [
            lambda: self.equal(self.choice(KEYED)),
            lambda: self.bound(self.choice(ORDERED)),
            lambda: self.any_list(self.column_not(KEYED, "b")),
            lambda: self.between(self.choice(ORDERED)),
            lambda: product(self.choice(["=", "<", ">=", "<>"]), self.choice(LONGS)),
            self.any_scanned_leaf,
        ]
        return self.choice(makers)()

    def tree(self, depth: int) -> Predicate:
        """Return conditions that are nested in any way."""
        if depth == 0 or self.random.random() < 0.3:
            leaf = self.any_leaf()
            return negation(leaf) if self.random.random() < 0.2 else leaf
        join = self.choice([conjunction, disjunction])
        found = join([self.tree(depth - 1) for _ in range(self.random.randint(2, 3))])
        return negation(found) if self.random.random() < 0.2 else found


def _equality(s: Shapes) -> Predicate:
    return s.equal(s.choice(KEYED))


def _equalities(s: Shapes) -> Predicate:
    names = s.random.sample(KEYED, s.random.randint(2, 4))
    return conjunction([s.equal(name) for name in names])


def _equality_and_bound(s: Shapes) -> Predicate:
    key = s.choice(KEYED)
    return conjunction([s.equal(key), s.bound(s.column_not(ORDERED, key))])


def _bound(s: Shapes) -> Predicate:
    return s.bound(s.choice(ORDERED))


def _two_bounds(s: Shapes) -> Predicate:
    first = s.choice(ORDERED)
    return conjunction([s.bound(first), s.bound(s.column_not(ORDERED, first))])


def interval(s: Shapes, name: str) -> Predicate:
    """Return a lower and an upper bound of one column, at times an empty one."""
    if s.random.random() < 0.2:
        return conjunction([s.bound(name, (">", ">=")), s.bound(name, ("<", "<="))])
    low, high = s.random.sample(POOLS[name], 2)
    if s.random.random() < 0.9 and compare_values(low, ">", high):
        low, high = high, low
    if s.random.random() < 0.3:
        return between(name, low, high)
    return conjunction([compare(name, s.choice([">", ">="]), low), compare(name, s.choice(["<", "<="]), high)])


def _interval(s: Shapes) -> Predicate:
    return interval(s, s.choice(["n", "m"]))


def _keyed_interval(s: Shapes) -> Predicate:
    return conjunction([s.equal("s"), interval(s, s.choice(["n", "d"]))])


def _list(s: Shapes) -> Predicate:
    return s.any_list(s.column_not(KEYED, "b"), 12)


def _lists(s: Shapes) -> Predicate:
    first = s.column_not(KEYED, "b")
    return conjunction([s.any_list(first, 12), s.any_list(s.column_not(KEYED, "b", first), 12)])


def _long_list(s: Shapes) -> Predicate:
    values: list[Value] = [s.random.randrange(-50, 50) for _ in range(40)]
    return member("n", [*values, *s.random.sample(LONGS, 3)])


def _scan(s: Shapes) -> Predicate:
    return s.any_scanned_leaf()


def _scans(s: Shapes) -> Predicate:
    return conjunction([s.any_scanned_leaf(), s.any_scanned_leaf()])


def _all(s: Shapes) -> Predicate:
    return disjunction([s.any_scanned_leaf(), s.any_scanned_leaf(), s.any_leaf()])


def _opaque_residual(s: Shapes) -> Predicate:
    return conjunction([s.equal(s.choice(KEYED)), s.opaque()])


def _two_groups(s: Shapes) -> Predicate:
    left = conjunction([s.equal(s.choice(KEYED)), s.any_leaf()])
    right = conjunction([s.bound(s.choice(ORDERED)), s.any_leaf()])
    return disjunction([left, right])


def _boolean(s: Shapes) -> Predicate:
    parts = [s.choice([truth_of(n), negation(truth_of(n)), compare(n, "=", s.choice([True, False]))]) for n in "b"]
    return conjunction([*parts, s.choice([truth_of("b2"), compare("b2", "<>", s.choice([True, False]))])])


def _many_keys(s: Shapes) -> Predicate:
    """Return combinations of many values of three columns, more than a plain array holds."""
    numbers, others = s.random.sample(range(3_000), 8), s.random.sample(range(3_000), 4)
    return conjunction([member("n", numbers), member("n2", others), compare("s", "=", s.choice(TEXTS))])


def _nested_tree(s: Shapes) -> Predicate:
    return s.tree(3)


SHAPES: Mapping[str, Callable[[Shapes], Predicate]] = {
    "equality": _equality,
    "equalities": _equalities,
    "equality and bound": _equality_and_bound,
    "bound": _bound,
    "two bounds": _two_bounds,
    "interval": _interval,
    "interval under a key": _keyed_interval,
    "list": _list,
    "lists": _lists,
    "long list": _long_list,
    "scan": _scan,
    "scans": _scans,
    "all events": _all,
    "opaque residual": _opaque_residual,
    "distributed": _two_groups,
    "boolean": _boolean,
    "many keys": _many_keys,
    "nested": _nested_tree,
}
#: So many rules of a shape for one of another; crowds of intervals and wide folds need their number.
WEIGHTS = {"interval": 80, "interval under a key": 90, "many keys": 35}


class Events:
    """Events that follow from a seed: what rules name, its nearest neighbours, and what is odd.

    Most are made for one of ``rules``, or a rule with several equalities would hardly ever match.
    """

    def __init__(self, seed: int, rules: Sequence[Predicate]) -> None:
        self.random = Random(seed)
        self.rules = rules

    def rows(self, count: int) -> list[Event]:
        """Return events; few columns are NULL at a time, and some events have no value at all."""
        return [self._event_for_rule() if self.random.random() < 0.7 else self._row() for _ in range(count)]

    def _event_for_rule(self) -> Event:
        """Return an event with the values of one rule, sometimes mixed with those of another one."""
        wanted = dict(self.random.choice(self.rules).wanted)
        if self.random.random() < 0.3:
            other = self.random.choice(self.rules).wanted
            wanted |= {name: value for name, value in other.items() if self.random.random() < 0.5}
        return {**self._row(), **{n: as_type(n, v) for n, v in wanted.items()}}

    def _row(self) -> Event:
        nulls = self.random.choice([0.0, 0.05, 0.15, 0.4, 1.0])
        row = {name: None if self.random.random() < nulls else self._value(name) for name in TYPES}
        return row | {"t": self.random.choice(TIMES)}

    def _value(self, name: str) -> Value:
        value = self.random.choice(POOLS[name])
        chance = self.random.random()
        match TYPES[name].kind:
            case Kind.STRING | Kind.BOOLEAN:
                return value if chance < 0.9 or isinstance(value, bool) else f"{value}x"
            case Kind.DOUBLE:
                assert isinstance(value, float)
                if value == 0 and chance < 0.5:
                    return -0.0
                near = math.nextafter(value, self.random.choice([math.inf, -math.inf]))
                return near if chance < 0.2 else self.random.choice(ODD_DOUBLES) if chance < 0.5 else value
            case Kind.DECIMAL:
                assert isinstance(value, Decimal)
                return _within(name, value + self.random.choice([-1, 1]) * _unit(name)) if chance < 0.3 else value
        assert isinstance(value, int)
        if name in ("n", "n2") and chance < 0.3:
            return self.random.randrange(300)
        return max(-_END, min(_END - 1, value + self.random.choice([-1, 1]))) if chance < 0.5 else value


def as_type(name: str, value: Value) -> Value:
    """Return a constant as the column holds it, or the nearest that it can hold."""
    if TYPES[name].kind is Kind.DECIMAL and isinstance(value, int | float | Decimal):
        return _within(name, Decimal(value)) if not isinstance(value, float) or math.isfinite(value) else None
    if TYPES[name].kind is Kind.LONG and isinstance(value, float | Decimal):
        return max(-_END, min(_END - 1, int(value)))
    if isinstance(value, float) and value == 0:
        return -0.0  # which equals 0.0, and is another pattern of bits
    return float(value) if TYPES[name].kind is Kind.DOUBLE and isinstance(value, int | Decimal) else value


def _unit(name: str) -> Decimal:
    return Decimal(1).scaleb(-TYPES[name].scale)


def _within(name: str, value: Decimal) -> Decimal:
    most = 10 ** TYPES[name].precision - 1
    return Decimal(max(-most, min(most, _digits(name, value)))).scaleb(-TYPES[name].scale)


def _digits(name: str, value: Decimal) -> int:
    return int(value.scaleb(TYPES[name].scale, _WIDE))


def physical(events: Sequence[Event]) -> pl.DataFrame:
    """Return the physical columns of kernels: decimals are scaled whole numbers."""
    dtypes = {Kind.STRING: pl.String, Kind.BOOLEAN: pl.Boolean, Kind.DOUBLE: pl.Float64}
    data = {
        name: [_digits(name, value) if isinstance(value, Decimal) else value for value in (e[name] for e in events)]
        for name in TYPES
    }
    return pl.DataFrame(data, schema={name: dtypes.get(kind.kind, pl.Int64) for name, kind in TYPES.items()})
