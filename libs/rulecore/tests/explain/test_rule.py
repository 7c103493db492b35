"""Explanations of rules: traced windows equal a plain loop, and the verdict names the reason."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.explain.condition import Truth
from rulecore.explain.explanation import ExplainQuestion, Explanation, RejectedClause
from rulecore.explain.rule import explain_rule
from rulecore.explain.windows import select_windows, trace_windows, windows_for_question
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

MINUTE = 60_000
START = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "amount": "decimal(12,2)", "card": "string"},
    }
)
SOURCE = RuleInput.of_stream(SCHEMA, "pay")

Event = tuple[int, int | None, str | None]  # second, cents, card


def rule(**entries: Any) -> CompiledRule:
    then = {"severity": "low", "message": "{user}"}
    document = {"id": "r", "version": 3, "owner": "me", "on": "pay", "then": then, **entries}
    return compile_rule(Rule.model_validate(document), {"pay": SCHEMA}, RuleLimits())


def window_rule(having: str, **entries: Any) -> CompiledRule:
    window = {"where": "amount > 0", "group_by": ["user"], "within": {"tumbling": "1m"}, "having": having}
    return rule(**{**window, **entries})


def frame(events: Sequence[Event]) -> pl.DataFrame:
    rows = [(START + s * 1000, "u", c, card, 0, n, START + s * 1000) for n, (s, c, card) in enumerate(events)]
    names = ("ts", "user", "amount", "card", PARTITION, OFFSET, EVENT_MS)
    kinds = (pl.Int64, pl.String, pl.Int64, pl.String, pl.Int32, pl.Int64, pl.Int64)
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def explain(one: CompiledRule, events: Sequence[Event], question: ExplainQuestion | None = None) -> Explanation:
    return explain_rule(one, SOURCE, {SCHEMA.name: frame(events)}, question or ExplainQuestion(row=len(events) - 1))


EVENTS = st.lists(
    st.tuples(st.integers(0, 179), st.sampled_from([None, -5, 0, 100, 250]), st.sampled_from(["a", "b", None])),
    min_size=1,
    max_size=15,
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_a_trace_holds_the_values_of_a_plain_loop(events: list[Event]) -> None:
    one = window_rule("count(*) >= 2 and sum(amount) > 4 or count_distinct(card) >= 2")
    expected = []
    for n, (second, cents, _) in enumerate(events):
        if cents is not None and cents > 0:
            seen = [(c, card) for s, c, card in events[: n + 1] if s // 60 == second // 60 and c is not None and c > 0]
            cards = {card for _, card in seen if card is not None}
            total = Decimal(sum(c for c, _ in seen)).scaleb(-2)
            fires = (len(seen) >= 2 and total > 4) or len(cards) >= 2
            expected.append((n, START + second // 60 * MINUTE, [len(seen), total, len(cards)], fires))
    traces = trace_windows(one, SOURCE, frame(events))
    found = [(s.row, s.start_ms, [v.value for v in s.seen], s.having.truth is Truth.TRUE) for s in traces]
    assert found == expected


QUESTIONS = st.builds(
    lambda row, second: ExplainQuestion(row=row, at_ms=None if second is None else START + second * 1000),
    st.none() | st.integers(0, 14),
    st.none() | st.integers(0, 179),
)


@pytest.mark.parametrize(
    "within",
    [{"tumbling": "1m"}, {"sliding": "1m", "every": "20s"}, {"session": "20s"}, {"count": 3}],
    ids=["tumbling", "sliding", "session", "count"],
)
@settings(max_examples=25, deadline=None)
@given(EVENTS.flatmap(st.permutations), QUESTIONS)
def test_the_windows_for_a_question_are_selected_from_all_traces(
    within: dict[str, Any], events: list[Event], question: ExplainQuestion
) -> None:
    one = window_rule("count(*) >= 2 or sum(amount) > 4", within=within)
    every = trace_windows(one, SOURCE, frame(events))
    selected = windows_for_question(one, SOURCE, frame(events), question)
    assert selected == select_windows(every, question.row, question.at_ms)


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_an_event_fires_exactly_when_it_is_the_first_to_cross(events: list[Event]) -> None:
    one = window_rule("count(*) >= 2")
    second, cents, _ = events[-1]
    counted = [s for s, c, _ in events if s // 60 == second // 60 and c is not None and c > 0]
    found = explain(one, events)
    assert found.fired == (cents is not None and cents > 0 and len(counted) == 2)
    assert found.looked_at == len(events)
    assert found.satisfied == sum(1 for _, c, _ in events if c is not None and c > 0)


def test_the_verdict_gives_the_reason() -> None:
    events: list[Event] = [(0, 100, None), (1, 100, None), (2, 100, None), (3, -1, None), (4, None, None)]
    one = window_rule("count(*) >= 2")
    assert explain(one, events[:1]).verdict == "does not fire: having is FALSE"
    assert explain(one, events[:2]).verdict == "fires: 1 alert"
    assert explain(one, events[:3]).verdict == "does not fire again: it has already fired in this window"
    assert explain(one, events[:4]).verdict == "does not fire: the event does not satisfy where, which is FALSE"
    assert explain(one, events[:5]).verdict == "does not fire: the event does not satisfy where, which is NULL"


def test_a_final_rule_is_traced_at_the_ends_of_its_windows() -> None:
    events: list[Event] = [(0, 100, None), (1, 100, None)]
    one = window_rule("count(*) >= 2", emit="final")
    early = explain(one, events, ExplainQuestion(row=1, closing_ms=START + MINUTE - 1))
    assert (early.fired, early.verdict) == (False, "does not fire yet: having is TRUE, and the window is not over")
    over = explain(one, events, ExplainQuestion(row=1, closing_ms=START + MINUTE))
    assert (over.fired, over.windows[0].row) == (True, None)
    assert str(over.windows[0].seen[0]) == "count(*) = 2"


def test_without_matching_events_the_explanation_ranks_the_clauses_that_rejected_them() -> None:
    events: list[Event] = [(0, 100, "a"), (1, None, "b"), (2, -1, "b")]
    found = explain(window_rule("count(*) >= 2", where="card = 'b' and amount > 5"), events, ExplainQuestion())
    assert found.rejected == (RejectedClause("amount > 5", 3), RejectedClause("card = 'b'", 1))


def test_a_time_selects_the_windows_that_contain_it() -> None:
    events: list[Event] = [(0, 100, None), (70, 100, None), (71, 100, None), (130, 100, None)]
    found = explain(window_rule("count(*) >= 2"), events, ExplainQuestion(at_ms=START + 75_000))
    assert [(w.start_ms, w.row) for w in found.windows] == [(START + MINUTE, 2)]
    assert found.fired
    assert not explain(window_rule("count(*) >= 2"), events, ExplainQuestion(at_ms=START + 1)).fired


def test_the_recomputed_alert_has_the_id_of_the_production_alert_in_every_mode() -> None:
    events: list[Event] = [(0, 100, None), (1, 100, None)]
    ids = {
        mode: explain(window_rule("count(*) >= 2", mode=mode), events).alerts[0]["alert_id"]
        for mode in ("live", "shadow", "paused")
    }
    assert len(set(ids.values())) == 1


def test_an_event_rule_shows_the_event() -> None:
    found = explain(rule(where="amount > 5 and card is not null"), [(0, 100, None)], ExplainQuestion(row=0))
    assert found.event is not None
    clause = found.event.conditions["where"]
    assert [(leaf.text, leaf.truth, leaf.decided) for leaf in clause.leaves()] == [
        ("amount > 5", Truth.FALSE, True),
        ("card is not null", Truth.FALSE, True),
    ]
    assert explain(rule(where="amount > 0"), [(0, 100, None)], ExplainQuestion(row=0)).verdict == "fires for this event"


def test_a_key_without_events_is_explained() -> None:
    found = explain_rule(window_rule("count(*) >= 2"), SOURCE, {SCHEMA.name: frame([])}, ExplainQuestion())
    assert (found.fired, found.looked_at, found.windows) == (False, 0, ())


def test_an_in_order_rule_is_explained_in_order_of_time() -> None:
    n = {"name": "n", "of": "count(*)", "within": {"sliding": "1h", "every": "1m"}}
    late_event: list[Event] = [(0, 100, "a"), (300, 100, "a"), (120, 100, "b")]
    for order, seen in (("on_arrival", 2), ("in_order", 1)):
        one = rule(features=[n], group_by=["user"], where="n >= 0 and card = 'b'", order=order)
        found = explain(one, late_event, ExplainQuestion(row=2, closing_ms=START + 10 * MINUTE))
        assert found.verdict == "fires for this event"
        assert [alert["values"] for alert in found.alerts] == [{"n": seen}]


def test_a_feature_rule_shows_the_values_of_its_features() -> None:
    usual = {"name": "usual", "of": "avg(amount)", "within": {"sliding": "1h", "every": "1m"}}
    one = rule(features=[usual], group_by=["user"], where="amount > 3 * usual and card = 'a'")
    events: list[Event] = [(0, 100, "a"), (60, 200, "a"), (120, 500, "a"), (130, 400, "a")]
    found = explain(one, events, ExplainQuestion(row=2))
    assert found.verdict == "fires for this event"
    assert [alert["values"] for alert in found.alerts] == [{"usual": 1.5}]
    missed = explain(one, events)
    assert missed.verdict == "does not fire: the event does not satisfy where, which is FALSE"
    assert missed.event is not None
    shown = missed.event.conditions["where"]
    assert shown.parts[0].truth is Truth.FALSE
    assert "2.66" in str(shown.parts[0])


def test_only_events_of_the_key_in_question_count_where_features_have_others() -> None:
    within = {"sliding": "1d", "every": "1h"}
    of_card = {"name": "of_card", "of": "count(*)", "by": ["card"], "within": within}
    mine = {"name": "mine", "of": "count(*)", "within": within}
    one = rule(where="of_card >= 1 and mine = 0", group_by=["user"], features=[of_card, mine])
    # what is read for the key `a`: its events, and those of its latest card; an earlier one of `b` is not among them
    events = frame([(0, 1, "c8"), (1, 1, "c"), (2, 1, "c")]).with_columns(pl.Series("user", ["a", "a", "b"]))

    def ask(question: ExplainQuestion) -> tuple[bool, int, int, int]:
        found = explain_rule(one, SOURCE, {SCHEMA.name: events}, question)
        return found.fired, found.looked_at, found.satisfied, len(found.alerts)

    assert ask(ExplainQuestion(key={"user": "a"})) == (False, 2, 0, 0)
    assert ask(ExplainQuestion(row=1)) == (False, 2, 0, 0)
    assert ask(ExplainQuestion(row=2)) == (True, 1, 1, 1)
