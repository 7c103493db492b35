"""The schema of a stream's events: names, types, keys and the event time.

A schema is a value. It is declared once per stream (YAML or code), travels to the workers with the plan, and
is the only thing that decoding, rules and tests need to agree on. It knows neither Spark nor Kafka.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamcore.durations import parse_duration_ms, render_duration
from streamcore.errors import ConfigError
from streamcore.schema.field_paths import Path, PathTree, build_tree, format_path, parse_path
from streamcore.schema.record_places import EXTRA_FIELDS, KAFKA, Envelope, KafkaValue, StreamCondition, check_place
from streamcore.schema.time_patterns import TimePattern
from streamcore.schema.types import (
    ACCEPTED_NAMES,
    BOOLEAN,
    LONG,
    MAX_FIELDS,
    STRING,
    TIMESTAMP,
    Kind,
    Type,
    is_field_name,
)

if TYPE_CHECKING:  # a schema is read, and a record checked against it, without Arrow
    import pyarrow as pa

MAX_VERSION = 2**53 - 1
MAX_DEDUPLICATE_MS = 10 * 365 * 86_400_000
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
#: Between the names of the streams of a union.
UNION: Final = "+"

#: Columns that the engine adds to every decoded event; a stream may not declare them.
PARTITION = "__partition"  # int32: index of (topic, partition) in the app's source list
OFFSET = "__offset"  # int64: Kafka offset in that partition
EVENT_MS = "__event_ms"  # int64: event time, epoch milliseconds
ENGINE_COLUMNS = (PARTITION, OFFSET, EVENT_MS)


class TimeUnit(enum.StrEnum):
    """The unit of numbers that are times since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def word(self) -> str:
        """The unit in a message."""
        return self.name.lower()


