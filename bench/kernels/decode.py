"""Measures decoders on one core: the CPU-seconds to decode a million records of each format.

The records are an event of a shop with eight fields as JSON, CSV (also with texts in quotes) and Avro (bare datums, and
container files with the schema inside), the same as JSON, Avro and Protobuf of a schema registry (``two_ids``: every
second record has another id), and eight of the columns of a combined access log. ``nested`` has five fields of that
event among 83 values in objects and arrays, and only these are read; of ``orders`` a struct, a map and an array of four
structs are read. ``json_scores`` is two doubles of 17 digits. Decoded columns are compared with the columns from
which the records were written. A first round, in which the decoders compile patterns and learn prefixes of records, is
not measured. ``bytes``: the average size of a record.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.decode [--records N] [--rounds N]
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import struct
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa

from bench.harness.registered import avro_records, proto_records, varint
from bench.harness.result import Result, show
from streamcore.columnar.polars_types import polars_type
from streamcore.decode.formats import AccessLog, Avro, Bare, Container, Csv, InputFormat, Json, Registry
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.types import Decoder, RawBatch
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import MAGIC, RegisteredSchema, SchemaId, SchemaType
from streamcore.wire.map_entries import KEY, VALUE

BATCH = 20_000
_TYPES = ("view", "cart_add", "payment", "refund")
_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_BASE_MS = 1_767_571_200_000
_CLOCK_MS = 1_800_000_000_000
_EVENT = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user_id"]],
        "fields": {
            "event_id": "string not null",
            "ts": "timestamp not null",
            "type": "string not null",
            "user_id": "string not null",
            "country": "string",
            "amount": "decimal(12,2)",
            "risk": "double",
            "quantity": "long",
        },
    }
)
_LOG = StreamSchema.parse(
    {
        "name": "log",
        "event_time": "time",
        "keys": [["remote_host"]],
        "fields": {
            "time": "timestamp not null",
            "remote_host": "string not null",
            "method": "string",
            "path": "string",
            "status": "long",
            "bytes": "long",
            "referer": "string",
            "agent": "string",
        },
    }
)
_NESTED = StreamSchema.parse(
    {
        "name": "trail",
        "event_time": "ts",
        "keys": [["user_id"]],
        "fields": {
            "event_id": {"type": "string not null", "from": "eventID"},
            "ts": {"type": "timestamp not null", "from": "eventTime"},
            "user_id": {"type": "string not null", "from": "userIdentity.sessionContext.sessionIssuer.userName"},
            "country": {"type": "string", "from": "requestParameters.location.country"},
            "amount": {"type": "decimal(12,2)", "from": "responseElements.charge.amount"},
        },
    }
)
_ORDERS = StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "ts",
        "keys": [["event_id"]],
        "fields": {
            "event_id": "string not null",
            "ts": "timestamp not null",
            "customer": "struct<name:string, address:struct<city:string, zip:long>>",
            "labels": "map<string,string>",
            "items": "array<struct<sku:string, quantity:long, price:double>>",
        },
    }
)
_SCORES = StreamSchema.parse(
    {
        "name": "scores",
        "event_time": "ts",
        "keys": [[]],
        "fields": {"ts": "timestamp not null", "first": "double", "second": "double"},
    }
)
_AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "event_id", "type": "string"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "type",
            "type": {"type": "enum", "name": "Type", "symbols": list(_TYPES)},
        },
        {"name": "user_id", "type": "string"},
        {"name": "country", "type": ["null", "string"]},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "risk", "type": ["null", "double"]},
        {"name": "quantity", "type": ["null", "long"]},
    ],
}

_PROTO = """
syntax = "proto3";
enum Type { view = 0; cart_add = 1; payment = 2; refund = 3; }
message Event {
  string event_id = 1; int64 ts = 2; Type type = 3; string user_id = 4; optional string country = 5;
  optional string amount = 6; optional double risk = 7; optional int64 quantity = 8;
}
"""


@dataclass(frozen=True)
class Case:
    """Records of one format, and the expected physical columns."""

    schema: StreamSchema
    format: InputFormat
    records: pl.Series
    expected: pl.DataFrame


def _events(count: int) -> pl.DataFrame:
    """Return physical columns, with money in cents and times in milliseconds. One country in twenty is null."""
    draw = np.random.default_rng(1)
    n = pl.Series(np.arange(count))
    country = pl.Series(["DE", "FR", "GB", "US", None]).gather(np.minimum(draw.integers(0, 20, count) // 4, 4))
    return pl.DataFrame(
        {
            "event_id": pl.select(pl.format("evt-{}", n)).to_series(),
            "ts": _BASE_MS + np.arange(count) * 37,
            "type": pl.Series(["view", "cart_add", "payment", "refund"]).gather(draw.integers(0, 4, count)),
            "user_id": pl.select(pl.format("u{}", pl.Series(draw.integers(0, 100_000, count)))).to_series(),
            "country": country,
            "amount": draw.integers(100, 1_000_000, count),
            "risk": draw.integers(0, 1_000_000, count) / 1e6,
            "quantity": draw.integers(1, 10, count),
        }
    )


def _money() -> pl.Expr:
    cents = (pl.col("amount") % 100).cast(pl.String).str.zfill(2)
    return pl.format("{}.{}", pl.col("amount") // 100, cents)


def _lines(frame: pl.DataFrame, template: str, *columns: pl.Expr | str) -> pl.Series:
    return frame.select(pl.format(template, *columns)).to_series()


def _json(events: pl.DataFrame) -> Case:
    template = '{"event_id":"{}","ts":{},"type":"{}","user_id":"{}","country":{},"amount":{},"risk":{},"quantity":{}}'
    country = pl.when(pl.col("country").is_null()).then(pl.lit("null")).otherwise(pl.format('"{}"', "country"))
    rest: tuple[pl.Expr | str, ...] = ("ts", "type", "user_id", country, _money(), "risk", "quantity")
    parts = template.split("{}")
    pieces: list[pl.Expr] = [pl.lit(parts[0])]
    for column, text in zip(("event_id", *rest), parts[1:], strict=True):
        pieces += [pl.col(column) if isinstance(column, str) else column, pl.lit(text)]
    return Case(_EVENT, Json(), events.select(pl.concat_str(pieces)).to_series(), events)


def _nested(events: pl.DataFrame) -> list[dict[str, Any]]:
    """Return events in the way of AWS CloudTrail, with 83 values in objects and arrays."""
    tags = [{"key": f"tag-{i}", "value": f"value of tag {i}", "inherited": i % 2 == 0} for i in range(8)]

    def event(row: Mapping[str, object]) -> dict[str, Any]:
        issuer = {"type": "Role", "principalId": "AROA1234567890EXAMPLE", "accountId": "123456789012"}
        return {
            "eventVersion": "1.08",
            "userIdentity": {
                "type": "AssumedRole",
                "principalId": "AROA1234567890EXAMPLE:session",
                "arn": "arn:aws:sts::123456789012:assumed-role/Role/session",
                "sessionContext": {
                    "sessionIssuer": {**issuer, "userName": row["user_id"]},
                    "attributes": {"mfaAuthenticated": "false", "creationDate": "2026-01-31T12:00:00Z"},
                },
            },
            "eventTime": row["ts"],
            "eventSource": "payments.example.com",
            "eventName": "CreateCharge",
            "awsRegion": "eu-central-1",
            "sourceIPAddress": "198.51.100.17",
            "userAgent": _AGENT,
            "requestParameters": {
                "location": {"country": row["country"], "city": "Zürich", "point": [47.3769, 8.5417]},
                "items": [{"sku": f"sku-{i}", "quantity": i, "price": i * 1.25} for i in range(6)],
                "dryRun": False,
                "clientToken": "d0ee4a0b-7ab1-4a4e-9d6e-0f2f3f4b5c6d",
            },
            "responseElements": {
                "charge": {"id": "ch_1234567890", "amount": f"{row['amount_text']}", "currency": "eur", "paid": True},
                "tags": tags,
                "note": 'said "yes"\non the phone',
            },
            "requestID": "59dbff89-35bd-4eac-99ed-be587ed3a4d3",
            "eventID": row["event_id"],
            "readOnly": False,
            "resources": [{"ARN": f"arn:aws:kms:eu-central-1:123456789012:key/{i}", "type": "Key"} for i in range(3)],
            "eventType": "AwsApiCall",
            "managementEvent": True,
            "recipientAccountId": "123456789012",
            "tlsDetails": {"tlsVersion": "TLSv1.3", "cipherSuite": "TLS_AES_128_GCM_SHA256"},
        }

    return [event(row) for row in events.with_columns(amount_text=_money()).iter_rows(named=True)]


def _orders(events: pl.DataFrame) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """Return events with an object, a map and an array of four objects, and the columns of what is read of them."""

    def order(row: Mapping[str, Any]) -> dict[str, Any]:
        names = ("sku", "quantity", "price", "note")
        items = [(f"sku-{row['quantity']}{i}", row["quantity"] + i, row["risk"] + i, "as a present") for i in range(4)]
        return {
            "event_id": row["event_id"],
            "ts": row["ts"],
            "customer": {"name": row["user_id"], "address": {"city": "Zürich", "zip": 8001}},
            "labels": {"env": "prod", "team": "payments"},
            "items": [dict(zip(names, item, strict=True)) for item in items],
        }

    def read(document: Mapping[str, Any]) -> dict[str, Any]:
        items = [{name: item[name] for name in ("sku", "quantity", "price")} for item in document["items"]]
        labels = [{KEY: key, VALUE: value} for key, value in document["labels"].items()]
        return {**document, "labels": labels, "items": items}

    documents = [order(row) for row in events.iter_rows(named=True)]
    types = {field.name: polars_type(field.type) for field in _ORDERS.fields}
    return documents, pl.DataFrame([read(document) for document in documents], schema=types)


def _documents(schema: StreamSchema, documents: list[dict[str, Any]], expected: pl.DataFrame) -> dict[str, Case]:
    """Return the same documents as JSON, Avro and Protobuf of a schema registry."""

    def registered(kind: SchemaType, text: str, records: list[bytes]) -> Case:
        schema_id = len(_Registered.schemas) + 1
        _Registered.schemas[schema_id] = RegisteredSchema(schema_id, kind, text)
        return _registered(Case(schema, Json(), pl.Series(records, dtype=pl.Binary), expected), schema_id)

    texts = [json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode() for one in documents]
    return {
        "json": registered(SchemaType.JSON, "{}", texts),
        "avro": registered(SchemaType.AVRO, *avro_records(documents)),
        "protobuf": registered(SchemaType.PROTOBUF, *proto_records(documents)),
    }


def _mixed(case: Case, schema_id: int) -> Case:
    """Return the records of a case of which every second one has another id, that of the same schema."""
    known = _Registered.schemas[schema_id]
    other = schema_id + 1_000
    _Registered.schemas[other] = RegisteredSchema(other, known.type, known.text)
    records = [*case.records]
    records[1::2] = [bytes([MAGIC]) + other.to_bytes(4, "big") + record[5:] for record in records[1::2]]
    return Case(case.schema, Registry(), pl.Series(records, dtype=pl.Binary), case.expected)


def _scores(count: int) -> Case:
    draw = np.random.default_rng(3)
    columns = {"first": draw.normal(size=count), "second": draw.random(count) * 1e-5}
    frame = pl.DataFrame({"ts": _BASE_MS + np.arange(count), **columns})
    records = [b'{"ts":%d,"first":%r,"second":%r}' % row for row in frame.iter_rows()]
    return Case(_SCORES, Json(), pl.Series(records, dtype=pl.Binary), frame)


def _csv(events: pl.DataFrame, *, quoted: bool) -> Case:
    text = '"{}"' if quoted else "{}"
    country = pl.when(pl.col("country").is_null()).then(pl.lit("")).otherwise(pl.format(text, "country"))
    template = f"{text},{{}},{text},{text},{{}},{{}},{{}},{{}}"
    rest = ("event_id", "ts", "type", "user_id", country, _money(), "risk", "quantity")
    return Case(_EVENT, Csv(), _lines(events, template, *rest), events)


def _avro(events: pl.DataFrame, *, in_files: bool) -> Case:
    schema = fastavro.parse_schema(_AVRO)

    def write(row: Mapping[str, object]) -> bytes:
        out = io.BytesIO()
        if in_files:
            fastavro.writer(out, schema, [row])
        else:
            fastavro.schemaless_writer(out, schema, row)
        return out.getvalue()

    typed = events.with_columns(amount=(pl.col("amount").cast(pl.Decimal(38, 2)) / 100).cast(pl.Decimal(12, 2)))
    records = pl.Series([write(row) for row in typed.iter_rows(named=True)], dtype=pl.Binary)
    return Case(_EVENT, Avro(Container() if in_files else Bare(json.dumps(_AVRO))), records, events)


class _Registered:
    """The schemas of a registry, by id: one of each type."""

    schemas: ClassVar[dict[SchemaId, RegisteredSchema]] = {
        1: RegisteredSchema(1, SchemaType.AVRO, json.dumps(_AVRO)),
        2: RegisteredSchema(2, SchemaType.PROTOBUF, _PROTO),
        3: RegisteredSchema(3, SchemaType.JSON, '{"type": "object"}'),
    }

    def absent(self) -> Collection[SchemaId]:
        return ()

    def find(self, ids: Collection[SchemaId]) -> Mapping[SchemaId, RegisteredSchema | None]:
        return {n: self.schemas[n] for n in ids}


def _registered(case: Case, schema_id: int) -> Case:
    """Return the records of a case behind the id of their schema."""
    prefix = bytes([MAGIC]) + schema_id.to_bytes(4, "big")
    records = [prefix + record for record in case.records.cast(pl.Binary)]
    return Case(case.schema, Registry(), pl.Series(records, dtype=pl.Binary), case.expected)


def _protobuf(events: pl.DataFrame) -> Case:
    """Return messages of ``_PROTO``, the first of its file. Money is text, as in most such schemas."""

    def text(number: int, value: str | None) -> bytes:
        return b"" if value is None else varint(number << 3 | 2) + varint(len(value)) + value.encode()

    def write(row: Mapping[str, Any]) -> bytes:
        kind = varint(_TYPES.index(row["type"]))
        parts = [b"\0", text(1, row["event_id"]), b"\x10", varint(row["ts"]), b"\x18", kind, text(4, row["user_id"])]
        parts += [text(5, row["country"]), text(6, row["money"]), b"\x39", struct.pack("<d", row["risk"])]
        return b"".join([*parts, b"\x40", varint(row["quantity"])])

    rows = events.with_columns(money=_money()).iter_rows(named=True)
    return Case(_EVENT, Registry(), pl.Series([write(row) for row in rows], dtype=pl.Binary), events)


def _log(count: int) -> Case:
    """Return an hour of access-log lines; one response in twenty has no bytes."""
    draw = np.random.default_rng(2)
    host = [pl.Series(draw.integers(0, 256, count)) for _ in range(2)]
    frame = pl.DataFrame(
        {
            "time": _BASE_MS + np.sort(draw.integers(0, 3_600, count)) * 1_000,
            "remote_host": pl.select(pl.format("10.0.{}.{}", *host)).to_series(),
            "method": pl.Series(["GET", "POST"]).gather(draw.integers(0, 2, count)),
            "path": pl.select(pl.format("/product/{}", pl.Series(draw.integers(0, 5_000, count)))).to_series(),
            "status": pl.Series([200, 200, 200, 404]).gather(draw.integers(0, 4, count)),
            "bytes": pl.Series(draw.integers(0, 100_000, count)).set(pl.Series(draw.integers(0, 20, count) == 0), None),
            "referer": pl.Series(["http://www.example.com/start.html", None]).gather(draw.integers(0, 2, count)),
            "agent": pl.Series(
                ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"]
            ).new_from_index(0, count),
        }
    )
    local = pl.from_epoch("time", time_unit="ms").dt.offset_by("2h").dt.strftime("%d/%b/%Y:%H:%M:%S +0200")
    size = pl.col("bytes").cast(pl.String).fill_null("-")
    rest = ("remote_host", local, "method", "path", "status", size, pl.col("referer").fill_null("-"), "agent")
    return Case(_LOG, AccessLog(), _lines(frame, '{} - - [{}] "{} {} HTTP/1.1" {} {} "{}" "{}"', *rest), frame)


def _batches(records: pl.Series) -> Iterator[RawBatch]:
    for start in range(0, len(records), BATCH):
        part = records[start : start + BATCH].cast(pl.Binary).to_arrow(compat_level=pl.CompatLevel.oldest())
        offsets = pa.array(np.arange(start, start + len(part)))
        yield RawBatch(part, pa.array(np.zeros(len(part), dtype=np.int32)), offsets, _CLOCK_MS, schemas=_Registered())


def _check(case: Case, tables: list[pa.Table]) -> None:
    found = pl.DataFrame(pa.concat_tables(tables).select(list(case.schema.names)))
    for name in case.schema.names:
        if not found[name].equals(case.expected[name].rename(name)):
            raise SystemExit(f"{type(case.format).__name__}: column {name} differs from the written values")


def _extra_fields(schema: StreamSchema) -> ExtraFields:
    return ExtraFields.IGNORE if schema in (_NESTED, _ORDERS) else ExtraFields.REJECT


def _round(decoder: Decoder, batches: list[RawBatch]) -> tuple[float, list[pa.Table]]:
    begin = time.process_time()
    tables = [decoder.decode(batch).events for batch in batches]
    return time.process_time() - begin, tables


def run(records: int, rounds: int) -> Result:
    """Return the CPU-seconds per million records by format: the median of several rounds."""
    events = _events(records)
    cases = {
        "json": _json(events),
        "json_scores": _scores(records),
        "csv": _csv(events, quoted=False),
        "csv_quoted": _csv(events, quoted=True),
        "access_log": _log(records),
        "avro_bare": _avro(events, in_files=False),
        "avro_container": _avro(events, in_files=True),
        "registry_json": _registered(_json(events), 3),
        "registry_avro": _registered(_avro(events, in_files=False), 1),
        "registry_protobuf": _registered(_protobuf(events), 2),
    }
    for number, name in ((3, "json"), (1, "avro"), (2, "protobuf")):
        cases[f"registry_{name}_two_ids"] = _mixed(cases[f"registry_{name}"], number)
    nested = _documents(_NESTED, _nested(events), events)
    cases |= {f"registry_{name}_nested": case for name, case in nested.items()}
    cases |= {f"registry_{name}_orders": case for name, case in _documents(_ORDERS, *_orders(events)).items()}
    decoders = {
        name: case.format.decoder(case.schema, limits=DecodeLimits(), extra_fields=_extra_fields(case.schema))
        for name, case in cases.items()
    }
    batches = {name: list(_batches(case.records)) for name, case in cases.items()}
    for name, case in cases.items():
        _check(case, _round(decoders[name], batches[name])[1])
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, times in seconds.items():
            times.append(_round(decoders[name], batches[name])[0] * 1e6 / records)
    return {
        name: {
            "cpu_seconds_per_million": round(statistics.median(times), 3),
            "bytes": round(float(cases[name].records.cast(pl.Binary).bin.size().mean() or 0)),  # type: ignore[arg-type]
        }
        for name, times in seconds.items()
    }


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    show({"workload": "decode-in-process", **run(options.records, options.rounds)})


if __name__ == "__main__":
    main()
