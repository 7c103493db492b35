"""The stream that a rule reads: one of the app, or the union of several.

``on: [logins, payments]`` is the union of two streams, with the name ``logins+payments``. An event of it has the fields
of its own stream, NULL in the others' fields, and ``_stream``, the name of its stream. A field that two streams declare
with different types is not in the union. Its declared keys are those that all of its streams have, perhaps none.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rulecore.errors import RuleSetError
from streamcore.errors import ConfigError
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import STRING, TIMESTAMP, UNION, Field, StreamSchema, Type

#: The field of a union with the name of the event's stream.
STREAM: Final = "_stream"
#: The field of a union with the event time, if its streams have it in fields of different names.
EVENT_TIME: Final = "_event_time"
MAX_STREAMS: Final = 8


def stream_names(on: str) -> tuple[str, ...]:
    """Return the names of the streams that a rule reads (``Rule.on``)."""
    return tuple(on.split(UNION))


def is_union(on: str) -> bool:
    """Return whether a rule reads several streams."""
    return UNION in on


def find_stream(streams: Mapping[str, StreamSchema], on: str) -> StreamSchema:
    """Return the schema of the stream that a rule reads; raise ``RuleSetError`` if there is none."""
    names = stream_names(on)
    for name in names:
        if name not in streams:
            raise RuleSetError(f"on: there is no stream {name!r}; there are {', '.join(sorted(streams)) or 'none'}")
    return streams[on] if len(names) == 1 else _make_union(tuple(streams[name] for name in names))


@functools.lru_cache(256)
def _make_union(members: tuple[StreamSchema, ...]) -> StreamSchema:
    names = [member.name for member in members]
    if taken := [m.name for m in members if m.get(STREAM) is not None]:
        raise RuleSetError(f"on: the stream {taken[0]} has a field {STREAM}, which a union of streams adds")
    shared = tuple(key for key in members[0].keys if all(_has_key(members[0], other, key) for other in members[1:]))
    times = {member.event_time for member in members}
    time = times.pop() if len(times) == 1 else EVENT_TIME
    added = [Field(STREAM, STRING, nullable=False)]
    if time == EVENT_TIME:
        added.append(Field(EVENT_TIME, TIMESTAMP, nullable=False))
    by_name: dict[str, list[Field]] = {}  # expressions ignore upper and lower case
    for field in (field for member in members for field in member.fields):
        by_name.setdefault(field.name.lower(), []).append(field)
    fields = [_merge(same, len(members)) for same in by_name.values() if len({(f.name, f.type) for f in same}) == 1]
    try:
        return StreamSchema(UNION.join(names), (*added, *fields), time, shared, zone=members[0].zone)
    except ConfigError as error:
        raise RuleSetError(f"on: {error}") from error


def _has_key(one: StreamSchema, other: StreamSchema, key: tuple[str, ...]) -> bool:
    def types(schema: StreamSchema) -> list[Type]:
        return [field.type for name in key if (field := schema.get(name)) is not None]

    return key in other.keys and types(one) == types(other)


def _merge(fields: Sequence[Field], members: int) -> Field:
    nullable = len(fields) < members or any(field.nullable for field in fields)
    return replace(fields[0], nullable=nullable, path=())


@dataclass(frozen=True, slots=True)
class RuleStream:
    """A stream that rules may read, and the topic of its events. ``further_keys``: by which its events are routed
    beside those that it declares."""

    schema: StreamSchema
    topic: str
    further_keys: tuple[tuple[str, ...], ...] = ()

    @property
    def routes(self) -> tuple[tuple[str, ...], ...]:
        """The keys by which its events are routed; the number of one is the ``route`` of its ``StreamKey``."""
        return (*self.schema.keys, *(key for key in self.further_keys if key not in self.schema.keys))


@dataclass(frozen=True, slots=True)
class RuleInput:
    """The input of a rule: the schema of a stream or of a union, and its streams in the order of their sources.

    Events have source partitions, as in an app with these streams (``streamcore.offsets``).
    """

    schema: StreamSchema
    streams: tuple[RuleStream, ...]

    @classmethod
    def of_stream(cls, schema: StreamSchema, topic: str) -> RuleInput:
        """Return one stream as the input of a rule."""
        return cls(schema, (RuleStream(schema, topic),))

    @classmethod
    def find(cls, on: str, streams: Mapping[str, StreamSchema], topics: Mapping[str, str]) -> RuleInput:
        """Return the input of a rule with this ``on``; raise ``RuleSetError`` if there is no such stream.

        ``topics``: by stream, in the order of the app's settings, by which events of one time are ordered; a stream
        that is not in it comes last, and has a topic with its name.
        """
        schema, order = find_stream(streams, on), [*topics]
        names = sorted(stream_names(on), key=lambda name: (order.index(name) if name in topics else len(order), name))
        return cls(schema, tuple(RuleStream(streams[name], topics.get(name, name)) for name in names))

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic of each stream; streams that share one have the source of the first."""
        return tuple(stream.topic for stream in self.streams)

    def source(self, topic: str) -> int:
        """Return the number of the source that a topic is."""
        return self.topics.index(topic)

    def find_topic(self, partition: int) -> str:
        """Return the topic of a source partition."""
        return self.streams[partition // PARTITIONS_PER_TOPIC].topic

    def find_fields(self, row: Mapping[str, object]) -> tuple[Field, ...]:
        """Return the fields that an event has: of a union, those of the event's stream."""
        if not is_union(self.schema.name):
            return self.schema.fields
        (member,) = (one.schema for one in self.streams if one.schema.name == row[STREAM])
        return own_fields(self.schema, member)

    def find_streams(self, topic: str) -> tuple[StreamSchema, ...]:
        """Return the streams of a topic."""
        return tuple(stream.schema for stream in self.streams if stream.topic == topic)


def own_fields(union: StreamSchema, member: StreamSchema) -> tuple[Field, ...]:
    """Return the fields of a union that the events of one of its streams have."""
    return tuple(field for field in union.fields if field.name == STREAM or member.get(field.name) is not None)
