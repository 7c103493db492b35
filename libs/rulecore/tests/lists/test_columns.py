"""Conditions over lists, as columns, compared with evaluation event by event with plain dictionaries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore import language as lang
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.language import ListType
from rulecore.language.reference.evaluator import Lists
from rulecore.language.types import Value
from rulecore.lists.content import ListContent, ListEntries
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.list_columns import extract_list_columns
from rulecore.lists.scalar import logical_lists
from rulecore.matching.matcher import EventMatcher
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, Kind, StreamSchema, Type
from streamcore.schema import Field as StreamField

CLOCK_MS = 1_000_000
FIELDS = ("s", "t", "n", "cents", "fine", "at")
SCHEMA = StreamSchema(
    name="wide",
    fields=(
        StreamField("s", Type.parse("string")),
        StreamField("t", Type.parse("string")),
        StreamField("n", Type.parse("long")),
        StreamField("cents", Type.parse("decimal(12,2)")),
        StreamField("fine", Type.parse("decimal(18,4)")),
        StreamField("at", Type.parse("timestamp"), nullable=False),
    ),
    keys=(("s",),),
    event_time="at",
)
TYPES: Mapping[str, ListType] = {
    "texts": ListType("texts", Type.parse("string")),
    "numbers": ListType("numbers", Type.parse("long"), Type.parse("decimal(12,2)")),
    "money": ListType("money", Type.parse("decimal(12,2)"), Type.parse("long")),
    "coarse": ListType("coarse", Type.parse("decimal(6,1)"), Type.parse("string")),
    "moments": ListType("moments", Type.parse("timestamp")),
    "names": ListType("names", Type.parse("string"), Type.parse("string")),
    "flags": ListType("flags", Type.parse("string"), Type.parse("boolean")),
    "gone": ListType("gone", Type.parse("string"), Type.parse("long")),
}

TEXTS = ["", "a", "A", "é", "e\u0301", "日本", "a\x00b", " a", "😀", "x" * 300]
_texts = st.sampled_from(TEXTS)
_longs = st.sampled_from([0, 1, -1, 7, 100, 2**63 - 1, -(2**63), 10**18]) | st.integers(-20, 20)


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    edge = 10**digits - 1
    whole = st.integers(-300, 300) | st.sampled_from([edge, -edge, 0, 100, -100])
    return whole.map(lambda v: Decimal(v).scaleb(-scale))


def _values_of_type(kind: Type) -> st.SearchStrategy[Value]:
    match kind.kind:
        case Kind.STRING:
            return _texts
        case Kind.BOOLEAN:
            return st.booleans()
        case Kind.DECIMAL:
            return _decimals(kind.precision, kind.scale)
    return _longs


_rows = st.fixed_dictionaries(
    {f.name: (st.none() | _values_of_type(f.type)) if f.nullable else _values_of_type(f.type) for f in SCHEMA.fields}
)
_ends = st.sampled_from([CLOCK_MS - 1, CLOCK_MS, CLOCK_MS + 1]) | st.none()


@st.composite
def _list(draw: st.DrawFn, kind: ListType) -> list[tuple[Value, Value, int | None]]:
    keys = draw(st.lists(_values_of_type(kind.of), max_size=8))
    values = [draw(_values_of_type(kind.value)) if kind.value is not None else None for _ in keys]
    return [(key, value, draw(_ends)) for key, value in zip(keys, values, strict=True)]


_lists = st.fixed_dictionaries({name: _list(kind) for name, kind in TYPES.items() if name != "gone"})
_CONDITIONS = [
    "s in list('texts')",
    "s not in list('texts')",
    "lower(s) in list('texts') and t not in list('texts')",
    "concat(s, t) in list('texts') or n > 3",
    "not (s in list('texts') or n in list('numbers'))",
    "cents > lookup('numbers', n)",
    "n in list('money')",
    "cents in list('coarse')",
    "fine in list('money')",
    "fine not in list('coarse')",
    "n in list('coarse') or cents not in list('numbers')",
    "fine in list('numbers')",
    "cents * 10 in list('money')",
    "lookup('money', cents) = n",
    "lookup('money', cents) is null",
    "lookup('names', s) = t",
    "lookup('names', lookup('names', s)) in list('texts')",
    "lookup('coarse', n) like 'a%'",
    "coalesce(lookup('numbers', n), 5) < cents",
    "at in list('moments') and at not in list('moments')",
    "at in list('moments')",
    "lookup('flags', s)",
    "not lookup('flags', s)",
    "(lookup('flags', s)) = (t in list('texts'))",
    "s in list('gone')",
    "s not in list('gone')",
    "lookup('gone', s) is null",
    "lookup('gone', s) > 1",
    "'a' in list('texts') and n = 1",
    "case when s in list('texts') then n else -n end > 0",
    "(s in list('texts')) is null",
]


def compile_where(where: str, number: int) -> CompiledRule:
    document = {
        "id": f"r{number}",
        "version": 1,
        "owner": "o",
        "on": "wide",
        "where": where,
        "then": {"severity": "low", "message": "m"},
    }
    return compile_rule(Rule.model_validate(document), {"wide": SCHEMA}, RuleLimits(), TYPES)


RULES = [compile_where(text, i) for i, text in enumerate(_CONDITIONS)]
MATCHER = EventMatcher(RULES)
SCOPE = lang.Scope({f.name: f.type for f in SCHEMA.fields}, lists=TYPES)
PARSED = [lang.parse(text, SCOPE) for text in _CONDITIONS]
COLUMNS = tuple(column for rule in RULES for column in rule.list_columns)


def physical_frame(rows: list[dict[str, Value]]) -> pl.DataFrame:
    """Return physical columns, as the decoder does."""
    columns = [
        pl.Series(
            f.name,
            [lang.to_physical(row[f.name], f.type) for row in rows],
            {Kind.STRING: pl.String}.get(f.type.kind, pl.Int64),
        )
        for f in SCHEMA.fields
    ]
    count = len(rows)
    engine = [
        pl.Series(PARTITION, [0] * count, pl.Int32),
        pl.Series(OFFSET, range(count), pl.Int64),
        pl.Series(EVENT_MS, [0] * count, pl.Int64),
    ]
    return pl.DataFrame([*columns, *engine])


def list_content(kind: ListType, entries: list[tuple[Value, Value, int | None]]) -> ListContent:
    keys = [lang.to_physical(key, kind.of) for key, _, _ in entries]
    values = None if kind.value is None else [lang.to_physical(value, kind.value) for _, value, _ in entries]
    ends = [2**63 - 1 if end is None else end for _, _, end in entries]
    return ListContent(ListEntries.of(kind, keys, values, ends), CLOCK_MS)


@settings(max_examples=100, deadline=None)
@given(st.lists(_rows, min_size=1, max_size=12), _lists)
def test_the_matcher_equals_plain_evaluation_with_dictionaries(
    rows: list[dict[str, Value]], lists: dict[str, list[tuple[Value, Value, int | None]]]
) -> None:
    contents = {name: list_content(TYPES[name], entries) for name, entries in lists.items()}
    frame = with_list_columns(physical_frame(rows), COLUMNS, contents)
    matches = MATCHER.match(frame)
    assert matches.failed == ()
    found = {(int(row), int(rule)) for row, rule in zip(matches.row, matches.rule, strict=True)}

    dictionaries: dict[str, dict[Value, Value]] = {
        name: {k: v for k, v, end in {e[0]: e for e in entries}.values() if end is None or end > CLOCK_MS}
        for name, entries in lists.items()
    }
    assert found == _matches(rows, dictionaries)
    assert found == _matches(rows, logical_lists(contents))


def _matches(rows: list[dict[str, Value]], lists: Lists) -> set[tuple[int, int]]:
    return {
        (r, number)
        for number, expr in enumerate(PARSED)
        for r, row in enumerate(rows)
        if lang.evaluate(expr, row, lists) is True
    }


def test_equal_lookups_of_different_rules_share_a_column() -> None:
    one, other = (
        compile_where("lower(s) in list('texts')", 1),
        compile_where("n = 1 and lower(s) not in list('texts')", 2),
    )
    assert one.list_columns == other.list_columns
    assert one.lists == {"texts"}


def test_a_list_is_found_through_the_index_like_any_boolean_column() -> None:
    assert compile_where("s in list('texts')", 1).plan.access == "equality"  # type: ignore[union-attr]
    assert compile_where("s not in list('texts') and cents > 5", 1).plan.access == "equality and bound"  # type: ignore[union-attr]


def test_an_inner_lookup_precedes_the_column_that_needs_it() -> None:
    _, columns = extract_list_columns(lang.parse("lookup('names', lookup('names', s)) in list('texts')", SCOPE))
    assert [c.kind for c in columns] == ["lookup", "lookup", "in"]
    assert columns[0].name in lang.columns(columns[1].operand)


def test_a_list_of_other_types_than_the_rule_was_compiled_for_gives_null() -> None:
    rule = compile_where("n in list('numbers')", 1)
    other = list_content(ListType("numbers", Type.parse("string")), [("1", None, None)])
    rows: list[dict[str, Value]] = [{"s": "a", "t": "a", "n": 1, "cents": None, "fine": None, "at": 0}]
    frame = with_list_columns(physical_frame(rows), rule.list_columns, {"numbers": other})
    assert frame[rule.list_columns[0].name].to_list() == [None]


def test_a_missing_column_fails_only_the_rules_that_need_it() -> None:
    rules = [
        compile_where("n = 1", 0),
        compile_where("s in list('texts')", 1),
        compile_where("n = 1 and ((s in list('texts')) = (n > 0))", 2),
    ]
    rows: list[dict[str, Value]] = [{"s": "a", "t": "a", "n": 1, "cents": None, "fine": None, "at": 0}]
    matches = EventMatcher(rules).match(physical_frame(rows * 600))
    assert sorted(number for number, _ in matches.failed) == [1, 2]
    assert set(matches.rule.tolist()) == {0}


def test_the_matcher_accepts_an_empty_frame_and_an_empty_list() -> None:
    contents = {name: list_content(kind, []) for name, kind in TYPES.items()}
    assert with_list_columns(physical_frame([]), COLUMNS, contents).height == 0
    rows: list[dict[str, Value]] = [{"s": None, "t": None, "n": None, "cents": None, "fine": None, "at": 0}]
    assert with_list_columns(physical_frame(rows), COLUMNS, contents).height == 1


def test_a_large_list_equals_a_python_set() -> None:
    draw = random.Random(5)
    texts = [f"{draw.randrange(10**6)}{'é' * (n % 3)}" for n in range(60_000)]
    values: list[str | None] = [*draw.sample(texts, 5_000), *(f"x{n}" for n in range(5_000)), None, ""]
    draw.shuffle(values)
    known = set(texts[:30_000])
    content = ListContent(ListEntries.of(TYPES["texts"], sorted(known)), CLOCK_MS)
    whole = pl.Series(values, dtype=pl.String)
    chunks = pl.concat([whole[:17], whole[17:9_000], whole[9_000:]], rechunk=False)
    for column in (whole, chunks, whole[3:]):
        answers = content.holds(column, Type.parse("string")).to_list()
        assert answers == [None if text is None else text in known for text in column.to_list()]
    numbers = {draw.randrange(-(2**63), 2**63) for _ in range(30_000)}
    content = ListContent(ListEntries.of(ListType("n", Type.parse("long")), sorted(numbers)), CLOCK_MS)
    some = [*draw.sample(sorted(numbers), 500), *(draw.randrange(-(2**63), 2**63) for _ in range(5_000))]
    assert content.holds(pl.Series(some), Type.parse("long")).to_list() == [n in numbers for n in some]


def test_a_plain_list_is_the_dictionary_of_its_logical_entries() -> None:
    kind = ListType("limits", Type.parse("decimal(6,2)"), Type.parse("decimal(6,1)"))
    content = list_content(kind, [(Decimal("1.50"), Decimal("2.5"), None), (Decimal("3.00"), Decimal("0.1"), CLOCK_MS)])
    found = logical_lists({"limits": content})["limits"]
    assert dict(found) == {Decimal("1.50"): Decimal("2.5")}
    assert [key in found for key in (Decimal("1.5"), Decimal("1.501"), 3, None, True)] == [
        True,
        False,
        False,
        False,
        False,
    ]
