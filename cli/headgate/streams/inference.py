"""Writes the stream document of a sample: types, places, event time, id and keys, and as comments what it leaves open.

Whole numbers are ``long``, numbers with few digits behind the point ``decimal`` with room for larger ones, others
``double``; texts are ``timestamp`` only if all are one. What no type fits is a comment. Only event time and id are
``not null``: that a field is in every record of a sample does not mean that later events are wrong without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.errors import InputError
from headgate.streams.observed_fields import MAX_DISTINCT, Observation, ObservedField
from streamcore.schema import MAX_DECIMAL_DIGITS, MAX_FIELDS, TimeUnit, Type
from streamcore.schema.field_paths import MAX_DEPTH, Path, format_path
from streamcore.schema.types import is_field_name, quote_name
from streamcore.timestamps import to_text

_MONEY_SCALE: Final = 4
_ALIGNED: Final = 60
#: Names that say little without that of the object around them.
_GENERIC: Final = frozenset(
    {"type", "id", "name", "key", "value", "status", "code", "count", "kind", "object", "url", "state"}
)
#: An object with more names than this, each in few of the records, is data: a map from ids, for example.
_MANY_NAMES: Final = 64
_RARE: Final = 0.02
#: A field that fewer of the records have is no good key.
_FREQUENT: Final = 0.9
_MAX_NAME: Final = 63
_SHOWN_SYMBOLS: Final = 8
_KAFKA_TIME: Final = "{type: timestamp not null, from: _kafka.timestamp}"
_RECEIVED: Final = ("received", "received_at", "kafka_time", "kafka_timestamp")
#: Of types inside each other, with room for the array around them.
_MAX_DEPTH: Final = MAX_DEPTH - 2
_TIME_WORDS: Final = (
    "event_time",
    "eventtime",
    "timestamp",
    "ts",
    "time",
    "created",
    "published",
    "occurred",
    "date",
    "at",
)
#: What YAML reads as true, false or null.
_YAML_WORDS: Final = frozenset({"y", "yes", "n", "no", "true", "false", "on", "off", "null"})
#: Of so many records it says something that they have different values of a field.
_MANY: Final = 100
_ID_WORDS: Final = ("event_id", "eventid", "id", "uuid", "guid")
_KEY_WORDS: Final = (
    "user",
    "account",
    "customer",
    "actor",
    "principal",
    "login",
    "iban",
    "card",
    "device",
    "session",
    "host",
    "ip",
)


@dataclass(frozen=True, slots=True)
class InferredField:
    """A field of the document. ``unit``: of a time that is a number. ``note``: a comment."""

    name: str
    type: str
    required: bool
    path: Path
    unit: TimeUnit | None
    note: str

    @property
    def entry(self) -> str:
        """The entry of the document."""
        kind = f"{self.type} not null" if self.required else self.type
        is_plain = re.fullmatch(r"[\w<>(), :]*", kind) is not None
        parts = [f"type: {kind if is_plain and ',' not in kind else _quoted(kind)}"]
        if self.path != (self.name,):
            parts.append(f"from: {_yaml(format_path(self.path))}")
        if self.unit not in (None, TimeUnit.MILLISECONDS):
            parts.append(f"unit: {self.unit}")
        alone = kind if is_plain else _quoted(kind)
        return f"{_yaml(self.name)}: " + (alone if len(parts) == 1 else f"{{{', '.join(parts)}}}")


@dataclass(frozen=True, slots=True)
class InferredStream:
    """The document as text. ``problem``: why it is not complete; empty if it is."""

    text: str
    problem: str = ""


def infer(
    observation: Observation, name: str, source: str, *, from_topic: bool = False, written: bool = False
) -> InferredStream:
    """Return the document of a sample. ``source``: where the sample is from, for the first comment. ``from_topic``:
    records have the time of Kafka, which is the event time if no field is. ``written``: with schemas.

    Raises ``InputError`` if no record can be read.
    """
    count = observation.objects
    if not count:
        place, reason = observation.bad[0] if observation.bad else (source, "it is empty")
        hint = "" if written or not from_topic else "; say with --settings or --registry how they are written"
        what = "can be read" if written else "is a JSON object"
        if reason.startswith("not JSON"):
            hint += (
                "; the fields of logs are the columns of their format, see docs/formats.md (access-log, syslog, ...)"
            )
        raise InputError(f"no record of the sample {what}: {place}: {reason}{hint}")
    maps = _maps(observation, count)
    closed = {*maps, *(path for path, one in observation.fields.items() if one.values or _declared(one))}
    known = [
        one for path, one in observation.fields.items() if not any(path[:n] in closed for n in range(1, len(path)))
    ]
    typed = [(one, kind) for one in known if (kind := _type(one) or _map_type(one, maps, observation))]
    names = _names([one.path for one, _ in typed])
    fields = [
        InferredField(names[one.path], kind, False, one.path, _infer_unit(one, kind), _note(one, count))
        for one, kind in typed
    ][:MAX_FIELDS]
    by_path = {one.path: one for one in known}
    always = [f for f in fields if by_path[f.path].present - by_path[f.path].nulls == count]
    times = [f.name for f in _ranked((f for f in always if f.type == "timestamp"), _TIME_WORDS)]
    problem = "" if times else _no_time(known)
    received = next(name for name in _RECEIVED if all(f.name.lower() != name for f in fields))
    ids, keys = _event_ids(always, by_path, count), _keys(fields, by_path, count)
    fields = [replace(field, required=field.name in (*times[:1], *ids[:1])) for field in fields]
    unread = "cannot be read" if observation.schemas else "are no JSON objects"
    bad = f", {len(observation.bad):,} more {unread}" if observation.bad else ""
    lines = [
        f"# From {_printable(source)}: {count:,} {'record' if count == 1 else 'records'}{bad}.",
        *_schemas(observation),
        f"name: {name}",
        *([f"envelope: {observation.envelope}"] if observation.envelope else []),
        _event_time(times, problem, received if from_topic else ""),
        *([f"event_id: {_yaml(ids[0])}{_or(ids[1:])}"] if ids else []),
        f"keys: [[{_yaml(keys[0])}]]{_or(keys[1:])}"
        if keys
        else f"keys: [[]]  # no key found: all events go to one shard{_repeating(fields, by_path, count)}",
        "fields:",
    ]
    width = max((len(field.entry) for field in fields if len(field.entry) < _ALIGNED), default=0)
    entry = f"{received}: {_KAFKA_TIME}"
    lines += [f"  {entry:{width}}  # the time of the record in Kafka"] if from_topic and not times else []
    lines += [f"  {field.entry:{width}}  # {field.note}" for field in fields]
    lines += _left_out(known, maps, observation)
    return InferredStream("\n".join(lines) + "\n", "" if from_topic else problem)


def _event_time(times: Sequence[str], problem: str, received: str) -> str:
    """Return the line with the event time. ``received``: the field of the time in Kafka, if records have it."""
    if times:
        return f"event_time: {_yaml(times[0])}{_or(times[1:4])}"
    return f"event_time: {received}  # {problem}" if received else f"event_time:  # {problem}"


def _no_time(known: Sequence[ObservedField]) -> str:
    """Return why no field is the event time."""
    some = [f"{_printable(format_path(o.path))} ({o.times:,} of {o.values:,} values)" for o in known if o.times]
    near = f"; {', '.join(some[:3])} has some" if some else ""
    own = f"of records in a topic the time of Kafka can be one: received: {_KAFKA_TIME}"
    other = "a text in another form, such as 31/01/2026 10:17, needs a pattern (docs/formats.md)"
    return f"no field has a time in every record, as ISO 8601 text or a number since 1970{near}; {other}; {own}"


def _schemas(observation: Observation) -> Iterator[str]:
    """Yield comments on the schemas of the records, and on the kinds that they describe if there are several."""
    if observation.schemas:
        yield f"# Written with {', '.join(f'{name} ({n:,})' for name, n in observation.schemas.most_common())}."
    if len(observation.kinds) > 1:
        shown = ", ".join(f"{_printable(name) or 'no name'} ({n:,})" for name, n in observation.kinds.most_common())
        yield f"# Records of several kinds: {shown}. A stream for each has"
        yield "# `when: {from: _schema.name, equals: NAME}` and the fields of its kind alone."


def _declared(one: ObservedField) -> str:
    """Return the type that fits the schemas of all records, or nothing."""
    kind = None if one.shape is None else one.shape.type()
    return "" if kind is None else str(kind)


def _type(one: ObservedField) -> str:
    """Return the type that fits the schemas of all records, if they have it, or else all values; or nothing.

    Values decide what a schema leaves open: whether a number or a text is a time.
    """
    kind = None if one.shape is None else one.shape.type()
    if one.shape is None or (kind is None and one.shape.is_of_json):
        return _observed_type(one)
    if kind is None or not one.values:
        return "" if kind is None else str(kind)
    observed = _observed_type(one)
    return observed if observed and one.shape.is_refined(kind, Type.parse(observed).kind) else str(kind)


def _observed_type(one: ObservedField) -> str:
    """Return the type that fits all values, or nothing."""
    values = one.values
    if one.arrays and one.arrays == values and not one.objects:
        element = _inner_type(one.elements, 1)
        return f"array<{element}>" if element else ""
    if not values or one.arrays or one.objects:
        return ""
    if one.booleans == values:
        return "boolean"
    if one.texts == values:
        if not one.units:
            return "timestamp" if one.times == values else "string"
        return "timestamp" if _unit(one) not in (None, TimeUnit.MILLISECONDS) else "string"
    if one.numbers != values:
        return ""
    if one.wholes == values and not one.large:
        return "timestamp" if _unit(one) is not None else "long"
    if one.exponents or one.large or one.scale > _MONEY_SCALE:
        return "double"
    scale = max(2, one.scale)
    digits = min(MAX_DECIMAL_DIGITS, one.digits + scale + 3)  # larger values will come
    return f"decimal({digits},{scale})"


def _inner_type(one: ObservedField | None, depth: int) -> str:
    """Return the type that fits all values in arrays, or nothing."""
    if one is None or depth > _MAX_DEPTH:
        return ""
    if not one.objects or one.values:
        kind = _type(one)
        if kind == "timestamp" and not one.texts and _unit(one) is not TimeUnit.MILLISECONDS:
            return "long"  # a value in an array has no unit of its own
        return kind
    members = [
        (name, kind)
        for name, inner in one.members.items()
        if is_field_name(name) and (kind := _inner_type(inner, depth + 1))
    ]
    if len(one.members) > _MANY_NAMES:
        kinds = {kind for _, kind in members}
        return f"map<string,{kinds.pop()}>" if len(kinds) == 1 and len(members) == len(one.members) else ""
    by_lower = {name.lower(): f"{quote_name(name)}:{kind}" for name, kind in members}
    return f"struct<{', '.join(by_lower.values())}>" if len(by_lower) == len(members) and members else ""


def _map_type(one: ObservedField, maps: Sequence[Path], observation: Observation) -> str:
    """Return the type of a map if this is an object whose names are data and whose values are of one type."""
    if one.path not in maps or one.values:
        return ""
    inside = [field for path, field in observation.fields.items() if path[:-1] == one.path]
    kinds = {_inner_type(field, 1) for field in inside if field.present > field.nulls}
    return f"map<string,{kinds.pop()}>" if len(kinds) == 1 and not observation.left_out and "" not in kinds else ""


def _infer_unit(one: ObservedField, kind: str) -> TimeUnit | None:
    return _unit(one) if kind == "timestamp" else None


def _unit(one: ObservedField) -> TimeUnit | None:
    """Return the unit in which all numbers are times, if the name of the field says that they are."""
    for unit, count in one.units.items():
        if count == one.values and _is_time(one.path[-1]):
            return unit
    return None


def _is_time(name: str) -> bool:
    words = _words(name)
    return any(word in words or name.lower().endswith(word) for word in (*_TIME_WORDS, "ms"))


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().replace("-", "_").replace("@", "").split("_")


def _note(one: ObservedField, count: int) -> str:
    share = (one.present - one.nulls) / count
    parts = [f"{share:.0%}" if share in (0, 1) or share >= 0.01 else "below 1%"]
    if one.shape is not None and one.shape.optional:
        parts.append("optional")
    if one.shape is not None and one.shape.symbols:
        parts.append(f"one of {_shorten(one.shape.symbols)}")
    elif one.arrays:
        parts.append(f"up to {one.longest:,} elements")
    elif one.shape is not None and not one.values:
        pass
    elif one.objects:
        parts.append("an object whose names are data")
    elif one.earliest_ms is not None and one.latest_ms is not None and one.times == one.values:
        parts.append(f"{to_text(one.earliest_ms)[:10]} to {to_text(one.latest_ms)[:10]}")
    else:
        distinct = len(one.distinct)
        some = "1 value" if distinct == 1 else f"{distinct:,} values"
        if distinct == one.values == count >= _MANY:
            is_id = _observed_type(one) in ("string", "long")
            parts.append("all different: perhaps the event_id" if is_id else "all different")
        else:
            parts.append(some if distinct < MAX_DISTINCT else f"{MAX_DISTINCT:,} values or more")
        if one.example and not one.booleans:
            parts.append(f"such as {_printable(one.example[:40])}")
    return ", ".join(parts)


def _shorten(symbols: Sequence[str]) -> str:
    more = [f"{len(symbols) - _SHOWN_SYMBOLS:,} more"] if len(symbols) > _SHOWN_SYMBOLS else []
    return ", ".join([*map(_printable, symbols[:_SHOWN_SYMBOLS]), *more])


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each path: its last name, with those before it where it is not the only one."""
    found: dict[Path, str] = {}
    open_paths = [*paths]
    for length in range(1, max(map(len, paths), default=0) + 1):
        by_name: dict[str, list[Path]] = {}
        for path in open_paths:
            if length == 1 < len(path) and path[-1].lower() in _GENERIC:
                continue
            by_name.setdefault(_identifier("_".join(path[-length:])).lower(), []).append(path)
        taken = {name.lower() for name in found.values()}
        for name, alike in by_name.items():
            if name in taken:
                continue
            shortest = [path for path in alike if len(path) == length] or alike
            if len(alike) == 1 or len(shortest) == 1:
                found[shortest[0]] = _identifier("_".join(shortest[0][-length:]))
        open_paths = [path for path in open_paths if path not in found]
    taken = {name.lower() for name in found.values()}
    for path in open_paths:  # as names that differ in their signs only
        base, number = _identifier("_".join(path)), 2
        while f"{base}_{number}".lower() in taken:
            number += 1
        found[path] = f"{base[: _MAX_NAME - 4]}_{number}"
        taken.add(found[path].lower())
    return found


