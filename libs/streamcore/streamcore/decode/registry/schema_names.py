"""Reads the name of the registry's schema that each record was written with: it tells kinds of event apart.

The name is the full name of the record (Avro) or of the message (Protobuf), or the title of a JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from streamcore.decode.avro.schema import RecordOf
from streamcore.decode.protobuf.reader import MessageCursor, read_indexes
from streamcore.decode.protobuf.schema import ProtoSchema
from streamcore.decode.registry.record_ids import find_ids, reject_number
from streamcore.decode.registry.registered_types import (
    RejectedSchema,
    SchemaCache,
    read_avro,
    read_protobuf,
)
from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.scalar.record import check_bytes
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.schema_names import decode_names
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import PREFIX_BYTES, RegisteredSchema, SchemaType

#: Returns the name of the schema of a record; raises ``RecordError`` if it has none.
_Name = Callable[[bytes], "str | None"]


class RegistryNames:
    """The ``Decoder`` of one field, the name of the record's schema: null for one without a name."""

    def __init__(self, schema: StreamSchema, limits: DecodeLimits, *, in_header: bool = False) -> None:
        self._schema, self._limits, self._in_header = schema, limits, in_header
        self._names = SchemaCache(_namer)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Waits for schemas that are new."""
        ids = find_ids(batch, self._limits.max_record_bytes, in_header=self._in_header)
        records, numbers = ids.records, ids.numbers.tolist()
        names = self._names.find(batch.schemas, [ids.schema_id(n) for n in sorted({n for n in numbers if n >= 0})])

        def find_name(row: int) -> str | None:
            record = check_bytes(records.record_bytes(row), self._limits, "one record")
            number = numbers[row]
            found = names[ids.schema_id(number)] if number >= 0 else reject_number(number)
            if isinstance(found, RejectedSchema):
                raise RecordError(found.code, found.reason)
            return found(record)

        return decode_names(self._schema, batch, find_name)


def _namer(registered: RegisteredSchema) -> _Name:
    """Return the function for the records of a schema."""
    match registered.type:
        case SchemaType.AVRO:
            kind = read_avro(registered)
            return lambda _: kind.full_name if isinstance(kind, RecordOf) else None
        case SchemaType.PROTOBUF:
            schema = read_protobuf(registered)
            return lambda record: _message_name(schema, record)
    title = schema_title(registered.text)
    return lambda _: title


def _message_name(schema: ProtoSchema, record: bytes) -> str | None:
    message = schema.message_at(read_indexes(MessageCursor(record, PREFIX_BYTES, len(record))))
    return None if message is None else message.name


def schema_title(text: str) -> str | None:
    """Return the title of a JSON Schema; None if it has none."""
    try:
        document = json.loads(text)
        title = document.get("title") if isinstance(document, dict) else None
        return title if isinstance(title, str) and title.encode() else None
    except (ValueError, RecursionError):  # no JSON, or a title that is no Unicode
        return None
