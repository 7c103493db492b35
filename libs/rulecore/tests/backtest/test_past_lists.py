"""Back-tests and explanations of rules with lists equal a plain loop over the entries, at the time of the events."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.backtest.backtest import Backtest, BacktestSide, EventBatch
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.explain.condition import Truth
from rulecore.explain.explanation import ExplainQuestion, Explanation, RejectedClause
from rulecore.explain.rule import explain_rule
from rulecore.lists.records import ListHead, list_records
from rulecore.lists.snapshots import control_records, store_from_records
from rulecore.lists.store import ListStore
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

START = 1_700_000_000_000 - 1_700_000_000_000 % 60_000
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "amount": "decimal(12,2)", "card": "string"},
    }
)
SOURCE = RuleInput.of_stream(SCHEMA, "pay")

LIMITS = {"a": 1, "b": 2}
Event = tuple[int, int | None, str | None]  # second, cents, card


def lists(*denied: object) -> ListStore:
    """``denied`` and ``limits``."""
    heads = (
        (
            ListHead.model_validate({"list": "denied", "version": 1, "owner": "me", "of": "string"}),
            [[d] for d in denied],
        ),
        (
            ListHead.model_validate(
                {"list": "limits", "version": 4, "owner": "me", "of": "string", "value": "decimal(12,2)"}
            ),
            [[card, str(limit)] for card, limit in LIMITS.items()],
        ),
    )
    return store_from_records([row for head, entries in heads for row in list_records(head, list[Any](entries))])


def rule(store: ListStore, **entries: Any) -> CompiledRule:
    then = {"severity": "low", "message": "{user}"}
    document = {"id": "r", "version": 3, "owner": "me", "on": "pay", "then": then, **entries}
    return compile_rule(Rule.model_validate(document), {"pay": SCHEMA}, RuleLimits(), store.types())


def frame(events: Sequence[Event]) -> pl.DataFrame:
    rows = [(START + s * 1000, "u", c, card, 0, n, START + s * 1000) for n, (s, c, card) in enumerate(events)]
    names = ("ts", "user", "amount", "card", PARTITION, OFFSET, EVENT_MS)
    kinds = (pl.Int64, pl.String, pl.Int64, pl.String, pl.Int32, pl.Int64, pl.Int64)
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def explain(store: ListStore, one: CompiledRule, events: Sequence[Event]) -> Explanation:
    return explain_rule(one, SOURCE, {SCHEMA.name: frame(events)}, ExplainQuestion(row=len(events) - 1), (), store)


def count_alerts(store: ListStore, one: CompiledRule, events: Sequence[Event], *, alerts: bool) -> int:
    sink = (lambda _: None) if alerts else None
    job = Backtest(SOURCE, BacktestSide((one,)), lists=store, partitions=[0], on_alert=sink)
    job.step(EventBatch({SCHEMA.name: frame(events)}))
    return job.report().new["r"].hits


CARDS = st.sampled_from(["a", "b", "c", None])
EVENTS = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from([None, 50, 100, 150, 250]), CARDS), min_size=1, max_size=12
).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.sets(st.sampled_from("abc")), st.booleans())
def test_a_back_test_counts_what_a_loop_over_the_entries_counts(
    events: list[Event], denied: set[str], alerts: bool
) -> None:
    store = lists(*sorted(denied))
    listed = rule(store, where="card in list('denied')")
    above = rule(store, where="amount > lookup('limits', card)")
    assert count_alerts(store, listed, events, alerts=alerts) == sum(card in denied for _, _, card in events)
    wanted = sum(c is not None and card in LIMITS and c > 100 * LIMITS[card] for _, c, card in events)
    assert count_alerts(store, above, events, alerts=alerts) == wanted


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.sets(st.sampled_from("abc")))
def test_an_explanation_of_a_window_over_listed_events_counts_what_a_loop_counts(
    events: list[Event], denied: set[str]
) -> None:
    store = lists(*sorted(denied))
    one = rule(
        store,
        where="card in list('denied')",
        group_by=["user"],
        within={"tumbling": "1m"},
        having="count(*) >= 2 and (sum(lookup('limits', card)) > 0 or count(*) > 0)",
    )
    found = explain(store, one, events)
    mine = [card for _, _, card in events if card in denied]
    assert found.satisfied == len(mine)
    if mine:
        assert found.windows[-1].seen[0].value == len(mine)
        assert found.windows[-1].having.truth is Truth.of(len(mine) >= 2)
    assert len(found.alerts) == (len(mine) >= 2)


def test_an_explained_clause_shows_the_value_that_it_looked_up() -> None:
    store = lists("a")
    one = rule(store, where="card in list('denied') and amount > lookup('limits', card)")
    found = explain(store, one, [(0, 150, "a")])
    assert found.fired
    assert found.event is not None
    shown = [str(seen) for leaf in found.event.conditions["where"].leaves() for seen in leaf.seen]
    assert "lookup('limits', card) = 1.00" in shown
    assert explain(store, one, [(0, 150, "c")]).rejected == (
        RejectedClause("card in list('denied')", 1),
        RejectedClause("amount > lookup('limits', card)", 1),
    )


@pytest.mark.parametrize(("second", "fires"), [(9, True), (11, False)])
def test_a_list_entry_counts_until_it_expires(second: int, fires: bool) -> None:
    head = ListHead.model_validate({"list": "denied", "version": 1, "owner": "me", "of": "string"})
    store = store_from_records(list_records(head, [["a", None, time_text(START + 10_000)]]))
    one = rule(store, where="card in list('denied')")
    assert explain(store, one, [(second, 1, "a")]).fired is fires
    assert count_alerts(store, one, [(second, 1, "a")], alerts=False) == fires


def time_text(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).isoformat()


def test_the_control_records_of_a_store_restore_it() -> None:
    store = lists("a", "b")
    again = store_from_records(control_records(store))
    assert {name: [*content.values] for name, content in again.contents(0).items()} == {
        name: [*content.values] for name, content in store.contents(0).items()
    }
    assert [*store_from_records(control_records(store, ["denied"])).types()] == ["limits"]


def test_a_back_test_counts_suppressed_alerts_and_an_explanation_does_not() -> None:
    store = lists()
    one = rule(store, where="amount > 1", suppress={"for": "10s", "by": ["user"]}, then=SILENT)
    events = [(0, 150, "a"), (1, 150, "a"), (11, 150, "a")]
    assert len(explain(store, one, events).alerts) == 3
    assert count_alerts(store, one, events, alerts=False) == 2


SILENT = {"severity": "low", "message": "{user}", "alert": False, "score": 1}
