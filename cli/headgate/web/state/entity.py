"""A key on one time line: its events, its alerts, and the lists that name it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any  # rows of a frame

from headgate.explain.kafka_reader import KafkaReader, KeyEventsQuery, key_events
from headgate.explain.keys import physical
from headgate.records.formats import RecordFormats, read_formats
from headgate.records.inputs import find_input
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.settings import ConsoleApp
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.lanes.alert_records import AlertFilter
from headgate.web.state.lanes.alerts import AlertReader
from headgate.web.state.values import AlertValue, EntityValue, TimelineEntry
from rulecore import language as lang
from streamcore.errors import StreamError
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.wire.lanes import ALERTS, SHADOW

_ALERTS = 100
_EVENTS = 200


def key_columns(snapshot: Snapshot) -> list[str]:
    """Return the columns that events are keyed by, those of most streams first."""
    count: dict[str, int] = {}
    for schema in snapshot.history.rules.streams.values():
        for name in dict.fromkeys(column for key in schema.keys for column in key):
            count[name] = count.get(name, 0) + 1
    return sorted(count, key=lambda name: (-count[name], name))


def read_entity(
    snapshot: Snapshot,
    kafka: KafkaSettings,
    app: ConsoleApp,
    alerts: AlertReader,
    key: tuple[str, str],
    scan: int,
) -> EntityValue:
    """Return what is known of a key. ``key``: its column and its value as text. ``scan``: the most records of a topic
    that are read for its events. ``ProblemError`` if no stream has the column."""
    column, value = key
    streams = {n: one for n, one in snapshot.history.rules.streams.items() if one.get(column) is not None}
    if not streams:
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, f"no stream has a field {column}")
    wanted = AlertFilter(key=f"{column}={value}")
    entries = [_alert_entry(one) for lane in (ALERTS, SHADOW) for one in alerts.page(lane, wanted, _ALERTS, {}).alerts]
    read, notes = 0, list[str]()
    formats = read_formats(app.settings)
    used = set(formats.topics) or {one.rule.on for one in snapshot.history.rules.rules.values()}
    for name in (one for one in streams if one in used):
        try:
            found, count = _events(kafka, formats, streams, name, key, scan)
        except StreamError as error:
            notes.append(f"{name}: {error}")
            continue
        entries += found
        read += count
    lists = tuple(sorted(_lists(snapshot, value)))
    entries.sort(key=lambda one: -one.time_ms)
    return EntityValue(column=column, value=value, entries=tuple(entries), lists=lists, read=read, notes=tuple(notes))


def _alert_entry(alert: AlertValue) -> TimelineEntry:
    return TimelineEntry(
        time_ms=alert.event_time_ms,
        what="alert",
        title=f"{alert.rule} {alert.version}" + (" (shadow)" if alert.lane == SHADOW else ""),
        text=alert.message,
        place=f"{alert.lane}:{alert.partition}:{alert.offset}",
        severity=alert.severity,
        alert_id=alert.alert_id,
    )


def _events(
    kafka: KafkaSettings,
    formats: RecordFormats,
    streams: Mapping[str, StreamSchema],
    name: str,
    key: tuple[str, str],
    scan: int,
) -> tuple[list[TimelineEntry], int]:
    source, schema = find_input(name, streams, (), formats), streams[name]
    reader = KafkaReader(kafka, formats)
    start = {place: end for topic in source.topics for place, end in reader.bounds(topic)[1].items()}
    wanted = {key[0]: physical(*key, schema)}
    query = KeyEventsQuery([wanted], start, None, None, None, scan)
    found = key_events(reader, source, query, int(time.time() * 1000))
    rows = found.frames[name].sort(EVENT_MS).tail(_EVENTS).iter_rows(named=True)
    return [_event_entry(name, source.topics[0], schema, row) for row in rows], found.read


def _event_entry(stream: str, topic: str, schema: StreamSchema, row: Mapping[str, Any]) -> TimelineEntry:
    return TimelineEntry(
        time_ms=row[EVENT_MS],
        what="event",
        title=stream,
        text=" ".join(_values(schema, row)),
        place=f"{topic}:{row[PARTITION] % PARTITIONS_PER_TOPIC}:{row[OFFSET]}",
    )


def _values(schema: StreamSchema, row: Mapping[str, Any]) -> Iterator[str]:
    for field in schema.fields:
        if field.name not in (schema.event_time, schema.event_id) and row[field.name] is not None:
            yield f"{field.name}={lang.to_logical(row[field.name], field.type)}"


def _lists(snapshot: Snapshot, value: str) -> Iterator[str]:
    contents = snapshot.history.lists.contents(int(time.time() * 1000))
    for name in snapshot.history.lists.lists:
        content = contents.get(name)
        if content is not None and any(str(one) == value for one in content.values):
            yield name


def find_newest_event(
    snapshot: Snapshot, kafka: KafkaSettings, app: ConsoleApp, stream: str, key: tuple[str, str], scan: int
) -> str | None:
    """Return where the newest event of a key is, topic:partition:offset; None if none of ``scan`` records has it."""
    streams = snapshot.history.rules.streams
    found, _ = _events(kafka, read_formats(app.settings), streams, stream, key, scan)
    return found[-1].place if found else None
