"""Decodes the records of a stream, each by the schema that it names: a zero byte, the id, then the record itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows, assemble_events
from streamcore.decode.avro.decoder import AvroDecoder
from streamcore.decode.avro.framing import CONFLUENT_MAGIC, BareFraming
from streamcore.decode.avro.schema_match import check_schema, map_fields
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.protobuf.decoder import ProtobufDecoder
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.registry.registered_types import (
    NO_ID,
    RejectedSchema,
    SchemaCache,
    read_avro,
    read_protobuf,
)
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.row_decoding import RowsDecoder
from streamcore.decode.scalar.record import check_bytes
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.types import Decoded, RawBatch, dead_table
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import PREFIX_BYTES, RegisteredSchema, SchemaType


class RegistryDecoder:
    """Decodes the records of one stream. It keeps a decoder for each schema; that changes the cost of a batch, never
    its result."""

    def __init__(self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields) -> None:
        self._schema, self._limits, self._extra_fields = schema, limits, extra_fields
        self._want = map_fields(schema)
        self._decoders = SchemaCache(self._make_decoder)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Waits for schemas that are new."""
        records, parts = BatchRecords.from_batch(batch), list[DecodedPart]()
        starts = RecordStarts(records.data)
        ids = starts.schema_ids(CONFLUENT_MAGIC[0], self._limits.max_record_bytes)
        rows_by_id = _rows_by_id(ids)
        decoders = self._decoders.find(batch.schemas, [n for n in rows_by_id if n >= 0])
        dead: list[tuple[int, str, str]] = []
        for schema_id, rows in rows_by_id.items():
            found = decoders.get(schema_id, NO_ID)
            if found is NO_ID:
                dead += [(row, *self._reject(records.record_bytes(row))) for row in rows.tolist()]
            elif isinstance(found, RejectedSchema):
                dead += [(row, found.code.value, found.reason) for row in rows.tolist()]
            else:
                rejected = found.decode_rows(records, starts, rows, parts)
                if rejected.num_rows:
                    dead += zip(*(rejected.column(n).to_pylist() for n in range(3)), strict=True)
        return Decoded(assemble_events(self._schema, batch, parts), dead_table(sorted(dead)))

    def _make_decoder(self, registered: RegisteredSchema) -> RowsDecoder:
        match registered.type:
            case SchemaType.AVRO:
                return self._avro(registered)
            case SchemaType.PROTOBUF:
                return self._protobuf(registered)
            case SchemaType.JSON:
                return JsonDecoder(
                    self._schema, limits=self._limits, extra_fields=self._extra_fields, prefix_bytes=PREFIX_BYTES
                )
        reason = f"its type is {registered.type[:60]!a}; supported are AVRO, PROTOBUF and JSON"
        raise RecordError(RejectCode.UNUSABLE_SCHEMA, reason)

    def _avro(self, registered: RegisteredSchema) -> RowsDecoder:
        """Return the decoder of an Avro schema; raise ``RecordError`` if it cannot be read or does not fit."""
        kind = read_avro(registered)
        check_schema(kind, self._want, self._extra_fields)
        return AvroDecoder(self._schema, BareFraming(kind, PREFIX_BYTES), self._want, self._limits)

    def _protobuf(self, registered: RegisteredSchema) -> RowsDecoder:
        """Return the decoder of a Protobuf schema; raise ``RecordError`` if it cannot be read."""
        return ProtobufDecoder(
            self._schema,
            read_protobuf(registered),
            f"schema {registered.id}",
            PREFIX_BYTES,
            limits=self._limits,
            extra_fields=self._extra_fields,
        )

    def _reject(self, record: bytes | None) -> tuple[str, str]:
        """Return why a record without a schema's id is rejected."""
        try:
            check_bytes(record, self._limits, "one record")
        except RecordError as error:
            return error.code.value, error.reason
        return NO_ID.code.value, NO_ID.reason


def _rows_by_id(ids: Rows) -> Mapping[int, Rows]:
    """Return the rows of each schema id, ascending."""
    if len(ids) and (ids == ids[0]).all():  # the usual case
        return {int(ids[0]): np.arange(len(ids))}
    order = np.argsort(ids, kind="stable")
    present, firsts = np.unique(ids[order], return_index=True)
    return dict(zip(present.tolist(), np.split(order, firsts[1:]), strict=True)) if len(ids) else {}
