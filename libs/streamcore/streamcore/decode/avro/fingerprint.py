"""Computes the fingerprint of an Avro schema: the CRC-64-AVRO of its parsing canonical form.

The algorithm and the constant are those of the Avro specification, "Schema Fingerprints".
"""

from __future__ import annotations

import json

import fastavro.schema

from streamcore.decode.avro.schema import AvroSchemaError

_EMPTY = 0xC15D213AA4D7A795


def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(value >> 1) ^ (_EMPTY if value & 1 else 0) for value in table]
    return table


_TABLE = _table()


def fingerprint(text: str) -> int:
    """Return the fingerprint of a schema's JSON; raise ``AvroSchemaError``.

    Only for schemas from the settings: the library has no limits for schemas from a record.
    """
    try:
        canonical = fastavro.schema.to_parsing_canonical_form(json.loads(text))
    except (ValueError, KeyError, TypeError, fastavro.schema.UnknownType) as error:
        raise AvroSchemaError(f"the schema has no canonical form: {error}") from error
    value = _EMPTY
    for byte in canonical.encode():
        value = (value >> 8) ^ _TABLE[(value ^ byte) & 0xFF]
    return value
