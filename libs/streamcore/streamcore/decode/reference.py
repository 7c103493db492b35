"""One record: its values or why it is a dead letter. Slow, and the definition of what a stream accepts.

Strict JSON of RFC 8259 in UTF-8 without a byte order mark: no NaN or infinity, no bytes after the value, no half of a
surrogate pair. The record is one object; a name that occurs twice makes it ambiguous, so it is refused. The first
thing that is wrong is the one reported, in the order of ``DeadCode`` and then of the schema's fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn
from zoneinfo import ZoneInfo

from streamcore.decode.batch import DeadCode, DecodeLimits, ExtraFields
from streamcore.decode.scalars import Number, RecordError, Scalar, convert, show
from streamcore.decode.times import to_text
from streamcore.schema import StreamSchema

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A dead letter: the code for machines, the reason for people."""

    code: DeadCode
    reason: str


@dataclass(frozen=True, slots=True)
class JsonObject:
    """A JSON object as it was written: every name with its value, in order, repetitions included."""

    pairs: tuple[tuple[str, object], ...]


def decode_one(
    schema: StreamSchema,
    record: bytes | None,
    *,
    clock_ms: int,
    zone: ZoneInfo,
    limits: DecodeLimits,
    extra_fields: ExtraFields,
) -> tuple[Scalar, ...] | Rejected:
    """The physical values of the schema's fields, in order, or the rejection. ``zone`` is the schema's."""
    try:
        pairs = parse_object(record, limits).pairs
        _check_names(schema, pairs, extra_fields)
        found = dict(pairs)
        values: list[Scalar] = []
        for field in schema.fields:
            if field.name not in found and not field.nullable:
                raise RecordError(DeadCode.MISSING_FIELD, f"field {field.name} is missing; a {field.type} is needed")
            values.append(convert(field, found.get(field.name), zone))
        _check_time(schema, values, clock_ms, limits)
    except RecordError as refused:
        return Rejected(refused.code, refused.reason)
    return tuple(values)


def parse_object(record: bytes | None, limits: DecodeLimits) -> JsonObject:
    """The record as one JSON object; raises ``RecordError``."""
    if record is None:
        raise RecordError(DeadCode.NO_VALUE, "the record has no value (null); accepted is one JSON object")
    if len(record) > limits.max_record_bytes:
        raise RecordError(
            DeadCode.TOO_LARGE, f"the record has {len(record)} bytes; at most {limits.max_record_bytes} are accepted"
        )
    try:
        text = record.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(
            DeadCode.NOT_UTF8, f"byte {error.start} (0x{record[error.start]:02x}) is not UTF-8: {error.reason}"
        ) from None
    value = _parse(text, limits.max_depth)
    if not isinstance(value, JsonObject):
        raise RecordError(DeadCode.NOT_AN_OBJECT, f"found {show(value)}; accepted is one JSON object")
    return value


def _parse(text: str, max_depth: int) -> object:
    if text.count("[") + text.count("{") > max_depth and _depth(text) > max_depth:
        raise RecordError(DeadCode.TOO_DEEP, f"the record nests deeper than {max_depth} levels, which is the limit")
    if text.startswith("\ufeff"):
        raise RecordError(DeadCode.NOT_JSON, "the record begins with a byte order mark; accepted is UTF-8 without one")
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=lambda pairs: JsonObject(tuple(pairs)),
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise RecordError(DeadCode.NOT_JSON, f"not JSON: {error.msg} at character {error.pos}") from None
    if "\\u" in text and any(_has_half_surrogate(part) for part in _texts(value)):
        raise RecordError(DeadCode.NOT_UTF8, "a text holds one half of a surrogate pair, which is no Unicode text")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise RecordError(DeadCode.NOT_JSON, f"not JSON: {name} is no JSON number")


def _depth(text: str) -> int:
    """The deepest nesting of brackets outside of texts; of JSON only, of anything else some number."""
    depth = deepest = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if match[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in "]}":
            depth -= 1
    return deepest


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, JsonObject):
        for name, item in value.pairs:
            yield name
            yield from _texts(item)


def _has_half_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _check_names(schema: StreamSchema, pairs: tuple[tuple[str, object], ...], extra_fields: ExtraFields) -> None:
    declared, seen = frozenset(schema.names), set[str]()
    for name, _ in pairs:
        if name in seen and (name in declared or extra_fields is ExtraFields.REJECT):
            raise RecordError(DeadCode.DUPLICATE_FIELD, f"field {_safe(name)} occurs more than once; accepted is once")
        seen.add(name)
    extra = [name for name, _ in pairs if name not in declared]
    if extra and extra_fields is ExtraFields.REJECT:
        raise RecordError(
            DeadCode.EXTRA_FIELD, f"field {_safe(extra[0])} is not declared by stream {schema.name}; see its schema"
        )


def _safe(name: str) -> str:
    return show(name).removeprefix("the text ")


def _check_time(schema: StreamSchema, values: list[Scalar], clock_ms: int, limits: DecodeLimits) -> None:
    event_ms = values[schema.names.index(schema.event_time)]
    if isinstance(event_ms, int) and event_ms > clock_ms + limits.max_future_ms:
        raise RecordError(
            DeadCode.FROM_THE_FUTURE,
            f"field {schema.event_time}: {to_text(event_ms)} is {(event_ms - clock_ms) / 1000:.0f} s ahead of the"
            f" clock ({to_text(clock_ms)}); at most {limits.max_future_ms / 1000:.0f} s are accepted",
        )
