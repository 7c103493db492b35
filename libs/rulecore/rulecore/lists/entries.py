"""Reads the entries of lists, and converts them to physical columns.

A written entry is a value, ``[value, lookup]`` or ``[value, lookup, expires]``, where ``lookup`` is the value that the
entry maps to: null in a list without values. A decimal is text or a whole number, or a number of at most 15
digits, which JSON readers keep exactly; times are text with a zone, or null for never.

Promises: no value makes ``read_entries`` raise anything but ``ListError``, which names the entry by its number from 1.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeVar

import orjson

from rulecore.documents.scalars import MAX_TEXT, abbreviate, parse_time_ms
from rulecore.documents.yaml_reader import Json
from rulecore.errors import ListError
from rulecore.language import ListType
from rulecore.language.types import MAX_LONG, MIN_LONG, Value, rescale
from rulecore.lists.keys import NEVER_MS, Key
from streamcore.schema import Kind, Type

T = TypeVar("T")
_FIELDS = 3
_PLAIN = re.compile(r"(-?)([0-9]{1,18})(?:\.([0-9]{1,18}))?\Z")  # the usual form of a decimal
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]{1,3})?\Z")
_EXACT_DIGITS = 15  # every decimal number with so many digits survives the conversion to a double
_PART_BYTES = 128 * 1024  # the largest average size of a part, far below the limit of a Kafka record
MOST_PARTS = 4_096


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class EntryColumns:
    """Entries in physical columns of one length. ``lookup_values`` is empty in a list without values."""

    keys: Sequence[Key]
    lookup_values: Sequence[Value]
    expires_ms: Sequence[int]


def read_entries(entries: Sequence[object], kind: ListType) -> EntryColumns:
    """Check the entries of a list of that type, and return them as columns."""
    rows = [entry if isinstance(entry, list) else [entry] for entry in entries]
    for number, row in enumerate(rows, 1):
        if not 1 <= len(row) <= _FIELDS:
            raise ListError(f"entry {number}: an entry is a value, [value, lookup] or [value, lookup, expires]")
    values = [row[1] if len(row) > 1 else None for row in rows]
    ends = [row[2] if len(row) > 2 else None for row in rows]
    keys: list[Key] = _convert_values([row[0] for row in rows], kind.of)  # type: ignore[assignment]
    if kind.value is not None:
        return EntryColumns(keys, _convert_values(values, kind.value, "lookup: "), _ends(ends))
    for number, value in enumerate(values, 1):
        if value is not None:
            raise ListError(
                f"entry {number}: {abbreviate(value)} is a lookup value, but the list declares no type `value`"
            )
    return EntryColumns(keys, (), _ends(ends))


def _convert_values(values: list[object], kind: Type, prefix: str = "") -> list[Value]:
    """Return the physical values of written values. ``prefix``: of the message of an error."""
    if _are_physical(values, kind):
        return values  # type: ignore[return-value]
    return [_read_entry(number, value, lambda v: physical(v, kind), prefix) for number, value in enumerate(values, 1)]


def _are_physical(values: list[object], kind: Type) -> bool:
    """Return whether all are valid texts of a string type, or valid longs, and need no conversion."""
    types = set(map(type, values))
    if kind.kind is Kind.STRING and types == {str}:
        return max(map(len, values)) <= MAX_TEXT  # type: ignore[arg-type]
    if kind.kind is Kind.LONG and types == {int}:
        return min(values) >= MIN_LONG and max(values) <= MAX_LONG  # type: ignore[type-var, operator]
    return False


def _ends(values: list[object]) -> list[int]:
    if not any(values):
        return [NEVER_MS] * len(values)
    return [
        NEVER_MS if value is None else _read_entry(number, value, parse_time_ms, "expires: ")
        for number, value in enumerate(values, 1)
    ]


def _read_entry(number: int, value: object, read: Callable[[object], T], prefix: str) -> T:
    """Return ``read(value)``; raise ``ListError`` with the number of the entry if that raises ``ValueError``."""
    try:
        return read(value)
    except ValueError as error:
        raise ListError(f"entry {number}: {prefix}{error}") from None


def physical(value: object, kind: Type) -> Value:
    """Return the physical value of a written value; raise ``ValueError`` if it is no value of that type."""
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
            raise ValueError("null is not accepted")
    raise ValueError(f"{abbreviate(value)} is no {kind}")


def _decimal(value: int | float | str, kind: Type) -> int:
    """Return the value's digits at the type's scale."""
    plain = _PLAIN.match(value) if isinstance(value, str) else None
    if plain is not None and len(plain[3] or "") <= kind.scale and len(plain[2]) <= kind.precision - kind.scale:
        return int(plain[1] + plain[2] + (plain[3] or "").ljust(kind.scale, "0"))
    text = value if isinstance(value, str) else repr(value)
    try:
        number = Decimal(text) if len(text) <= 40 and _NUMBER.match(text) else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError(f"{abbreviate(value)} is no {kind}")
    if isinstance(value, float) and len(number.normalize().as_tuple().digits) > _EXACT_DIGITS:
        raise ValueError(f"{abbreviate(value)} has more than {_EXACT_DIGITS} digits; write it in quotes")
    if abs(number.adjusted()) > 40:  # 1e999999 would become a million digits
        raise ValueError(f"{abbreviate(value)} does not fit {kind}")
    exact = rescale(number, kind.scale)
    if exact is None or abs(exact) >= 10 ** (kind.precision - kind.scale):
        raise ValueError(f"{abbreviate(value)} does not fit {kind}")
    return int(exact.scaleb(kind.scale))


def part_bytes(entries: Sequence[Json]) -> bytes:
    """Return a part's record."""
    return orjson.dumps({"entries": entries})


def part_digest(data: bytes) -> str:
    """Return the name of a part: 32 hexadecimal digits (BLAKE2b) over its bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def to_parts(entries: Sequence[Json], parts: int | None = None) -> list[bytes]:
    """Distribute the entries over ``parts`` parts, and return the record of each part that is not empty.

    By default the number of parts keeps their average size below ``_PART_BYTES``.

    A value's hash selects its part, and the number of parts is a power of two: adding or removing an entry replaces one
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
