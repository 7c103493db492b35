"""Every access path of the index finds exactly the matches of one Python function on one event.

``HEADGATE_PAIRS`` so many pairs of a rule and an event (`make nightly`: 200,000). The oracle is the function that
``tests.harness.oracles.predicates`` writes next to each rule's text; the product's own naive evaluator must agree with
it too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.language import Scope, evaluate, parse
from rulecore.language.limits import ExpressionLimits
from rulecore.matching.access_plan import AccessPath
from rulecore.matching.index import parse_grid_cell_name
from rulecore.matching.matcher import EventMatcher
from rulecore.matching.predicates import PredicateKind
from tests.harness.oracles.predicates import (
    KEYED,
    POOLS,
    SCHEMA,
    SHAPES,
    TYPES,
    WEIGHTS,
    Event,
    Events,
    Predicate,
    Shapes,
    compare,
    physical,
)

PAIRS = int(os.environ.get("HEADGATE_PAIRS", "20000"))
LIMITS = RuleLimits(expression=ExpressionLimits(text_bytes=16_384))
LEAST_SHARE = 0.02  # the least number of pairs of a shape that match, and of pairs that do not
RARE = {"many keys": 0.0, "equalities": 0.002, "lists": 0.005, "interval under a key": 0.005}

pytestmark = pytest.mark.timeout(300 + PAIRS // 100)


@dataclass(frozen=True, slots=True)
class Case:
    """Rules of named shapes, and events; ``compiled`` in the same order as ``predicates``."""

    shapes: Sequence[str]
    predicates: Sequence[Predicate]
    compiled: Sequence[CompiledRule]
    events: Sequence[Event]

    @property
    def pairs(self) -> int:
        """Return the number of pairs."""
        return len(self.predicates) * len(self.events)


def compile_predicate(predicate: Predicate, number: int = 0) -> CompiledRule:
    """Return the compiled rule of a predicate."""
    document = {"id": f"r{number}", "version": 1, "owner": "o", "on": "odd", "where": predicate.text}
    rule = Rule.model_validate(document | {"then": {"severity": "low", "message": "m"}})
    return compile_rule(rule, {"odd": SCHEMA}, LIMITS)


def case(seed: int, rules: int, events: int) -> Case:
    """Return a case of ``rules`` times its weight of each shape."""
    maker = Shapes(seed)
    shapes = [shape for shape in SHAPES for _ in range(rules * WEIGHTS.get(shape, 8))]
    maker.random.shuffle(shapes)
    predicates = [maker.rule(shape) for shape in shapes]
    compiled = [compile_predicate(predicate, i) for i, predicate in enumerate(predicates)]
    return Case(shapes, predicates, compiled, Events(seed, predicates).rows(events))


def cases() -> Iterator[Case]:
    """Yield cases of many rules on few events and the other way round, until there are enough pairs."""
    seed, pairs = 0, 0
    while pairs < PAIRS:
        seed += 1
        rules, events = [(1, 30), (1, 25), (2, 20), (0, 700)][seed % 4]
        one = case(seed, rules, events) if rules else few_rules(seed, events)
        pairs += one.pairs
        yield one


def few_rules(seed: int, events: int) -> Case:
    """Return a case of few rules on a large batch, whose values are translated in another way."""
    maker = Shapes(seed)
    predicates = [maker.rule(shape) for shape in SHAPES]
    compiled = [compile_predicate(predicate, i) for i, predicate in enumerate(predicates)]
    return Case([*SHAPES], predicates, compiled, Events(seed, predicates).rows(events))


def find_with_function(one: Case) -> list[tuple[int, int]]:
    """Apply the function of each rule to each event."""
    return [(row, i) for row, event in enumerate(one.events) for i, p in enumerate(one.predicates) if p.truth(event)]


def find_with_index(one: Case) -> list[tuple[int, int]]:
    """Find the matches by the index."""
    matches = EventMatcher(one.compiled).match(physical(one.events))
    assert matches.failed == ()
    return list(zip(matches.row.tolist(), matches.rule.tolist(), strict=True))


def differences(one: Case, have: Sequence[tuple[int, int]], want: Sequence[tuple[int, int]]) -> list[str]:
    """Describe some of the pairs that only one side has."""
    odd = sorted({*have} ^ {*want})[:5]
    return [
        f"{'found' if pair in have else 'missed'} ({one.shapes[pair[1]]}): {one.predicates[pair[1]].text[:300]} on "
        f"{ {n: v for n, v in one.events[pair[0]].items() if f'`{n}`' in one.predicates[pair[1]].text} }"
        for pair in odd
    ]


@pytest.mark.slow
def test_the_index_finds_the_matches_of_a_plain_function() -> None:
    pairs, matched, by_shape = 0, Counter[str](), Counter[str]()
    for one in cases():
        want, have = find_with_function(one), find_with_index(one)
        assert have == want, differences(one, have, want)
        pairs += one.pairs
        matched.update(one.shapes[rule] for _, rule in want)
        for shape, count in Counter(one.shapes).items():
            by_shape[shape] += count * len(one.events)
    print(f"{pairs} pairs, {matched.total()} of them match")
    for shape, count in sorted(by_shape.items()):
        print(f"  {shape}: {count} pairs, {matched[shape] / count:.1%} match")
    assert pairs >= PAIRS
    assert matched.total() >= 0.1 * pairs
    shares = {shape: matched[shape] / count for shape, count in by_shape.items()}
    least = {shape: RARE.get(shape, LEAST_SHARE) for shape in shares}
    assert {s: share for s, share in shares.items() if not least[s] < share < 1 - LEAST_SHARE} == {}


@pytest.mark.slow
def test_the_naive_evaluator_equals_the_plain_function() -> None:
    one = case(3, 1, 40)
    scope = Scope(TYPES)
    for predicate, shape in zip(one.predicates, one.shapes, strict=True):
        expr = parse(predicate.text, scope, limits=LIMITS.expression)
        for event in one.events:
            assert evaluate(expr, event) is predicate.truth(event), (shape, predicate.text[:300], event)


@pytest.mark.slow
def test_the_rules_use_every_access_path_and_share_common_conditions() -> None:
    one = case(2, 2, 1)
    matcher = EventMatcher(one.compiled)
    assert all(matcher.access_paths()[access] for access in AccessPath)
    index = matcher._index
    folds = [fold for group in index.groups for fold in group.folds]
    assert {fold.dense for fold in folds} == {True, False}, "folds by a plain array, and by a sorted one"
    assert any(parse_grid_cell_name(fold.term) for fold in folds), "a grid under a key"
    assert any(group.first and parse_grid_cell_name(group.first) for group in index.groups), "a grid without a key"
    assert any(len(group.folds) >= 2 for group in index.groups), "keys of three columns"
    tables = [table for group in index.groups for table in group.tables]
    assert {(t.bound is None, t.lower) for t in tables} >= {(True, True), (False, True), (False, False)}
    entries = [entry for rule in one.compiled if rule.plan for entry in rule.plan.entries]
    assert {leaf.kind for entry in entries for leaf in entry.leaves} == {*PredicateKind}, "every leaf is left to check"
    assert {leaf.kind for leaf, _, _ in index.scans} >= {PredicateKind.NULL, PredicateKind.VALUE, PredicateKind.OPAQUE}
    assert {leaf.kind for leaf, _, _ in index.scans} >= {PredicateKind.DIFFERENT, PredicateKind.NO_MEMBER}
    assert max(len(entry.keys) for entry in entries) > 32, "a list longer than combinations may be"
    assert any(len(rule.plan.entries) > 1 for rule in one.compiled if rule.plan), "or as several entries"
    equalities = [leaf for entry in entries for leaf in entry.leaves if leaf.kind is PredicateKind.EQUAL]
    assert len(index.terms.ids["s"]) < sum(leaf.term == "s" for leaf in equalities) + len(entries) / 10
    assert len(index.opaque) < sum(leaf.kind is PredicateKind.OPAQUE for entry in entries for leaf in entry.leaves)


@pytest.mark.parametrize("events", [100, 600])
@pytest.mark.slow
def test_the_index_finds_every_constant_in_small_and_large_batches(events: int) -> None:
    """They are translated in two ways, and 0.0 and -0.0, which are equal, have two patterns of bits."""
    maker = Shapes(1)
    names = [name for name in KEYED if name != "b"]
    predicates = [compare(name, "=", value) for name in names for value in POOLS[name]]
    predicates += [maker.any_list(name, negated=negated) for name in names for negated in (False, True)]
    compiled = [compile_predicate(predicate, i) for i, predicate in enumerate(predicates)]
    one = Case(["equality"] * len(compiled), predicates, compiled, Events(1, predicates).rows(events))
    want, have = find_with_function(one), find_with_index(one)
    assert have == want, differences(one, have, want)
    assert {event["d"] is not None and str(event["d"]) for event in one.events} >= {"0.0", "-0.0", "nan"}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*SHAPES]), min_size=1, max_size=6), st.integers(0, 2**32), st.integers(1, 8))
def test_the_index_finds_the_matches_of_any_few_rules_on_any_few_events(
    shapes: list[str], seed: int, events: int
) -> None:
    maker = Shapes(seed)
    predicates = [maker.rule(shape) for shape in shapes]
    compiled = [compile_predicate(predicate, i) for i, predicate in enumerate(predicates)]
    one = Case(shapes, predicates, compiled, Events(seed, predicates).rows(events))
    want, have = find_with_function(one), find_with_index(one)
    assert have == want, differences(one, have, want)
