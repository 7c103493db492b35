"""Back-tests as jobs, keys, health and savepoints by the API, of an app that ran once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headgate.web.access.roles import Role
from headgate.web.changes.check import check_text
from headgate.web.changes.similar import SimilarSearch, find_similar
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
from headgate.web.state.app_reader import AppReader
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_scene import HOSTILE, Shown, rule, write_rule
from tests.harness.servers.console import program

pytestmark = pytest.mark.kafka


def test_a_back_test_is_a_job_with_progress_and_a_result(shown: Shown, kafka: KafkaSettings, tmp_path: Path) -> None:
    settings = tmp_path / "rules.yaml"
    stream = f"{{schema_file: {Path('streams/shop.yaml').resolve()}, topic: {shown.app.topic}}}"
    settings.write_text(f"checkpoint: {tmp_path}/checkpoint\nstreams: [{stream}]\n")
    with running(_console(kafka, shown.app.name, settings)) as server:
        client, path = program(server), f"{shown.api}/backtests"
        text = write_rule(rule("seen", 2, where="amount > 140", tests=[]))
        begun = client.json("POST", path, {"yaml": text, "since": "3000d"})
        assert (begun.status, begun.json["rule"], begun.json["version"]) == (202, "seen", 2)
        job = f"{path}/{begun.json['id']}"
        deadline = time.monotonic() + 60
        while (found := client.get(job).json)["state"] == "running" and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (found["state"], found["done"], found["live"]) == ("done", found["total"], 1)
        assert (found["rejected"], found["events"]) == (1, 3)
        assert found["result"] is not None
        assert [one["id"] for one in client.get(f"{path}?rule=seen").json] == [found["id"]]
        ended = client.send("DELETE", job, b"", {})
        assert (ended.status, ended.json["state"]) == (200, "done")
        for body in ({"rule": "seen", "version": 99}, {"rule": "none"}):
            assert client.json("POST", path, body).status == 404
        assert client.json("POST", path, {"yaml": "id: x"}).json["code"] == "invalid_rule"
        assert client.get(f"{path}/{'0' * 12}").status == 404
    viewer = ConsoleSettings(kafka=kafka, apps=(ConsoleApp(name=shown.app.name),), port=0, role=Role.VIEWER)
    with running(ConsoleServer(viewer)) as server:
        assert program(server).json("POST", path, {"yaml": text}).status == 403


def _console(kafka: KafkaSettings, app: str, settings: Path) -> ConsoleServer:
    return ConsoleServer(ConsoleSettings(kafka=kafka, apps=(ConsoleApp(name=app, settings=settings),), port=0))


def test_what_is_known_of_a_key(shown: Shown) -> None:
    found = shown.program.get(f"{shown.api}/entity?column=user_id&value=u2").json
    assert (found["column"], found["value"]) == ("user_id", "u2")
    assert found["entries"]
    assert shown.program.get(f"{shown.api}/entity?column=nothing&value=x").json["code"] == "cannot_answer"
    assert HOSTILE not in str(found["lists"])


def test_health_and_savepoints_say_what_they_need(shown: Shown, kafka: KafkaSettings, tmp_path: Path) -> None:
    health = shown.program.get(f"{shown.api}/health")
    assert (health.status, health.json["process"]) == (200, None)
    assert "--app-settings" in health.json["notes"][0]
    assert shown.program.get(f"{shown.api}/savepoints").json["code"] == "cannot_answer"
    settings = tmp_path / "rules.yaml"
    settings.write_text(f"checkpoint: {tmp_path}/checkpoint\nsavepoints: {tmp_path}/savepoints\n")
    with running(_console(kafka, shown.app.name, settings)) as server:
        assert program(server).get(f"{shown.api}/savepoints").json == []


SIMILAR = """\
id: similar
version: 1
owner: me
on: shop
where: type = 'payment' and amount > 200
then: {severity: low, message: "{user_id}"}
"""


@pytest.fixture
def settings(shown: Shown, tmp_path: Path) -> Path:
    """A settings file of the app, with the topic of its stream."""
    file = tmp_path / "rules.yaml"
    stream = f"{{schema_file: {Path('streams/shop.yaml').resolve()}, topic: {shown.app.topic}}}"
    file.write_text(f"checkpoint: {tmp_path}/checkpoint\nstreams: [{stream}]\n")
    return file


def test_events_like_a_rule_are_found_with_the_clause_that_they_miss(
    shown: Shown, kafka: KafkaSettings, settings: Path
) -> None:
    with running(_console(kafka, shown.app.name, settings)) as server:
        client, path = program(server), f"{shown.api}/similar-events"
        found = client.json("POST", path, {"yaml": SIMILAR})
        assert found.status == 200, found.text
        counts = {name: found.json[name] for name in ("decoded", "satisfied", "near", "next")}
        assert counts == {"decoded": 3, "satisfied": 0, "near": 3, "next": None}
        (first, *_) = found.json["events"]
        (clause,) = first["clauses"]
        assert (clause["text"], clause["truth"], clause["values"]) == ("amount > 200", "FALSE", {"amount": "150.00"})
        assert first["values"]["user_id"] == "'u2'", "the newest is the first"
        satisfied = client.json("POST", path, {"yaml": SIMILAR.replace("200", "100")}).json
        assert (satisfied["satisfied"], satisfied["candidates"]) == (3, 3)
        assert [one["satisfied"] for one in satisfied["events"]] == [True] * 3
        other = {"yaml": SIMILAR, "before": {f"{shown.app.name}.alerts:0": 1}}
        assert client.json("POST", path, other).json["code"] == "invalid_request"


def test_a_search_goes_on_where_it_has_ended_up_to_its_limit(
    shown: Shown, kafka: KafkaSettings, settings: Path
) -> None:
    app = ConsoleApp(name=shown.app.name, settings=settings)
    reader = AppReader(kafka, app)
    snapshot = reader.snapshot()
    reader.close()
    rule = check_text(snapshot, SIMILAR).compiled
    assert rule is not None
    seen, before = list[str](), None
    for _ in range(20):
        found = find_similar(SimilarSearch(kafka, app, snapshot, rule, most=50_000, piece=1), before)
        seen += [one.at for one in found.events]
        before = found.next
        if before is None:
            break
    assert before is None
    assert len(seen) == len(set(seen)) == 3
    limited = find_similar(SimilarSearch(kafka, app, snapshot, rule, most=1))
    assert (limited.next, limited.left) == (None, 0)
    assert limited.read < 4


def test_a_rule_with_mistakes_or_without_a_condition_on_events_is_like_no_event(shown: Shown) -> None:
    wrong = shown.program.json("POST", f"{shown.api}/similar-events", {"yaml": SIMILAR.replace("amount", "amuont")})
    assert (wrong.status, wrong.json["code"]) == (422, "invalid_rule")
    score = "group_by: [user_id]\nscore: {of: {seen: 5}, within: 1h, limit: 5}\n"
    text = SIMILAR.replace("where: type = 'payment' and amount > 200\n", score)
    none = shown.program.json("POST", f"{shown.api}/similar-events", {"yaml": text})
    assert (none.status, none.json["code"]) == (422, "cannot_answer"), none.text


def test_a_red_test_says_which_clause_was_false_with_which_values(shown: Shown) -> None:
    tests = "tests:\n  - {name: red, events: [{type: payment, user_id: u1, amount: 99}], expect: [{}]}\n"
    found = shown.program.json("POST", f"{shown.api}/rule-checks", {"yaml": SIMILAR + tests}).json
    (test,) = found["tests"]
    (why,) = test["why"]
    assert (test["passed"], why["event"], why["condition"], why["truth"]) == (False, 1, "where", "FALSE")
    (missed,) = (one for one in why["clauses"] if one["decided"])
    assert (missed["text"], missed["values"]) == ("amount > 200", {"amount": "99.00"})


def test_options_are_given_for_a_place_of_the_text(shown: Shown) -> None:
    text = SIMILAR.replace("amount > 200", "am")
    place = {"yaml": text, "line": 5, "column": len("where: type = 'payment' and am") + 1}
    found = shown.program.json("POST", f"{shown.api}/completions", place).json
    assert (found["start"], found["options"][0]["text"]) == (29, "amount")
