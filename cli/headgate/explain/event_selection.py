"""Selects the events of an explanation from Kafka: by position, by key, or by alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from headgate.errors import InputError
from headgate.explain.evidence import Evidence
from headgate.explain.from_file import OTHER_EVENT
from headgate.explain.kafka_reader import KafkaReader, KafkaRecord, KeyEvents, key_events
from headgate.explain.keys import keys_of_event, parse_key, physical, show_key, to_query
from headgate.records.decoder import EventDecoder
from headgate.records.topic_decoder import TopicDecoder, key_conditions
from headgate.time_arguments import show_time
from rulecore.compile.rule import CompiledRule
from rulecore.documents.features import EventOrder
from rulecore.documents.rule import Emit, RuleKind
from rulecore.documents.yaml_reader import Json
from rulecore.explain.explanation import ExplainQuestion
from rulecore.streams import RuleInput
from rulecore.union_events import unite_events
from streamcore.decode.scalar import RejectedRecord, StreamRecord
from streamcore.offsets import PARTITIONS_PER_TOPIC, TopicPartition
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.wire.raw import raw_batch

_MARGIN_MS = 60_000
_DISORDER_MS = 10_000
_END_MS = 2**53


def _ends_at_watermark(rule: CompiledRule) -> bool:
    """Return whether later events can change the rule's result for an event."""
    waits = rule.rule.emit is Emit.FINAL or rule.rule.order is EventOrder.IN_ORDER
    return waits or rule.kind in (RuleKind.SEQUENCE, RuleKind.ABSENCE)


# --- a position -------------------------------------------------------------------------------------------------


def find_events_at(
    reader: KafkaReader,
    source: RuleInput,
    rule: CompiledRule,
    position: tuple[str, int, int],
    scan: int,
    now_ms: int,
) -> Evidence:
    """Find the event at a topic, partition and offset, and the events of its key before it, and after it if they
    count."""
    topic, partition, offset = position
    streams = TopicDecoder(source, now_ms, reader.formats)
    reader.headers = streams.headers
    record = reader.record(topic, partition, offset)
    about = f"{topic}:{partition}:{offset}"
    place = source.source(topic) * PARTITIONS_PER_TOPIC + partition, offset
    shift = pl.col(PARTITION) + pl.lit(place[0] - partition, pl.Int32)
    frames, reasons = streams.no_events(), list[str]()
    for schema in source.find_streams(topic):
        event, reason = _decode_record(reader.formats.decoder(schema, topic, record.timestamp_ms), record)
        frames[schema.name] = event.with_columns(shift)
        reasons += [] if reason is None else [reason]
    if len(reasons) == len(source.find_streams(topic)):
        dead = next((one for one in reasons if one != OTHER_EVENT), OTHER_EVENT)
        return Evidence(source, frames, ExplainQuestion(), about, record, place, dead)
    if rule.kind is RuleKind.EVENT:
        return Evidence(source, frames, ExplainQuestion(), about, record, place).located()
    event = unite_events(source, frames)
    keys = keys_of_event(rule, event, source.schema)
    event_ms = int(event[EVENT_MS][0])
    start = _start(reader, source, record, keys)
    query = to_query(rule, keys, start, event_ms, scan)
    if not _ends_at_watermark(rule):
        query = replace(query, ahead_ms=None)
    found = key_events(reader, source, query, now_ms)
    question = ExplainQuestion(at_ms=event_ms, closing_ms=found.latest_ms - _DISORDER_MS)
    notes = _coverage_note(found, keys, source.schema)
    return Evidence(source, found.frames, question, about, record, place, notes=notes).located()


def _decode_record(decode: EventDecoder, record: KafkaRecord) -> tuple[pl.DataFrame, str | None]:
    """Decode the record as the app did, with its Kafka timestamp as the clock; return the event, or the reason why it
    is not one."""
    one = raw_batch(
        np.zeros(1, np.int32),
        np.array([record.partition], np.int32),
        np.array([record.offset], np.int64),
        [record.key],
        [record.value],
        [record.timestamp_ms],
        {name: [value] for name, value in record.headers.items()},
    )
    frame = decode(one, record.topic)
    if frame.height:
        return frame, None
    position = record.topic, record.partition, record.offset
    same = StreamRecord(record.value, record.key, record.headers, record.timestamp_ms, *position)
    (found,) = decode.decode_each([same])
    return frame, f"{found.code}: {found.reason}" if isinstance(found, RejectedRecord) else OTHER_EVENT


