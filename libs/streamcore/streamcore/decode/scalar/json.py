"""Decodes one JSON record: the reference, which defines the JSON records that a stream accepts.

A record is strict JSON of RFC 8259 in UTF-8 without a byte order mark: no NaN or infinity, no bytes after the value, no
lone surrogate. It is one object. A name that occurs twice makes it ambiguous, so the record is rejected. The reason is
the first mistake in the order of ``RejectCode``, and then of the schema's fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn
from zoneinfo import ZoneInfo

from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values, decode_text
from streamcore.decode.scalar.values import Number, RecordError, Scalar, show
from streamcore.schema import StreamSchema

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object: its names and values in the order of the text, repeated names included."""

    pairs: tuple[tuple[str, object], ...]


def decode_one(
    schema: StreamSchema,
    record: bytes | None,
    *,
    clock_ms: int,
    zone: ZoneInfo,
    limits: DecodeLimits,
    extra_fields: ExtraFields,
) -> tuple[Scalar, ...] | RejectedRecord:
    """Return the physical values of the schema's fields, in order, or the rejection.

    ``clock_ms``: the cut's clock, in epoch milliseconds. ``zone``: that of the schema.
    """
    try:
        pairs = parse_object(record, limits).pairs
        _check_names(schema, pairs, extra_fields)
        found = dict(pairs)
        return convert_values(schema, found, clock_ms=clock_ms, zone=zone, limits=limits)
    except RecordError as error:
        return RejectedRecord(error.code, error.reason)


def parse_object(record: bytes | None, limits: DecodeLimits) -> JsonObject:
    """Return the record as one JSON object; raise ``RecordError``."""
    text = decode_text(check_bytes(record, limits, "one JSON object"))
    value = _parse(text, limits.max_depth)
    if not isinstance(value, JsonObject):
        raise RecordError(RejectCode.NOT_AN_OBJECT, f"found {show(value)}; accepted is one JSON object")
    return value


def _parse(text: str, max_depth: int) -> object:
    if text.count("[") + text.count("{") > max_depth and _depth(text) > max_depth:
        raise RecordError(RejectCode.TOO_DEEP, f"the record nests deeper than {max_depth} levels, which is the limit")
    if text.startswith("\ufeff"):
        raise RecordError(
            RejectCode.NOT_JSON, "the record begins with a byte order mark; accepted is UTF-8 without one"
        )
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=lambda pairs: JsonObject(tuple(pairs)),
            parse_int=Number,
            parse_float=Number,
            parse_constant=_reject_constant,
        )
    except json.JSONDecodeError as error:
        raise RecordError(RejectCode.NOT_JSON, f"not JSON: {error.msg} at character {error.pos}") from None
    if "\\u" in text and any(_has_surrogate(part) for part in _strings(value)):
        raise RecordError(RejectCode.NOT_UTF8, "a text has a lone surrogate, so it is not Unicode")
    return value


def _reject_constant(name: str) -> NoReturn:
    raise RecordError(RejectCode.NOT_JSON, f"not JSON: {name} is no JSON number")


def _depth(text: str) -> int:
    """Return the deepest nesting of brackets outside of strings. The result for text that is not JSON is undefined."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in "]}":
            depth -= 1
    return deepest


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, JsonObject):
        for name, item in value.pairs:
            yield name
            yield from _strings(item)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _check_names(schema: StreamSchema, pairs: tuple[tuple[str, object], ...], extra_fields: ExtraFields) -> None:
    declared, seen = frozenset(schema.names), set[str]()
    for name, _ in pairs:
        if name in seen and (name in declared or extra_fields is ExtraFields.REJECT):
            raise RecordError(
                RejectCode.DUPLICATE_FIELD, f"field {_show_name(name)} occurs more than once; accepted is once"
            )
        seen.add(name)
    extra = [name for name, _ in pairs if name not in declared]
    if extra and extra_fields is ExtraFields.REJECT:
        raise RecordError(
            RejectCode.EXTRA_FIELD,
            f"field {_show_name(extra[0])} is not declared by stream {schema.name}; see its schema",
        )


def _show_name(name: str) -> str:
    """Return a name for a message, in quotes and printable ASCII."""
    return show(name).removeprefix("the text ")
