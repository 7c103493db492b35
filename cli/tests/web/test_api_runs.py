"""Back-tests as jobs, keys, health and savepoints by the API, of an app that ran once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_scene import HOSTILE, Shown, rule, write_rule
from tests.harness.servers.console import program

pytestmark = pytest.mark.kafka


def test_a_back_test_is_a_job_with_progress_and_a_result(shown: Shown) -> None:
    path = f"{shown.api}/backtests"
    text = write_rule(rule("seen", 2, where="amount > 140", tests=[]))
    begun = shown.program.json("POST", path, {"yaml": text, "since": "3000d"})
    assert (begun.status, begun.json["rule"], begun.json["version"]) == (202, "seen", 2)
    job = f"{path}/{begun.json['id']}"
    deadline = time.monotonic() + 60
    while (found := shown.program.get(job).json)["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (found["state"], found["done"], found["live"]) == ("done", found["total"], 1)
    assert found["rejected"] == 1
    assert found["result"] is not None
    assert [one["id"] for one in shown.program.get(f"{path}?rule=seen").json] == [found["id"]]
    ended = shown.program.send("DELETE", job, b"", {})
    assert (ended.status, ended.json["state"]) == (200, "done")
    for body in ({"rule": "seen", "version": 99}, {"rule": "none"}):
        assert shown.program.json("POST", path, body).status == 404
    assert shown.program.json("POST", path, {"yaml": "id: x"}).json["code"] == "invalid_rule"
    assert shown.program.get(f"{path}/{'0' * 12}").status == 404


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
    shown_app = ConsoleApp(name=shown.app.name, settings=settings)
    with running(ConsoleServer(ConsoleSettings(kafka=kafka, apps=(shown_app,), port=0))) as server:
        assert program(server).get(f"{shown.api}/savepoints").json == []
