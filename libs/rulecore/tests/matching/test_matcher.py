"""The matcher finds what the naive evaluator finds, by every access path."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rulecore.matching.index_builder
import rulecore.matching.matcher
from rulecore import language as lang
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.language import evaluate, to_logical
from rulecore.language.columnar.compiler import to_polars
from rulecore.matching.access_plan import AccessPath, plan_access
from rulecore.matching.encoded_batch import EncodedBatch
from rulecore.matching.index import parse_grid_cell_name
from rulecore.matching.matcher import EventMatcher, EventMatches
from rulecore.matching.predicates import PredicateKind
from streamcore.schema import Kind, StreamSchema
from tests.harness.apps.compile_failures import compile_with

SCHEMA = StreamSchema.parse(
    {
        "name": "wide",
        "event_time": "t",
        "keys": [["s"]],
        "fields": {
            "t": "timestamp not null",
            "s": "string",
            "s2": "string",
            "b": "boolean",
            "n": "long",
            "n2": "long",
            "d": "double",
            "m": "decimal(8,2)",
            "m2": "decimal(9,3)",
            "u": "timestamp",
        },
    }
)
TEXTS = ["a", "b", "", "ab", "A", "ü", "a%"]
WHOLE = [0, 1, -1, 2, 5, 7, 2**62]
MONEY = ["0", "0.5", "-0.5", "1.005", "2.50", "10", "99999999999", "-3.333"]
DOUBLES = ["0.5", "1e0", "-0.0", "2.5e1", "1e300", "0"]
TIMES = ["timestamp '2020-01-01 00:00:00'", "timestamp '2020-01-02 12:00:00'", "timestamp '1969-12-31 00:00:00'"]
OPERATORS = ["=", "<>", "<", "<=", ">", ">="]


def where_text(rng: random.Random, depth: int = 2) -> str:
    """Return a condition over the columns of ``SCHEMA``, with constants that occur in events."""
    if depth and rng.random() < 0.6:
        parts = [where_text(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        joined = f" {rng.choice(['and', 'and', 'or'])} ".join(parts)
        return f"not ({joined})" if rng.random() < 0.15 else f"({joined})"
    leaf = rng.choice(_LEAVES)(rng)
    return f"not ({leaf})" if rng.random() < 0.1 else leaf


def _quoted(rng: random.Random) -> str:
    return f"'{rng.choice(TEXTS)}'"


def _listed(rng: random.Random, one: Callable[[random.Random], str], most: int = 4) -> str:
    return ", ".join(one(rng) for _ in range(rng.randint(1, most)))


_LEAVES: list[Callable[[random.Random], str]] = [
    lambda r: f"{r.choice(['s', 's2'])} = {_quoted(r)}",
    lambda r: f"{_quoted(r)} {r.choice(OPERATORS)} {r.choice(['s', 's2'])}",
    lambda r: f"s {r.choice(['in', 'not in'])} ({_listed(r, _quoted, 7)})",
    lambda r: f"n {r.choice(['in', 'not in'])} ({_listed(r, lambda q: str(q.choice(WHOLE)))})",
    lambda r: f"m {r.choice(['in', 'not in'])} (0.5, 2.50, 10.00)",
    lambda r: f"n {r.choice(OPERATORS)} {r.choice(WHOLE)}",
    lambda r: f"{r.choice(WHOLE)} {r.choice(OPERATORS)} n2",
    lambda r: f"n {r.choice(OPERATORS)} {r.choice(MONEY)}",
    lambda r: f"{r.choice(['m', 'm2'])} {r.choice(OPERATORS)} {r.choice(MONEY)}",
    lambda r: f"{r.choice(['m', 'n'])} {r.choice(OPERATORS)} {r.choice(DOUBLES)}",
    lambda r: f"d {r.choice(OPERATORS)} {r.choice(DOUBLES + MONEY)}",
    lambda r: f"m between {r.choice(MONEY)} and {r.choice(MONEY)}",
    lambda r: f"u {r.choice(OPERATORS)} {r.choice(TIMES)}",
    lambda r: f"{r.choice(['s', 'n', 'd', 'm', 'b', 'u'])} is {r.choice(['null', 'not null'])}",
    lambda r: r.choice(["b", "not b", "b = true", "b <> false"]),
    lambda r: f"s <=> {_quoted(r)}",
    lambda r: r.choice(["s like 'a%'", "s like '%b'", "s like '_'", "s like 'a'", "s2 not like '%b%'"]),
    lambda r: f"{r.choice(['s', 'lower(s)'])} = s2",
    lambda r: f"n * n2 {r.choice(OPERATORS)} {r.choice(WHOLE)}",
    lambda r: f"lower(s) in ({_quoted(r)}, {_quoted(r)})",
    lambda r: f"coalesce(n, 0) + 1 = {r.choice(WHOLE)}",
    lambda r: f"n {r.choice(OPERATORS)} n2",
    lambda r: r.choice(["1 = 1", "1 = 2"]),
]


def rule(where: str, number: int = 0) -> CompiledRule:
    document = {
        "id": f"r{number}",
        "version": 1,
        "owner": "o",
        "on": "wide",
        "where": where,
        "then": {"severity": "low", "message": "m"},
    }
    return compile_rule(Rule.model_validate(document), {"wide": SCHEMA}, RuleLimits())


def random_rules(rng: random.Random, count: int) -> list[CompiledRule]:
    return [rule(where_text(rng), number) for number in range(count)]


def random_events(rng: random.Random, count: int) -> pl.DataFrame:
    """Return physical columns: decimals as scaled whole numbers, times as milliseconds, with NULL and NaN."""

    def column(values: Sequence[object], nulls: float = 0.2) -> list[object]:
        return [None if rng.random() < nulls else rng.choice(values) for _ in range(count)]

    times = [1_577_836_800_000, 1_577_966_400_000, -86_400_000, 0, 1]
    data = {
        "t": column(times, 0.0),
        "s": column([*TEXTS, "other", "B"]),
        "s2": column([*TEXTS, "B"]),
        "b": column([True, False]),
        "n": column([*WHOLE, 3, -(2**63), 2**63 - 1]),
        "n2": column([*WHOLE, 2**62]),
        "d": column([0.0, -0.0, 0.5, 1.0, 25.0, float("nan"), float("inf"), -2.5]),
        "m": column([0, 50, -50, 100, 101, 250, 1000, 99_999_999]),
        "m2": column([0, 500, 1005, 1006, 2500, -3333]),
        "u": column(times),
    }
    kinds = {Kind.STRING: pl.String, Kind.BOOLEAN: pl.Boolean, Kind.DOUBLE: pl.Float64}
    return pl.DataFrame(data, schema={f.name: kinds.get(f.type.kind, pl.Int64) for f in SCHEMA.fields})


def naive(rules: Sequence[CompiledRule], events: pl.DataFrame) -> list[tuple[int, int]]:
    """Apply every rule to every event with the reference evaluator."""
    types = {field.name: field.type for field in SCHEMA.fields}
    rows = [{n: to_logical(v, types[n]) for n, v in row.items()} for row in events.iter_rows(named=True)]
    return [
        (number, i)
        for number, row in enumerate(rows)
        for i, one in enumerate(rules)
        if one.where is not None and evaluate(one.where, row) is True
    ]


def pairs(matches: EventMatches) -> list[tuple[int, int]]:
    return list(zip(matches.row.tolist(), matches.rule.tolist(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "rules", "events"), [(1, 150, 60), (2, 150, 60), (3, 60, 700), (4, 5, 700)])
def test_the_matcher_equals_the_naive_evaluator_on_seeded_rules(seed: int, rules: int, events: int) -> None:
    rng = random.Random(seed)
    compiled, frame = random_rules(rng, rules), random_events(rng, events)
    matches = EventMatcher(compiled).match(frame)
    assert pairs(matches) == naive(compiled, frame)
    assert len(matches.row) > rules
    assert matches.failed == ()


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 12), st.integers(1, 12))
def test_the_matcher_equals_the_naive_evaluator_on_generated_rules(rng: random.Random, rules: int, events: int) -> None:
    compiled, frame = random_rules(rng, rules), random_events(rng, events)
    assert pairs(EventMatcher(compiled).match(frame)) == naive(compiled, frame)


@pytest.mark.slow
def test_the_seeded_rules_use_every_access_path_and_every_leaf() -> None:
    rules = random_rules(random.Random(1), 150)
    assert all(EventMatcher(rules).access_paths()[access] for access in AccessPath)
    entries = [entry for one in rules if one.plan for entry in one.plan.entries]
    residual = {leaf.kind for entry in entries for leaf in entry.leaves}
    assert residual >= {*PredicateKind}
    assert {e.bound.kind for e in entries if e.bound} == {PredicateKind.LOWER, PredicateKind.UPPER}
    assert any(len(entry.key_terms) > 1 for entry in entries)
    assert any(len(one.plan.entries) > 1 for one in rules if one.plan)


@pytest.mark.slow
def test_candidates_in_chunks_give_the_same_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    rules, events = random_rules(rng, 80), random_events(rng, 50)
    whole = pairs(EventMatcher(rules).match(events))
    monkeypatch.setattr(rulecore.matching.matcher, "_CHUNK_PAIRS", 7)
    assert pairs(EventMatcher(rules).match(events)) == whole


@pytest.mark.slow
def test_intervals_filed_by_cells_give_the_same_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(12)
    columns = ["n", "m", "d", "n * n2", "u"]
    bounds = {"u": ["timestamp '1969-12-31 00:00:00'", "timestamp '1970-01-01 00:00:00'", *TIMES]}
    texts = []
    for _ in range(120):
        column = rng.choice(columns)
        low, high = (rng.choice(bounds.get(column, [*map(str, WHOLE), "2.25"])) for _ in range(2))
        more = rng.choice(["", " and s in ('a', 'b')", " and b"])
        texts.append(f"{column} {rng.choice(['>', '>='])} {low} and {column} {rng.choice(['<', '<='])} {high}{more}")
    rules, events = [rule(text, i) for i, text in enumerate(texts)], random_events(rng, 60)
    monkeypatch.setattr(rulecore.matching.index_builder, "_GRID_INTERVALS", 1)
    crowded = EventMatcher(rules)
    assert any(parse_grid_cell_name(fold.term) for group in crowded._index.groups for fold in group.folds)
    assert any(group.first and parse_grid_cell_name(group.first) for group in crowded._index.groups)
    assert pairs(crowded.match(events)) == naive(rules, events)
    monkeypatch.setattr(rulecore.matching.index_builder, "_GRID_INTERVALS", 10_000)
    assert pairs(EventMatcher(rules).match(events)) == pairs(crowded.match(events))


@pytest.mark.slow
def test_the_lookup_of_an_interval_ignores_its_neighbours() -> None:
    """Each event is a candidate for the few intervals around it, not for all intervals below or above it."""
    rules = [rule(f"n between {10 * i} and {10 * i + 9}", i) for i in range(500)]
    events = pl.DataFrame({"n": [0, 9, 10, 2_345, 4_999, 5_000, -1, None]}, schema={"n": pl.Int64})
    matcher = EventMatcher(rules)
    assert pairs(matcher.match(events)) == [(0, 0), (1, 0), (2, 1), (3, 234), (4, 499)]
    assert matcher.match(events).candidates.sum() <= 3 * events.height


@pytest.mark.slow
def test_many_conditions_with_few_candidates_each_are_evaluated_together() -> None:
    rules = [rule(f"n = {i} and s like '%{i}_'", i) for i in range(300)]
    events = pl.DataFrame({"n": [*range(300)] * 8, "s": [f"x{i}y" for i in range(300)] * 4 + ["x"] * 1_200})
    assert pairs(EventMatcher(rules).match(events)) == [(row, row % 300) for row in range(1_200)]


@pytest.mark.slow
def test_a_batch_in_two_halves_gives_the_same_matches() -> None:
    rng = random.Random(6)
    matcher, events = EventMatcher(random_rules(rng, 80)), random_events(rng, 900)
    whole = pairs(matcher.match(events))
    halves = [pairs(matcher.match(part)) for part in (events[:3], events[3:])]
    assert whole == halves[0] + [(row + 3, one) for row, one in halves[1]]


def test_matches_do_not_depend_on_the_other_rules() -> None:
    rng = random.Random(7)
    rules, events = random_rules(rng, 60), random_events(rng, 60)
    together = pairs(EventMatcher(rules).match(events))
    alone = [(row, i) for i, one in enumerate(rules) for row, _ in pairs(EventMatcher([one]).match(events))]
    assert together == sorted(alone)


@pytest.mark.slow
def test_folding_many_keys_of_many_columns_loses_no_key() -> None:
    """More combinations than fit the direct table, so that the sorted one is used as well."""
    rng = random.Random(8)
    texts = [f"x{i}" for i in range(400)]
    rules = [
        rule(f"s = '{rng.choice(texts)}' and s2 = '{rng.choice(texts)}' and n = {rng.randrange(3)}", i)
        for i in range(400)
    ]
    values = [(o.where, i) for i, o in enumerate(rules)]
    wanted = [plan_access(where).entries[0] for where, _ in values if where is not None]
    terms = wanted[0].key_terms
    frame = pl.DataFrame(
        [dict(zip(terms, entry.keys[0], strict=True)) for entry in wanted],
        schema={"n": pl.Int64, "s": pl.String, "s2": pl.String},
    ).with_columns(pl.lit(0).alias("t"))
    found = pairs(EventMatcher(rules).match(frame))
    assert {(i, i) for i in range(400)} <= set(found)
    assert all(wanted[row].keys == wanted[one].keys for row, one in found)


def test_no_rules_and_no_events_give_no_matches() -> None:
    assert pairs(EventMatcher([]).match(random_events(random.Random(1), 5))) == []
    assert pairs(EventMatcher([rule("1 = 1")]).match(random_events(random.Random(1), 0))) == []


def test_a_rule_that_raises_is_reported_and_the_others_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "s2 = s"  # opaque to the index; it raises below
    rules = [rule("s = 'a'", 0), rule(f"s = 'a' and {broken}", 1), rule(f"{broken} or b", 2), rule("n > 1", 3)]
    events = random_events(random.Random(9), 40)
    healthy = [pair for pair in pairs(EventMatcher(rules).match(events)) if pair[1] in (0, 3)]

    def compile_or_raise(expr: lang.Expr) -> pl.Expr:
        own = isinstance(expr, lang.Compare) and isinstance(expr.right, lang.ColumnRef)
        return pl.col("not there") if own else to_polars(expr)

    compile_with(monkeypatch, compile_or_raise)
    matches = EventMatcher(rules).match(events)
    assert pairs(matches) == healthy
    assert [number for number, _ in matches.failed] == [1, 2]
    assert "not there" in matches.failed[0][1]


@pytest.mark.parametrize("where", ["lower(s) = 'a'", "n * n2 > 3", "s = 'a' and n * n2 > 3", "n * n2 is null"])
def test_a_term_that_raises_fails_only_the_rules_that_use_it(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [rule("s in ('a', 'b')", 0), rule(where, 1)]
    events = random_events(random.Random(9), 40)
    healthy = [pair for pair in pairs(EventMatcher(rules).match(events)) if pair[1] == 0]

    def compile_or_raise(expr: lang.Expr) -> pl.Expr:
        raise RuntimeError(f"no form for {type(expr).__name__}")

    compile_with(monkeypatch, compile_or_raise)
    matches = EventMatcher(rules).match(events)
    assert pairs(matches) == healthy
    assert [number for number, _ in matches.failed] == [1]


def test_a_column_is_translated_once_however_many_rules_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terms: list[str] = []
    value = EncodedBatch._compute_values

    def count_and_translate(self: EncodedBatch, term: str) -> pl.Series:
        terms.append(term)
        return value(self, term)

    monkeypatch.setattr(EncodedBatch, "_compute_values", count_and_translate)
    rules = [rule(f"s = '{i}' and n > {i} and n2 <> {i}", i) for i in range(50)]
    events = pl.DataFrame({"s": [str(i) for i in range(50)], "n": [100] * 50, "n2": [-1] * 50})
    assert pairs(EventMatcher(rules).match(events)) == [(i, i) for i in range(50)]
    assert sorted(terms) == ["n", "n2", "s"]


def test_a_large_batch_and_a_small_one_give_the_same_ids() -> None:
    """Arrow translates large batches and Python small ones."""
    rules = [rule("s in ('a', 'b', 'ü')", 0), rule("n in (1, 2, 5)", 1), rule("b", 2), rule("m in (0.5, 10.00)", 3)]
    matcher, events = EventMatcher(rules), random_events(random.Random(10), 600)
    parts = [matcher.match(events[start : start + 10]) for start in range(0, 600, 10)]
    small = [(row + 10 * number, one) for number, part in enumerate(parts) for row, one in pairs(part)]
    assert pairs(matcher.match(events)) == small
    assert matcher.match(events).row.dtype == np.uint32


def test_the_index_distinguishes_texts_from_numbers() -> None:
    """``s`` and ``n`` hold constants that Python takes for equal to others: True, 1 and 1.0."""
    rules = [rule("n = 1", 0), rule("b = true", 1), rule("d = 1", 2), rule("s = '1'", 3)]
    events = pl.DataFrame({"n": [1], "b": [True], "d": [1.0], "s": ["1"]}).with_columns(pl.lit("x").alias("s2"))
    assert pairs(EventMatcher(rules).match(events)) == [(0, 0), (0, 1), (0, 2), (0, 3)]
