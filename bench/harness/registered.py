"""Schemas of Avro and Protobuf for documents of JSON, and the same content as records of these formats.

For benches only: all documents have the members of the first one. Members named ``labels`` are maps of strings, those
named ``country`` may be null, and a list has elements of one kind.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import fastavro

_MAPS, _NULLABLE = ("labels",), ("country",)
_AVRO = {bool: "boolean", int: "long", float: "double", str: "string"}
_PROTO = {bool: "bool", int: "int64", float: "double", str: "string"}


def avro_schema(document: Mapping[str, Any], name: str = "Event") -> dict[str, Any]:
    """Return the schema of a document."""
    return {
        "type": "record",
        "name": name,
        "fields": [_avro_field(name, key, value) for key, value in document.items()],
    }


def _avro_field(outer: str, key: str, value: Any) -> dict[str, Any]:
    kind: Any = _avro_kind(f"{outer}_{key}", key, value)
    return {"name": key, "type": ["null", kind] if key in _NULLABLE else kind}


def _avro_kind(name: str, key: str, value: Any) -> Any:
    if key in _MAPS:
        return {"type": "map", "values": "string"}
    if isinstance(value, Mapping):
        return avro_schema(value, name)
    if isinstance(value, list):
        return {"type": "array", "items": _avro_kind(f"{name}_item", "", value[0])}
    return _AVRO.get(type(value), "string")


def avro_records(documents: list[dict[str, Any]]) -> tuple[str, list[bytes]]:
    """Return the text of the schema, and the records."""
    schema = avro_schema(documents[0])
    parsed, records = fastavro.parse_schema(schema), []
    for document in documents:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, document)
        records.append(out.getvalue())
    return json.dumps(schema), records


def proto_records(documents: list[dict[str, Any]]) -> tuple[str, list[bytes]]:
    """Return the text of the schema, and the records: the index of the first message, and a message."""
    text = f'syntax = "proto3";\n{_proto_message("Event", documents[0])}'
    return text, [b"\0" + _proto_bytes(document) for document in documents]


def _proto_message(name: str, document: Mapping[str, Any]) -> str:
    inner, lines = "", ""
    for number, (key, value) in enumerate(document.items(), 1):
        one = value[0] if isinstance(value, list) else value
        kind = _PROTO.get(type(one), "string")
        label = "repeated " if isinstance(value, list) else "optional " if key in _NULLABLE else ""
        if key in _MAPS:
            kind = "map<string, string>"
        elif isinstance(one, Mapping):
            kind = f"M{key}"
            inner += _proto_message(kind, one)
        lines += f"  {label}{kind} {key} = {number};\n"
    return f"message {name} {{\n{inner}{lines}}}\n"


def _proto_bytes(document: Mapping[str, Any]) -> bytes:
    out = b""
    for number, (key, value) in enumerate(document.items(), 1):
        if key in _MAPS:
            out += b"".join(_field(number, {"key": one, "value": text}) for one, text in value.items())
        elif isinstance(value, list) and not isinstance(value[0], (str, Mapping)):
            out += _prefixed(number, b"".join(_scalar(one)[1] for one in value))
        else:
            out += b"".join(_field(number, one) for one in (value if isinstance(value, list) else [value]))
    return out


def _field(number: int, value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, Mapping):
        return _prefixed(number, _proto_bytes(value))
    if isinstance(value, str):
        return _prefixed(number, value.encode())
    wire, content = _scalar(value)
    return varint(number << 3 | wire) + content


def _scalar(value: Any) -> tuple[int, bytes]:
    """Return the wire type and the bytes of a number or a boolean."""
    return (1, struct.pack("<d", value)) if isinstance(value, float) else (0, varint(int(value)))


def _prefixed(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
