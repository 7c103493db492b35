"""``headgate rules explain DECISION_ID``: the rules, their values, and how they became the outcome."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import DECISIONS
from tests.harness.apps.explained_app import START, ExplainedApp, printed, run_app

pytestmark = pytest.mark.kafka

POLICY = {
    "decision_policy": "shop",
    "version": 3,
    "owner": "me",
    "on": "shop",
    "decide": {"order": ["block", "review", "allow"], "default": "allow", "bands": {"review": 30}},
    "where": "amount = 7",
}


def rule(name: str, score: int, **entries: Any) -> tuple[str, bytes]:
    then = {"severity": "low", "message": f"{name} by {{user_id}}", "outcome": "allow", "score": score}
    document = {"id": name, "version": 1, "owner": "me", "on": "shop", "then": then, **entries}
    return name, orjson.dumps(document)


SPENT = {"name": "spent", "of": "sum(amount)", "within": {"tumbling": "1d"}}
CONTROLS = (
    ("decision-policy/shop", orjson.dumps({**POLICY, "where": "no_such_field = 7"})),  # is rejected
    ("decision-policy/shop", orjson.dumps(POLICY)),
    rule("large", 20, where="amount > 100"),
    rule("spender", 15, group_by=["user_id"], features=[SPENT], where="amount > 100 and spent > 50"),
    rule("tried", 500, where="amount > 100", mode="shadow"),
    rule("quiet", 1, where="amount > 100", suppress={"for": "1d", "by": ["user_id"]}),
)


def event(number: int, amount: float) -> dict[str, object]:
    return {"event_id": f"e{number}", "ts": START + number * 1000, "type": "payment", "user_id": "u1", "amount": amount}


@pytest.fixture(scope="module")
def decided(kafka: KafkaSettings) -> ExplainedApp:
    """Three payments of a user: the second has all rules, the third is chosen by the policy's condition."""
    return run_app(kafka, "decided", CONTROLS, [event(0, 110), event(1, 120), event(2, 7)])


def decision(app: ExplainedApp, number: int) -> dict[str, Any]:
    found = [orjson.loads(one.value or b"") for one in app.output if one.lane == DECISIONS]
    return next(one for one in found if one["event_id"] == f"e{number}")


def test_the_tree_has_rules_with_their_values_and_what_decided(
    decided: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    assert decided("explain", decision(decided, 1)["decision_id"]) == 0
    place = decided.place(1)
    assert capsys.readouterr().out.splitlines() == [
        f"shop version 3 on event e1, {place}, 2026-01-05 08:00:01 UTC, user_id=u1, card=None, ip=None: REVIEW",
        "  score 36: band review* (review from 30)",
        "  recomputed: the same",
        "",
        "rules that count",
        "├─ large@1  allow, score 20: large by u1",
        f"│  headgate rules explain large@1 --event {place}",
        "├─ spender@1  allow, score 15: spender by u1",
        "│  spent = 110.00",
        f"│  headgate rules explain spender@1 --event {place}",
        "└─ quiet@1  allow, score 1: quiet by u1  (its alert is suppressed)",
        f"   headgate rules explain quiet@1 --event {place}",
        "",
        "in shadow, which do not count",
        "└─ tried@1  allow, score 500: tried by u1",
        f"   headgate rules explain tried@1 --event {place}",
        "",
        "* this outcome decided",
    ]


def test_a_decision_without_rules_says_why_it_is_there(
    decided: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    assert decided("explain", decision(decided, 2)["decision_id"]) == 0
    text = capsys.readouterr().out
    assert "score 0: below all bands (review from 30); no rule that counts fired, so the default" in text
    assert "the policy's condition has chosen it" in text


def test_the_json_has_decision_and_policy(decided: ExplainedApp, capsys: pytest.CaptureFixture[str]) -> None:
    own = decision(decided, 0)
    assert decided("explain", own["decision_id"], "-o", "json") == 0
    found = printed(capsys)
    assert found["decision"] == json.loads(json.dumps(own))
    assert found["policy"]["where"] == "amount = 7"
    assert found["same"] is True


def test_an_alert_of_a_decision_is_explained_as_before(
    decided: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = decision(decided, 1)["rules"][0]["alert_id"]
    assert decided("explain", alert) == 0
    assert f"recomputed: the same alert, {alert}" in capsys.readouterr().out
    assert decided("explain", "0" * 32) != 0
