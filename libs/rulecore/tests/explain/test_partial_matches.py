"""A sequence that did not match shows how far it came, how that ended, and the events that came closest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.explain.condition import Truth
from rulecore.explain.explanation import EventTrace, ExplainQuestion, Explanation, PartialTrace
from rulecore.explain.rule import explain_rule
from rulecore.streams import RuleInput
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

START = 1_700_000_000_000
END = START + 10**9
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "kind": "string", "amount": "decimal(12,2)"},
    }
)
Event = tuple[int, str, int]  # second, kind, amount
TWO = {"step": "failed", "where": "kind = 'f'", "times": 2}
NOT_OK = {"without": "kind = 'ok' and amount >= failed.amount"}
PAID = {"step": "paid", "where": "kind = 'p' and paid.amount > 2 * sum(failed.amount)"}
A = {"step": "a", "where": "kind = 'a'"}


def rule(sequence: Sequence[Mapping[str, object]], **more: Any) -> CompiledRule:
    document = {"id": "r", "version": 1, "owner": "me", "on": "pay", "group_by": ["user"], "sequence": sequence}
    document |= {"within": "10m", "then": {"severity": "low", "message": "{user}"}, **more}
    return compile_rule(Rule.model_validate(document), {"pay": SCHEMA}, RuleLimits())


def explain(one: CompiledRule, events: Sequence[Event], question: ExplainQuestion | None = None) -> Explanation:
    times = [START + second * 1000 for second, _, _ in events]
    rows = [(times[n], "u", kind, 100 * amount, 0, n, times[n]) for n, (_, kind, amount) in enumerate(events)]
    kinds = (pl.Int64, pl.String, pl.String, pl.Int64, pl.Int32, pl.Int64, pl.Int64)
    names = ("ts", "user", "kind", "amount", PARTITION, OFFSET, EVENT_MS)
    frame = pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")
    source = RuleInput.of_stream(SCHEMA, "pay")
    return explain_rule(one, source, {"pay": frame}, question or ExplainQuestion(closing_ms=END))


def furthest(one: CompiledRule, events: Sequence[Event], question: ExplainQuestion | None = None) -> PartialTrace:
    found = explain(one, events, question)
    assert not found.fired
    return found.partials[0]


def offsets(traces: Sequence[EventTrace]) -> list[int]:
    return [trace.origin.offset for trace in traces]


def wrong(trace: EventTrace) -> list[str]:
    """Return the clauses that are not true, with the values that they saw."""
    leaves = [leaf for clause in trace.conditions.values() for leaf in clause.leaves()]
    return [f"{leaf.text}: {', '.join(map(str, leaf.seen))}" for leaf in leaves if leaf.truth is not Truth.TRUE]


def test_a_condition_that_compares_steps_shows_the_values_that_were_too_small() -> None:
    found = furthest(rule([TWO, NOT_OK, PAID]), [(0, "f", 1), (5, "f", 2), (6, "p", 3), (7, "x", 1), (8, "p", 5)])
    assert (offsets(found.events), found.waited_for) == ([0, 1], ("paid",))
    assert found.ended == "it still waits"  # at the last event, and nobody knows what comes
    assert offsets(found.missed) == [2, 4]
    values = "2 * sum(failed.amount) = 6.00, amount = {}.00, sum(failed.amount) = 3.00"
    assert [wrong(one) for one in found.missed] == [
        [f"amount > 2 * sum(failed.amount): {values.format(amount)}"] for amount in (3, 5)
    ]


@pytest.mark.parametrize(
    ("sequence", "events", "taken", "waited_for", "ended", "missed"),
    [
        (
            [TWO, NOT_OK, PAID],
            [(0, "f", 1), (5, "f", 2), (6, "ok", 1), (7, "ok", 3), (8, "p", 50)],
            [0, 1],
            ("paid",),
            "an event came that must not come",
            [3],
        ),
        (
            [A, {"next": "b", "where": "kind = 'b'"}],
            [(0, "a", 1), (1, "x", 1), (2, "b", 1)],
            [0],
            ("b",),
            "an event came between that nothing allows",
            [1],
        ),
        (
            [A, {"without": "kind = 'b'", "within": "5m"}],
            [(0, "a", 1), (2, "b", 1)],
            [0],
            (),
            "an event came that must not come",
            [1],
        ),
        (
            [A, {"step": "b", "where": "kind = 'b' and amount > 1", "within": "1m"}],
            [(0, "a", 1), (10, "b", 1), (70, "b", 2)],
            [0],
            ("b",),
            "its time was over: within of a step",
            [1, 2],
        ),
        (
            [{**A, "times": {"at_least": 2}}, TWO],
            [(0, "a", 1), (1, "a", 1), (2, "f", 1)],
            [0, 1, 2],
            ("failed",),
            "it still waits",
            [],
        ),
        (
            [{**A, "times": {"at_least": 2}}, TWO],
            [(0, "a", 1), (1, "a", 1), (2, "f", 1), (700, "x", 1)],
            [0, 1, 2],
            ("failed",),
            "its time was over: within 10m",
            [],
        ),
        ([TWO, PAID], [(0, "p", 1), (1, "x", 1)], [], ("failed",), "no event began it", []),
    ],
)
@pytest.mark.quick_cases(2)
def test_how_a_beginning_ended(
    sequence: Sequence[Mapping[str, object]],
    events: Sequence[Event],
    taken: list[int],
    waited_for: tuple[str, ...],
    ended: str,
    missed: list[int],
) -> None:
    found = furthest(rule(sequence), events)
    assert (offsets(found.events), found.waited_for, found.ended) == (taken, waited_for, ended)
    assert offsets(found.missed) == missed


def test_a_beginning_that_waits_at_the_end_says_so() -> None:
    question = ExplainQuestion(closing_ms=START + 6_000)
    assert furthest(rule([TWO, PAID]), [(0, "f", 1), (5, "f", 2)], question).ended == "it still waits"


def test_a_question_about_an_event_shows_it_with_what_waited_then() -> None:
    events: list[Event] = [(0, "f", 1), (5, "f", 2), (6, "x", 3), (900, "f", 1), (901, "f", 1), (902, "f", 1)]
    found = furthest(rule([TWO, PAID], where="amount > 0"), events, ExplainQuestion(row=2, closing_ms=END))
    assert (offsets(found.events), offsets(found.missed)) == ([0, 1], [2])
    assert wrong(found.missed[0])[0] == "kind = 'p': kind = 'x'"


def test_a_match_shows_no_other_beginnings() -> None:
    found = explain(rule([TWO, NOT_OK, PAID]), [(0, "f", 1), (5, "f", 2), (6, "p", 3), (8, "p", 7)])
    assert (found.fired, found.partials) == (True, ())
    assert offsets(found.matches[0].events) == [0, 1, 3]
