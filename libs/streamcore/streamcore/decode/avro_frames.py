"""How a record says which schema wrote it, and where in it the datum is.

Four ways: a container file with the schema inside, a bare datum of the one schema that the settings give, a
single-object encoding (``C3 01`` and the schema's 64-bit fingerprint), and Confluent's prefix (a zero byte and the
schema's number). A container file has exactly one record: an event is told apart by its offset, and a message has one.
What a frame remembers of headers that it met changes the cost of a record and never its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamcore.decode.avro_codecs import unpack
from streamcore.decode.avro_fit import Wanted, check_fit
from streamcore.decode.avro_reader import Cursor
from streamcore.decode.avro_schema import AvroSchemaError, AvroType, parse_avro_schema
from streamcore.decode.byte_rows import ByteRows
from streamcore.records.record import text_of
from streamcore.records.scalars import RecordError
from streamcore.records.terms import DeadCode, DecodeLimits, ExtraFields

OBJECT_MAGIC, CONFLUENT_MAGIC, CONTAINER_MAGIC = b"\xc3\x01", b"\x00", b"Obj\x01"
_FINGERPRINT_BYTES, _ID_BYTES, SYNC_BYTES = 8, 4, 16
_MAX_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Datum:
    """One datum and its type. ``prefix``: every record that begins so is of this type, and the frame's ``spans`` say
    where its datum is; None where that cannot be said (a packed block)."""

    kind: AvroType
    data: bytes
    prefix: bytes | None


class Frame(Protocol):
    """Finds the datum of a record."""

    def open(self, record: bytes, limits: DecodeLimits) -> Datum:
        """Raises ``RecordError``."""
        ...

    def spans(self, rows: ByteRows, prefix_bytes: int) -> None:
        """Narrows rows that begin with the prefix to their datums; those that it cannot are no longer ``ok``."""
        ...


@dataclass(frozen=True)
class BareFrame:
    """Nothing but the datum."""

    kind: AvroType

    def open(self, record: bytes, limits: DecodeLimits) -> Datum:  # noqa: ARG002 - as all frames
        """See ``Frame``."""
        return Datum(self.kind, record, b"")

    def spans(self, rows: ByteRows, prefix_bytes: int) -> None:
        """See ``Frame``. They are the records."""


@dataclass(frozen=True)
class PrefixFrame:
    """A prefix of one length, which says the schema. ``magic``: how it begins. ``what``: for messages."""

    schemas: Mapping[bytes, AvroType]
    magic: bytes
    what: str

    @property
    def length(self) -> int:
        """Of the prefix."""
        return len(next(iter(self.schemas)))

    def open(self, record: bytes, limits: DecodeLimits) -> Datum:  # noqa: ARG002 - as all frames
        """See ``Frame``."""
        prefix = record[: self.length]
        if not prefix.startswith(self.magic) or len(prefix) < self.length:
            raise RecordError(DeadCode.NOT_AVRO, f"the record does not begin with {self.what}")
        kind = self.schemas.get(prefix)
        if kind is None:
            key = prefix[len(self.magic) :]
            shown = str(int.from_bytes(key, "big")) if self.magic == CONFLUENT_MAGIC else key.hex()
            raise RecordError(DeadCode.UNKNOWN_SCHEMA, f"no schema {shown} is among the {len(self.schemas)} given")
        return Datum(kind, record[self.length :], prefix)

    def spans(self, rows: ByteRows, prefix_bytes: int) -> None:
        """See ``Frame``."""
        rows.skip(prefix_bytes)


def confluent_prefix(schema_id: int) -> bytes:
    """What comes before a datum of this schema."""
    return CONFLUENT_MAGIC + schema_id.to_bytes(_ID_BYTES, "big")


def object_prefix(fingerprint: int) -> bytes:
    """What comes before a datum of the schema with this CRC-64-AVRO."""
    return OBJECT_MAGIC + fingerprint.to_bytes(_FINGERPRINT_BYTES, "little")


@dataclass
class ContainerFrame:
    """A container file of one record. Whether its schema fits is found once a schema."""

    want: Wanted
    extra_fields: ExtraFields
    _fitting: dict[bytes, AvroType | RecordError] = field(default_factory=dict)

    def open(self, record: bytes, limits: DecodeLimits) -> Datum:
        """See ``Frame``."""
        if not record.startswith(CONTAINER_MAGIC):
            raise RecordError(DeadCode.NOT_AVRO, "the record does not begin with Obj and 1, as a container file does")
        cursor = Cursor(record, len(CONTAINER_MAGIC))
        meta = _meta(cursor)
        kind = self._fitted(meta.get(b"avro.schema", b""))
        sync = cursor.take(SYNC_BYTES)
        prefix = record[: cursor.place - SYNC_BYTES]
        count = cursor.whole() if cursor.place < len(record) else 0
        if count != 1:
            raise _not_one(count)
        block = cursor.prefixed()
        if cursor.take(SYNC_BYTES) != sync:
            raise RecordError(DeadCode.NOT_AVRO, "not an Avro container file: the block does not end with its marker")
        if cursor.place < len(record):
            _check_empty(cursor, sync)
        codec = meta.get(b"avro.codec", b"null").decode("utf-8", "replace")
        data = unpack(codec, block, limits.max_record_bytes)
        return Datum(kind, data, prefix if codec == "null" else None)

    def spans(self, rows: ByteRows, prefix_bytes: int) -> None:
        """See ``Frame``. Files of one block with one record."""
        rows.skip(prefix_bytes)
        sync = rows.take(SYNC_BYTES)
        rows.ok &= rows.whole() == 1
        rows.ok &= rows.whole() == rows.end - rows.place - SYNC_BYTES
        rows.drop_tail(sync)

    def _fitted(self, text: bytes) -> AvroType:
        found = self._fitting.get(text)
        if found is None:
            found = self._fit(text)
            if len(self._fitting) >= _MAX_REMEMBERED:
                self._fitting.clear()
            self._fitting[text] = found
        if isinstance(found, RecordError):
            raise RecordError(found.code, found.reason)
        return found

    def _fit(self, text: bytes) -> AvroType | RecordError:
        try:
            kind = parse_avro_schema(text_of(text))
            check_fit(kind, self.want, self.extra_fields)
        except AvroSchemaError as error:
            return RecordError(DeadCode.NOT_AVRO, f"not an Avro container file: {error}")
        except RecordError as error:
            return error
        return kind


def _meta(cursor: Cursor) -> dict[bytes, bytes]:
    """The file's metadata: a map of bytes. Every entry takes bytes, so there are no more than the record has."""
    meta: dict[bytes, bytes] = {}
    while count := cursor.whole():
        if count < 0:
            count = -count
            cursor.whole()
        if count > len(cursor.data) - cursor.place:
            raise RecordError(DeadCode.NOT_AVRO, "not an Avro container file: its metadata is cut off")
        for _ in range(count):
            key = cursor.prefixed()
            meta[key] = cursor.prefixed()
    return meta


def _check_empty(cursor: Cursor, sync: bytes) -> None:
    """What follows the first block has no record."""
    while cursor.place < len(cursor.data):
        count = cursor.whole()
        if count:
            raise _not_one(1 + count)
        cursor.prefixed()
        if cursor.take(SYNC_BYTES) != sync:
            raise RecordError(DeadCode.NOT_AVRO, "not an Avro container file: a block does not end with its marker")


def _not_one(count: int) -> RecordError:
    found = "no record" if count == 0 else f"{count} records" if count > 0 else "a negative number of records"
    return RecordError(DeadCode.NOT_ONE_RECORD, f"the container file has {found}; accepted is one in each message")
