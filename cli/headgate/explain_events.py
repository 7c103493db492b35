"""Which events an explanation is about, and which others of their key count: of a place, a key, an alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa

from headgate.decoding import Decoding
from headgate.errors import InputError
from headgate.explain_inquiry import Inquiry
from headgate.explain_keys import parse_key, physical, show_key, wanted_of
from headgate.explain_reading import Found, KeyEvents, Reading, key_events
from headgate.few_records import decode_few
from headgate.moments import show_time
from rulecore.compiled import CompiledRule
from rulecore.explanation import Question
from rulecore.model import Emit, Kind
from rulecore.yamldoc import Json
from streamcore.position import Place
from streamcore.records import Rejected
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

_MARGIN_MS = 60_000
_DISORDER_MS = 10_000


def _ends_at_watermark(rule: CompiledRule) -> bool:
    """Whether what comes after an event decides, too."""
    return rule.rule.emit is Emit.FINAL or rule.kind in (Kind.SEQUENCE, Kind.ABSENCE)


# --- a place ----------------------------------------------------------------------------------------------------


def events_of_place(
    reader: Reading, schema: StreamSchema, rule: CompiledRule, place: tuple[str, int, int], scan: int, now_ms: int
) -> Inquiry:
    """The event at topic, partition and offset, and what of its key came before it (and after, where that counts)."""
    topic, partition, offset = place
    record = reader.record(topic, partition, offset)
    about = f"{topic}:{partition}:{offset}"
    one, reason = _decoded(schema, record)
    if reason is not None:
        return Inquiry(topic, one, Question(), about, record, reason)
    if rule.kind is Kind.EVENT:
        return Inquiry(topic, one, Question(row=0), about, record)
    key = one.select(rule.group_by).row(0, named=True)
    event_ms = int(one[EVENT_MS][0])
    start = _start(reader, record, key)
    wanted = wanted_of(rule, key, start, event_ms, scan)
    if not _ends_at_watermark(rule):
        wanted = replace(wanted, ahead_ms=None)
    found = key_events(reader, schema, topic, wanted, now_ms)
    here = (found.frame[PARTITION] == partition) & (found.frame[OFFSET] == offset)
    row = here.arg_true().to_list()
    question = Question(row=row[0] if row else None, at_ms=event_ms, closing_ms=found.latest_ms - _DISORDER_MS)
    return Inquiry(topic, found.frame, question, about, record, notes=_rests_on(found, key, schema))


def _decoded(schema: StreamSchema, record: Found) -> tuple[pl.DataFrame, str | None]:
    """The record as the app decoded it: by the clock of its own time."""
    decode = Decoding(schema, record.timestamp_ms)
    places = pa.array([record.partition], pa.int32()), pa.array([record.offset], pa.int64())
    frame = decode(pa.array([record.value], pa.binary()), *places)
    if frame.height:
        return frame, None
    (found,) = decode_few(schema, [record.value], record.timestamp_ms)
    assert isinstance(found, Rejected), "a record that gives no event says why"
    return frame, f"{found.code}: {found.reason}"


def _start(reader: Reading, record: Found, key: Mapping[str, object]) -> Mapping[Place, int]:
    """Behind the event in its partition; in the others at its time, unless the record's key says they hold nothing."""
    mine: Place = record.topic, record.partition
    if len(key) == 1 and record.key is not None and record.key == str(next(iter(key.values()))).encode():
        return {mine: record.offset + 1}
    others = reader.offsets_at(record.topic, record.timestamp_ms)
    return {**others, mine: record.offset + 1}


def _rests_on(found: KeyEvents, key: Mapping[str, object], schema: StreamSchema) -> tuple[str, ...]:
    about = f"{found.frame.height:,} events of {show_key(key, schema)} among {found.read:,} records"
    if found.complete:
        return (f"rests on {about}",)
    return (f"rests on {about}; there are older ones that count: raise --scan",)


# --- a key ------------------------------------------------------------------------------------------------------


def events_of_key(
    reader: Reading,
    schema: StreamSchema,
    rule: CompiledRule,
    texts: Sequence[str],
    topic: str,
    at_ms: int | None,
    scan: int,
    now_ms: int,
) -> Inquiry:
    """A key's events around a time, or its latest."""
    key = parse_key(texts, rule, schema)
    return _of_key(reader, schema, rule, key, topic, at_ms, scan, now_ms)


def _of_key(
    reader: Reading,
    schema: StreamSchema,
    rule: CompiledRule,
    key: Mapping[str, object],
    topic: str,
    at_ms: int | None,
    scan: int,
    now_ms: int,
) -> Inquiry:
    first, last = reader.bounds(topic)
    if not last:
        raise InputError(f"no topic {topic} at {reader.kafka.bootstrap}; correct --topic or --bootstrap")
    start = last if at_ms is None else reader.offsets_at(topic, at_ms + _MARGIN_MS)
    start = {place: max(first[place], offset) for place, offset in start.items()}
    wanted = wanted_of(rule, key, start, at_ms, scan)
    if at_ms is None:
        wanted = replace(wanted, ahead_ms=None)
    found = key_events(reader, schema, topic, wanted, now_ms)
    when = "" if at_ms is None else f" at {show_time(at_ms)} UTC"
    question = Question(at_ms=at_ms, closing_ms=found.latest_ms - _DISORDER_MS)
    about = f"{show_key(key, schema)}{when}"
    return Inquiry(topic, found.frame, question, about, notes=_rests_on(found, key, schema))


# --- an alert ---------------------------------------------------------------------------------------------------


def events_of_alert(
    reader: Reading,
    schema: StreamSchema,
    rule: CompiledRule,
    alert: Mapping[str, Json],
    topic: str,
    scan: int,
    now_ms: int,
) -> Inquiry:
    """What the alert was computed from."""
    source = alert["source"]
    if isinstance(source, dict):
        place = str(source["topic"]), int(str(source["partition"])), int(str(source["offset"]))
        return events_of_place(reader, schema, rule, place, scan, now_ms)
    key = alert["key"]
    assert isinstance(key, dict), "an alert has a key"
    values = {name: None if v is None else physical(name, str(v), schema) for name, v in key.items()}
    at_ms = int(str(alert["event_time_ms"])) - 1
    found = _of_key(reader, schema, rule, values, topic, at_ms, scan, now_ms)
    question = Question(at_ms=at_ms, closing_ms=max(found.question.closing_ms, at_ms + 1))
    return Inquiry(topic, found.events, question, found.about, notes=found.notes)


__all__: Sequence[str] = (
    "events_of_alert",
    "events_of_key",
    "events_of_place",
)
