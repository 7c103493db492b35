"""Features in the API and on the pages: each once, the rules that read it, values, and whether it is complete."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.main import run
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
from headgate.web.state.app_reader import AppReader
from headgate.web.state.feature_views import list_features, rule_features
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_scene import HOSTILE, Shown
from tests.harness.apps.explained_app import START
from tests.harness.servers.console import browser, program

pytestmark = pytest.mark.kafka


def test_features_are_those_of_the_command(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = shown.program.get(f"{shown.api}/features").json
    target = ["--app", shown.app.name, "--bootstrap", shown.app.bootstrap, "-o", "json"]
    assert run(["features", "list", *target]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    definition = found["definition"]
    assert (definition["of"], found["stream"], ", ".join(definition["by"])) == (row["of"], row["stream"], row["by"])
    assert (found["names"], found["published"][0]["owner"], row["rules"]) == (["usual"], HOSTILE, len(found["rules"]))
    assert (found["rules"][0]["rule"], found["published"][0]["state"]) == ("past", "kept")
    answer = shown.program.get(f"{shown.api}/features/usual")
    assert answer.json["features"] == [found]
    assert answer.headers["etag"] == answer.json["etag"] == '"f1"'
    assert "of: sum(amount)" in answer.json["yaml"]
    missing = shown.program.get(f"{shown.api}/features/none")
    assert (missing.status, missing.json["code"]) == (404, "not_found")


def test_a_rule_has_its_features(shown: Shown) -> None:
    (one,) = shown.program.get(f"{shown.api}/rules/past/features").json
    assert (one["name"], one["published"], one["others"], one["including_this"]) == ("usual", True, 0, False)
    assert (one["definition"]["size_ms"], one["definition"]["other_key"]) == (30 * 86_400_000, False)
    assert shown.program.get(f"{shown.api}/rules/seen/features").json == []
    assert shown.program.get(f"{shown.api}/rules/none/features").status == 404
    assert f'href="{shown.pages}/features/usual"' in shown.browser.get(f"{shown.pages}/rules/past").text


def test_the_value_for_a_key_is_that_of_the_command(
    shown: Shown, kafka: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, at = tmp_path / "rules.yaml", str(START + 60_000)
    stream = f"{{schema_file: {Path('streams/shop.yaml').resolve()}, topic: {shown.app.topic}}}"
    settings.write_text(f"checkpoint: {tmp_path}/checkpoint\nstreams: [{stream}]\n")
    app = ConsoleApp(name=shown.app.name, settings=settings)
    with running(ConsoleServer(ConsoleSettings(kafka=kafka, apps=(app,), port=0))) as server:
        client = program(server)
        found = client.get(f"{shown.api}/features/usual/value?key=user_id%3Du2&at={at}").json
        target = ["--app", shown.app.name, "--bootstrap", shown.app.bootstrap, "--topic", shown.app.topic, "-o", "json"]
        assert run(["features", "get", "usual", "u2", "--at", at, *target]) == 0
        assert found == json.loads(capsys.readouterr().out)
        assert (found["value"], found["counted"], found["key"]) == ("150.00", 1, {"user_id": "u2"})
        page = browser(server).get(f"{shown.pages}/features/usual?k.user_id=u2&at={at}").text
        assert "150.00" in page
        assert f"headgate features get usual user_id=u2 --app {shown.app.name} --at {at}" in page
        page = browser(server).get(f"{shown.pages}/features/usual?k.user_id=u%202").text
        assert "headgate features get usual &#39;user_id=u 2&#39; --app" in page
        other = client.get(f"{shown.api}/features/usual/value?key=other%3D1&at={at}").json
        assert (other["key"], other["value"]) == ({"user_id": "other=1"}, None), "the text is the value"
        late = (f"key=user_id%3Du2&at={'9' * 18}", 422)
        for words, status in (late, (f"key=user_id%3Du2&at={'x' * 5}", 422), ("", 422)):
            assert client.get(f"{shown.api}/features/usual/value?{words}").status == status, words
        assert client.get(f"{shown.api}/features/none/value?key=user_id%3Du2").status == 404


def test_a_feature_that_began_while_the_app_ran_is_warming_until_it_is_complete(
    shown: Shown, kafka: KafkaSettings
) -> None:
    reader = AppReader(kafka, ConsoleApp(name=shown.app.name))
    try:
        known = reader.snapshot()
        (kept,) = known.history.rules.features.keepers.values()
        later = replace(known, began={kept.features[0].fingerprint: START})
        for one in (list_features(later)[0].definition, rule_features(later, "past")[0].definition):
            assert one.complete_ms == START + 30 * 86_400_000
        assert list_features(known)[0].definition.complete_ms is None
    finally:
        reader.close()
