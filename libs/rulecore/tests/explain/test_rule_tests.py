"""Why a test of a rule is red: the clauses of its conditions with the values of the test's events."""

from __future__ import annotations

import pytest

from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.errors import RuleError
from rulecore.explain.rule_tests import ConditionTrace, trace_test
from rulecore.lists.store import ListStore
from streamcore.schema import StreamSchema

SHOP = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user_id"]],
        "fields": {"ts": "timestamp not null", "user_id": "string", "type": "string", "amount": "decimal(12,2)"},
    }
)


def trace(events: list[dict[str, object]], **entries: object) -> tuple[ConditionTrace, ...]:
    then = {"severity": "high", "message": "m"}
    test = {"name": "one", "events": events, "expect": [{}]}
    rule = Rule.model_validate(
        {"id": "r", "version": 1, "owner": "me", "on": "shop", "then": then, "tests": [test], **entries}
    )
    streams = {"shop": SHOP}
    return trace_test(compile_rule(rule, streams, RuleLimits(), {}), rule.tests[0], streams, ListStore.empty())


def shown(found: ConditionTrace) -> list[tuple[str, str, bool, list[str]]]:
    return [(one.text, one.truth.value, one.decided, [str(v) for v in one.seen]) for one in found.clause.leaves()]


def test_each_event_shows_which_clause_was_false_with_which_values() -> None:
    events: list[dict[str, object]] = [
        {"user_id": "u1", "type": "payment", "amount": 499},
        {"user_id": "u1", "type": "view"},
    ]
    first, second = trace(events, where="type = 'payment' and amount >= 500")
    assert (first.event, first.condition) == (1, "where")
    assert shown(first)[0] == ("type = 'payment'", "TRUE", False, ["type = 'payment'"])
    assert shown(first)[1] == ("amount >= 500", "FALSE", True, ["amount = 499.00"])
    assert second.event == 2
    assert [(truth, decided) for _, truth, decided, _ in shown(second)] == [("FALSE", True), ("NULL", False)]


def test_the_window_of_the_last_key_shows_its_aggregates() -> None:
    events = [
        {"user_id": "u1", "type": "payment", "amount": 300},
        {"user_id": "u2", "type": "payment", "amount": 900},
        {"user_id": "u1", "type": "payment", "amount": 100},
    ]
    window = {"group_by": ["user_id"], "within": {"tumbling": "10m"}, "having": "sum(amount) > 500"}
    *_, last = trace(events, where="type = 'payment'", **window)
    assert (last.event, last.condition, last.clause.truth) == (3, "having", "FALSE")
    assert shown(last) == [("sum(amount) > 500", "FALSE", True, ["sum(amount) = 400.00"])]


def test_an_event_that_is_none_is_an_error() -> None:
    with pytest.raises(RuleError, match=r"events\[0\] is not an event of shop"):
        trace([{"user_id": 7, "amount": "much"}], where="amount > 1")


def test_a_feature_has_the_value_that_it_has_in_the_test() -> None:
    usual = {"name": "usual", "of": "avg(amount)", "within": {"sliding": "30d", "every": "1h"}}
    events: list[dict[str, object]] = [{"user_id": "u1", "type": "payment", "amount": n} for n in (100, 200, 400)]
    *_, last = trace(events, group_by=["user_id"], features=[usual], where="amount > 3 * usual")
    assert shown(last) == [
        ("amount > 3 * usual", "FALSE", True, ["3 * usual = 450.0", "amount = 400.00", "usual = 150.0"])
    ]