def _start(
    reader: KafkaReader, source: RuleInput, record: KafkaRecord, keys: Sequence[Mapping[str, object]]
) -> Mapping[TopicPartition, int]:
    """Return the offsets to read from: after the event in its partition, at the event's time in the others.

    Partitions that cannot hold records of the event's keys are left out.
    """
    own_partition: TopicPartition = record.topic, record.partition
    values = [*keys[0].values()] if len(keys) == 1 else []
    keyed = len(values) == 1 and record.key is not None and record.key == str(values[0]).encode()
    found: dict[TopicPartition, int] = {}
    for topic in dict.fromkeys(source.topics):
        if topic != record.topic or not keyed:
            found |= reader.offsets_at(topic, record.timestamp_ms)
    return {**found, own_partition: record.offset + 1}


def _coverage_note(found: KeyEvents, keys: Sequence[Mapping[str, object]], schema: StreamSchema) -> tuple[str, ...]:
    count = sum(frame.height for frame in found.frames.values())
    shown = " or ".join(show_key(key, schema) for key in keys)
    about = f"{count:,} events of {shown} among {found.read:,} records"
    if found.complete:
        return (f"based on {about}",)
    return (f"based on {about}; older events count too: raise --scan",)


# --- a key ------------------------------------------------------------------------------------------------------


def find_key_events(
    reader: KafkaReader,
    source: RuleInput,
    rule: CompiledRule,
    texts: Sequence[str],
    at_ms: int | None,
    scan: int,
    now_ms: int,
) -> Evidence:
    """Find a key's events around ``at_ms``; None: its latest events."""
    key = parse_key(texts, rule, source.schema)
    return _find_key_events(reader, source, rule, key, at_ms, scan, now_ms)


def _find_key_events(
    reader: KafkaReader,
    source: RuleInput,
    rule: CompiledRule,
    key: Mapping[str, object],
    at_ms: int | None,
    scan: int,
    now_ms: int,
) -> Evidence:
    start: dict[TopicPartition, int] = {}
    for topic in dict.fromkeys(source.topics):
        first, last = reader.bounds(topic)
        if not last:
            raise InputError(f"no topic {topic} at {reader.kafka.bootstrap}; correct --topic or --bootstrap")
        offsets = last if at_ms is None else reader.offsets_at(topic, at_ms + _MARGIN_MS)
        start |= {place: max(first[place], offset) for place, offset in offsets.items()}
    keys: Sequence[Mapping[str, object]] = [{n: key[n] for n in rule.route_key} if rule.features else key]
    query = to_query(rule, keys, start, at_ms, scan)
    if at_ms is None:
        query = replace(query, ahead_ms=None)
    found = key_events(reader, source, query, now_ms)
    if rule.other_keys:
        before = _END_MS if at_ms is None else at_ms
        event = select_latest(unite_events(source, found.frames), key, source.schema, before)
        keys = keys_of_event(rule, event, source.schema) if event.height else keys
        found = key_events(reader, source, replace(query, keys=keys), now_ms)
    when = "" if at_ms is None else f" at {show_time(at_ms)} UTC"
    own_key = key if rule.features else None
    question = ExplainQuestion(at_ms=at_ms, closing_ms=found.latest_ms - _DISORDER_MS, key=own_key)
    about = f"{show_key(key, source.schema)}{when}"
    return Evidence(source, found.frames, question, about, notes=_coverage_note(found, keys, source.schema))


def select_latest(
    events: pl.DataFrame, key: Mapping[str, object], schema: StreamSchema, before_ms: int
) -> pl.DataFrame:
    """Return the latest of the events of a key that are not after a time, or no event."""
    is_own = pl.all_horizontal(pl.col(EVENT_MS) <= before_ms, *key_conditions(events, key, schema))
    return events.filter(is_own).sort(EVENT_MS, PARTITION, OFFSET).tail(1)


# --- an alert ---------------------------------------------------------------------------------------------------


def find_alert_events(
    reader: KafkaReader,
    source: RuleInput,
    rule: CompiledRule,
    alert: Mapping[str, Json],
    scan: int,
    now_ms: int,
) -> Evidence:
    """Find the events that the alert was computed from."""
    place = alert["source"]
    if isinstance(place, dict):
        position = str(place["topic"]), int(str(place["partition"])), int(str(place["offset"]))
        return find_events_at(reader, source, rule, position, scan, now_ms)
    key = alert["key"]
    assert isinstance(key, dict), "an alert has a key"
    values = {name: None if v is None else physical(name, str(v), source.schema) for name, v in key.items()}
    at_ms = int(str(alert["event_time_ms"])) - 1
    found = _find_key_events(reader, source, rule, values, at_ms, scan, now_ms)
    closing_ms = max(found.question.closing_ms, at_ms + 1)
    return replace(found, question=replace(found.question, closing_ms=closing_ms))


__all__: Sequence[str] = (
    "find_alert_events",
    "find_events_at",
    "find_key_events",
    "select_latest",
)
