"""Sessions of events that are no shop's equal plain loops: own columns, gaps by expression, lengths, steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headgate_sessions.app import build_app
from headgate_sessions.settings import SessionsSettings
from streamcore.engine.in_process import InProcessApp, RawRecord

MINUTE_MS = 60_000
START_MS = 1_789_999_200_000 // 3_600_000 * 3_600_000
GAP, FORM_GAP, LENGTH = 10, 25, 60  # minutes
#: A request: user, minute, path, bytes.
Request = tuple[str, int, str, int]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> SessionsSettings:
    file = tmp_path_factory.mktemp("requests") / "requests.yaml"
    fields = {"at": "timestamp not null", "who": "struct<account: string>", "path": "string", "bytes": "long"}
    file.write_text(
        yaml.safe_dump({"name": "requests", "event_time": "at", "keys": [[]], "fields": fields}, sort_keys=False)
    )
    return SessionsSettings.model_validate(
        {
            "kafka": {"bootstrap": "nowhere:9092"},
            "checkpoint": "unused",
            "stream": {"schema_file": str(file), "topic": "requests"},
            "fields": {"user": "lower(who.account)"},
            "derive": {"is_form": "path like '/form%'"},
            "columns": {
                "landing": "first(path)",
                "paths": "count(distinct path)",
                "forms": "count(is_form)",
                "mean": "sum(bytes) / count(*)",
                "busy": "events > 2 and max(bytes) > 5",
            },
            "gap": {
                "gap_ms": GAP * MINUTE_MS,
                "expression": f"if(is_form, {FORM_GAP * MINUTE_MS}, {GAP * MINUTE_MS})",
            },
            "max_length_ms": LENGTH * MINUTE_MS,
            "funnel": [{"name": "seen", "when": "true"}, {"name": "form", "when": "is_form"}],
            "lateness_ms": 24 * 60 * MINUTE_MS,
            "early_ms": 1,
            "dashboard_metrics": None,
        }
    )


def found_sessions(
    settings: SessionsSettings, requests: Sequence[Request], cuts: Sequence[int], shards: int
) -> dict[str, list[dict[str, Any]]]:
    """Return the latest sessions of each user, in order; the app continues in another process in each cut."""
    app = InProcessApp(build_app(settings.model_copy(update={"shards": shards})))
    rest, offset, clock_ms = [*requests], 0, START_MS + 24 * 60 * MINUTE_MS
    latest: dict[str, dict[str, Any]] = {}
    for size in [*cuts, len(rest) + 1, 0]:
        part, rest, clock_ms = rest[:size], rest[size:], clock_ms + 1_000
        records = [
            RawRecord(
                0,
                0,
                offset + n,
                orjson.dumps({"at": START_MS + m * MINUTE_MS, "who": {"account": u}, "path": p, "bytes": b}),
            )
            for n, (u, m, p, b) in enumerate(part)
        ]
        offset += len(part)
        for record in app.cut(records, clock_ms):
            assert record.lane == "sessions", record
            row = orjson.loads(record.value or b"")
            assert row["revision"] > latest.get(row["session_id"], {"revision": 0})["revision"]
            latest[row["session_id"]] = row
        app = InProcessApp(app.app, app.blobs, partitions=app.partitions, next_offsets=app.next_offsets)
    sessions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(latest.values(), key=lambda one: one["started_at"]):
        if not row["is_deleted"]:
            names = ("events", "landing", "paths", "forms", "mean", "busy", "funnel_step", "duration_ms")
            sessions[row["user_id"]].append({name: row[name] for name in names})
    return dict(sessions)


def expected_sessions(requests: Sequence[Request]) -> dict[str, list[dict[str, Any]]]:
    by_user: dict[str, list[Request]] = defaultdict(list)
    for one in requests:
        by_user[one[0].lower()].append(one)
    return {user: [*map(_session, _split(own))] for user, own in by_user.items()}


def _split(requests: list[Request]) -> list[list[Request]]:
    sessions: list[list[Request]] = []
    open_until = -1
    for one in sorted(requests, key=lambda request: request[1]):
        minute = one[1]
        if not sessions or minute >= open_until or minute // LENGTH != sessions[-1][0][1] // LENGTH:
            sessions.append([])
            open_until = -1
        sessions[-1].append(one)
        open_until = max(open_until, minute + (FORM_GAP if one[2].startswith("/form") else GAP))
    return sessions


def _session(requests: list[Request]) -> dict[str, Any]:
    minutes = [one[1] for one in requests]
    forms = [one for one in requests if one[2].startswith("/form")]
    total = sum(one[3] for one in requests)
    return {
        "events": len(requests),
        "landing": min(one[2] for one in requests if one[1] == min(minutes)),
        "paths": len({one[2] for one in requests}),
        "forms": len(forms),
        "mean": pytest.approx(total / len(requests)),
        "busy": len(requests) > 2 and max(one[3] for one in requests) > 5,
        "funnel_step": 2 if forms else 1,
        "duration_ms": (max(minutes) - min(minutes)) * MINUTE_MS,
    }


requests_drawn = st.lists(
    st.tuples(
        st.sampled_from(["Ann", "ann", "bob"]),
        st.integers(0, 150),
        st.sampled_from(["/a", "/b", "/form/1"]),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@hypothesis_settings(max_examples=40)
@given(requests_drawn, st.lists(st.integers(1, 8), max_size=4), st.sampled_from([1, 3]))
def test_sessions_equal_those_of_plain_loops_however_the_input_is_cut(
    settings: SessionsSettings, requests: list[Request], cuts: list[int], shards: int
) -> None:
    assert found_sessions(settings, requests, cuts, shards) == expected_sessions(requests)


def test_an_event_without_a_usable_gap_is_a_dead_letter_and_a_late_one_keeps_its_record(
    settings: SessionsSettings,
) -> None:
    gap = settings.gap.model_copy(update={"expression": "bytes"})
    app = InProcessApp(build_app(settings.model_copy(update={"gap": gap, "lateness_ms": 0})))

    def record(offset: int, minute: int, size: int | None) -> RawRecord:
        value = {"at": START_MS + minute * MINUTE_MS, "who": {"account": "ann"}, "path": "/a", "bytes": size}
        return RawRecord(0, 0, offset, orjson.dumps(value), b"key")

    clock_ms = START_MS + 24 * 60 * MINUTE_MS
    bad = app.cut([record(0, 600, 1), record(1, 600, None), record(2, 600, 0)], clock_ms)
    letters = [dict(one.headers) for one in bad if one.lane == "deadletters"]
    assert [one["source_offset"] for one in letters] == [b"1", b"2"]
    assert [one["reason_code"] for one in letters] == [b"null_field", b"rule:gap"]
    late = [one for one in app.cut([record(3, 0, 5)], clock_ms + 1_000) if one.lane == "late"]
    assert [(one.key, one.value) for one in late] == [(b"key", record(3, 0, 5).value)]
    headers = dict(late[0].headers)
    assert (headers["source_topic"], headers["source_offset"]) == (b"requests", b"3")