def _identifier(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_") or "field"
    return (f"f_{name}" if name[0].isdigit() else name)[:_MAX_NAME]


def _maps(observation: Observation, count: int) -> list[Path]:
    """Return the paths of objects whose names are data."""
    inside: dict[Path, list[ObservedField]] = {}
    for path, one in observation.fields.items():
        inside.setdefault(path[:-1], []).append(one)
    return [
        path
        for path, fields in inside.items()
        if path and len(fields) > _MANY_NAMES and max(f.present for f in fields) < max(2, _RARE * count)
    ]


def _ranked(fields: Iterable[InferredField], words: Sequence[str]) -> list[InferredField]:
    """Return the fields in order of how well their names fit, those at the top first among equals."""

    def rank(one: InferredField) -> tuple[int, int]:
        name, own = one.path[-1].lower(), _words(one.path[-1])
        fits = [n for n, word in enumerate(words) if word in own or name.endswith(word)]
        return (min(fits, default=len(words)), len(one.path))

    return sorted(fields, key=rank)


def _event_ids(fields: Sequence[InferredField], by_path: dict[Path, ObservedField], count: int) -> list[str]:
    """Return the fields that have another text in each record, if their names say that they are ids."""
    unique = [f for f in fields if f.type == "string" and len(by_path[f.path].distinct) == min(count, MAX_DISTINCT)]
    named = [f for f in unique if any(word in _words(f.name) for word in ("id", "uuid", "guid", "key"))]
    return [f.name for f in _ranked(named, _ID_WORDS)][:3] if count > 1 else []


def _keys(fields: Sequence[InferredField], by_path: dict[Path, ObservedField], count: int) -> list[str]:
    """Return the fields that events may be grouped by: texts and numbers that repeat, with the name of a thing; first
    those that most records have, and that have several values."""
    repeated = _repeated(fields, by_path)
    things = _ranked((f for f in repeated if _is_thing(_words(f.path[-1]))), _KEY_WORDS)

    def is_poor(one: InferredField) -> tuple[bool, bool]:
        seen = by_path[one.path]
        return seen.values < _FREQUENT * count, len(seen.distinct) < 2

    return [f.name for f in sorted(things, key=is_poor)][:4] if count > 1 else []


def _repeated(fields: Sequence[InferredField], by_path: dict[Path, ObservedField]) -> list[InferredField]:
    """Return the texts and numbers that repeat."""
    return [
        f
        for f in fields
        if f.type in ("string", "long") and len(by_path[f.path].distinct) < max(3, by_path[f.path].values)
    ]


def _repeating(fields: Sequence[InferredField], by_path: dict[Path, ObservedField], count: int) -> str:
    """Return the end of a comment that names fields which may be a key, whatever their names say: most records have
    them, with several values that repeat."""
    seen = [(f, by_path[f.path]) for f in _repeated(fields, by_path)]
    names = [f.name for f, one in seen if one.values >= _FREQUENT * count and 1 < len(one.distinct) <= one.values // 2]
    return f"; these repeat: {', '.join(map(_yaml, names[:4]))}" if names else ""


def _is_thing(words: Sequence[str]) -> bool:
    return "agent" not in words and (words[-1] == "id" or any(word in words for word in _KEY_WORDS))


def _left_out(known: Sequence[ObservedField], maps: Sequence[Path], observation: Observation) -> list[str]:
    count, more = observation.objects, observation.left_out
    notes = []
    for one in known:
        place = _printable(format_path(one.path))
        if _type(one) or _map_type(one, maps, observation):
            notes += [f"#   {place}[]{path}: no name of a member" for path in _unusable(one.elements)]
            continue
        if one.shape is not None and not one.shape.is_of_json:
            notes.append(f"#   {place}: {_printable(one.shape.shown) or 'null'}: no type of a stream fits")
        elif one.path in maps:
            notes.append(f"#   {place}: an object whose names are data")
        elif one.arrays and one.arrays == one.values and not one.objects:
            of = "no type fits all its elements" if one.longest else "always empty"
            notes.append(f"#   {place}: an array in {one.arrays / count:.0%} of the records: {of}")
        elif one.present == one.nulls:
            notes.append(f"#   {place}: always null")
        elif one.values:
            kinds = {
                "true or false": one.booleans,
                "numbers": one.numbers,
                "text": one.texts,
                "arrays": one.arrays,
                "objects": one.objects,
            }
            shown = ", ".join(f"{kind} ({n:,})" for kind, n in kinds.items() if n)
            notes.append(f"#   {place}: {shown}: no type fits all")
    if more:
        notes.append(f"#   and {more:,} values at further paths, which were not looked at")
    return ["# Not declared, and ignored in events:", *notes] if notes else []


def _unusable(one: ObservedField | None) -> Iterator[str]:
    """Yield the paths of members in an array whose names no member may have."""
    for name, inner in one.members.items() if one is not None else ():
        place = f".{_printable(name)}"
        if not is_field_name(name):
            yield place
        else:
            yield from (place + path for path in _unusable(inner))
            yield from (f"{place}[]{path}" for path in _unusable(inner.elements))


def _or(others: Sequence[str]) -> str:
    return f"  # or {', '.join(others)}" if others else ""


def _yaml(text: str) -> str:
    """Return a text as YAML, in quotes where it would be something else without."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text) and text.lower() not in _YAML_WORDS:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    """Return a text in the quotes of YAML."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'


def _printable(text: str) -> str:
    """Return a text for a comment."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
