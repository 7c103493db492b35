"""Schemas of a registry that nobody should have registered: each record with one is an event or a dead letter."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from streamcore.decode.formats import Registry
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.stream_selection import OwnEvents, TopicStream
from streamcore.decode.types import Decoder, RawBatch
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaId, SchemaReference

pytestmark = pytest.mark.slow
STREAM = StreamSchema.parse(
    {
        "name": "s",
        "event_time": "at",
        "keys": [[]],
        "fields": {
            "at": "timestamp not null",
            "x": "array<struct<a:long,b:array<string>>>",
            "m": "map<string,long>",
            "t": "string",
        },
    }
)
BY_NAME = StreamSchema.parse(
    {
        "name": "n",
        "event_time": "at",
        "keys": [[]],
        "when": {"from": "_schema.name", "equals": "K"},
        "fields": {"at": "timestamp not null"},
    }
)


def record(*fields: str) -> str:
    every = ",".join(['{"name":"at","type":"long"}', *fields])
    return '{"type":"record","name":"K","fields":[%s]}' % every  # noqa: UP031 - the text has braces


def field(kind: str, name: str = "t") -> str:
    return f'{{"name":"{name}","type":{kind}}}'


EMPTY = '{"type":"record","name":"E","fields":[]}'
OF_NULLS = EMPTY.replace("[]", '[{"name":"b","type":{"type":"array","items":"null"}}]')
LONE = "\\ud800"
SCHEMAS: dict[str, tuple[str, str]] = {
    "nothing": ("AVRO", ""),
    "null": ("AVRO", "null"),
    "an open bracket, 100,000 times": ("AVRO", "[" * 100_000),
    "arrays in 5,000 arrays": ("AVRO", '{"type":"array","items":' * 5_000 + '"long"' + "}" * 5_000),
    "a NUL": ("AVRO", "\0"),
    "a record in itself": ("AVRO", '{"type":"record","name":"K","fields":[{"name":"at","type":"K"}]}'),
    "arrays of nulls in arrays": ("AVRO", record(field(f'{{"type":"array","items":{OF_NULLS}}}', "x"))),
    "an array without bytes": ("AVRO", record(field(f'{{"type":"array","items":{EMPTY}}}', "x"))),
    "an enum without symbols": ("AVRO", record(field('{"type":"enum","name":"Q","symbols":[]}'))),
    "a symbol that is no Unicode": ("AVRO", record(field(f'{{"type":"enum","name":"Q","symbols":["{LONE}"]}}'))),
    "a name that is no Unicode": ("AVRO", record().replace('"K"', f'"{LONE}"')),
    "a name of two lines": ("AVRO", record().replace('"K"', '"K\\nFATAL"')),
    "a fixed of -1 bytes": ("AVRO", record(field('{"type":"fixed","name":"F","size":-1}', "z"))),
    "a fixed of 2**62 bytes": ("AVRO", record(field('{"type":"fixed","name":"F","size":4611686018427387904}', "z"))),
    "a fixed of 20 digits": ("AVRO", record(field('{"type":"fixed","name":"F","size":99999999999999999999}', "z"))),
    "3,000 fields without bytes": ("AVRO", record(*(field('"null"', f"q{n}") for n in range(3_000)))),
    "a union of 5,000 nulls": ("AVRO", record(field("[" + '"null",' * 4_999 + '"null"]'))),
    "a message without end": ("PROTOBUF", "message A {" * 5_000),
    "messages in 5,000 messages": ("PROTOBUF", "message A {" * 5_000 + "}" * 5_000),
    "a comment without end": ("PROTOBUF", "/*" * 100_000),
    "a field number of 11 digits": ("PROTOBUF", "message K { int64 at = 99999999999; }"),
    "a message in itself": ("PROTOBUF", "message K { repeated K x = 2; int64 at = 1; map<string, K> m = 3; }"),
    "a title that is no Unicode": ("JSON", f'{{"title":"{LONE}"}}'),
    "a title inside of 100,000 brackets": ("JSON", "[" * 100_000),
    "a title that is a number": ("JSON", '{"title":7}'),
    "another type": ("XML\n" * 99, "<x/>"),
}
BODIES = [
    b"",
    b"\0",
    b"\xff" * 12,
    b'{"at":1,"t":"x"}',
    b"\x02\x02\0",
    b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(20),
    b"\0\x08\x01\x12\x02\x08\x01",
]


@dataclass
class OneSchema:
    """A registry that has one schema."""

    schema: RegisteredSchema

    def absent(self) -> Collection[SchemaId]:
        return ()

    def find(self, ids: Collection[SchemaId]) -> Mapping[SchemaId, RegisteredSchema | None]:
        return dict.fromkeys(ids, self.schema)


@pytest.mark.parametrize("what", SCHEMAS)
def test_a_schema_of_any_kind_stops_no_stream(what: str) -> None:
    kind, text = SCHEMAS[what]
    limits = DecodeLimits()
    decoders: list[Decoder] = [
        Registry().decoder(STREAM, limits=limits, extra_fields=ExtraFields.IGNORE),
        OwnEvents(TopicStream(BY_NAME, Registry()), limits, ExtraFields.IGNORE),
    ]
    records = [b"\0\0\0\0\x07" + body for body in BODIES] * 20  # enough that they are walked
    rows = len(records)
    for references in ((), (SchemaReference("a", "[" * 100_000),), (SchemaReference("K", EMPTY),)):
        registry = OneSchema(RegisteredSchema(7, kind, text, references))
        values, numbers = pa.array(records, pa.large_binary()), pa.array(np.zeros(rows, np.int32))
        batch = RawBatch(values, numbers, pa.array(np.arange(rows)), 1_800_000_000_000, schemas=registry)
        for decoder in decoders:
            decoded = decoder.decode(batch)
            decoded.events.validate(full=True)
            assert decoded.events.num_rows + decoded.dead.num_rows + len(decoded.ignored) == rows
            for reason in decoded.dead["reason"].to_pylist():
                assert reason.isprintable()
                assert len(reason) < 500
