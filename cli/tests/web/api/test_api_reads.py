"""``/api/v1`` shows what is on the topics of an app."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import orjson
import pytest

from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
from headgate.web.state.lanes.alert_rate import AlertRate
from headgate.web.state.overview import dead_letter_needs, read_process
from headgate.web.state.values import CodeCount
from streamcore.control.channel import FileChannel
from streamcore.control.status import DriverPhase, DriverStatus
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_scene import HOSTILE, Shown, send_alert
from tests.harness.servers.console import program

pytestmark = pytest.mark.kafka


def test_rules_have_their_versions_documents_and_tests(shown: Shown) -> None:
    listed = shown.program.get(f"{shown.api}/rules").json
    assert [(one["rule"], one["version"], one["mode"], one["status"]) for one in listed["rules"]] == [
        ("past", 1, "live", "accepted"),
        ("seen", 1, "live", "accepted"),
    ]
    answer = shown.program.get(f"{shown.api}/rules/seen")
    assert answer.json["document"]["owner"] == HOSTILE
    assert answer.headers["etag"] == answer.json["etag"]
    assert shown.program.get(f"{shown.api}/rules/seen/versions").json == [1]
    assert shown.program.get(f"{shown.api}/rules/seen/versions/1").json["yaml"] == answer.json["yaml"]
    (test,) = shown.program.get(f"{shown.api}/rules/seen/tests").json
    assert (test["name"], test["passed"]) == (HOSTILE, True)
    missing = shown.program.get(f"{shown.api}/rules/none")
    assert (missing.status, missing.headers["content-type"]) == (404, "application/problem+json")
    assert missing.json["code"] == "not_found"


def test_filters_and_pages_of_rules_leave_nothing_out(shown: Shown) -> None:
    assert shown.program.get(f"{shown.api}/rules?text=nothing-of-the-kind").json["total"] == 0
    assert shown.program.get(f"{shown.api}/rules?mode=live&stream=shop").json["total"] == 2


def test_the_history_has_the_answers_and_the_rejection(shown: Shown) -> None:
    found, cursor = [], ""
    while True:
        page = shown.program.get(f"{shown.api}/history?limit=1{cursor}").json
        found += page["changes"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    names = {(one["subject"], one["name"]): one for one in found}
    assert names["rule", "wrong"]["status"] == "rejected"
    assert names["list", "denied"]["answered"]
    assert len(found) == len({(one["offset"], one["subject"], one["name"]) for one in found}) == 6
    (denied,) = shown.program.get(f"{shown.api}/lists").json
    assert (denied["name"], denied["entries"], denied["owner"]) == ("denied", 1, HOSTILE)
    streams = {one["name"]: one["rules"] for one in shown.program.get(f"{shown.api}/streams").json}
    assert streams["shop"] == ["past", "seen"]
    assert shown.program.get(f"{shown.api}/releases").json["changes"] == []


def test_alerts_come_newest_first_page_by_page_and_by_key(shown: Shown) -> None:
    ids, cursor = [], ""
    while True:
        page = shown.program.get(f"{shown.api}/alerts?limit=1&rule=seen{cursor}").json
        ids += [one["alert_id"] for one in page["alerts"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(ids) == sorted(one["alert_id"] for one in shown.app.alerts["seen"])
    for key in ("u2", "user_id=u2"):
        (only,) = shown.program.get(f"{shown.api}/alerts?key={key}").json["alerts"]
        assert only["key"] == {"user_id": "u2"}
    assert shown.program.get(f"{shown.api}/alerts?{urlencode({'severity': 'low'})}").json["alerts"] == []
    future = int(time.time() * 1000) + 60_000
    assert shown.program.get(f"{shown.api}/alerts?since_ms={future}").json["alerts"] == []
    assert len(shown.program.get(f"{shown.api}/alerts?until_ms={future}&rule=seen").json["alerts"]) == 3
    wrong = shown.program.get(f"{shown.api}/alerts?cursor=nonsense")
    assert (wrong.status, wrong.json["code"]) == (422, "invalid_request")


def test_an_alert_is_explained_as_the_command_explains_it(shown: Shown) -> None:
    (alert,) = shown.program.get(f"{shown.api}/alerts?key=u2").json["alerts"]
    assert shown.program.get(f"{shown.api}/alerts/{alert['alert_id']}").json == alert
    why = shown.program.get(f"{shown.api}/explanation?target={alert['alert_id']}").json
    assert (why["fired"], why["same"], why["rule"]) == (True, True, "seen")
    unknown = shown.program.get(f"{shown.api}/explanation?target=no-such-rule&event={quote(shown.app.place(0))}")
    assert (unknown.status, unknown.json["code"]) == (422, "cannot_answer")


def test_an_event_of_a_topic_that_the_rule_does_not_read_is_not_shown(
    shown: Shown, kafka: KafkaSettings, tmp_path: Path
) -> None:
    settings = tmp_path / "rules.yaml"
    stream = f"{{schema_file: {Path('streams/shop.yaml').resolve()}, topic: {shown.app.topic}}}"
    settings.write_text(f"checkpoint: {tmp_path}/checkpoint\nstreams: [{stream}]\n")
    shown_app = ConsoleApp(name=shown.app.name, settings=settings)
    with running(ConsoleServer(ConsoleSettings(kafka=kafka, apps=(shown_app,), port=0))) as server:
        path, client = f"{shown.api}/explanation?target=", program(server)
        not_fired = client.get(f"{path}seen&event={quote(shown.app.place(3))}")
        assert (not_fired.status, not_fired.json["fired"]) == (200, False), "the record is no event"
        for target in ("seen", "seen@1"):
            assert client.get(f"{path}{target}&event={quote(shown.app.place(0))}").json["fired"]
            refused = client.get(f"{path}{target}&event={shown.app.name}.control:0:0")
            assert (refused.status, refused.json["code"]) == (422, "cannot_answer")
            assert f"reads {shown.app.topic} in app" in refused.json["detail"]


def test_dead_letters_are_counted_by_code_and_shown_one_by_one(shown: Shown) -> None:
    page = shown.program.get(f"{shown.api}/dead-letters").json
    (letter,), (code,) = page["dead_letters"], page["codes"]
    assert (code["count"], code["code"]) == (1, letter["code"])
    assert letter["value"] == "{" + HOSTILE
    assert shown.program.get(f"{shown.api}/dead-letters/{letter['at']}").json == letter
    assert shown.program.get(f"{shown.api}/dead-letters?code=other").json["dead_letters"] == []
    assert shown.program.get(f"{shown.api}/dead-letters/0/999").status == 404


def test_an_app_says_what_needs_a_person(shown: Shown) -> None:
    app = shown.program.get(shown.api).json
    needs = [(one["level"], one["what"]) for one in app["needs"]]
    assert ("bad", "rule wrong was rejected") in needs
    assert any(level == "warn" and what.startswith("1 dead letter") for level, what in needs)
    assert sum(app["alerts_per_minute"]) >= 3
    assert app["rules"] == {"live": 2}
    assert shown.program.get("/api/v1/apps").json == [shown.app.name]
    assert shown.program.get("/api/v1/apps/other").status == 404


def test_each_alert_is_counted_once_in_its_minute(kafka: KafkaSettings, shown: Shown) -> None:
    before = sum(shown.program.get(shown.api).json["alerts_per_minute"])
    for number in range(12):
        send_alert(kafka, shown.app.name, b"{}", f"counted-{number}".encode())
    minutes = shown.program.get(shown.api).json["alerts_per_minute"]
    assert (len(minutes), sum(minutes) - before) == (60, 12)
    rate = AlertRate(kafka, shown.app.name, 4)
    counts, cut = rate.by_minute(int(time.time() * 1000))
    assert (sum(counts), cut) == (4, True), "of two partitions the newest two each"
    assert sum(rate.by_minute(int(time.time() * 1000) + 7_200_000)[0]) == 0
    rate.close()


def test_an_open_page_gets_a_new_alert_and_one_that_was_away_gets_it_later(kafka: KafkaSettings, shown: Shown) -> None:
    where = urlsplit(shown.server.address)
    ids = []
    for number, last in enumerate((None, "0")):
        connection = http.client.HTTPConnection(where.hostname or "", where.port or 0, timeout=30)
        connection.request(
            "GET",
            f"{shown.api}/alerts/live",
            headers={**shown.program.headers, **({} if last is None else {"Last-Event-ID": last})},
        )
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.readline() == b"retry: 2000\n"
        if number == 0:
            time.sleep(0.6)  # the feed begins at the end of the topic
            alert = dict(orjson.loads(orjson.dumps(shown.app.alerts["seen"][0])), rule="written", message=HOSTILE)
            send_alert(kafka, shown.app.name, b"no alert", b"none")
            send_alert(kafka, shown.app.name, orjson.dumps(alert), b"live-1")
        while not (line := answer.readline()).startswith(b"data: "):
            assert line
        ids.append(json.loads(line.removeprefix(b"data: "))["alert_id"])
        connection.close()
    assert ids == ["live-1", "live-1"]


def test_the_process_says_of_itself_whether_it_runs(tmp_path: Path) -> None:
    settings = tmp_path / "app.yaml"
    settings.write_text(f"app: shop\ncheckpoint: {tmp_path / 'checkpoint'}\n")
    assert read_process(settings, 100.0) is None
    channel = FileChannel(tmp_path / "checkpoint")
    channel.publish(DriverStatus(DriverPhase.RUNNING, batch=7, lag_rows=5, lag_s=1.5, at_ms=90_000).to_json())
    found = read_process(settings, 100.0)
    assert found is not None
    assert (found.phase, found.runs, found.batch, found.lag_rows, found.age_s) == ("running", True, 7, 5, 10.0)
    silent = read_process(settings, 200.0)
    assert silent is not None
    assert not silent.runs


def test_dead_letters_of_many_codes_are_one_need() -> None:
    codes = tuple(
        CodeCount(code=f"code_{n}", count=10 - n, latest_ms=1_000 * (n < 5), example="why", at="0/1") for n in range(6)
    )
    (need,) = dead_letter_needs("shop", codes, 86_400_500)
    assert need.what == "40 dead letters of 5 codes"
    assert need.detail == "Most: code_0 10, code_1 9, code_2 8"
    assert [one.what for one in dead_letter_needs("shop", codes[:2], 86_400_500)] == [
        "10 dead letters: code_0",
        "9 dead letters: code_1",
    ]
