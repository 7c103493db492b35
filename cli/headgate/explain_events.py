"""Which events an explanation is about, and which others of their key count: of a file, a place, a key, an alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

import orjson
import polars as pl
import pyarrow as pa

from headgate.backtest_sources import Decoding
from headgate.errors import InputError
from headgate.explain_reading import Found, KeyEvents, Reading, Wanted, key_events
from headgate.moments import show_time
from rulecore import lang
from rulecore.compiled import CompiledRule
from rulecore.explain_rule import Question
from rulecore.model import Emit, Kind, Rule
from rulecore.spans import Count, Session, Span
from rulecore.yamldoc import Json
from streamcore.decode import RawBatch
from streamcore.position import Place
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

_MARGIN_MS = 60_000
_DISORDER_MS = 10_000


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far an event was behind the watermark, and where that was."""

    lateness_ms: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The events that count, and what is asked of them. ``record``: the one in question, where it lies in Kafka.

    ``about``: for people. ``dead``: why the record in question is no event; then there are no events. ``late``: whether
    the event in question came behind the watermark.
    """

    topic: str
    events: pl.DataFrame
    question: Question
    about: str
    record: Found | None = None
    dead: str | None = None
    late: Lateness | None = None
    notes: tuple[str, ...] = ()


def length_ms(rule: Rule) -> int | None:
    """How far back a rule looks, in event time; None where that is not bounded by time."""
    if rule.expect is not None:
        return rule.expect.every
    if rule.score is not None:
        return rule.score.within
    match rule.within:
        case None:
            return 0
        case Count():
            return None
        case Session():
            return 20 * rule.within.session
        case Span():
            return rule.within.span
        case _:
            return rule.within.size_ms


def _ends_at_watermark(rule: CompiledRule) -> bool:
    """Whether what comes after an event decides, too."""
    return rule.rule.emit is Emit.FINAL or rule.kind in (Kind.SEQUENCE, Kind.ABSENCE)


# --- a file -----------------------------------------------------------------------------------------------------


def events_of_text(path: Path, schema: StreamSchema, rule: CompiledRule, clock_ms: int) -> Inquiry:
    """One JSON event a line, in order of arrival; the last is the one in question."""
    try:
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"--event-json {path}: {error.strerror}; name a file that you may read") from None
    if not lines:
        raise InputError(f"--event-json {path}: is empty; write one JSON event a line")
    count = len(lines)
    decode = Decoding(schema, clock_ms)
    events = decode(pa.array(lines, pa.binary()), pa.array([0] * count, pa.int32()), pa.array(range(count), pa.int64()))
    if decode.dead:
        raise InputError(f"--event-json {path}: no event of {schema.name}: {'; '.join(decode.dead)}")
    if rule.group_by and count > 1:
        key = events[count - 1].select(rule.group_by).row(0, named=True)
        events = events.filter([pl.col(n).eq_missing(pl.lit(v)) for n, v in key.items()])
    latest = int(events[EVENT_MS].max())  # type: ignore[arg-type]
    question = Question(row=events.height - 1, closing_ms=latest - _DISORDER_MS)
    return Inquiry(schema.name, events, question, f"the last event of {path}")


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
    wanted = _wanted(rule, key, start, event_ms, scan)
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
    columns = (
        pa.array([record.value], pa.binary()),
        pa.array([record.partition], pa.int32()),
        pa.array([record.offset], pa.int64()),
    )
    frame = decode(*columns)
    return frame, None if frame.height else _reason(schema, RawBatch(*columns, record.timestamp_ms))


def _reason(schema: StreamSchema, batch: RawBatch) -> str:
    from streamcore.decode import JsonDecoder

    dead = JsonDecoder(schema).decode(batch).dead
    return f"{dead.column('code')[0].as_py()}: {dead.column('reason')[0].as_py()}"


def _start(reader: Reading, record: Found, key: Mapping[str, object]) -> Mapping[Place, int]:
    """Behind the event in its partition; in the others at its time, unless the record's key says they hold nothing."""
    mine: Place = record.topic, record.partition
    if len(key) == 1 and record.key is not None and record.key == str(next(iter(key.values()))).encode():
        return {mine: record.offset + 1}
    others = reader.offsets_at(record.topic, record.timestamp_ms)
    return {**others, mine: record.offset + 1}


def _wanted(
    rule: CompiledRule, key: Mapping[str, object], start: Mapping[Place, int], at_ms: int | None, scan: int
) -> Wanted:
    """Twice as far back as the rule looks: what came before decides what of it was used up already."""
    length = length_ms(rule.rule)
    back = None if length is None else 2 * length + _MARGIN_MS
    return Wanted(key, start, at_ms, back, (length or 0) + _MARGIN_MS, scan)


