"""Formats as people write them in settings, down to the events of an app."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from streamcore.app import App, Source
from streamcore.cuts.cut_clock import CutClock
from streamcore.decode.formats import AccessLog, Avro, Bare, Confluent, Container, Csv, InputFormat, Json, SingleObject
from streamcore.decode.text.access_log import LogLayout
from streamcore.engine.ingest import Ingest
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.service.config.documents import StreamDocument
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.wire.raw import raw_batch

SCHEMA = StreamSchema.parse(
    {"name": "t", "event_time": "time", "keys": [[]], "fields": {"time": "timestamp not null", "agent": "string"}}
)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "time", "type": "long"}, {"name": "agent", "type": ["null", "string"]}],
    }
)


def document(**written: object) -> StreamDocument:
    return StreamDocument.model_validate({"schema_file": "t.yaml", "topic": "t", "format": written})


def test_json_is_the_default_format() -> None:
    assert StreamDocument(schema_file=Path("t.yaml"), topic="t").input_format() == Json()


def test_every_document_gives_its_format(tmp_path: Path) -> None:
    path = tmp_path / "event.avsc"
    path.write_text(AVRO)
    found = [
        document(kind="json"),
        document(kind="csv", columns=["a", "time"], delimiter=";", null_values=["NULL"]),
        document(kind="access-log", layout="common", request_time=True),
        document(kind="avro"),
        document(kind="avro", framing="bare", schema_file=str(path)),
        document(kind="avro", framing="single-object", schema_files=[str(path)]),
        document(kind="avro", framing="confluent", schemas={"7": str(path)}),
    ]
    assert [each.input_format() for each in found] == [
        Json(),
        Csv(("a", "time"), ";", ("NULL",)),
        AccessLog(LogLayout.COMMON, request_time=True),
        Avro(Container()),
        Avro(Bare(AVRO)),
        Avro(SingleObject((AVRO,))),
        Avro(Confluent({7: AVRO})),
    ]


@pytest.mark.parametrize(
    "written",
    [
        {"kind": "xml"},
        {"kind": "csv", "header": True},
        {"kind": "avro", "framing": "bare"},
        {"kind": "avro", "schema_file": "x"},
        {"kind": "avro", "framing": "confluent", "schemas": {"seven": "x"}},
    ],
    ids=str,
)
def test_an_invalid_document_is_rejected(written: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        document(**written)


def test_the_error_names_a_missing_schema_file() -> None:
    with pytest.raises(ConfigError, match=r"/nowhere/x\.avsc: the Avro schema cannot be read"):
        document(kind="avro", framing="bare", schema_file="/nowhere/x.avsc").input_format()


def test_a_source_whose_format_does_not_fit_its_stream_is_rejected_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="stream t: avro: schema: field agent"):
        Source(SCHEMA, "t", format=Avro(Bare(AVRO.replace('"string"', '"int"'))))


def avro_datum(value: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, json.loads(AVRO), value)
    return out.getvalue()


LINE = b'1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 - "-" "x"'
RECORDS: list[tuple[InputFormat, bytes]] = [
    (Json(), b'{"time":971211336000,"agent":"x"}'),
    (Csv(), b"2000-10-10T20:55:36Z,x"),
    (AccessLog(), LINE),
    (Avro(Bare(AVRO)), avro_datum({"time": 971211336000, "agent": "x"})),
]


@pytest.mark.parametrize(("written", "record"), RECORDS, ids=lambda value: type(value).__name__)
def test_the_format_of_a_topology_can_be_pickled_and_decodes_the_records(
    written: InputFormat, record: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = Topology("app", source(SCHEMA, format=written).sink("out"))
    app: App = pickle.loads(pickle.dumps(topology.app()))
    ingest = Ingest(app)
    ingest.reset(CutClock.at(1_800_000_000_000))
    taken: list[pa.Table] = []
    monkeypatch.setattr(ingest, "_hold", lambda source, events: taken.append(events))
    zeros = np.zeros(2, dtype=np.int32)
    ingest._add(raw_batch(zeros, zeros, np.arange(2, dtype=np.int64), [None, None], [record, b"\xff"]))
    assert [table.select(["time", "agent"]).to_pylist() for table in taken] == [[{"time": 971211336000, "agent": "x"}]]
    assert [dict(record.headers)["source_offset"] for _, record in ingest.records] == [b"1"]
