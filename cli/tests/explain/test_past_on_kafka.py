"""`headgate rules backtest` and `explain` on a real broker; the app runs in-process on the same records."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rulecore.documents.rule import Rule, canonical_json
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.explained_app import START, ExplainedApp, printed, run_app

pytestmark = pytest.mark.kafka


def rule(rule_id: str, version: int = 1, **entries: Any) -> Rule:
    then = {"severity": "high", "message": "{user_id}"}
    document = {"id": rule_id, "version": version, "owner": "me", "on": "shop", "then": then, **entries}
    return Rule.model_validate(document)


BURST: dict[str, Any] = {"where": "type = 'payment'", "group_by": ["user_id"], "within": {"tumbling": "1m"}}
RULES = (
    rule("large", where="type = 'payment' and amount > 100"),
    rule("burst", having="count(*) >= 3", **BURST),
    rule("ended", having="count(*) >= 2", emit="final", **BURST),
    rule("asleep", where="amount > 100", mode="paused"),
    rule("watched", where="amount > 100", mode="shadow"),
)


def event(number: int, second: int, user: str = "u1", amount: float = 10, kind: str = "payment") -> dict[str, object]:
    return {"event_id": f"e{number}", "ts": START + second * 1000, "type": kind, "user_id": user, "amount": amount}


EVENTS: Sequence[dict[str, object] | bytes] = (
    event(0, 0),
    event(1, 1, amount=150),
    event(2, 2, "u2", 500),
    event(3, 3),
    b"{broken",
    event(4, 4, kind="view"),
    event(5, 90),
    event(6, 200),
    event(7, 201, "u2"),
    event(8, 5),  # late: the watermark has passed its window
)
LAST_CUT = 1  # events of a last cut of their own


@pytest.fixture(scope="module")
def past(kafka: KafkaSettings) -> ExplainedApp:
    """Events, rules and the output of an app."""
    return run_app(kafka, "past", [(one.id, canonical_json(one)) for one in RULES], EVENTS, late=LAST_CUT)


def test_a_back_test_of_a_time_range_counts_the_alerts_of_the_app(
    past: ExplainedApp, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for one in RULES:
        (tmp_path / f"{one.id}.yaml").write_bytes(canonical_json(one))
    assert past("backtest", str(tmp_path), "--from", "1h", "--topic", past.topic, "-o", "json") == 0
    found = printed(capsys)
    assert found["events"] == len(EVENTS) - 1
    assert [one["records"] for one in found["not_events"]] == [1]
    assert found["compared_with"] == f"the live versions of app {past.name}"
    for one in found["rules"]:
        assert one["only_new"] == one["only_live"] == 0
        if one["rule"] in past.alerts:
            assert one["new"]["alerts"] == len(past.alerts[one["rule"]]), one


def test_a_back_test_compares_a_new_version_with_the_live_one(
    past: ExplainedApp, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "large.yaml").write_bytes(canonical_json(rule("large", 2, where="amount > 400")))
    assert past("backtest", str(tmp_path), "--from", "0", "--topic", past.topic, "-o", "json") == 0
    (found,) = printed(capsys)["rules"]
    assert (found["new"]["alerts"], found["live"]["alerts"]) == (1, 2)
    assert (found["both"], found["only_new"], found["only_live"]) == (1, 0, 1)


@pytest.mark.parametrize("name", ["large", "burst", "ended", "watched"])
def test_an_explanation_computes_an_alert_again_with_the_same_result(
    past: ExplainedApp, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = past.alerts[name][0]
    assert past("explain", str(alert["alert_id"]), "--topic", past.topic, "-o", "json") == 0
    found = printed(capsys)
    assert (found["rule"], found["same"], found["fired"], found["differences"]) == (name, True, True, [])


def test_an_explanation_shows_the_clause_that_did_not_match(
    past: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    assert past("explain", "large", "--event", past.place(0)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"large version 1 (event) on {past.place(0)}: DID NOT FIRE"
    assert "  └─ amount > 100      FALSE*  amount = 10.00" in lines


def test_an_explanation_names_the_alert_of_an_event_that_matched(
    past: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    assert past("explain", "large", "--event", past.place(1), "-o", "json") == 0
    found = printed(capsys)
    assert found["fired"] is True
    assert found["published"]["alert_id"] in {a["alert_id"] for a in past.alerts["large"]}


def test_an_explanation_shows_the_content_of_a_window_at_the_event(
    past: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    assert past("explain", "burst", "--event", past.place(1), "-o", "json") == 0
    found = printed(capsys)
    assert found["fired"] is False
    (window,) = found["windows"]
    assert (window["values"], window["having"]["result"]) == ({"count(*)": 2}, "FALSE")


def test_an_explanation_of_a_key_and_a_time_shows_the_window_of_that_time(
    past: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    at = "2026-01-05T08:00:30Z"
    assert past("explain", "burst", "--key", "user_id=u1", "--at", at, "--topic", past.topic, "-o", "json") == 0
    found = printed(capsys)
    assert found["fired"] is True
    (window,) = found["windows"]
    assert window["start_ms"] == START


def test_an_explanation_names_paused_rules_late_events_and_dead_letters(
    past: ExplainedApp, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {}
    for name, number in (("asleep", 1), ("burst", 9), ("large", 4)):
        assert past("explain", name, "--event", past.place(number), "-o", "json") == 0
        found = printed(capsys)
        assert found["fired"] is False
        names[name] = [one["name"] for one in found["reasons"]]
    assert names == {"asleep": ["paused"], "burst": ["late"], "large": ["dead letter"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["largee", "--event", "past-shop:0:0"], "did you mean large?"),
        (["large"], "name the event with"),
        (["large", "--event", "past-shop:9:0"], "no such partition"),
        (["large", "--event", "past-shop"], "topic:partition:offset"),
        (["burst", "--key", "card=k1"], "burst needs --key user_id=VALUE"),
        (["0" * 32], "no alert 00000000000000000000000000000000 among the last"),
    ],
)
def test_the_command_reports_a_missing_rule_event_key_or_alert(
    past: ExplainedApp, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert past("explain", *arguments) == 1
    assert words in capsys.readouterr().err


def test_an_explanation_imports_one_kafka_client_and_no_columnar_decoder(past: ExplainedApp) -> None:
    """The other client, for administration and publishing, took a ninth of the CPU time."""
    code = "import atexit, sys; from headgate.main import main; atexit.register(lambda: print(*sys.modules)); main()"
    arguments = ["rules", "explain", str(past.alerts["large"][0]["alert_id"]), "--topic", past.topic]
    where = ["--bootstrap", past.bootstrap, "--app", past.name]
    completed = subprocess.run(
        [sys.executable, "-c", code, *arguments, *where], capture_output=True, text=True, check=True
    )
    loaded = set(completed.stdout.splitlines()[-1].split())
    assert {"confluent_kafka", "headgate.explain.from_kafka"} <= loaded
    assert not loaded & {
        "kafka",
        "pandas",
        "pyspark",
        "streamcore.decode.json.decoder",
        "streamcore.decode.assembly",
        "fastavro",
    }


def test_an_explanation_takes_about_a_second(past: ExplainedApp, capsys: pytest.CaptureFixture[str]) -> None:
    """Of processor time, which a busy machine changes least; and it waits for nothing."""
    began, worked = time.monotonic(), time.process_time()
    assert past("explain", str(past.alerts["burst"][0]["alert_id"]), "--topic", past.topic) == 0
    assert time.process_time() - worked < 5
    assert time.monotonic() - began < 30
