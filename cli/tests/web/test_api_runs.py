"""Back-tests as jobs, keys, health and savepoints by the API, of an app that ran once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from headgate.web.access.roles import Role
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
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
