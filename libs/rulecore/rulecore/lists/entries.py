"""Entries of lists as they are written, and as columns hold them.

An entry is a value, ``[value, looked up]`` or ``[value, looked up, expires]``; what is looked up is null in a list
without values, and may be left out with its expiry. A decimal is text or a whole number, or a number of at most 15
digits, which JSON readers keep exactly; times are text with a zone.

Promises: no value makes ``read_entries`` raise anything but ``ListError``, which names the entry by its number from 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import orjson

from rulecore.errors import ListError
from rulecore.lang import ListType
from rulecore.lang.types import MAX_LONG, MIN_LONG, Value, rescale
from rulecore.lists.content import NEVER_MS, Key
from rulecore.values import MAX_TEXT, parse_time_ms, short
from rulecore.yamldoc import Json
from streamcore.schema import Kind, Type

_EXACT_DIGITS = 15  # of a decimal number that survives a double
_PART_BYTES = 128 * 1024  # what parts are made for: at most twice that by growth, far below a record of Kafka
MOST_PARTS = 4_096


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Columns:
    """Entries in physical columns of one length. ``looked_up`` is empty in a list without values."""

    keys: Sequence[Key]
    looked_up: Sequence[Value]
    expires_ms: Sequence[int]


def read_entries(entries: Sequence[object], kind: ListType) -> Columns:
    """The entries of a list of that type, checked."""
    if kind.value is None and kind.of.kind is Kind.STRING and all(type(e) is str for e in entries):
        return Columns([_text(e, n) for n, e in enumerate(entries, 1)], (), [NEVER_MS] * len(entries))
    keys: list[Key] = []
    looked_up: list[Value] = []
    ends: list[int] = []
    for number, entry in enumerate(entries, 1):
        try:
            key, value, end = _entry(entry, kind)
        except ValueError as error:
            raise ListError(f"entry {number}: {error}") from None
        keys.append(key)
        ends.append(end)
        if kind.value is not None:
            looked_up.append(value)
    return Columns(keys, looked_up, ends)


def _text(entry: object, number: int) -> str:
    if not isinstance(entry, str) or len(entry) > MAX_TEXT:
        raise ListError(f"entry {number}: text of more than {MAX_TEXT} characters")
    return entry


def _entry(entry: object, kind: ListType) -> tuple[Key, Value, int]:
    parts = entry if isinstance(entry, list) else [entry]
    if not 1 <= len(parts) <= 3:
        raise ValueError("an entry is a value, [value, looked up] or [value, looked up, expires]")
    key = physical(parts[0], kind.of)
    assert isinstance(key, str | int)
    given = parts[1] if len(parts) > 1 else None
    if kind.value is None and given is not None:
        raise ValueError(f"{short(given)} is to be looked up, and the list declares no type `value`")
    if kind.value is not None and given is None:
        raise ValueError(f"{short(parts[0])} has no value to be looked up; write [value, looked up]")
    value = None if kind.value is None else physical(given, kind.value)
    return key, value, NEVER_MS if len(parts) < 3 else parse_time_ms(parts[2])


def physical(value: object, kind: Type) -> Value:
    """A written value as a column of that type holds it; ``ValueError`` when it is none."""
    match kind.kind, value:
        case Kind.STRING, str() if len(value) <= MAX_TEXT:
            return value
        case Kind.STRING, str():
            raise ValueError(f"text of more than {MAX_TEXT} characters")
        case Kind.BOOLEAN, bool():
            return value
        case Kind.TIMESTAMP, str():
            return parse_time_ms(value)
        case Kind.LONG, int() if not isinstance(value, bool) and MIN_LONG <= value <= MAX_LONG:
            return value
        case Kind.DOUBLE, int() | float() if not isinstance(value, bool) and abs(value) < float("inf"):
            return float(value)
        case Kind.DECIMAL, int() | float() | str() if not isinstance(value, bool):
            return _decimal(value, kind)
        case _, None:
            raise ValueError("null is no entry and no value")
    raise ValueError(f"{short(value)} is no {kind}")


def _decimal(value: int | float | str, kind: Type) -> int:
    text = value if isinstance(value, str) else repr(value)
    try:
        number = Decimal(text) if len(text) <= 40 else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError(f"{short(value)} is no {kind}")
    if isinstance(value, float) and len(number.normalize().as_tuple().digits) > _EXACT_DIGITS:
        raise ValueError(f"{short(value)} has more than {_EXACT_DIGITS} digits; write it in quotes")
    if abs(number.adjusted()) > 40:  # 1e999999 in digits would not end
        raise ValueError(f"{short(value)} does not fit {kind}")
    exact = rescale(number, kind.scale)
    if exact is None or abs(exact) >= 10 ** (kind.precision - kind.scale):
        raise ValueError(f"{short(value)} does not fit {kind}")
    return int(exact.scaleb(kind.scale))


def part_bytes(entries: Sequence[Json]) -> bytes:
    """A part's record."""
    return orjson.dumps({"entries": entries})


def part_digest(data: bytes) -> str:
    """The name of a part: 32 hexadecimal digits (BLAKE2b) over its bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def to_parts(entries: Sequence[Json], parts: int | None = None) -> list[bytes]:
    """The entries as records of so many parts, empty ones left out; by default as many as keep each small.

    A value's hash says its part, and the number of parts is a power of two: who adds or removes an entry replaces one
    part, unless the list doubles.
    """
    written = [(orjson.dumps(e[0] if isinstance(e, list) and e else e), e) for e in entries]
    count = parts or _parts_for(sum(len(orjson.dumps(e)) + 1 for e in entries))
    buckets: list[list[tuple[bytes, Json]]] = [[] for _ in range(count)]
    for key, entry in written:
        hashed = hashlib.blake2b(key, digest_size=8).digest()
        buckets[int.from_bytes(hashed, "little") % count].append((key, entry))
    return [part_bytes([e for _, e in sorted(bucket, key=lambda pair: pair[0])]) for bucket in buckets if bucket]


def _parts_for(size: int) -> int:
    count = 1
    while count * _PART_BYTES < size and count < MOST_PARTS:
        count *= 2
    return count
