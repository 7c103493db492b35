"""Splits Avro container files of any number of records into container files of one record each, as messages have them.

The files are what the specification of Avro calls object container files.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamcore.decode.avro.codecs import unpack
from streamcore.decode.avro.framing import CONTAINER_MAGIC, SYNC_BYTES, read_metadata
from streamcore.decode.avro.reader import Cursor, read_datum
from streamcore.decode.avro.schema import AvroSchemaError, parse_avro_schema
from streamcore.decode.avro.schema_match import FieldMapping
from streamcore.decode.reject_codes import DecodeLimits, RejectCode
from streamcore.decode.scalar.record import decode_text
from streamcore.decode.scalar.values import RecordError

_SCHEMA, _CODEC = b"avro.schema", b"avro.codec"


def split_container(data: bytes, limits: DecodeLimits, max_block_bytes: int) -> Iterator[bytes]:
    """Yield each record of a container file as a container file of its own, not compressed.

    Raises ``RecordError`` where the file is damaged; the records before that place have been yielded.
    ``max_block_bytes``: to which a block may unpack.
    """
    if not data.startswith(CONTAINER_MAGIC):
        raise _damaged("it does not begin with Obj and 1")
    cursor = Cursor(data, len(CONTAINER_MAGIC))
    meta = read_metadata(cursor)
    schema = meta.get(_SCHEMA, b"")
    try:
        kind = parse_avro_schema(decode_text(schema))
    except AvroSchemaError as error:
        raise _damaged(str(error)) from None
    codec = meta.get(_CODEC, b"null").decode("utf-8", "replace")
    sync = cursor.read_bytes(SYNC_BYTES)
    head = b"".join((CONTAINER_MAGIC, _long(1), _prefixed(_SCHEMA), _prefixed(schema), _long(0), sync, _long(1)))
    while cursor.position < len(data):
        count = cursor.read_long()
        block = Cursor(unpack(codec, cursor.read_prefixed(), max_block_bytes))
        for _ in range(count):
            begin = block.position
            read_datum(block, kind, FieldMapping({}), limits)
            yield head + _prefixed(block.data[begin : block.position]) + sync
        if count < 0 or block.position < len(block.data):
            raise _damaged(f"the block before byte {cursor.position} has not the {count} records that it says")
        if cursor.read_bytes(SYNC_BYTES) != sync:
            raise _damaged(f"the block before byte {cursor.position} does not end with its marker")


def _damaged(reason: str) -> RecordError:
    return RecordError(RejectCode.NOT_AVRO, f"not an Avro container file: {reason}")


def _prefixed(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(number: int) -> bytes:
    """Return a number of at least 0 as Avro's long."""
    rest, encoded = 2 * number, bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
