"""`headgate features` on a real broker: the features of published rules, each once."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from headgate.main import run
from headgate.rules.publish import AppTopics
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.explained_app import START, run_app

pytestmark = pytest.mark.kafka

USUAL = {
    "name": "usual",
    "of": "avg(amount)",
    "where": "type = 'payment'",
    "within": {"sliding": "30d", "every": "1h"},
}
PUBLISHED = {"version": 1, "owner": "risk", "on": "shop", "by": ["user_id"], "within": {"sliding": "6h", "every": "1h"}}
HOUR = 3_600_000


def rule(name: str, *features: object) -> bytes:
    document = {
        "id": name,
        "version": 1,
        "owner": "me",
        "on": "shop",
        "group_by": ["user_id"],
        "features": features,
        "where": f"amount > 3 * {features[0]['name']}",  # type: ignore[index]
        "then": {"severity": "low", "message": "m"},
    }
    return orjson.dumps(document)


@pytest.fixture
def target(kafka: KafkaSettings, request: pytest.FixtureRequest) -> list[str]:
    """Publish three rules over two features, and return the options that name the app."""
    app = "features-" + str(abs(hash(request.node.name)) % 10**8)
    topics = AppTopics(app)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    with ControlLog(kafka, topics.control) as log:
        log.publish("a", rule("a", USUAL))
        log.publish("b", rule("b", {**USUAL, "name": "mean", "within": {"sliding": "60d", "every": "1h"}}))
        log.publish("c", rule("c", USUAL, {**USUAL, "name": "largest", "of": "max(amount)", "where": None}))
    return ["--app", app, "--bootstrap", kafka.bootstrap]


def test_each_feature_is_listed_once_with_its_longest_time_back(
    target: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["features", "list", *target]) == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "FEATURE",
        "largest",
        "usual, mean",
    ]
    assert run(["features", "list", *target, "-o", "json"]) == 0
    largest, usual = json.loads(capsys.readouterr().out)
    assert (largest["feature"], largest["where"], largest["rules"]) == ("largest", None, 1)
    assert (usual["of"], usual["where"], usual["back"], usual["rules"]) == ("avg(amount)", "type = 'payment'", "60d", 3)


def test_a_published_feature_is_shown_with_its_owner_and_rules(
    target: list[str], kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    published = {**USUAL, "feature": "usual_amount", "version": 3, "owner": "risk", "on": "shop", "by": ["user_id"]}
    del published["name"]
    unused = {**published, "feature": "paid", "of": "count(*)"}
    with ControlLog(kafka, f"{target[1]}.control") as log:
        for one in (published, unused):
            log.publish(f"feature/{one['feature']}", orjson.dumps(one))
        named = orjson.loads(rule("d", USUAL))
        log.publish("d", orjson.dumps({**named, "features": ["usual_amount"], "where": "amount > usual_amount"}))
    assert run(["features", "list", *target, "-o", "json"]) == 0
    found = {one["feature"]: one for one in json.loads(capsys.readouterr().out)}
    assert [*found] == ["largest", "paid", "usual_amount, usual, mean"]
    shared = found["usual_amount, usual, mean"]
    assert (shared["version"], shared["owner"], shared["state"], shared["rules"]) == ("3", "risk", "kept", 4)
    assert (found["paid"]["state"], found["paid"]["rules"]) == ("kept", 0)
    assert (found["largest"]["state"], found["largest"]["owner"]) == ("of rules", None)
    assert run(["features", "show", "usual_amount", *target, "-o", "json"]) == 0
    readers = json.loads(capsys.readouterr().out)
    assert [(one["rule"], one["version"], one["mode"]) for one in readers] == [
        (None, 3, "published"),
        *((name, 1, "live") for name in "abcd"),
    ]


def test_features_of_files_are_published_before_the_rules_that_name_them(
    target: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = str(Path(__file__).parents[4] / "rules" / "examples" / "features")
    assert run(["rules", "publish", files, *target, "--no-wait"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "usual_amount",
        "large-for-the-account",
    ]
    assert run(["features", "show", "usual_amount", *target, "-o", "json"]) == 0
    assert [one["rule"] for one in json.loads(capsys.readouterr().out)] == [None, "large-for-the-account"]
    assert run(["rules", "publish", files, *target, "--no-wait", "--delete-feature", "usual_amount"]) == 0
    capsys.readouterr()
    assert run(["features", "show", "usual_amount", *target]) == 0, "a rule names it, so it was not deleted"


def test_a_feature_shows_the_rules_that_read_it(target: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["features", "show", "usual", *target, "-o", "json"]) == 0
    readers = json.loads(capsys.readouterr().out)
    assert [(one["rule"], one["name"], one["back"]) for one in readers] == [
        ("a", "usual", "30d"),
        ("b", "mean", "60d"),
        ("c", "usual", "30d"),
    ]
    assert run(["features", "show", "nothing", *target]) == 1
    assert "headgate features list" in capsys.readouterr().err


def test_the_value_of_a_published_feature_is_that_of_the_events_before(
    kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against plain Python: events of the key that satisfy `where` within the panes up to the time."""
    features = [
        {**PUBLISHED, "feature": "usual", "of": "avg(amount)", "where": "type = 'payment'"},
        {**PUBLISHED, "feature": "paid", "of": "count(*)", "by": ["user_id", "lower(card)"], "including_this": True},
        {**PUBLISHED, "feature": "in_order", "of": "count(*)", "order": "in_order"},
        {**PUBLISHED, "feature": "last_amount", "of": "last(amount)", "within": {"tumbling": "1d"}},
    ]
    name = "features-get"
    controls = [(f"feature/{one['feature']}", orjson.dumps(one)) for one in features]
    events = [
        {"event_id": f"e{n}", "ts": START + n * HOUR, "type": kind, "user_id": user, "card": card, "amount": n + 10}
        for n, (kind, user, card) in enumerate(
            [("payment", "u1", "C1"), ("login", "u1", "C1"), ("payment", "u1", "c1"), ("payment", "u2", "c1")] * 3
        )
    ]
    app = run_app(kafka, name, controls, events)
    target = ["--app", name, "--bootstrap", kafka.bootstrap, "--topic", app.topic, "-o", "json"]

    def get(*words: str) -> dict[str, object]:
        assert run(["features", "get", *words, *target]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    for hours, within in ((11, 6), (30, 6), (400, 6)):
        at = START + hours * HOUR + 60_000
        first = (at // HOUR - within + 1) * HOUR
        own = [
            e for e in events if e["user_id"] == "u1" and e["type"] == "payment" and first <= int(str(e["ts"])) <= at
        ]
        found = get("usual", "u1", "--at", str(at))
        amounts = [int(str(one["amount"])) for one in own]
        assert (found["counted"], found["from_ms"], found["key"]) == (len(own), first, {"user_id": "u1"})
        assert found["value"] == (sum(amounts) / len(amounts) if own else None)
    at = START + 11 * HOUR
    both = get("paid", "user_id=u1", "lower(card)=c1", "--at", str(at))
    assert (both["value"], both["counted"], both["key"]) == (4, 4, {"user_id": "u1", "lower(card)": "c1"})
    assert get("paid", "user_id=u9", "lower(card)=c1", "--at", str(at))["value"] == 0
    (last,) = [e for e in events if e["user_id"] == "u1" and e["ts"] == START + 10 * HOUR]
    counts = [get("in_order", "u1", "--at", str(int(str(last["ts"])) + ms))["value"] for ms in (-1, 0)]
    assert counts == [5, 5], "the event of this time comes as that of six hours before goes"
    assert get("in_order", "user_id=u1", "--at", str(last["ts"]))["counted"] == 5
    assert get("usual", "a=b", "--at", str(at))["key"] == {"user_id": "a=b"}
    assert get("last_amount", "u1", "--at", str(at))["value"] == "20.00"
    assert get("usual", "u1")["value"] is None, "its events are older than six hours"
    target.remove("json")
    target.remove("-o")
    assert run(["features", "get", "usual", "u1", "--at", str(at), *target]) == 0
    assert capsys.readouterr().out.startswith("usual version 1 of user_id=u1 at 2026-01-05 19:00:00 UTC: 1")
    for words, what in (
        (["none", "u1"], "there are in_order, last_amount, paid, usual"),
        (["paid", "u1"], "key 'u1': feature paid needs user_id=VALUE lower(card)=VALUE"),
    ):
        assert run(["features", "get", *words, *target]) == 1
        assert what in capsys.readouterr().err
