"""Decodes one JSON record: the reference, which defines the JSON records that a stream accepts.

A record is strict JSON of RFC 8259 in UTF-8 without a byte order mark: no NaN or infinity, no bytes after the value, no
lone surrogate. It is one object. A name that occurs twice where a field is read makes it ambiguous, so the record is
rejected. A field is null if a name of its path is absent or null; if the value of one is no object, the field has the
wrong type. The reason is the first mistake in the order of ``RejectCode``, and then of the schema's fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn
from zoneinfo import ZoneInfo

from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values, decode_text
from streamcore.decode.scalar.value_counts import ValueCounter
from streamcore.decode.scalar.values import NoObject, Number, ObjectValue, Physical, RecordError, show, show_name
from streamcore.schema import StreamSchema
from streamcore.schema.field_paths import Path, PathTree, format_path

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def decode_one(
    schema: StreamSchema,
    record: bytes | None,
    *,
    clock_ms: int,
    zone: ZoneInfo,
    limits: DecodeLimits,
    extra_fields: ExtraFields,
) -> tuple[Physical, ...] | RejectedRecord:
    """Return the physical values of the schema's fields, in order, or the rejection.

    ``clock_ms``: the cut's clock, in epoch milliseconds. ``zone``: that of the schema.
    """
    try:
        top = parse_object(record, limits)
        _check_names(schema, top, extra_fields)
        found: dict[str, object] = {}
        _find_values(schema, schema.tree, top, (), found)
        counter = ValueCounter(limits.max_record_values)
        for field in schema.fields:
            if field.type.is_nested:
                counter.add_value(field, found.get(field.name))
        return convert_values(schema, found, clock_ms=clock_ms, zone=zone, limits=limits)
    except RecordError as error:
        return RejectedRecord(error.code, error.reason)


def parse_object(record: bytes | None, limits: DecodeLimits) -> ObjectValue:
    """Return the record as one JSON object; raise ``RecordError``."""
    text = decode_text(check_bytes(record, limits, "one JSON object"))
    value = parse_json(text, limits.max_depth)
    if not isinstance(value, ObjectValue):
        raise RecordError(RejectCode.NOT_AN_OBJECT, f"found {show(value)}; accepted is one JSON object")
    return value


def parse_json(text: str, max_depth: int) -> object:
    """Return a JSON value for ``values.convert``; raise ``RecordError``."""
    if text.count("[") + text.count("{") > max_depth and _depth(text) > max_depth:
        raise RecordError(RejectCode.TOO_DEEP, f"the record nests deeper than {max_depth} levels, which is the limit")
    if text.startswith("\ufeff"):
        raise RecordError(
            RejectCode.NOT_JSON, "the record begins with a byte order mark; accepted is UTF-8 without one"
        )
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=lambda pairs: ObjectValue(tuple(pairs)),
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
    elif isinstance(value, ObjectValue):
        for name, item in value.pairs:
            yield name
            yield from _strings(item)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _check_names(schema: StreamSchema, top: ObjectValue, extra_fields: ExtraFields) -> None:
    _check_repeated(schema.tree, top, (), every=extra_fields is ExtraFields.REJECT)
    extra = [name for name, _ in top.pairs if name not in schema.tree.inside]
    if extra and extra_fields is ExtraFields.REJECT:
        raise RecordError(
            RejectCode.EXTRA_FIELD,
            f"field {show_name(extra[0])} is not declared by stream {schema.name}; see its schema",
        )


def _check_repeated(tree: PathTree, value: ObjectValue, outer: Path, *, every: bool) -> None:
    """Reject a name of the tree that an object has twice; with ``every``, any name of this object."""
    seen = set[str]()
    for name, item in value.pairs:
        inner = tree.inside.get(name)
        if name in seen and (inner is not None or every):
            shown = format_path((*outer, name)) if outer else show_name(name)
            raise RecordError(RejectCode.DUPLICATE_FIELD, f"field {shown} occurs more than once; accepted is once")
        seen.add(name)
        if isinstance(inner, PathTree) and isinstance(item, ObjectValue):
            _check_repeated(inner, item, (*outer, name), every=False)


def _find_values(
    schema: StreamSchema, tree: PathTree, value: ObjectValue, outer: Path, found: dict[str, object]
) -> None:
    """Add the values of the tree's fields to ``found``, by field."""
    for name, item in value.pairs:
        inner = tree.inside.get(name)
        if isinstance(inner, int):
            found[schema.fields[inner].name] = item
        elif isinstance(inner, PathTree) and isinstance(item, ObjectValue):
            _find_values(schema, inner, item, (*outer, name), found)
        elif inner is not None and item is not None:
            for number in inner.numbers():
                found[schema.fields[number].name] = NoObject((*outer, name), item)
