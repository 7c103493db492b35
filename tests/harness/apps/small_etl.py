"""A small ETL app for tests that change one entry at a time: a stream of orders, its settings, and runs in-process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from headgate_etl.app import build_app
from headgate_etl.service import SERVICE
from headgate_etl.settings import EtlSettings
from rulecore.language import ListType
from rulecore.lists.records import ListHead, list_records
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import STRING, Type
from streamcore.wire.lanes import Record

NOW_MS = 1_790_000_000_000
_STREAM = {
    "name": "orders",
    "event_time": "at",
    "keys": [["id"]],
    "fields": {
        "at": "timestamp not null",
        "id": "string not null",
        "price": "string",
        "ratio": "double",
        "email": "string",
        "ip": "string",
        "born": "string",
        "currency": "string",
        "items": "array<struct<sku:string, price:decimal(8,2), at:timestamp>>",
        "labels": "map<string,long>",
        "address": "struct<city:string, lines:array<string>>",
        "rest": {"type": "string", "from": "_extra_fields"},
        "record": {"type": "string", "from": "_kafka.value"},
    },
}
_SETTINGS: dict[str, object] = {
    "kafka": {"bootstrap": "127.0.0.1:1"},
    "checkpoint": "unused",
    "jars": "unused",
    "model": {
        "id": "string not null",
        "price": "decimal(8,2)",
        "ratio": "double",
        "email": "string",
        "ip": "string",
        "born": "string",
        "currency": "string",
    },
    "id": ["id"],
    "routes": [{"name": "clean"}],
}
MAP = {
    "id": "id",
    "price": "to_decimal(price, 8, 2)",
    "ratio": "ratio",
    "email": "email",
    "ip": "ip",
    "born": "born",
    "currency": "currency",
}


def write(folder: Path, more: Mapping[str, object], mapped: Mapping[str, str] | None = None) -> Path:
    """Write the settings file and the stream file."""
    stream, path = folder / "orders.yaml", folder / "etl.yaml"
    stream.write_text(yaml.safe_dump(_STREAM))
    inputs = [{"schema_file": str(stream), "topic": "orders", "map": dict(MAP if mapped is None else mapped)}]
    path.write_text(yaml.safe_dump({"inputs": inputs, **_SETTINGS, **more}, sort_keys=False))
    return path


def load(folder: Path, mapped: Mapping[str, str] | None = None, /, **more: object) -> EtlSettings:
    """Write the settings file, and load it."""
    return SERVICE.load_settings(write(folder, more, mapped))


def events(*rows: Mapping[str, object], first: int = 0) -> list[RawRecord]:
    """Return orders as records; a row without an id or a time gets one."""
    found = [{"id": f"o{n}", "at": NOW_MS - 1_000 + n} | dict(row) for n, row in enumerate(rows, first)]
    return [RawRecord(0, 0, n, json.dumps(row).encode(), b"k%d" % n) for n, row in enumerate(found, first)]


def rates(version: int, entries: Mapping[str, str]) -> list[RawRecord]:
    """Return the control records of the list ``rates``."""
    kind = ListType("rates", STRING, Type.parse("decimal(12,6)"))
    head = ListHead(list=kind.name, version=version, owner="finance", of=kind.of, value=kind.value)
    found = list_records(head, [[key, value] for key, value in entries.items()])
    return [control_record(100 * version + n, key, value) for n, (key, value) in enumerate(found)]


def run(settings: EtlSettings, *cuts: Sequence[RawRecord]) -> list[Record]:
    """Run the app over these cuts; return its output."""
    app = InProcessApp(build_app(settings))
    return [record for cut in cuts for record in app.cut(cut, NOW_MS)]


def rows(output: Sequence[Record], lane: str = "clean") -> list[dict[str, object]]:
    """Return the values of a lane."""
    return [json.loads(record.value or b"") for record in output if record.lane == lane]


def letters(output: Sequence[Record]) -> list[tuple[str, str]]:
    """Return codes and reasons of dead letters."""
    found = [dict(record.headers) for record in output if record.lane == "deadletters"]
    return [(one["reason_code"].decode(), one["reason"].decode()) for one in found]