#: The types of an ``event_id`` by which duplicates are found.
_ID_KINDS = (Kind.STRING, Kind.LONG, Kind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Field:
    """One column. A missing or null value of a field that is not ``nullable`` makes the decoder reject the event.

    ``path``: where the value is in a record, as names of objects in objects; by default in the member of this name.
    ``unit``: that of a timestamp which is a number. ``pattern``: of a timestamp that is a text in another form than
    ISO 8601 (``streamcore.schema.time_patterns``); every value is then such a text.
    """

    name: str
    type: Type
    nullable: bool = True
    path: Path = ()
    unit: TimeUnit = TimeUnit.MILLISECONDS
    pattern: str = ""

    @property
    def location(self) -> Path:
        """The path in a record."""
        return self.path or (self.name,)

    @property
    def label(self) -> str:
        """The name for messages, with the path if that is another one."""
        return f"{self.name} (from {format_path(self.path)})" if self.path else self.name


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """One stream.

    ``event_time`` names a non-null timestamp field. ``keys`` are the keys that events are routed by: each is a
    tuple of field names. An app may have further ones.
    The empty key ``()`` routes every event to one shard. ``has_keys``: whether the stream file names keys, which a
    rules app needs; without them there is the empty key. ``zone`` is the IANA zone of timestamps written without an
    offset. ``envelope``: what the records have around the events. ``when``: which records of the topic are
    events of the stream; None: all, or those that no other stream of the topic takes. ``is_part``: the fields in the
    values of records alone (``streamcore.schema.record_layout``), perhaps without the event time and without keys.

    ``deduplicate_ms``: of events with equal ``event_id`` and event times at most this far apart, only the first is
    used; None: each is. An event without an id repeats none. ``time_fallback``: whether the event time of an event
    without a value of ``event_time`` is the timestamp of its record. ``version``: of the document, which its author
    raises with each change; schemas that differ in nothing else are equal.
    """

    name: str
    fields: tuple[Field, ...]
    event_time: str
    keys: tuple[tuple[str, ...], ...]
    event_id: str | None = None
    zone: str = "UTC"
    envelope: Envelope | None = None
    when: StreamCondition | None = None
    is_part: bool = False
    deduplicate_ms: int | None = None
    time_fallback: bool = False
    version: int = dataclasses.field(default=1, compare=False)
    has_keys: bool = dataclasses.field(default=True, compare=False)
    #: What is read of a record; the numbers are those of ``fields``.
    tree: PathTree = dataclasses.field(init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        """Return a hash of a few entries: caches ask for it with each alert, and that of all costs 14 times as much."""
        return hash((self.name, self.event_time, self.keys, len(self.fields)))

    def __post_init__(self) -> None:
        if not all(map(_NAME.match, self.name.split(UNION))):
            raise ConfigError(f"stream name {self.name!r}: use a-z, 0-9 and _, at most 63")
        if self.is_part:
            self._check_fields()
            return
        if not self.fields or len(self.fields) > MAX_FIELDS:
            raise ConfigError(f"stream {self.name}: between 1 and {MAX_FIELDS} fields")
        self._check_fields()
        self._check_places()
        time = self.get(self.event_time)
        if time is None or time.type != TIMESTAMP or time.nullable:
            raise ConfigError(f"stream {self.name}: event_time {self.event_time!r} must be a non-null timestamp field")
        if not self.keys and UNION not in self.name:
            raise ConfigError(f"stream {self.name}: at least one key; [] routes everything to one shard")
        for key in self.keys:
            if missing := [k for k in key if self.get(k) is None]:
                raise ConfigError(f"stream {self.name}: key {list(key)} names unknown fields {missing}")
        if self.event_id is not None and self.get(self.event_id) is None:
            raise ConfigError(f"stream {self.name}: event_id {self.event_id!r} is no field")
        for name in {self.event_id, *(column for key in self.keys for column in key)}:
            if (field := self.get(name or "")) is not None and field.type.is_nested:
                raise ConfigError(
                    f"stream {self.name}: {name} is {field.type}, which is no key and no id; "
                    "declare the value in it as a field of its own, with from:"
                )
        self._check_deduplicate()

    def _check_deduplicate(self) -> None:
        if self.deduplicate_ms is None:
            return
        event_id = None if self.event_id is None else self.get(self.event_id)
        if event_id is None:
            raise ConfigError(f"stream {self.name}: deduplicate needs event_id, the field that identifies an event")
        if event_id.type.kind not in _ID_KINDS:
            raise ConfigError(
                f"stream {self.name}: deduplicate: event_id {event_id.name} is a {event_id.type}, and two of them are "
                f"not surely equal; use one of {', '.join(_ID_KINDS)}"
            )
        if not 0 < self.deduplicate_ms <= MAX_DEDUPLICATE_MS:
            raise ConfigError(
                f"stream {self.name}: deduplicate: {self.deduplicate_ms} ms: from 1ms to "
                f"{render_duration(MAX_DEDUPLICATE_MS)}; leave the line out to use each event"
            )

    def _check_fields(self) -> None:
        names = [f.name for f in self.fields]
        for name in names:
            if not is_field_name(name):
                raise ConfigError(f"stream {self.name}: field name {name!r}: {ACCEPTED_NAMES}")
        by_lower: dict[str, str] = {}
        for name in names:
            other = by_lower.setdefault(name.lower(), name)
            if other != name:
                raise ConfigError(
                    f"stream {self.name}: {other} and {name} are one name, for rules ignore upper and lower case"
                )
        if len(by_lower) != len(names):
            raise ConfigError(f"stream {self.name}: a field is declared twice")
        try:
            object.__setattr__(self, "tree", build_tree(f.location for f in self.fields))
        except ConfigError as error:
            raise ConfigError(f"stream {self.name}: {error}") from None

    def _check_places(self) -> None:
        try:
            for field in (*self.fields, *(self.discriminator(self.when).fields if self.when is not None else ())):
                check_place(field.label, field.location, str(field.type), self.envelope)
                if field.location == EXTRA_FIELDS and not field.nullable:
                    raise ConfigError(f"field {field.label}: an event may have no extra fields; leave out not null")
        except ConfigError as error:
            raise ConfigError(f"stream {self.name}: {error}") from None

    def discriminator(self, when: StreamCondition) -> StreamSchema:
        """Return the schema of the value that ``when`` reads: one field, ``value``, in the envelope of the stream."""
        kind = {str: STRING, int: LONG, bool: BOOLEAN}[type(when.equals[0])]
        if when.path[0] == KAFKA and when.path[1:2] == (KafkaValue.TIMESTAMP,):
            raise ConfigError("when: a timestamp tells no streams apart; name another place")
        field = Field("value", kind, path=() if when.path == ("value",) else when.path)
        return StreamSchema(self.name, (field,), "", (), zone=self.zone, envelope=self.envelope, is_part=True)

    def get(self, name: str) -> Field | None:
        """Return the field of that name, or None."""
        return next((f for f in self.fields if f.name == name), None)

    def at(self, name: str) -> Field | None:
        """Return the field that is the member of this name of a record, not inside of an object; or None."""
        return next((f for f in self.fields if f.location == (name,)), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Field names in declaration order."""
        return tuple(f.name for f in self.fields)

    @property
    def places(self) -> dict[str, str]:
        """The path in a record of each field that has another one than its name."""
        return {f.name: format_path(f.path) for f in self.fields if f.path}

    @property
    def arrow(self) -> pa.Schema:
        """The physical schema of a decoded event: the declared fields, then the engine's columns."""
        import pyarrow as pa

        declared = [pa.field(f.name, f.type.arrow) for f in self.fields]
        engine = [
            pa.field(PARTITION, pa.int32()),
            pa.field(OFFSET, pa.int64()),
            pa.field(EVENT_MS, pa.int64()),
        ]
        return pa.schema(declared + engine)

    def routing_key(self, group_by: Iterable[str]) -> tuple[str, ...]:
        """Return the key by which events are routed so that those with equal values of ``group_by`` meet in one shard:
        the first declared key whose fields are all in it, or all of it."""
        columns = tuple(group_by)
        return next((key for key in self.keys if {*columns}.issuperset(key)), columns)

    @classmethod
    def parse(cls, document: Mapping[str, object]) -> StreamSchema:
        """Read the mapping of a stream file (``streams/*.yaml``); ``ConfigError`` names the error."""
        known = {"name", "version", "fields", "event_time", "keys", "event_id", "zone", "envelope", "when"}
        known |= {"deduplicate"}
        if unknown := set(document) - known:
            raise ConfigError(f"stream: unknown entries {sorted(map(str, unknown))}; known are {sorted(known)}")
        name, fields, keys = document.get("name"), document.get("fields"), document.get("keys")
        if not isinstance(name, str) or not isinstance(fields, Mapping):
            raise ConfigError("stream: needs name (text) and fields (name: type)")
        if not isinstance(keys, list) and keys is not None:
            raise ConfigError(f"stream {name}: keys is a list of lists of field names")
        if UNION in name:
            raise ConfigError(f"stream name {name!r}: use a-z, 0-9 and _, at most 63")
        event_id, zone = document.get("event_id"), document.get("zone", "UTC")
        event_time, time_fallback = _parse_event_time(name, document.get("event_time", ""))
        envelope, when = document.get("envelope"), document.get("when")
        if envelope is not None and envelope not in [*Envelope]:
            raise ConfigError(f"stream {name}: envelope {envelope!r}: there are {', '.join(Envelope)}")
        deduplicate, version = document.get("deduplicate"), document.get("version", 1)
        if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= MAX_VERSION:
            raise ConfigError(f"stream {name}: version {version!r}: a whole number from 1, raised with each change")
        return cls(
            name=name,
            fields=tuple(_parse_field(str(k), v) for k, v in fields.items()),
            event_time=event_time,
            time_fallback=time_fallback,
            keys=tuple(tuple(str(c) for c in key) if isinstance(key, list) else (str(key),) for key in keys)
            if keys is not None
            else ((),),
            has_keys=keys is not None,
            event_id=None if event_id is None else str(event_id),
            zone=str(zone),
            envelope=None if envelope is None else Envelope(str(envelope)),
            when=None if when is None else StreamCondition.parse(when),
            deduplicate_ms=None if deduplicate is None else _parse_horizon(name, deduplicate),
            version=version,
        )


def _parse_horizon(stream: str, text: object) -> int:
    """Read the horizon of ``deduplicate``, such as ``24h``."""
    try:
        return parse_duration_ms(str(text))
    except ValueError as error:
        raise ConfigError(f"stream {stream}: deduplicate: {error}") from None


def _parse_event_time(stream: str, document: object) -> tuple[str, bool]:
    """Read ``event_time``: the name of a field, or an object of ``field`` and ``fallback: kafka``."""
    if not isinstance(document, Mapping):
        return str(document), False
    if set(document) != {"field", "fallback"} or document["fallback"] != "kafka":
        raise ConfigError(
            f"stream {stream}: event_time: the name of a field, or {{field: NAME, fallback: kafka}}, which takes the "
            "timestamp of the record where the field has no value"
        )
    return str(document["field"]), True


def _parse_field(name: str, document: object) -> Field:
    """Read ``type`` or ``type not null``, or an object of this ``type``, the path ``from`` and the ``unit``."""
    path: Path = ()
    text, unit, pattern = document, None, None
    if isinstance(document, Mapping):
        if unknown := set(document) - {"type", "from", "unit", "pattern"}:
            raise ConfigError(
                f"field {name}: unknown entries {sorted(map(str, unknown))}; known are type, from, unit, pattern"
            )
        text, source, unit = document.get("type"), document.get("from"), document.get("unit")
        pattern = document.get("pattern")
        if source is not None:
            if not isinstance(source, str):
                raise ConfigError(f"field {name}: from must be a path, such as customer.id")
            path = parse_path(source)
    if not isinstance(text, str):
        raise ConfigError(f"field {name}: the type must be text, such as 'decimal(12,2) not null'")
    bare = text.strip()
    nullable = not bare.endswith(" not null")
    kind = Type.parse(bare if nullable else bare.removesuffix(" not null"))
    if unit is not None and (kind != TIMESTAMP or unit not in [*TimeUnit]):
        raise ConfigError(f"field {name}: unit {unit!r}: a timestamp may have one of {', '.join(TimeUnit)}")
    if pattern is not None:
        _check_pattern(name, kind, pattern, unit)
    place: Path = () if path == (name,) else path
    return Field(name, kind, nullable, place, TimeUnit(unit or TimeUnit.MILLISECONDS), str(pattern or ""))


def _check_pattern(name: str, kind: Type, pattern: object, unit: object) -> None:
    if kind != TIMESTAMP or not isinstance(pattern, str):
        raise ConfigError(f"field {name}: pattern: of a timestamp that is text, such as 'MM/dd/yyyy hh:mm:ss a'")
    if unit is not None:
        raise ConfigError(f"field {name}: pattern is for texts, and unit for numbers; leave one out")
    try:
        TimePattern.parse_input(pattern, needs_year=False)
    except ConfigError as error:
        raise ConfigError(f"field {name}: pattern {pattern!r}: {error}") from None
