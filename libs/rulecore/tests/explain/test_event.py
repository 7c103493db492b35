"""``explain_event``, which explains one event at a time, gives the explanation of the kernel and of columns."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.explain.event import explain_event, is_plain
from rulecore.explain.explanation import ExplainQuestion, Explanation
from rulecore.explain.rule import explain_rule
from rulecore.language import ExpressionLimits, ListType
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, STRING
from tests.harness.oracles.predicates import SCHEMA, SHAPES, Events, Predicate, Shapes, physical

SOURCE = RuleInput.of_stream(SCHEMA, "odd")

THENS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"severity": st.sampled_from(["low", "high"]), "message": st.just("{s} at {t}: {m}, {fine} {d} {b}")},
    optional={"alert": st.booleans(), "score": st.integers(0, 100), "outcome": st.just("review")},
)
#: Entries that keep a rule from alerting, which ``explain_event`` ignores.
LIVES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["live", "shadow", "paused", {"canary": "10%"}]),
        "suppress": st.sampled_from([{"for": "1s", "by": ["s"]}, {"for": "7d", "by": ["s", "n"]}]),
        "effective": st.just({"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}),
        "budget": st.just({"matches": 1}),
    },
)


def rule(where: str, lists: list[ListType] | None = None, **entries: Any) -> CompiledRule:
    document = {"id": "r", "version": 3, "owner": "me", "on": "odd", "where": where, **entries}
    known = {one.name: one for one in lists or []}
    return compile_rule(Rule.model_validate(document), {"odd": SCHEMA}, RuleLimits(), known)


def frame(seed: int, predicate: Predicate, count: int) -> pl.DataFrame:
    """Events in order of arrival."""
    rows = physical(Events(seed, [predicate]).rows(count))
    place = [pl.lit(0, pl.Int32).alias(PARTITION), pl.int_range(pl.len(), dtype=pl.Int64).alias(OFFSET)]
    return rows.with_columns(*place, pl.col("t").alias(EVENT_MS))


def fields_as_text(one: Explanation) -> dict[str, str]:
    """Every field as text, for NaN is not equal to itself."""
    return {f.name: repr(getattr(one, f.name)) for f in fields(one)}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(sorted(SHAPES)), st.integers(1, 12), st.booleans(), THENS, LIVES)
def test_explain_event_equals_explain_rule(
    seed: int, shape: str, count: int, by_row: bool, then: dict[str, Any], life: dict[str, Any]
) -> None:
    predicate = Shapes(seed).rule(shape)
    assume(len(predicate.text) <= ExpressionLimits().text_bytes // 2)  # the index is tested with longer ones
    one = rule(predicate.text, then=then, **life)
    events = frame(seed, predicate, count)
    if "suppress" in life:  # the kernel suppresses for at least a millisecond, which covers events out of order
        events = events.unique("t", keep="first").sort("t")
    question = ExplainQuestion(row=events.height - 1) if by_row else ExplainQuestion()
    assert is_plain(one)
    plain = explain_event(one, SOURCE, events.to_dicts(), question)
    assert fields_as_text(plain) == fields_as_text(explain_rule(one, SOURCE, {SCHEMA.name: events}, question))


@pytest.mark.slow
def test_some_of_these_rules_fire_and_some_do_not() -> None:
    fired = []
    for seed, shape in enumerate(sorted(SHAPES.keys() - {"lists"}) * 3):
        predicate = Shapes(seed).rule(shape)
        one = rule(predicate.text, then={"severity": "low", "message": "m"})
        rows = frame(seed, predicate, 10).to_dicts()
        fired.append(bool(explain_event(one, SOURCE, rows, ExplainQuestion()).alerts))
    assert 0.2 < sum(fired) / len(fired) < 0.98


@pytest.mark.parametrize(
    "other",
    [
        rule("s in list('denied')", [ListType("denied", STRING)], then={"severity": "low", "message": "m"}),
        rule(
            "n > 1",
            group_by=["s"],
            within={"tumbling": "1m"},
            having="count(*) > 1",
            then={"severity": "low", "message": "m"},
        ),
    ],
    ids=["list", "window"],
)
def test_a_rule_that_needs_more_than_its_event_is_rejected(other: CompiledRule) -> None:
    assert not is_plain(other)
    with pytest.raises(ValueError, match="needs more than its events"):
        explain_event(other, SOURCE, [], ExplainQuestion())