def _rests_on(found: KeyEvents, key: Mapping[str, object], schema: StreamSchema) -> tuple[str, ...]:
    about = f"{found.frame.height:,} events of {show_key(key, schema)} among {found.read:,} records"
    if found.complete:
        return (f"rests on {about}",)
    return (f"rests on {about}; there are older ones that count: raise --scan",)


def show_key(key: Mapping[str, object], schema: StreamSchema) -> str:
    """``user_id = u1``; physical values."""
    shown = []
    for name, value in key.items():
        field = schema.get(name)
        logical = value if field is None else lang.to_logical(value, field.type)  # type: ignore[arg-type]
        shown.append(f"{name} = {'null' if logical is None else logical}")
    return ", ".join(shown)


# --- late events -----------------------------------------------------------------------------------------------


def without_late(reader: Reading, late_topic: str, inquiry: Inquiry, most: int) -> Inquiry:
    """Without the events that the app put on its late lane: rules with state did not see them.

    The one in question stays, so that its conditions can be shown.
    """
    late = _late_events(reader, late_topic, inquiry.topic, most)
    events, row = inquiry.events, inquiry.question.row
    places = [*zip(events[PARTITION].to_list(), events[OFFSET].to_list(), strict=True)]
    asked = None if row is None else places[row]
    kept = [n for n, place in enumerate(places) if place not in late or place == asked]
    if len(kept) == events.height:
        return replace(inquiry, late=late.get(asked) if asked is not None else None)
    note = f"{events.height - len(kept):,} events of the key were late and do not count"
    question = replace(inquiry.question, row=None if row is None else kept.index(row))
    return replace(
        inquiry,
        events=events[kept],
        question=question,
        late=late.get(asked) if asked is not None else None,
        notes=(*inquiry.notes, note),
    )


def _late_events(reader: Reading, late_topic: str, topic: str, most: int) -> Mapping[tuple[int, int], Lateness]:
    found: dict[tuple[int, int], Lateness] = {}
    for table in reader.backwards(late_topic, most):
        for value in table.column("value").to_pylist():
            body = orjson.loads(value or b"{}")
            source = body.get("source", {})
            if source.get("topic") == topic:
                place = source["partition"], source["offset"]
                found[place] = Lateness(body["lateness_ms"], body["watermark_ms"])
    return found


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
    wanted = _wanted(rule, key, start, at_ms, scan)
    if at_ms is None:
        wanted = replace(wanted, ahead_ms=None)
    found = key_events(reader, schema, topic, wanted, now_ms)
    when = "" if at_ms is None else f" at {show_time(at_ms)} UTC"
    question = Question(at_ms=at_ms, closing_ms=found.latest_ms - _DISORDER_MS)
    about = f"{show_key(key, schema)}{when}"
    return Inquiry(topic, found.frame, question, about, notes=_rests_on(found, key, schema))


def parse_key(texts: Sequence[str], rule: CompiledRule, schema: StreamSchema) -> dict[str, object]:
    """``["user_id=u1"]`` as physical values; ``InputError`` unless they are the columns of the rule's key."""
    wanted = rule.group_by or schema.keys[0]
    pairs = [text.partition("=") for text in texts]
    if {name for name, _, _ in pairs} != set(wanted) or not all(equals for _, equals, _ in pairs):
        raise InputError(
            f"--key {' '.join(texts)}: {rule.rule.id} needs {' '.join(f'--key {n}=VALUE' for n in wanted)}"
        )
    return {name: _physical(name, value, schema) for name, _, value in pairs}


def _physical(name: str, text: str, schema: StreamSchema) -> object:
    field = schema.get(name)
    assert field is not None, "a rule's key is of the stream's fields"
    if text == "null":
        return None
    try:
        match field.type.kind.value:
            case "string":
                return text
            case "boolean":
                return {"true": True, "false": False}[text]
            case "double":
                return float(text)
            case "decimal":
                return lang.to_physical(Decimal(text), field.type)
        return int(text)
    except (ValueError, KeyError, InvalidOperation):
        raise InputError(f"--key {name}={text}: is no {field.type}") from None


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
    physical = {name: None if v is None else _physical(name, str(v), schema) for name, v in key.items()}
    at_ms = int(str(alert["event_time_ms"])) - 1
    found = _of_key(reader, schema, rule, physical, topic, at_ms, scan, now_ms)
    question = Question(at_ms=at_ms, closing_ms=max(found.question.closing_ms, at_ms + 1))
    return Inquiry(topic, found.events, question, found.about, notes=found.notes)


__all__: Sequence[str] = (
    "Inquiry",
    "events_of_alert",
    "events_of_key",
    "events_of_place",
    "events_of_text",
    "length_ms",
    "parse_key",
    "show_key",
    "without_late",
)
