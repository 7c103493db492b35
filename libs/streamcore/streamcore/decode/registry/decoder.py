"""Decodes the records of a stream, each by the schema whose id it has (``record_ids``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from streamcore.decode.assembly import DecodedPart, Rows, assemble_events, count_values
from streamcore.decode.avro.decoder import AvroDecoder
from streamcore.decode.avro.framing import BareFraming
from streamcore.decode.avro.schema_match import check_schema, map_fields
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.protobuf.decoder import ProtobufDecoder
from streamcore.decode.registry.record_ids import find_ids, reject_number
from streamcore.decode.registry.registered_types import (
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
    its result. ``in_header``: whether the id may be in a header."""

    def __init__(
        self, schema: StreamSchema, *, limits: DecodeLimits, extra_fields: ExtraFields, in_header: bool = False
    ) -> None:
        self._schema, self._limits, self._extra_fields = schema, limits, extra_fields
        self._in_header = in_header
        self._want = map_fields(schema)
        self._decoders = SchemaCache(self._make_decoder)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Waits for schemas that are new."""
        ids, parts = find_ids(batch, self._limits.max_record_bytes, in_header=self._in_header), list[DecodedPart]()
        records, starts = ids.records, ids.starts
        rows_by_number = _group_rows(ids.numbers)
        decoders = self._decoders.find(batch.schemas, [ids.schema_id(n) for n in rows_by_number if n >= 0])
        dead: list[tuple[int, str, str]] = []
        # The decoder of one schema knows the limit of values; those of all together are counted here.
        values, several = 0, len(rows_by_number) > 1
        for number, rows in rows_by_number.items():
            found = decoders[ids.schema_id(number)] if number >= 0 else reject_number(number)
            if number < 0:
                dead += [(row, *self._reject(records.record_bytes(row), number)) for row in rows.tolist()]
            elif isinstance(found, RejectedSchema):
                dead += [(row, found.code.value, found.reason) for row in rows.tolist()]
            else:
                before = len(parts)
                rejected = found.decode_rows(records, starts, rows, parts)
                if several:
                    values += sum(count_values(chunk) for part in parts[before:] for chunk in _chunks(part.columns))
                    self._limits.check_batch(values, len(batch))
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

    def _reject(self, record: bytes | None, number: int) -> tuple[str, str]:
        """Return why a record without a schema's id is rejected. ``number``: in place of the schema's."""
        try:
            check_bytes(record, self._limits, "one record")
        except RecordError as error:
            return error.code.value, error.reason
        rejected = reject_number(number)
        return rejected.code.value, rejected.reason


def _chunks(columns: pa.Table) -> Iterator[pa.Array]:
    return (chunk for column in columns.columns for chunk in column.chunks)


def _group_rows(ids: Rows) -> Mapping[int, Rows]:
    """Return the rows of each number of a schema, ascending."""
    if len(ids) and (ids == ids[0]).all():  # the usual case
        return {int(ids[0]): np.arange(len(ids))}
    order = np.argsort(ids, kind="stable")
    present, firsts = np.unique(ids[order], return_index=True)
    return dict(zip(present.tolist(), np.split(order, firsts[1:]), strict=True)) if len(ids) else {}
