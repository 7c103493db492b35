"""Reads the name of the schema that each Avro record was written with: it tells kinds of event in one topic apart."""

from __future__ import annotations

from streamcore.decode.avro.framing import Framing
from streamcore.decode.avro.schema import RecordOf
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import check_bytes
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.schema_names import decode_names
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema


class SchemaNames:
    """The ``Decoder`` of one field, the full name of the record's schema: null for a schema that is not known here."""

    def __init__(self, schema: StreamSchema, framing: Framing, limits: DecodeLimits) -> None:
        self._schema, self._framing, self._limits = schema, framing, limits

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``."""
        records = batch.values.to_pylist()
        return decode_names(self._schema, batch, lambda row: self._name(records[row]))

    def _name(self, record: bytes | None) -> str | None:
        try:
            kind = self._framing.split(check_bytes(record, self._limits, "one Avro record"), self._limits).kind
        except RecordError as error:
            if error.code is RejectCode.UNKNOWN_SCHEMA:
                return None
            raise
        return kind.full_name if isinstance(kind, RecordOf) else None
