"""Finds the id of each record's schema: where its value begins or, if a format says so, in a header beside it.

The header is that of Confluent's clients. It has the byte 0 and an id of four bytes, or the byte 1 and a GUID of 16;
behind it are the indexes of the message, if the record is of Protobuf. The value is the record alone. Here such a
record becomes one whose value begins with its id, so that all that follows knows one form.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamcore.decode.assembly import BatchRecords, Rows
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.registry.registered_types import NO_ID, RejectedSchema
from streamcore.decode.reject_codes import RejectCode
from streamcore.decode.types import RawBatch
from streamcore.schema_registry.schemas import ID_BYTES, MAGIC, PREFIX_BYTES, SchemaId

#: The header with the id of the schema of a record's value.
SCHEMA_ID_HEADER: Final = "__value_schema_id"
_GUID_MAGIC, _GUID_BYTES = 1, 16
#: In place of the number of a schema: the record begins with none, its header has none.
_NO_NUMBER, _NO_HEADER_ID = -1, -2
#: Numbers of this batch for GUIDs, above all ids.
_FIRST_GUID = 1 << 32
_BAD_HEADER: Final = RejectedSchema(
    RejectCode.NO_SCHEMA_ID,
    f"the header {SCHEMA_ID_HEADER} has neither a zero byte and an id of four bytes nor a one and a GUID of 16",
)


@dataclass(frozen=True, slots=True)
class RecordIds:
    """The records of a batch, whose values begin with their ids, and the numbers of their schemas: of a GUID a number
    of this batch, of a record without an id a negative one."""

    records: BatchRecords
    starts: RecordStarts
    numbers: Rows
    guids: Mapping[int, str] = field(default_factory=dict)

    def schema_id(self, number: int) -> SchemaId:
        """Return the id in the registry."""
        return self.guids.get(number, number)


def reject_number(number: int) -> RejectedSchema:
    """Return why a record with a negative number is rejected."""
    return _BAD_HEADER if number == _NO_HEADER_ID else NO_ID


def find_ids(batch: RawBatch, max_bytes: int, *, in_header: bool) -> RecordIds:
    """Return the records of a batch with the numbers of their schemas. ``max_bytes``: of a record with its id.

    ``in_header``: whether the header counts. A record without it is as any other.
    """
    header = batch.beside.headers.get(SCHEMA_ID_HEADER) if in_header else None
    if header is None or header.null_count == len(header):
        return _find(batch, max_bytes)
    coded = header.dictionary_encode()
    parsed = [_parse(one) for one in coded.dictionary.to_pylist()]
    values = batch.values.cast(pa.large_binary())
    prefixes = pa.array([prefix for _, prefix in parsed], pa.large_binary()).take(coded.indices)
    joined = pc.binary_join_element_wise(prefixes, values, pa.scalar(b"", pa.large_binary()))
    found = _find(replace(batch, values=pc.if_else(pc.is_valid(prefixes), joined, values)), max_bytes)
    guids = {_FIRST_GUID + n: one for n, (one, _) in enumerate(parsed) if isinstance(one, str)}
    own = np.array([_FIRST_GUID + n if isinstance(one, str) else one for n, (one, _) in enumerate(parsed)], np.int64)
    with_header = np.flatnonzero(coded.indices.is_valid().to_numpy(zero_copy_only=False))
    readable = with_header[found.numbers[with_header] >= 0]  # neither null nor too large
    numbers = found.numbers.copy()
    numbers[readable] = own[coded.indices.fill_null(0).to_numpy()[readable]]
    return replace(found, numbers=numbers, guids=guids)


def identify(value: bytes, header: bytes | None) -> tuple[SchemaId | RejectedSchema, bytes]:
    """Return the id of the schema of one record, or why it has none, and its value, which begins with an id.
    ``header``: None without it."""
    if header is None:
        if len(value) < PREFIX_BYTES or value[0] != MAGIC:
            return NO_ID, value
        return int.from_bytes(value[1:PREFIX_BYTES], "big"), value
    found, prefix = _parse(header)
    return (_BAD_HEADER if found == _NO_HEADER_ID else found), prefix + value


def _find(batch: RawBatch, max_bytes: int) -> RecordIds:
    records = BatchRecords.from_batch(batch)
    starts = RecordStarts(records.data)
    return RecordIds(records, starts, starts.schema_ids(MAGIC, max_bytes))


def _parse(header: bytes) -> tuple[SchemaId, bytes]:
    """Return the id in a header, and what a value with it begins with; of a GUID with the id 0."""
    if len(header) >= PREFIX_BYTES and header[0] == MAGIC:
        return int.from_bytes(header[1:PREFIX_BYTES], "big"), header
    end = 1 + _GUID_BYTES
    if len(header) >= end and header[0] == _GUID_MAGIC:
        return str(uuid.UUID(bytes=header[1:end])), bytes([MAGIC]) + bytes(ID_BYTES) + header[end:]
    return _NO_HEADER_ID, bytes([MAGIC]) + bytes(ID_BYTES)
