"""Reads the name of the schema that each Avro record was written with: it tells kinds of event in one topic apart."""

from __future__ import annotations

import pyarrow as pa

from streamcore.decode.avro.framing import Framing
from streamcore.decode.avro.schema import RecordOf
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import check_bytes
from streamcore.decode.scalar.values import RecordError
from streamcore.decode.types import DEAD_SCHEMA, Decoded, RawBatch
from streamcore.schema import StreamSchema


class SchemaNames:
    """The ``Decoder`` of one field, the full name of the record's schema: null for a schema that is not known here."""

    def __init__(self, schema: StreamSchema, framing: Framing, limits: DecodeLimits) -> None:
        self._schema, self._framing, self._limits = schema, framing, limits

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``."""
        names: list[str | None] = []
        rows: list[int] = []
        dead: list[tuple[int, str, str]] = []
        for row, record in enumerate(batch.values.to_pylist()):
            try:
                names.append(self._name(record))
                rows.append(row)
            except RecordError as error:
                dead.append((row, error.code.value, error.reason))
        places = pa.array(rows, pa.int64())
        engine = [batch.partition.take(places), batch.offset.take(places), pa.nulls(len(rows), pa.int64())]
        events = pa.Table.from_arrays([pa.array(names, pa.large_string()), *engine], schema=self._schema.arrow)
        columns = [pa.array([one[n] for one in dead], DEAD_SCHEMA.types[n]) for n in range(3)]
        return Decoded(events, pa.Table.from_arrays(columns, schema=DEAD_SCHEMA))

    def _name(self, record: bytes | None) -> str | None:
        try:
            kind = self._framing.split(check_bytes(record, self._limits, "one Avro record"), self._limits).kind
        except RecordError as error:
            if error.code is RejectCode.UNKNOWN_SCHEMA:
                return None
            raise
        return kind.full_name if isinstance(kind, RecordOf) else None
