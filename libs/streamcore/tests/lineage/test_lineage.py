"""Lineage at a real HTTP server: ranges join without gaps, nothing is lost while it is away, and no cut waits."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamcore.engine.report import CutReport
from streamcore.errors import ConfigError
from streamcore.lineage.events import Dataset, LineageJob
from streamcore.lineage.reporter import LineageReporter
from streamcore.lineage.settings import LineageSettings
from tests.harness.apps.cut_reports import cut_report
from tests.harness.servers.lineage_server import LineageServer, lineage_server

KAFKA = "kafka://b1:9092"
JOB = LineageJob(
    "shops",
    "shop",
    {"clicks": Dataset(KAFKA, "clicks", (("id", "long"), ("url", "string"))), "shop.control": Dataset(KAFKA, "x")},
    {"clean": Dataset("postgres://db:5432", "shop.public.clean"), "deadletters": Dataset(KAFKA, "shop.deadletters")},
)
EVERY_MS = 10


@pytest.fixture
def server() -> Iterator[LineageServer]:
    with lineage_server() as running:
        yield running


def settings(server: LineageServer, interval_ms: int = EVERY_MS) -> LineageSettings:
    return LineageSettings(server.url, namespace="shops", interval_ms=interval_ms)


def cut(batch: int) -> CutReport:
    """Return a cut of 10 offsets of one partition and 1 of another, 8 rows and 3 dead letters."""
    return replace(
        cut_report(batch),
        events=8,
        lanes={"clean": 8, "deadletters": 3},
        reasons={"not_json": 2, "late": 1},
        starts={"clicks": {"0": 10 * batch, "1": batch}},
        offsets={"clicks": {"0": 10 * batch + 10, "1": batch + 1}},
    )


def ranges(server: LineageServer) -> list[tuple[int, int]]:
    """Return the first and the last cut of each event that has a range."""
    facets = [event["run"]["facets"].get("headgate_cuts") for event in server.events]
    return [(facet["firstCut"], facet["lastCut"]) for facet in facets if facet]


def offsets(server: LineageServer, end: str) -> list[Mapping[str, int]]:
    return [event["inputs"][0]["inputFacets"]["headgate_offsets"][end] for event in server.events if event["inputs"]]


def rows(server: LineageServer) -> int:
    return sum(
        output["outputFacets"]["outputStatistics"]["rowCount"]
        for event in server.events
        for output in event["outputs"]
        if output["name"] == "shop.public.clean"
    )


def check_form(event: Mapping[str, Any]) -> None:
    """Assert what the specification 2-0-2 demands of a run event, its datasets and its facets."""
    assert event.keys() >= {"eventTime", "producer", "schemaURL", "run", "job"}
    assert event["eventType"] in ("START", "RUNNING", "COMPLETE", "FAIL")
    assert datetime.datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    uuid.UUID(event["run"]["runId"])
    datasets = [*event["inputs"], *event["outputs"]]
    assert all(one[name] for one in (event["job"], *datasets) for name in ("namespace", "name"))
    groups = [event["run"].get("facets"), event["job"].get("facets")]
    groups += [one.get(kind) for one in datasets for kind in ("facets", "inputFacets", "outputFacets")]
    for facet in (facet for group in groups for facet in (group or {}).values()):
        assert facet["_producer"] == event["producer"]
        assert ":" in facet["_schemaURL"]


def test_a_run_begins_with_its_first_range_and_ends_complete(server: LineageServer) -> None:
    with LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        for batch in (7, 8):
            lineage.cut(cut(batch))
            server.wait_for(events=batch - 6)
    assert [event["eventType"] for event in server.events] == ["START", "RUNNING", "COMPLETE"]
    assert {event["run"]["runId"] for event in server.events} == {JOB.run_id(1, 7)}
    assert set(server.paths) == {"/api/v1/lineage"}
    for event in server.events:
        check_form(event)
    first = server.events[0]
    assert first["job"]["namespace"] == "shops"
    assert first["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    (clicks,) = first["inputs"]
    assert (clicks["namespace"], clicks["name"]) == (KAFKA, "clicks")
    assert clicks["facets"]["schema"]["fields"] == [{"name": "id", "type": "long"}, {"name": "url", "type": "string"}]
    assert clicks["inputFacets"]["inputStatistics"]["rowCount"] == 11
    assert first["run"]["facets"]["headgate_cuts"]["deadLettersByReason"] == {"not_json": 2, "late": 1}
    assert [one["outputFacets"]["outputStatistics"]["rowCount"] for one in first["outputs"]] == [8, 3]


def test_the_cuts_of_an_interval_are_one_range_and_ranges_join_without_gaps(server: LineageServer) -> None:
    with LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        for batch in range(300):
            lineage.cut(cut(batch))
            if batch % 100 == 0:
                server.wait_for(events=batch // 100 + 1)
    found = ranges(server)
    assert (found[0][0], found[-1][1]) == (0, 299)
    assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(found))
    assert len(found) < 300
    assert offsets(server, "to")[:-1] == offsets(server, "from")[1:]
    assert rows(server) == 300 * 8


@pytest.mark.parametrize("status", [500, 503, 429, 401, 404, 301])
def test_nothing_is_lost_while_the_server_is_away(server: LineageServer, status: int) -> None:
    with LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
        server.wait_for(events=1)
        server.status = status
        for batch in range(1, 40):
            lineage.cut(cut(batch))
        server.wait_for(requests=4)
        server.status = 201
        lineage.cut(cut(40))
        server.wait_for(events=2)
    found = ranges(server)
    assert (found[0], found[-1][1]) == ((0, 0), 40)
    assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(found))
    assert rows(server) == 41 * 8
    assert lineage.counts["failed"] >= 2


def test_an_event_that_the_server_may_have_is_sent_again_unchanged(
    server: LineageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []
    take = LineageServer.take

    def lose_first_answer(self: LineageServer, path: str, key: str | None, body: bytes) -> int:
        sent.append(body)
        take(self, path, key, body)
        return 503 if len(sent) == 1 else 201

    monkeypatch.setattr(LineageServer, "take", lose_first_answer)
    with LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
        lineage.cut(cut(1))
        server.wait_for(events=2)
    assert sent[0] == sent[1]


def test_a_cut_does_not_wait_for_a_server_that_does_not_answer(server: LineageServer) -> None:
    server.hold.clear()
    with LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        for batch in range(500):  # with a wait for the server, the first would hold all others
            lineage.cut(cut(batch))
        assert server.events == []
        server.hold.set()
    assert (ranges(server)[0][0], ranges(server)[-1][1]) == (0, 499)


def test_memory_is_bounded_while_the_server_is_away(server: LineageServer) -> None:
    server.status = 503
    with LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
        server.wait_for(requests=2)
        for batch in range(1, 2_000):
            lineage.cut(cut(batch))
        kept = lineage._open
        assert kept is not None
        assert (kept.first, kept.last, len(kept.ends["clicks"])) == (1, 1_999, 2)
        server.status = 201
        server.wait_for(events=1)
    assert rows(server) == 2_000 * 8


def test_an_app_without_input_sends_nothing_and_its_next_range_joins(server: LineageServer) -> None:
    idle = replace(cut(1), starts=cut(0).offsets, offsets=cut(0).offsets, lanes={}, reasons={}, events=0)
    with LineageReporter(settings(server, 1)) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
        server.wait_for(events=1)
        for batch in range(1, 50):
            lineage.cut(replace(idle, batch=batch))
            time.sleep(0.001)
        assert len(server.events) == 1
        lineage.cut(replace(cut(50), starts=cut(0).offsets))
        server.wait_for(events=2)
    assert ranges(server) == [(0, 0), (1, 50)]
    assert offsets(server, "to")[0] == offsets(server, "from")[1]


def test_an_event_that_the_server_rejects_is_dropped_and_counted(
    server: LineageServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 422
    with LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
        server.wait_for(requests=1)
        server.status = 201
        lineage.cut(cut(1))
        server.wait_for(events=1)
    assert lineage.counts["rejected"] == 1
    assert "rejects an event with status 422" in caplog.text
    assert ranges(server) == [(1, 1)]


def test_a_run_that_ends_with_an_error_has_failed_and_one_without_cuts_says_nothing(server: LineageServer) -> None:
    with LineageReporter(settings(server)) as idle:
        idle.describe(JOB)
    assert server.requests == 0
    with contextlib.suppress(ConfigError), LineageReporter(settings(server)) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
        raise ConfigError("the app cannot go on")
    assert [event["eventType"] for event in server.events] == ["START", "FAIL"]


def test_the_end_of_the_app_does_not_wait_for_a_server_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    gone = LineageSettings("http://127.0.0.1:1", interval_ms=60_000, timeout_ms=200)
    with LineageReporter(gone) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
    assert "did not take the last events of this run" in caplog.text


def test_the_key_is_read_from_its_file_at_each_event(server: LineageServer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("one-key\n")
    with LineageReporter(replace(settings(server), api_key_file=key)) as lineage:
        lineage.describe(JOB)
        lineage.cut(cut(0))
        server.wait_for(events=1)
        key.write_text("second\n")
        lineage.cut(cut(1))
        server.wait_for(events=2)
    assert server.keys[0] == "Bearer one-key"
    assert server.keys[-1] == "Bearer second"
    assert "one-key" not in json.dumps(server.events)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"url": "ftp://x"}, "write http"),
        ({"url": "http://user:secret@x"}, "no login"),
        ({"url": "http://x:no"}, "write http"),
        ({"api_key_file": Path("a"), "api_key_env": "B"}, "take one of them"),
    ],
)
def test_settings_that_cannot_be_used_say_why_without_the_secret(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        LineageSettings(**{"url": "http://x", **entries})
    assert "secret" not in str(raised.value)


def test_a_key_that_is_missing_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINEAGE_KEY", raising=False)
    with pytest.raises(ConfigError, match="LINEAGE_KEY is empty or missing"):
        LineageReporter(LineageSettings("http://x", api_key_env="LINEAGE_KEY"))


@pytest.mark.slow
def test_cuts_are_counted_while_the_thread_sends(server: LineageServer) -> None:
    with LineageReporter(settings(server, 1)) as lineage:
        lineage.describe(JOB)
        for batch in range(3_000):
            lineage.cut(cut(batch))
    assert rows(server) == 3_000 * 8
    assert offsets(server, "to")[:-1] == offsets(server, "from")[1:]
