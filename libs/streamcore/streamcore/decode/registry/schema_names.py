"""Reads the name of the registry's schema that each record was written with: it tells kinds of event apart.

The name is the full name of the record (Avro) or of the message (Protobuf), or the title of a JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa

from streamcore.decode.avro.framing import CONFLUENT_MAGIC
from streamcore.decode.avro.schema import AvroSchemaError, RecordOf, parse_avro_schema
from streamcore.decode.protobuf.reader import MessageCursor, read_indexes
from streamcore.decode.protobuf.schema import ProtoSchema, ProtoSchemaError, parse_proto_schema
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import check_bytes
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.types import DEAD_SCHEMA, Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import ID_BYTES, PREFIX_BYTES, RegisteredSchema, SchemaType

_MAX_CACHED = 1_000
#: Returns the name of the schema of a record; raises ``RecordError`` if it has none.
_Name = Callable[[bytes], "str | None"]


class RegistryNames:
    """The ``Decoder`` of one field, the name of the record's schema: null for one without a name."""

    def __init__(self, schema: StreamSchema, limits: DecodeLimits) -> None:
        self._schema, self._limits = schema, limits
        self._names: dict[int, _Name] = {}

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Waits for schemas that are new."""
        records = batch.values.to_pylist()
        self._find({id_of(record) for record in records if record is not None} - {None}, batch)
        names: list[str | None] = []
        rows: list[int] = []
        dead: list[tuple[int, str, str]] = []
        for row, record in enumerate(records):
            try:
                names.append(self._name(record, batch))
                rows.append(row)
            except RecordError as error:
                dead.append((row, error.code.value, error.reason))
        places = pa.array(rows, pa.int64())
        engine = [batch.partition.take(places), batch.offset.take(places), pa.nulls(len(rows), pa.int64())]
        events = pa.Table.from_arrays([pa.array(names, pa.large_string()), *engine], schema=self._schema.arrow)
        columns = [pa.array([one[n] for one in dead], DEAD_SCHEMA.types[n]) for n in range(3)]
        return Decoded(events, pa.Table.from_arrays(columns, schema=DEAD_SCHEMA))

    def _find(self, ids: set[int | None], batch: RawBatch) -> None:
        """Get the schemas that are new."""
        if len(self._names) + len(ids) > _MAX_CACHED:
            self._names.clear()
        absent = batch.schemas.absent()
        new = sorted(n for n in ids if n is not None and n not in self._names and n not in absent)
        found = batch.schemas.find(new) if new else {}
        self._names |= {n: _namer(schema) for n, schema in found.items() if schema is not None}

    def _name(self, record: bytes | None, batch: RawBatch) -> str | None:
        data = check_bytes(record, self._limits, "one record")
        schema_id = id_of(data)
        if schema_id is None:
            reason = "the record does not begin with a zero byte and a schema's id of four bytes"
            raise RecordError(RejectCode.NO_SCHEMA_ID, reason)
        if schema_id in batch.schemas.absent():
            raise RecordError(RejectCode.UNKNOWN_SCHEMA, f"the schema registry has no schema {schema_id}")
        return self._names[schema_id](data)


def id_of(record: bytes) -> int | None:
    """Return the id of the schema that a record names; None if it names none."""
    if len(record) < PREFIX_BYTES or record[:1] != CONFLUENT_MAGIC:
        return None
    return int.from_bytes(record[1 : 1 + ID_BYTES], "big")


def _namer(registered: RegisteredSchema) -> _Name:
    """Return the function for the records of a schema."""
    references = [reference.text for reference in registered.references]
    try:
        match registered.type:
            case SchemaType.AVRO:
                kind = parse_avro_schema(registered.text, references)
                return lambda _: kind.full_name if isinstance(kind, RecordOf) else None
            case SchemaType.PROTOBUF:
                schema = parse_proto_schema(registered.text, references)
                return lambda record: _message_name(schema, record)
    except (AvroSchemaError, ProtoSchemaError) as error:
        reason = f"schema {registered.id}: {error}"
        return lambda _: _raise(RecordError(RejectCode.UNUSABLE_SCHEMA, reason))
    title = _title(registered.text)
    return lambda _: title


def _message_name(schema: ProtoSchema, record: bytes) -> str | None:
    message = schema.message_at(read_indexes(MessageCursor(record, PREFIX_BYTES, len(record))))
    return None if message is None else message.name


def _title(text: str) -> str | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    title = document.get("title") if isinstance(document, dict) else None
    return title if isinstance(title, str) else None


def _raise(error: RecordError) -> str:
    raise RecordError(error.code, error.reason)
