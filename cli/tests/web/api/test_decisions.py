"""Decisions in the API and on the pages: listed, found, explained, live, linked with their alerts."""

from __future__ import annotations

import http.client
import json
import time
from urllib.parse import quote, urlsplit

import orjson
import pytest

from headgate.web.state.lanes.decision_records import DecisionFilter
from headgate.web.state.lanes.decisions import DecisionReader
from headgate.web.state.lanes.newest_first import read_cursor
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import DECISIONS
from tests.harness.apps.console_scene import HOSTILE, Shown

pytestmark = pytest.mark.kafka


def published(shown: Shown) -> dict[str, dict[str, object]]:
    """Return the decisions that the app wrote, by id."""
    found = (orjson.loads(one.value or b"") for one in shown.app.output if one.lane == DECISIONS)
    return {one["decision_id"]: one for one in found}


def test_decisions_are_listed_by_outcome_rule_key_and_policy(shown: Shown) -> None:
    ids, cursor = [], ""
    while True:
        page = shown.program.get(f"{shown.api}/decisions?limit=1&policy=guard{cursor}").json
        ids += [one["decision_id"] for one in page["decisions"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert sorted(ids) == sorted(published(shown))
    assert len(ids) == 3
    for words, count in (
        ("outcome=review", 3),
        ("outcome=block", 0),
        ("rule=seen", 3),
        ("rule=other", 0),
        ("policy=other", 0),
        (f"key=user_id%3D{quote(HOSTILE)}&rule=seen&outcome=review", 1),
        ("until_ms=1", 0),
        (f"since_ms={int(time.time() * 1000) + 60_000}", 0),
    ):
        assert len(shown.program.get(f"{shown.api}/decisions?{words}").json["decisions"]) == count, words
    wrong = shown.program.get(f"{shown.api}/decisions?cursor=nonsense")
    assert (wrong.status, wrong.json["code"]) == (422, "invalid_request")


def test_a_decision_has_what_is_on_its_topic_and_is_explained_as_by_the_command(
    shown: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    own = published(shown)
    (found,) = shown.program.get(f"{shown.api}/decisions?key=u2").json["decisions"]
    body = own[found["decision_id"]]
    assert shown.program.get(f"{shown.api}/decisions/{found['decision_id']}").json == found
    assert {name: found[name] for name in ("outcome", "score", "band", "cause", "version")} == {
        name: body[name] for name in ("outcome", "score", "band", "cause", "version")
    }
    assert (found["source"], found["event_id"]) == (shown.app.place(2), "e2")
    (fired,) = found["rules"]
    assert (fired["rule"], fired["outcome"], fired["score"], fired["alert"]) == ("seen", "review", 40, "sent")
    assert (
        shown.program.get(f"{shown.api}/alerts/{fired['alert_id']}").json["body"]["decision_id"] == body["decision_id"]
    )
    assert shown.app("explain", found["decision_id"], "-o", "json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["same"] is True
    for path in (f"decisions/{found['decision_id']}/explanation", f"explanation?target={found['decision_id']}"):
        assert shown.program.get(f"{shown.api}/{path}").json == printed
    missing = shown.program.get(f"{shown.api}/decisions/{'0' * 32}")
    assert (missing.status, missing.json["code"]) == (404, "not_found")
    assert shown.program.get(f"{shown.api}/decisions/{'0' * 32}/explanation").status == 404


def test_pages_lead_from_a_decision_to_its_alerts_and_back(shown: Shown) -> None:
    (found,) = shown.program.get(f"{shown.api}/decisions?key=u2").json["decisions"]
    decision, alert = found["decision_id"], found["rules"][0]["alert_id"]
    page = shown.browser.get(f"{shown.pages}/decisions/{decision}").text
    assert f'href="{shown.pages}/alerts/{alert}"' in page
    assert "computed again: the same decision" in page
    assert "review from 30" in page
    assert f"headgate rules explain {decision}" in page
    back = shown.browser.get(f"{shown.pages}/alerts/{alert}").text
    assert f'href="{shown.pages}/decisions/{decision}"' in back
    assert '<span class="tag outcome warn">review</span>' in back
    listed = shown.browser.get(f"{shown.pages}/decisions").text
    assert f'href="{shown.pages}/decisions/{decision}"' in listed
    assert "of the newest 3 decisions" in listed
    older = shown.browser.get(f"{shown.pages}/decisions?outcome=block").text
    assert "No decision fits" in older


def send(kafka: KafkaSettings, app: str, body: bytes, key: bytes) -> None:
    producer = clients.producer(kafka)
    producer.produce(f"{app}.decisions", body, key)
    producer.flush(10)


def test_an_open_page_gets_a_new_decision_and_records_that_are_none_are_passed_over(
    kafka: KafkaSettings, shown: Shown
) -> None:
    where = urlsplit(shown.server.address)
    connection = http.client.HTTPConnection(where.hostname or "", where.port or 0, timeout=30)
    connection.request("GET", f"{shown.api}/decisions/live", headers=shown.program.headers)
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    time.sleep(0.6)  # the feed begins at the end of the topic
    body = dict(next(iter(published(shown).values())), outcome="held")
    for wrong in (b"none", b"[]", b'{"source": 1}', orjson.dumps({**body, "rules": "none"})):
        send(kafka, shown.app.name, wrong, b"wrong")
    send(kafka, shown.app.name, orjson.dumps(body), b"live-1")
    while not (line := answer.readline()).startswith(b"data: "):
        assert line
    connection.close()
    got = json.loads(line.removeprefix(b"data: "))
    assert (got["decision_id"], got["outcome"]) == ("live-1", "held")
    assert shown.browser.get(f"{shown.pages}/decisions/live-1").status == 200, "its policy has no such outcome"
    part, whole = DecisionReader(kafka, shown.app.name, 1), DecisionReader(kafka, shown.app.name, 100)
    names = [[*every_id(reader)] for reader in (part, whole)]
    part.close()
    whole.close()
    assert sorted(names[0]) == sorted(names[1]) == sorted([*published(shown), "live-1"])


def every_id(reader: DecisionReader) -> list[str]:
    """Return the ids of all pages; older ones than the reader keeps come from the topic."""
    found, cursor = list[str](), None
    while True:
        page = reader.page(DecisionFilter(), 2, read_cursor(cursor))
        found += [one.decision_id for one in page.decisions]
        if page.next is None:
            return found
        cursor = page.next
