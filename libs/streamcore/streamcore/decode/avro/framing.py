"""Finds the datum in an Avro record, and the schema that it was written with.

There are four framings: a container file, which has the schema inside; a bare datum of the one schema in the settings;
the single-object encoding (``C3 01`` and the schema's 64-bit fingerprint); and Confluent's (a zero byte and the
schema's id). A container file must have exactly one record, because an event is identified by the offset of its
message. A framing caches parsed schemas; that changes the cost of a record, never its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamcore.decode.avro.byte_cursors import Bools, ByteCursors, Bytes, Ints
from streamcore.decode.avro.codecs import unpack
from streamcore.decode.avro.reader import Cursor
from streamcore.decode.avro.schema import AvroSchemaError, AvroType, parse_avro_schema
from streamcore.decode.avro.schema_match import FieldMapping, check_schema
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.record import decode_text
from streamcore.decode.scalar.values import RecordError

OBJECT_MAGIC, CONFLUENT_MAGIC, CONTAINER_MAGIC = b"\xc3\x01", b"\x00", b"Obj\x01"
_FINGERPRINT_BYTES, _ID_BYTES, SYNC_BYTES = 8, 4, 16
_MAX_CACHED = 64


@dataclass(frozen=True, slots=True)
class Datum:
    """One datum and its type.

    ``prefix``: every record that begins with these bytes has a datum of this type, which ``Framing.narrow`` finds. None
    if the datum is compressed.
    """

    kind: AvroType
    data: bytes
    prefix: bytes | None


class Framing(Protocol):
    """Finds the datum of a record."""

    def split(self, record: bytes, limits: DecodeLimits) -> Datum:
        """Return the datum of the record; raise ``RecordError`` if it cannot be found."""
        ...

    def narrow(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Bools | None]:
        """Return where the datums are in ``data``, and which are found; None for all. ``starts``: what is behind the
        prefix of each record; ``ends``: of the records."""
        ...


@dataclass(frozen=True)
class BareFraming:
    """A record is a datum of one type. ``skipped_bytes``: those before it, at which somebody else has looked."""

    kind: AvroType
    skipped_bytes: int = 0

    def split(self, record: bytes, limits: DecodeLimits) -> Datum:  # noqa: ARG002 - the signature of all framings
        """See ``Framing``."""
        return Datum(self.kind, record[self.skipped_bytes :], b"")

    def narrow(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Bools | None]:  # noqa: ARG002
        """See ``Framing``: the datum is the whole record, but for what is skipped."""
        return starts + self.skipped_bytes, ends, None


@dataclass(frozen=True)
class PrefixFraming:
    """A record is a prefix, which identifies the schema, and a datum.

    ``schemas``: by prefix; all prefixes have one length and begin with ``magic``. ``description``: of a
    prefix, for messages.
    """

    schemas: Mapping[bytes, AvroType]
    magic: bytes
    description: str

    @property
    def length(self) -> int:
        """The length of a prefix in bytes."""
        return len(next(iter(self.schemas)))

    def split(self, record: bytes, limits: DecodeLimits) -> Datum:  # noqa: ARG002 - the signature of all framings
        """See ``Framing``."""
        prefix = record[: self.length]
        if not prefix.startswith(self.magic) or len(prefix) < self.length:
            raise RecordError(RejectCode.NOT_AVRO, f"the record does not begin with {self.description}")
        kind = self.schemas.get(prefix)
        if kind is None:
            key = prefix[len(self.magic) :]
            shown = str(int.from_bytes(key, "big")) if self.magic == CONFLUENT_MAGIC else key.hex()
            raise RecordError(RejectCode.UNKNOWN_SCHEMA, f"no schema {shown} is among the {len(self.schemas)} given")
        return Datum(kind, record[self.length :], prefix)

    def narrow(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Bools | None]:  # noqa: ARG002
        """See ``Framing``: the datum is all that is behind the prefix."""
        return starts, ends, None


def confluent_prefix(schema_id: int) -> bytes:
    """Return the prefix of records with the schema of this id."""
    return CONFLUENT_MAGIC + schema_id.to_bytes(_ID_BYTES, "big")


def object_prefix(fingerprint: int) -> bytes:
    """Return the prefix of records with the schema of this CRC-64-AVRO fingerprint."""
    return OBJECT_MAGIC + fingerprint.to_bytes(_FINGERPRINT_BYTES, "little")


@dataclass
class ContainerFraming:
    """A record is a container file with one datum. ``_types``: cache of the types, or errors, by the schema's JSON."""

    want: FieldMapping
    extra_fields: ExtraFields
    _types: dict[bytes, AvroType | RecordError] = field(default_factory=dict)

    def split(self, record: bytes, limits: DecodeLimits) -> Datum:
        """See ``Framing``."""
        if not record.startswith(CONTAINER_MAGIC):
            raise RecordError(RejectCode.NOT_AVRO, "the record does not begin with Obj and 1, as a container file does")
        cursor = Cursor(record, len(CONTAINER_MAGIC))
        meta = read_metadata(cursor)
        kind = self._matched_type(meta.get(b"avro.schema", b""))
        sync = cursor.read_bytes(SYNC_BYTES)
        prefix = record[: cursor.position - SYNC_BYTES]
        count = cursor.read_long() if cursor.position < len(record) else 0
        if count != 1:
            raise _wrong_count(count)
        block = cursor.read_prefixed()
        if cursor.read_bytes(SYNC_BYTES) != sync:
            raise RecordError(RejectCode.NOT_AVRO, "not an Avro container file: the block does not end with its marker")
        if cursor.position < len(record):
            _check_empty(cursor, sync)
        codec = meta.get(b"avro.codec", b"null").decode("utf-8", "replace")
        data = unpack(codec, block, limits.max_record_bytes)
        return Datum(kind, data, prefix if codec == "null" else None)

    def narrow(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints, Bools | None]:
        """See ``Framing``. Found are those in files of one block with one datum."""
        rows = ByteCursors(data, starts, ends)
        sync = rows.read_bytes(SYNC_BYTES)
        rows.ok &= rows.read_long() == 1
        rows.ok &= rows.read_long() == rows.end - rows.position - SYNC_BYTES
        rows.drop_tail(sync)
        return rows.position, rows.end, rows.ok

    def _matched_type(self, text: bytes) -> AvroType:
        """Return the type that the schema's JSON defines; raise ``RecordError`` if it does not fit the stream."""
        type_or_error = self._types.get(text)
        if type_or_error is None:
            type_or_error = self._parse(text)
            if len(self._types) >= _MAX_CACHED:
                self._types.clear()
            self._types[text] = type_or_error
        if isinstance(type_or_error, RecordError):
            raise RecordError(type_or_error.code, type_or_error.reason)
        return type_or_error

    def _parse(self, text: bytes) -> AvroType | RecordError:
        try:
            kind = parse_avro_schema(decode_text(text))
            check_schema(kind, self.want, self.extra_fields)
        except AvroSchemaError as error:
            return RecordError(RejectCode.NOT_AVRO, f"not an Avro container file: {error}")
        except RecordError as error:
            return error
        return kind


