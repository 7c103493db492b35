"""The evidence of an explanation: the events that count. Drops the events that were late for the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import polars as pl

from headgate.explain.from_file import OTHER_EVENT, about_last, missing_notes, no_event, numbered_lines
from headgate.explain.query import ExplainResult
from headgate.records.decoder import EventDecoder
from headgate.records.topic_decoder import key_columns, key_conditions
from rulecore.compile.rule import CompiledRule
from rulecore.explain.explanation import ExplainQuestion
from rulecore.explain.rule import explain_rule
from rulecore.lists.store import ListStore
from rulecore.streams import RuleInput
from rulecore.union_events import unite_events
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.operators.deduplication.events import for_stream
from streamcore.schema import OFFSET, PARTITION, StreamSchema

if TYPE_CHECKING:  # an explanation from files does not import the Kafka clients
    from headgate.explain.kafka_reader import KafkaReader, KafkaRecord

_END_MS = 2**53
_ROW = "__row"
#: The source partition and the offset of an event.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far an event was behind the watermark, and that watermark, in milliseconds."""

    lateness_ms: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The events that count by stream, and the question about them. ``about``: the event or key in question, for users.
    ``record``: the record in question, if there is one. ``place``: source partition and offset of the event in
    question.

    ``dead``: the reason why that record is not an event; then there are no events. ``late``: the lateness of the event
    in question, if it was late. ``question.row`` follows from ``place``.
    """

    source: RuleInput
    frames: Mapping[str, pl.DataFrame]
    question: ExplainQuestion
    about: str
    record: KafkaRecord | None = None
    place: Place | None = None
    dead: str | None = None
    late: Lateness | None = None
    duplicate: bool = False
    notes: tuple[str, ...] = ()

    @property
    def events(self) -> pl.DataFrame:
        """The events that the rule reads."""
        return unite_events(self.source, self.frames)

    @property
    def event_stream(self) -> StreamSchema | None:
        """The stream of the event in question."""
        for one in self.source.streams:
            if self.place in _places(self.frames[one.schema.name]):
                return one.schema
        return None

    def value(self, stream: StreamSchema, column: str) -> object:
        """Return the value of a column in the event in question, which is of this stream."""
        frame = self.frames[stream.name]
        return frame[column][_places(frame).index(self.place)]

    def located(self) -> Evidence:
        """Return the evidence with the row of the event in question."""
        places = _places(self.events)
        row = places.index(self.place) if self.place in places else None
        return replace(self, question=replace(self.question, row=row))


def _places(events: pl.DataFrame) -> list[Place | None]:
    return [*zip(events[PARTITION].to_list(), events[OFFSET].to_list(), strict=True)]


def decode_lines(path: Path, lines: Sequence[bytes], source: RuleInput, rule: CompiledRule, clock_ms: int) -> Evidence:
    """Decode lines of one JSON event each, in order of arrival. The last one is the event in question; after it the
    stream ends, as in a rule's tests."""
    numbered = numbered_lines(path, lines, source)
    frames = {}
    for one in source.streams:
        own, decode = numbered[one.schema.name], EventDecoder(one.schema, clock_ms)
        frames[one.schema.name] = decode.of_lines([line for _, line in own], [number for number, _ in own])
        if decode.dead_letters:
            raise no_event(path, one.schema, decode.dead_letters)
        if frames[one.schema.name].height < len(own):
            raise no_event(path, one.schema, [OTHER_EVENT])
    place = 0, len(lines) - 1
    if rule.group_by and not rule.other_keys and len(lines) > 1:
        schemas = {one.schema.name: one.schema for one in source.streams}
        name, last = next((n, f.filter(pl.col(OFFSET) == place[1])) for n, f in frames.items() if place in _places(f))
        key = last.select(key_columns(last, rule.group_by, schemas[name])).row(0, named=True)
        frames = {name: frame.filter(key_conditions(frame, key, schemas[name])) for name, frame in frames.items()}
    question = ExplainQuestion(closing_ms=_END_MS)
    evidence = Evidence(source, frames, question, about_last(path), place=place, notes=missing_notes(source))
    return evidence.located()


def drop_late_events(reader: KafkaReader, late_topic: str, evidence: Evidence, most: int) -> Evidence:
    """Return the evidence without the events on the app's late lane, because rules with state did not count them.

    The event in question stays, so that its conditions can be shown. ``most``: the most late records to read.
    """
    late = _late_events(reader, late_topic, evidence.source, most)
    place = evidence.place
    evidence = replace(evidence, late=None if place is None else late.get(place))
    kept = {
        name: frame[[n for n, one in enumerate(_places(frame)) if one not in late or one == place]]
        for name, frame in evidence.frames.items()
    }
    return _with_frames(evidence, kept, "were late and do not count")


def _with_frames(evidence: Evidence, frames: Mapping[str, pl.DataFrame], why: str) -> Evidence:
    """Return the evidence with these of its events, and a note on the others."""
    dropped = sum(evidence.frames[name].height - frame.height for name, frame in frames.items())
    if not dropped:
        return evidence
    note = f"{dropped:,} events of the key {why}"
    return replace(evidence, frames=frames, notes=(*evidence.notes, note)).located()


def drop_duplicates(evidence: Evidence) -> Evidence:
    """Return the evidence without the events that do not count because their stream has ``deduplicate``.

    Of the copies of an event the first by partition and offset is kept, or the one in question.
    """
    frames, duplicate = dict(evidence.frames), False
    for one in evidence.source.streams:
        frame, deduplication = frames[one.schema.name], for_stream(one.schema)
        if deduplication is None or not frame.height:
            continue
        kept = deduplication.filter(frame.with_columns(pl.Series(_ROW, range(frame.height), pl.Int64)))[_ROW].to_list()
        places = _places(frame)
        row = places.index(evidence.place) if evidence.place in places else None
        if row is not None and row not in kept:
            ids = frame[one.schema.event_id].to_list() if one.schema.event_id is not None else []
            kept, duplicate = sorted([*(n for n in kept if ids[n] != ids[row]), row]), True
        frames[one.schema.name] = frame[kept]
    return replace(_with_frames(evidence, frames, "are duplicates and do not count"), duplicate=duplicate)


def _late_events(reader: KafkaReader, late_topic: str, source: RuleInput, most: int) -> Mapping[Place, Lateness]:
    late: dict[Place, Lateness] = {}
    for table in reader.backwards(late_topic, most):
        for value in table.column("value").to_pylist():
            body = orjson.loads(value or b"{}")
            place = body.get("source", {})
            if place.get("topic") in source.topics:
                partition = source.source(place["topic"]) * PARTITIONS_PER_TOPIC + place["partition"]
                late[partition, place["offset"]] = Lateness(body["lateness_ms"], body["watermark_ms"])
    return late


def explain_evidence(
    rule: CompiledRule, evidence: Evidence, support: Sequence[CompiledRule], lists: ListStore
) -> ExplainResult:
    """Explain the rule over the events of the evidence."""
    explanation = explain_rule(rule, evidence.source, evidence.frames, evidence.question, support, lists)
    list_names = sorted({name for used in (rule, *support) for name in used.lists})
    note = f"lists are used with their present content, at the time of the event: {', '.join(list_names)}"
    return ExplainResult(explanation, evidence.about, (), (*evidence.notes, *((note,) if list_names else ())))
