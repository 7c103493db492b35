"""Rules that are found by literals match what the reference evaluator says: generated conditions, and Sigma rules.

``HEADGATE_TEXT_EVENTS``: events of the Sigma rules (`make nightly`: 200,000).
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.errors import ExpressionError
from rulecore.language import evaluate
from rulecore.matching.access_plan import AccessPath
from rulecore.matching.candidate_patterns import compile_pattern
from rulecore.matching.matcher import EventMatcher
from rulecore.matching.predicates import PredicateKind
from rulecore.matching.regex_literals import required_texts
from streamcore.schema import StreamSchema
from tests.harness.apps.sigma_set import STREAM, import_cases, process_events, sigma_cases

EVENTS = int(os.environ.get("HEADGATE_TEXT_EVENTS", "400"))
SCHEMA = StreamSchema.parse(
    {
        "name": "w",
        "event_time": "t",
        "keys": [["s"]],
        "fields": {"t": "timestamp not null", "s": "string", "u": "string", "b": "boolean", "n": "long"},
    }
)
#: With a long s, a Kelvin sign and a dotted I, whose cases are odd.
LETTERS = "abAB%_sSkK.\u017f\u212aüİ1 \v"
PATTERNS = (
    "a", "ab", "a|b", "[ab]", "(?:a|sk)B?", "s+", "k{1,2}", "a.b", "(ab|ba)+", "[^a]b", "as?k", "[a-b]k", r"\.", "a*b",
    r"\s", r"a\w", "^a", "b$", r"\Aab?\z", "(?:ab|k)s", "[sk]a", "[[:alpha:]]b", "[a&&b]", r"\bk", "a{2}", "(a|b|)k",
)  # fmt: skip
FLAGS = ("", "", "(?i)", "(?s)", "(?im)")

pytestmark = pytest.mark.timeout(300 + EVENTS // 50)


def rule(where: str, number: int = 0) -> CompiledRule:
    document = {"id": f"r{number}", "version": 1, "owner": "o", "on": "w", "where": where}
    return compile_rule(
        Rule.model_validate(document | {"then": {"severity": "low", "message": "m"}}), {"w": SCHEMA}, RuleLimits()
    )


def access(where: str) -> AccessPath:
    plan = rule(where).plan
    assert plan is not None
    return plan.access


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class Conditions:
    """Draws conditions on texts, alone and among others."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def text(self, most: int = 3) -> str:
        return "".join(self.draw.choices(LETTERS, k=self.draw.randint(1, most)))

    def leaf(self) -> str:
        draw = self.draw
        column = draw.choice(["s", "u", "lower(s)", "lower(u)", "upper(s)"])
        function = draw.choice(["contains", "starts_with", "ends_with"])
        wild = "".join(
            (draw.choice(["%", "", "_"]), self.text(), draw.choice("%_"), self.text(), draw.choice(["%", ""]))
        )
        return draw.choice(
            [
                f"{function}({column}, {quoted(self.text())})",
                f"{function}({column}, {quoted(self.text(1))})",
                f"{column} like {quoted(wild)} escape '!'",
                f"{column} in ({quoted(self.text(2))}, {quoted(self.text(2))}, {quoted(self.text(1))})",
                f"regexp_like({column}, {quoted(draw.choice(FLAGS) + draw.choice(PATTERNS) + draw.choice(PATTERNS))})",
                f"{column} is {draw.choice(['', 'not '])}null",
                draw.choice(["n > 1", "b", "n = 2", "s = u", "lower(s) = u", "s = ''"]),
            ]
        )

    def condition(self, depth: int = 2) -> str:
        odds = self.draw.random()
        if depth and odds < 0.7:
            parts = [self.condition(depth - 1) for _ in range(self.draw.randint(2, 3))]
            inner = "(" + self.draw.choice([" and ", " or "]).join(parts) + ")"
        else:
            inner = self.leaf()
        odds = self.draw.random()
        return f"not ({inner})" if odds < 0.1 else f"not coalesce({inner}, false)" if odds < 0.25 else inner

    def rules(self, count: int) -> list[CompiledRule]:
        found = list[CompiledRule]()
        while len(found) < count:
            try:
                found.append(rule(self.condition(), len(found)))
            except ExpressionError:  # such as a pattern with a class that is empty
                continue
        return found

    def events(self, count: int) -> pl.DataFrame:
        ascii_only, draw = self.draw.random() < 0.4, self.draw

        def value() -> str | None:
            text = self.text(draw.choice([2, 6]))
            return None if draw.random() < 0.15 else text.encode("ascii", "ignore").decode() if ascii_only else text

        rows = [
            {"t": 0, "s": value(), "u": value(), "b": draw.choice([None, True, False]), "n": draw.choice([None, 1, 2])}
            for _ in range(count)
        ]
        return pl.DataFrame(
            rows, schema={"t": pl.Int64, "s": pl.String, "u": pl.String, "b": pl.Boolean, "n": pl.Int64}
        )


def found_pairs(rules: Sequence[CompiledRule], events: pl.DataFrame) -> list[tuple[int, int]]:
    matches = EventMatcher(rules).match(events)
    assert matches.failed == ()
    return list(zip(matches.row.tolist(), matches.rule.tolist(), strict=True))


def reference_pairs(rules: Sequence[CompiledRule], events: pl.DataFrame) -> list[tuple[int, int]]:
    conditions = [one.where for one in rules if one.where is not None]
    rows = events.iter_rows(named=True)
    return [(i, n) for i, row in enumerate(rows) for n, one in enumerate(conditions) if evaluate(one, row) is True]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 12, 40]))
