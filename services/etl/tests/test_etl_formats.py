"""Four formats become one model; an invalid record of any format is a dead letter with its bytes."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest
import yaml

from headgate_etl.service import SERVICE
from headgate_etl.settings import EtlSettings
from streamcore.engine.in_process import RawRecord
from tests.harness.apps.small_etl import NOW_MS, letters, rows, run

FIELDS = {"at": "timestamp not null", "id": "string not null", "amount": "decimal(8,2)"}
FORMATS: dict[str, dict[str, object]] = {
    "plain": {"kind": "json"},
    "lines": {"kind": "csv", "columns": ["at", "id", "amount"], "delimiter": ";", "null_values": ["-"]},
    "packed": {"kind": "avro"},
    "hits": {"kind": "access-log", "layout": "common"},
}
#: The columns of a log line.
PLACES = {"at": "time", "id": "path", "amount": "bytes"}
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Event",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "id", "type": "string"},
            {
                "name": "amount",
                "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}],
            },
        ],
    }
)


def settings(folder: Path) -> EtlSettings:
    inputs = []
    for name, written in FORMATS.items():
        from_log = {field: {"type": kind, "from": PLACES[field]} for field, kind in FIELDS.items()}
        fields = from_log if name == "hits" else FIELDS
        stream = {"name": name, "event_time": "at", "keys": [["id"]], "fields": fields}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(stream))
        mapped = {"id": f"concat('{name}', id)", "at": "at", "amount": "amount"}
        inputs.append({"schema_file": str(folder / f"{name}.yaml"), "topic": name, "format": written, "map": mapped})
    document = {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "checkpoint": "unused",
        "jars": "unused",
        "inputs": inputs,
        "model": {"id": "string not null", "at": "timestamp not null", "amount": "decimal(10,2)"},
        "id": ["id"],
        "routes": [{"name": "clean"}],
    }
    (folder / "etl.yaml").write_text(yaml.safe_dump(document))
    return SERVICE.load_settings(folder / "etl.yaml")


def avro_record(identity: str = "a", at_ms: int = NOW_MS - 1_000) -> bytes:
    target = io.BytesIO()
    fastavro.writer(target, SCHEMA, [{"at": at_ms, "id": identity, "amount": Decimal("12.50")}])
    return target.getvalue()


def json_record(identity: str, amount: str) -> bytes:
    return json.dumps({"at": NOW_MS - 1_000, "id": identity, "amount": amount}).encode()


def log_line(path: str, size: str) -> bytes:
    return f'10.0.0.1 - - [21/Sep/2026:14:13:19 +0000] "GET {path} HTTP/1.1" 200 {size}'.encode()


LONG = "x" * 20_000_000
GOOD = {
    "plain": json_record("a", "12.50"),
    "lines": b"%d;a;12.50" % (NOW_MS - 1_000),
    "packed": avro_record(),
    "hits": log_line("a", "12"),
}
BAD = {
    "plain": [b"{", b"\xff", json_record("a", "1e9"), b" " * 20_000_000, json_record(LONG, "1.00")],
    "lines": [
        b"1;2",
        b'%d;"a;1' % NOW_MS,
        b"%d;a;1;2" % NOW_MS,
        b"%d;a;12345678.00" % NOW_MS,
        b"%d;%s;1.00" % (NOW_MS, LONG.encode()),
    ],
    "packed": [
        GOOD["packed"][:-7],
        b"Obj\x01",
        b"",
        b"Obj\x01" + b"\xff" * 100,
        avro_record(at_ms=2**62),
        avro_record(LONG),
    ],
    "hits": [
        b"\x00\x01\x02",
        b'1.2.3.4 - - [now] "GET / HTTP/1.1" 200 1',
        b'\x16\x03\x01 - - "" 1',
        log_line("a", "12345678"),
        log_line(LONG, "1"),
    ],
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", FORMATS)
def test_valid_records_of_a_format_become_rows_and_invalid_ones_dead_letters(name: str, tmp_path: Path) -> None:
    number = [*FORMATS].index(name)
    values = [GOOD[name], *BAD[name], GOOD[name]]
    output = run(settings(tmp_path), [RawRecord(number, 0, n, value) for n, value in enumerate(values)])
    amount = "12.00" if name == "hits" else "12.50"
    assert [(row["id"], row["amount"]) for row in rows(output)] == [(f"{name}a", amount)] * 2
    dead = [record for record in output if record.lane == "deadletters"]
    assert sorted(record.value or b"" for record in dead) == sorted(BAD[name])
    assert all(dict(record.headers)["source_topic"] == name.encode() for record in dead)
    assert all(code and reason for code, reason in letters(output))


def test_rows_of_all_formats_are_in_one_lane(tmp_path: Path) -> None:
    cut = [RawRecord(number, 0, 0, GOOD[name]) for number, name in enumerate(FORMATS)]
    assert sorted(str(row["id"]) for row in rows(run(settings(tmp_path), cut))) == sorted(f"{n}a" for n in FORMATS)
