"""A diff of rules predicts what publishing them does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from rulecore.compile.rule import RuleLimits
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.status import StatusKind
from rulecore.language import Expr, evaluate, normalize, render
from rulecore.ruleset.diff import FieldChange, RuleChangeKind, RuleDiff, StateChange, StateOutcome, changes, diff
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema
from tests.harness.oracles.expressions import COLUMNS, expressions, frames

SHOP = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user_id"], ["card"]],
        "fields": {
            "ts": "timestamp not null",
            "user_id": "string",
            "card": "string",
            "type": "string",
            "amount": "decimal(12,2)",
        },
    }
)
STREAMS = {"shop": SHOP}
MINUTE = 60_000


def event(**entries: Any) -> Rule:
    document = {"id": "big", "version": 1, "owner": "me", "on": "shop", "where": "amount > 5"}
    return Rule.model_validate(document | {"then": {"severity": "high", "message": "m"}} | entries)


def window(**entries: Any) -> Rule:
    document = {"id": "burst", "group_by": ["card"], "within": {"sliding": "10m", "every": "1m"}}
    return event(**document | {"where": "type = 'x'", "having": "count(*) >= 5"} | entries)


def diff_one(live: list[Rule], wanted: list[Rule], **options: Any) -> RuleDiff:
    (found,) = diff(live, wanted, STREAMS, **options)
    return found


def test_equal_rule_sets_have_no_differences() -> None:
    found = diff([event(), window()], [window(), event()], STREAMS, whole=True)
    assert [d.change for d in found] == [RuleChangeKind.SAME, RuleChangeKind.SAME]
    assert not changes(found)


def test_a_new_rule_is_added_and_its_windows_warm_up() -> None:
    found = diff_one([], [window()])
    assert (found.change, found.old_version, found.new_version) == (RuleChangeKind.ADDED, None, 1)
    assert found.state == (StateChange("count(*) by card in panes of 1m", StateOutcome.NEW, 10 * MINUTE),)


def test_a_rule_that_is_missing_from_the_files_is_removed_only_when_the_files_are_complete() -> None:
    assert diff([event(), window()], [event()], STREAMS)[0].change is RuleChangeKind.SAME
    assert len(diff([event(), window()], [event()], STREAMS)) == 1
    found = diff([event(), window()], [event()], STREAMS, whole=True)[1]
    assert (found.rule, found.change) == ("burst", RuleChangeKind.REMOVED)
    assert found.state == (StateChange("count(*) by card in panes of 1m", StateOutcome.DROPPED),)


def test_the_diff_shows_both_values_of_each_changed_entry() -> None:
    found = diff_one([event()], [event(version=2, tags=["a"], then={"severity": "low", "message": "m"})])
    assert found.fields == (
        FieldChange("tags", [], ["a"]),
        FieldChange("then.severity", "high", "low"),
    )


def test_conditions_with_one_normal_form_are_equivalent() -> None:
    found = diff_one([event()], [event(version=2, where="5.0 < amount and 1 = 1")])
    (change,) = found.fields
    assert change.path == "where"
    assert change.normal_forms is not None
    assert change.normal_forms.equivalent
    assert change.normal_forms.old == change.normal_forms.new == "amount > 5.00"


def test_conditions_that_differ_are_shown_in_normal_form() -> None:
    (change,) = diff_one([window()], [window(version=2, having="6 <= count(*)")]).fields
    assert change.normal_forms is not None
    forms = change.normal_forms
    assert (forms.old, forms.new, forms.equivalent) == ("count(*) >= 5", "count(*) >= 6", False)


def test_steps_of_a_sequence_are_compared_one_by_one() -> None:
    def sequence(version: int, second: str) -> Rule:
        steps = [{"step": "a", "where": "type = 'a'"}, {"step": "b", "where": second}]
        return window(version=version, sequence=steps, within="1h", where=None, having=None)

    (change,) = diff_one([sequence(1, "amount > 1")], [sequence(2, "1 < amount")]).fields
    assert change.path == "sequence.1.where"
    assert change.normal_forms is not None
    assert change.normal_forms.equivalent


def test_the_diff_rejects_a_version_that_is_not_higher_and_names_the_next_one() -> None:
    found = diff_one([event(version=7)], [event(version=7, where="amount > 6")])
    assert found.rejection_reason == "version 7 is not above version 7, the newest"
    assert found.required_version == 8
    assert diff_one([event(version=7)], [event(version=8, where="amount > 6")]).rejection_reason is None


def test_a_higher_version_alone_is_a_change_without_entries() -> None:
    found = diff_one([event()], [event(version=2)])
    assert (found.change, found.fields, found.rejection_reason) == (RuleChangeKind.CHANGED, (), None)


def test_a_new_threshold_keeps_the_counted_aggregates() -> None:
    found = diff_one([window()], [window(version=2, having="count(*) >= 9")])
    assert found.state == (StateChange("count(*) by card in panes of 1m", StateOutcome.KEPT, 0),)


def test_an_equivalent_condition_keeps_the_counted_aggregates() -> None:
    assert diff_one([window()], [window(version=2, where="'x' = type")]).state[0].outcome is StateOutcome.KEPT


def test_another_condition_counts_from_zero_and_drops_aggregates_that_no_rule_uses() -> None:
    found = diff_one([window()], [window(version=2, where="type = 'y'")])
    assert [(s.outcome, s.incomplete_ms) for s in found.state] == [
        (StateOutcome.NEW, 10 * MINUTE),
        (StateOutcome.DROPPED, 0),
    ]


def test_an_aggregate_that_another_rule_uses_is_not_dropped() -> None:
    found = diff([window(), window(id="twin")], [window(version=2, where="type = 'y'")], STREAMS)
    assert [s.outcome for s in found[0].state] == [StateOutcome.NEW]


def test_a_new_rule_uses_the_aggregates_that_another_rule_counts_already() -> None:
    assert diff_one([window()], [window(id="twin", having="count(*) > 1")]).state[0].outcome is StateOutcome.KEPT


def test_a_longer_window_warms_up_for_the_time_that_the_shorter_one_did_not_keep() -> None:
    longer = window(version=2, within={"sliding": "30m", "every": "1m"})
    assert diff_one([window()], [longer]).state == (
        StateChange("count(*) by card in panes of 1m", StateOutcome.KEPT, 20 * MINUTE),
    )


def test_panes_of_another_length_are_counted_from_zero() -> None:
    found = diff_one([window()], [window(version=2, within={"sliding": "10m", "every": "5m"})])
    assert [s.outcome for s in found.state] == [StateOutcome.NEW, StateOutcome.DROPPED]


@pytest.mark.parametrize("mode", ["draft", "retired"])
def test_a_rule_that_is_no_longer_evaluated_drops_its_state(mode: str) -> None:
    assert [s.outcome for s in diff_one([window()], [window(version=2, mode=mode)]).state] == [StateOutcome.DROPPED]


def test_a_paused_rule_keeps_its_state() -> None:
    assert [s.outcome for s in diff_one([window()], [window(version=2, mode="paused")]).state] == [StateOutcome.KEPT]


def test_a_rule_that_no_longer_compiles_is_compared_by_its_text() -> None:
    found = diff_one([event(where="gone > 1")], [event(version=2)])
    assert found.fields == (FieldChange("where", "gone > 1", "amount > 5"),)


def test_the_diff_predicts_exactly_what_the_rule_set_rejects() -> None:
    live = [event(version=3), window(version=3)]
    rules, _ = RuleSet.empty(STREAMS, RuleLimits()).apply([_record(rule) for rule in live], 0)
    for version in (2, 3, 4):
        for wanted in (event(version=version), event(version=version, where="amount > 6"), window(version=version)):
            _, (status,) = rules.apply([_record(wanted)], 0)
            rejected = diff_one(live, [wanted]).rejection_reason is not None
            assert rejected is (status.status is StatusKind.REJECTED), (version, status.reason)


def _record(rule: Rule) -> ControlRecord:
    return ControlRecord(0, 0, rule.id.encode(), canonical_json(rule))


@settings(max_examples=100, deadline=None)
@given(expressions(depth=2), expressions(depth=2), frames(8))
def test_conditions_that_the_diff_calls_equivalent_agree_on_every_event(left: Expr, right: Expr, rows: Any) -> None:
    fields = {name: str(kind) for name, kind in COLUMNS.items()} | {"at": "timestamp not null"}
    streams = {"any": StreamSchema.parse({"name": "any", "event_time": "at", "keys": [["s"]], "fields": fields})}
    texts = [render(left), render(right), render(normalize(left))]
    rules = [event(on="any", version=n + 1, where=text) for n, text in enumerate(texts)]
    for other, expr in ((rules[1], right), (rules[2], normalize(left))):
        for change in diff([rules[0]], [other], streams)[0].fields:
            if change.normal_forms is not None and change.normal_forms.equivalent:
                assert all(
                    evaluate(left, row) == evaluate(expr, row) or evaluate(left, row) is not True for row in rows
                )


def features(**entries: Any) -> Rule:
    of_card = {"name": "of_card", "of": "count(*)", "by": ["card"], "within": {"sliding": "1d", "every": "1h"}}
    return event(**{"group_by": ["card"], "features": [of_card], "where": "of_card > 1"} | entries)


def test_a_feature_that_becomes_one_of_another_key_begins_anew() -> None:
    found = diff_one([features()], [features(version=2, group_by=["user_id"])])
    assert [s.outcome for s in found.state] == [StateOutcome.NEW, StateOutcome.DROPPED]
    found = diff_one([features()], [features(version=2, order="in_order")])
    assert [s.outcome for s in found.state] == [StateOutcome.NEW, StateOutcome.DROPPED]
    found = diff_one([features()], [features(version=2, where="of_card > 2")])
    assert [s.outcome for s in found.state] == [StateOutcome.KEPT]