def test_conditions_on_texts_match_what_the_reference_says(seed: int, count: int) -> None:
    made = Conditions(seed)
    rules, events = made.rules(12), made.events(count)
    assert found_pairs(rules, events) == reference_pairs(rules, events)


@pytest.mark.slow
def test_the_conditions_use_literals_and_leaves_of_other_parts_of_the_index() -> None:
    matcher = EventMatcher(Conditions(1).rules(150))
    texts = matcher._index.texts
    assert texts is not None
    assert matcher.access_paths()[AccessPath.LITERALS] > 30
    assert {leaf.kind for leaf, _ in texts.outside} >= {PredicateKind.OPAQUE, PredicateKind.EQUAL, PredicateKind.LOWER}
    assert texts.missing


@pytest.mark.slow
def test_a_batch_of_several_slices_finds_what_its_rows_find_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Conditions(5)
    rules, events = made.rules(30), made.events(300)
    whole = found_pairs(rules, events)
    monkeypatch.setattr("streamcore.decode.walk.literals.automaton.ROWS", 64)
    assert found_pairs(rules, events) == whole
    assert len(whole) > 300


@pytest.mark.slow
def test_every_imported_sigma_rule_fires_and_matches_what_the_reference_says() -> None:
    cases = sigma_cases(60, seed=7)
    rules = import_cases(cases)
    events = process_events(cases, EVENTS, seed=8)
    pairs = found_pairs(rules, events)
    assert {(i, i) for i in range(len(cases))} <= {*pairs}, "each rule on its own event"
    assert pairs == reference_pairs(rules, events)
    assert all(one.plan is not None and one.plan.access is AccessPath.LITERALS for one in rules)
    assert STREAM.names


def test_a_column_that_is_only_read_in_lower_case_is_found_and_may_be_missing() -> None:
    rules = [rule("contains(lower(s), 'ab')", 0), rule("contains(lower(u), 'x') and lower(u) <> 'xy'", 1)]
    events = pl.DataFrame({"s": ["xAB", None, "b"], "u": ["X", "XY", None]})
    assert found_pairs(rules, events) == [(0, 0), (0, 1)]
    matches = EventMatcher(rules).match(events.drop("u"))
    assert matches.rule.tolist() == [0]
    assert [number for number, _ in matches.failed] == [1]


@pytest.mark.slow
def test_candidates_are_few() -> None:
    cases = sigma_cases(200, seed=3)
    matches = EventMatcher(import_cases(cases)).match(process_events(cases, 1_000, seed=4, share=0.0)[200:])
    assert matches.candidates.sum() < 0.05 * 200 * 800


@pytest.mark.parametrize(
    ("where", "path"),
    [
        ("contains(s, 'abc')", AccessPath.LITERALS),
        ("s like '%a_c'", AccessPath.LITERALS),
        ("regexp_like(s, '(?i)power(shell|point)[0-9]+')", AccessPath.LITERALS),
        ("contains(s, 'a') or ends_with(lower(u), 'b')", AccessPath.LITERALS),
        ("contains(s, 'a') and not coalesce(contains(u, 'b'), false)", AccessPath.LITERALS),
        ("s = 'a' and contains(u, 'b')", AccessPath.LITERALS),
        ("contains(s, 'a') or n = 2", AccessPath.LITERALS),
        ("s = 'a' and not contains(u, 'b')", AccessPath.EQUALITY),
        ("not contains(s, 'a')", AccessPath.SCAN),
        ("contains(s, 'a') or b is null", AccessPath.ALL),
        ("regexp_like(s, '[a-z]+[0-9]')", AccessPath.SCAN),
        ("contains(s, u)", AccessPath.SCAN),
    ],
)
def test_a_condition_is_found_by_literals_if_it_needs_one(where: str, path: AccessPath) -> None:
    assert access(where) is path


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("abc", {"abc"}),
        ("ab?c", {"abc", "ac"}),
        ("x(?:foo|bar)+y", {"foo", "bar"}),
        (r"\\cmd\.exe\s", {"\\cmd.exe"}),
        ("(?i)Ask", {"ask", "a\u017fk"}),
        ("[0-9]+", set()),
        ("abc|", set()),
        ("[ab]{3}", {"a", "b"}),
        ("a[[:alpha:]]bcd", None),
        ("(?x) a b", None),
        (r"a\<b", None),
        ("[a&&b]c", None),
    ],
)
def test_what_a_pattern_needs(pattern: str, texts: set[str] | None) -> None:
    required = required_texts(pattern)
    assert (None if required is None else {*required.texts}) == texts


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FLAGS),
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3).map("".join),
    st.lists(st.text(LETTERS, max_size=8), min_size=1, max_size=20),
)
def test_a_match_has_a_required_text_and_re2_agrees_with_polars(flags: str, body: str, texts: list[str]) -> None:
    pattern = flags + body
    required = required_texts(pattern)
    column = pl.Series(texts)
    try:
        matched = column.str.contains(pattern).to_list()
        where = rule(f"regexp_like(s, {quoted(pattern)})").where
    except (pl.exceptions.PolarsError, ExpressionError):
        return
    lower = column.str.to_lowercase().to_list()
    if required is not None and required.texts:
        subjects = lower if required.folded else texts
        assert all(any(t in s for t in required.texts) for s, m in zip(subjects, matched, strict=True) if m)
    assert where is not None
    search = compile_pattern(where)
    if search is not None:
        said = [search.search(text) for text in texts]
        assert all(answer == (1 if m else 0) for answer, m in zip(said, matched, strict=True) if answer >= 0)
        assert [answer < 0 for answer in said] == [not text.isascii() or "\v" in text for text in texts]