def read_metadata(cursor: Cursor) -> dict[bytes, bytes]:
    """Read the file's metadata, a map of bytes. An entry has at least one byte, so memory is bounded by the record."""
    meta: dict[bytes, bytes] = {}
    while count := cursor.read_long():
        if count < 0:
            count = -count
            cursor.read_long()
        if count > len(cursor.data) - cursor.position:
            raise RecordError(RejectCode.NOT_AVRO, "not an Avro container file: its metadata is cut off")
        for _ in range(count):
            key = cursor.read_prefixed()
            meta[key] = cursor.read_prefixed()
    return meta


def _check_empty(cursor: Cursor, sync: bytes) -> None:
    """Check that no record follows the first block."""
    while cursor.position < len(cursor.data):
        count = cursor.read_long()
        if count:
            raise _wrong_count(1 + count)
        cursor.read_prefixed()
        if cursor.read_bytes(SYNC_BYTES) != sync:
            raise RecordError(RejectCode.NOT_AVRO, "not an Avro container file: a block does not end with its marker")


def _wrong_count(count: int) -> RecordError:
    found = "no record" if count == 0 else f"{count} records" if count > 0 else "a negative number of records"
    return RecordError(RejectCode.NOT_ONE_RECORD, f"the container file has {found}; accepted is one in each message")
