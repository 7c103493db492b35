"""The examples of lines, of times in many forms and of arrays: their mappings make rows of their samples."""

from __future__ import annotations

import hashlib
from pathlib import Path

import orjson
import pytest
import yaml

from headgate_etl.app import build_app
from headgate_etl.settings import EtlSettings
from streamcore.engine.in_process import InProcessApp, RawRecord

FOLDER = Path(__file__).parents[2] / "examples/events"
NOW_MS = 1_800_000_000_000
#: When the records came to Kafka: 2026-11-02T09:00:10Z.
RECORD_MS = 1_793_610_010_000


def _digest(name: str, text: str) -> str:
    return hashlib.new(name, text.encode()).hexdigest()


#: By shape, the rows that its mapping makes of its sample.
MAPPED_ONLY: dict[str, list[dict[str, object]]] = {
    "nginx_access": [
        {
            "id": _digest("sha256", "203.0.113.9|2026-11-02T08:00:01.000Z|GET|/search|q=red+shoes&page=2"),
            "at": "2026-11-02T08:00:01+00:00",
            "network": "203.0.113.0/24",
            "page": "/search",
            "words": ["red", "shoes"],
            "status": 200,
            "device": "mobile",
            "came_from": "www.example.com",
            "day": "2026-11-02",
            "millis": 41,
        },
        {
            "id": _digest("sha256", "2001:db8:17::5|2026-11-02T08:00:02.000Z|GET|/robots.txt"),
            "at": "2026-11-02T08:00:02+00:00",
            "network": "2001:db8:17::/48",
            "page": "/robots.txt",
            "words": None,
            "status": 404,
            "device": "bot",
            "came_from": None,
            "day": "2026-11-02",
            "millis": 2,
        },
        {
            "id": _digest("sha256", "198.51.100.7|2026-11-02T08:00:03.000Z|POST|/api/orders"),
            "at": "2026-11-02T08:00:03+00:00",
            "network": "198.51.100.0/24",
            "page": "/api/orders",
            "words": None,
            "status": 201,
            "device": "tool",
            "came_from": None,
            "day": "2026-11-02",
            "millis": 250,
        },
    ],
    "nginx_error": [
        {
            "id": "2026-11-02T08:00:05.000Z-812-1431",
            "at": "2026-11-02T08:00:05+00:00",
            "level": "ERROR",
            "message": 'open() "..." failed (2: No such file or directory)',
            "client": "203.0.113.9",
            "path": "/old.html",
        },
        {
            "id": "2026-11-02T08:00:07.000Z-811",
            "at": "2026-11-02T08:00:07+00:00",
            "level": "NOTICE",
            "message": "signal process started",
            "client": None,
            "path": None,
        },
    ],
    "syslog": [
        {
            "id": _digest(
                "md5",
                "web1|2026-11-02T08:00:01.000Z|sshd|4711|"
                "Failed password for invalid user admin from 203.0.113.66 port 52144 ssh2",
            ),
            "at": "2026-11-02T08:00:01+00:00",
            "host": "web1",
            "app": "sshd",
            "severity": "info",
            "login": "Failed",
            "who": "admin",
            "address": "203.0.113.66",
        },
        {
            "id": _digest(
                "md5",
                "web1|2026-11-02T08:00:09.000Z|sshd|4711|Accepted publickey for lea from 198.51.100.7 port 40122 ssh2",
            ),
            "at": "2026-11-02T08:00:09+00:00",
            "host": "web1",
            "app": "sshd",
            "severity": "info",
            "login": "Accepted",
            "who": "lea",
            "address": "198.51.100.7",
        },
        {
            "id": _digest("md5", "web2|2026-11-02T08:01:00.000Z|cron|job cleanup done"),
            "at": "2026-11-02T08:01:00+00:00",
            "host": "web2",
            "app": "cron",
            "severity": "info",
            "login": None,
            "who": None,
            "address": None,
        },
    ],
    "nyc311": [
        {
            "id": "45531130",
            "at": "2020-02-01T04:59:00+00:00",
            "agency": "NYPD",
            "complaint": "Noise - Residential",
            "zip": "10013",
            "minutes": 91.0,
            "quarter": "2020-Q1",
        },
        {
            "id": "45531131",
            "at": "2020-07-04T16:00:00+00:00",
            "agency": "DOT",
            "complaint": "Street Condition",
            "zip": None,
            "minutes": None,
            "quarter": "2020-Q3",
        },
    ],
    "wikipedia": [
        {
            "id": "00000000-0000-4000-8000-000000000001",
            "at": "2026-11-02T08:00:01+00:00",
            "language": "de",
            "page": "München",
            "grew": 40,
            "by": "address",
        },
        {
            "id": "00000000-0000-4000-8000-000000000002",
            "at": "2026-11-02T09:00:10+00:00",
            "language": "en",
            "page": "Talk:Kafka",
            "grew": None,
            "by": "bot",
        },
    ],
    "cloudtrail_files": [
        {
            "id": "e-1",
            "at": "2026-11-02T08:30:00+00:00",
            "number": 0,
            "action": "ListBuckets",
            "deletes": False,
            "network": "203.0.113.0/24",
        },
        {
            "id": "e-2",
            "at": "2026-11-02T08:30:01+00:00",
            "number": 1,
            "action": "DeleteBucket",
            "deletes": True,
            "network": None,
        },
    ],
}


@pytest.mark.parametrize("name", MAPPED_ONLY)
def test_the_mapping_makes_these_rows_of_the_sample(name: str) -> None:
    document = yaml.safe_load((FOLDER / f"etl/{name}.yaml").read_text())
    document["inputs"][0]["schema_file"] = str(FOLDER / f"streams/{name}.yaml")
    document["routes"] = [{"name": "rows"}]
    running = InProcessApp(build_app(EtlSettings.model_validate(document)))
    (path,) = (FOLDER / "samples").glob(f"{name}.*")
    lines = path.read_bytes().splitlines()
    records = [RawRecord(0, 0, offset, line, timestamp_ms=RECORD_MS) for offset, line in enumerate(lines)]
    output = running.cut(records, NOW_MS)
    assert [(one.lane, dict(one.headers).get("reason")) for one in output if one.lane != "rows"] == []
    assert [orjson.loads(one.value or b"") for one in output] == MAPPED_ONLY[name]
