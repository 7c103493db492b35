"""Explanations name what an app did with rules besides their conditions; back-tests compare with released versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rulecore.documents.releases import to_records as release_records
from rulecore.documents.rule import Rule, canonical_json
from rulecore.lists.records import ListHead, list_records
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.explained_app import START, ExplainedApp, printed, run_app

pytestmark = pytest.mark.kafka

LARGE = "type = 'payment' and amount > 100"


def rule(rule_id: str, version: int = 1, then: Mapping[str, object] | None = None, **entries: Any) -> Rule:
    action = {"severity": "high", "message": "{user_id}", **(then or {})}
    return Rule.model_validate(
        {"id": rule_id, "version": version, "owner": "me", "on": "shop", "then": action, "where": LARGE, **entries}
    )


DENIED = ListHead.model_validate({"list": "denied", "version": 1, "owner": "me", "of": "string"})
RULES = (
    rule("drafted", mode="draft"),
    rule("tried"),
    rule("tried", 2, where="type = 'payment' and amount > 50", mode="shadow"),
    rule("shared"),
    rule("shared", 2, where="type = 'payment' and amount > 50", mode={"canary": "50%"}),
    rule("quiet", suppress={"for": "1h", "by": ["user_id"]}),
    rule("mute", then={"alert": False, "score": 5}),
    rule("later", effective={"from": "2099-01-01T00:00:00Z"}),
    rule("noisy", budget={"matches": 1}),
    rule("gone"),
    rule("listed", where="user_id in list('denied')"),
)
CONTROLS: Sequence[tuple[str, bytes | None]] = (
    *list_records(DENIED, [["u2"]]),
    *release_records("monday", [rule("released")]),
    *((one.id, canonical_json(one)) for one in RULES),
    ("gone", None),
)


def event(number: int, user: str = "u1", amount: float = 150) -> dict[str, object]:
    time_ms = START + number * 1000
    return {"event_id": f"e{number}", "ts": time_ms, "type": "payment", "user_id": user, "amount": amount}


EVENTS = (event(0), event(1, amount=60), event(2), event(3, "u2"))


@pytest.fixture(scope="module")
def kept(kafka: KafkaSettings) -> ExplainedApp:
    """Rules in every stage of their life, events, and the output of an app."""
    return run_app(kafka, "kept", CONTROLS, EVENTS)


@pytest.mark.parametrize(
    ("target", "number", "fired", "names"),
    [
        ("released", 0, True, []),
        ("released", 1, False, []),
        ("drafted", 0, False, ["draft"]),
        ("tried", 1, False, []),
        ("tried@2", 1, True, ["shadow"]),
        ("quiet", 0, True, []),
        ("quiet", 2, True, ["suppressed"]),
        ("quiet", 3, True, []),
        ("mute", 0, True, ["no alert"]),
        ("later", 0, False, ["not yet effective"]),
        ("noisy", 0, True, ["quarantine"]),
        ("gone@1", 0, False, ["deleted"]),
        ("listed", 3, True, []),
        ("listed", 0, False, []),
    ],
)
def test_an_explanation_names_the_reasons_of_a_rule(
    kept: ExplainedApp, target: str, number: int, fired: bool, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert kept("explain", target, "--event", kept.place(number), "-o", "json") == 0
    found = printed(capsys)
    found_names = [one["name"] for one in found["reasons"]]
    assert (found["fired"], found_names) == (fired, names), found["reasons"]


def test_an_explanation_names_the_alert_that_began_a_silence(
    kept: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    first = next(alert for alert in kept.alerts["quiet"] if alert["key"] == {"user_id": "u1"})
    assert kept("explain", "quiet", "--event", kept.place(2), "-o", "json") == 0
    (one,) = printed(capsys)["reasons"]
    assert one["text"].startswith(f"alert {first['alert_id']} of 2026-01-05 08:00:00 UTC began a silence of 3600 s")


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("version", [1, 2])
def test_an_explanation_of_a_canary_names_the_lane_of_the_alert(
    kept: ExplainedApp, version: int, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert kept("explain", f"shared@{version}", "--event", kept.place(number), "-o", "json") == 0
    found = printed(capsys)
    (one,) = found["reasons"]
    assert one["name"] == "canary"
    assert one["text"].endswith(f"go to {found['published']['topic']}")


def test_an_explanation_computes_an_alert_of_a_candidate_with_its_version(
    kept: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = next(one for one in kept.alerts["tried"] if one["version"] == 2)
    assert kept("explain", str(alert["alert_id"]), "-o", "json") == 0
    found = printed(capsys)
    assert (found["version"], found["same"], found["differences"]) == (2, True, [])


def test_a_back_test_compares_with_released_versions_over_the_lists_of_the_app(
    kept: ExplainedApp, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new = [
        rule("released", 2, where="type = 'payment' and amount > 50"),
        rule("tried", 3),
        rule("drafted", 2),
        rule("listed", 2, where="user_id not in list('denied')"),
    ]
    for one in new:
        (tmp_path / f"{one.id}.yaml").write_bytes(canonical_json(one))
    assert kept("backtest", str(tmp_path), "--from", "0", "--topic", kept.topic, "-o", "json") == 0
    found = {one["rule"]: one for one in printed(capsys)["rules"]}
    counts = {name: (one["new"] or {}).get("alerts") for name, one in found.items()}
    live = {name: (one["live"] or {}).get("alerts") for name, one in found.items()}
    assert counts == {"released": 4, "tried": 3, "drafted": 3, "listed": 3}
    assert live == {"released": 3, "tried": 3, "drafted": None, "listed": 1}
