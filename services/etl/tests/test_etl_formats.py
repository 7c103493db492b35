"""Four formats into one model; what is broken in any of them is a dead letter with its bytes, and stops nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest
import yaml

from headgate_etl.settings import EtlSettings, load_settings
from streamcore.local import RawRecord
from tests.harness.small_etl import NOW_MS, letters, rows, run

FIELDS = {"at": "timestamp not null", "id": "string not null", "amount": "decimal(8,2)"}
FORMATS: dict[str, dict[str, object]] = {
    "plain": {"kind": "json"},
    "lines": {"kind": "csv", "columns": ["at", "id", "amount"], "delimiter": ";", "null_values": ["-"]},
    "packed": {"kind": "avro"},
    "hits": {"kind": "access-log", "layout": "common", "fields": {"at": "time", "id": "path", "amount": "bytes"}},
}
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
        stream = {"name": name, "event_time": "at", "keys": [["id"]], "fields": FIELDS}
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
    return load_settings(folder / "etl.yaml")


def packed(amount: object) -> bytes:
    target = io.BytesIO()
    from datetime import UTC, datetime
    from decimal import Decimal

    moment = datetime.fromtimestamp((NOW_MS - 1_000) / 1_000, UTC)
    fastavro.writer(target, SCHEMA, [{"at": moment, "id": "a", "amount": Decimal(str(amount))}])
    return target.getvalue()


GOOD = {
    "plain": json.dumps({"at": NOW_MS - 1_000, "id": "a", "amount": "12.50"}).encode(),
    "lines": b"%d;a;12.50" % (NOW_MS - 1_000),
    "packed": packed("12.50"),
    "hits": b'10.0.0.1 - - [21/Sep/2026:14:13:19 +0000] "GET a HTTP/1.1" 200 12',
}
BAD = {
    "plain": [b"{", b"\xff", json.dumps({"at": NOW_MS, "id": "a", "amount": "1e9"}).encode(), b" " * 20_000_000],
    "lines": [b"1;2", b'%d;"a;1' % NOW_MS, b"%d;a;1;2" % NOW_MS, b"%d;a;12345678.00" % NOW_MS],
    "packed": [GOOD["packed"][:-7], b"Obj\x01", b"", b"Obj\x01" + b"\xff" * 100],
    "hits": [b"\x00\x01\x02", b'1.2.3.4 - - [now] "GET / HTTP/1.1" 200 1', b'\x16\x03\x01 - - "" 1'],
}


@pytest.mark.parametrize("name", FORMATS)
def test_good_records_of_a_format_are_rows_and_bad_ones_are_dead_letters(name: str, tmp_path: Path) -> None:
    number = [*FORMATS].index(name)
    values = [GOOD[name], *BAD[name], GOOD[name]]
    output = run(settings(tmp_path), [RawRecord(number, 0, n, value) for n, value in enumerate(values)])
    amount = "12.00" if name == "hits" else "12.50"
    assert [(row["id"], row["amount"]) for row in rows(output)] == [(f"{name}a", amount)] * 2
    dead = [record for record in output if record.lane == "deadletters"]
    assert sorted(record.value or b"" for record in dead) == sorted(BAD[name])
    assert all(dict(record.headers)["source_topic"] == name.encode() for record in dead)
    assert all(code and reason for code, reason in letters(output))


def test_all_formats_end_in_one_lane(tmp_path: Path) -> None:
    cut = [RawRecord(number, 0, 0, GOOD[name]) for number, name in enumerate(FORMATS)]
    assert sorted(str(row["id"]) for row in rows(run(settings(tmp_path), cut))) == sorted(f"{n}a" for n in FORMATS)
