"""The evidence of an explanation: the events that count. Drops the events that were late for the app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import polars as pl

from headgate.explain.from_file import OTHER_EVENT, about_last, missing_notes, no_event
from headgate.explain.query import ExplainResult
from headgate.records.decoder import EventDecoder
from rulecore.compile.rule import CompiledRule
from rulecore.explain.explanation import ExplainQuestion
from rulecore.explain.rule import explain_rule
from rulecore.lists.store import ListStore
from streamcore.operators.deduplication.events import for_stream
from streamcore.schema import OFFSET, PARTITION, StreamSchema

if TYPE_CHECKING:  # an explanation from files does not import the Kafka clients
    from headgate.explain.kafka_reader import KafkaReader, KafkaRecord

_END_MS = 2**53
_ROW = "__row"


@dataclass(frozen=True, slots=True)
class Lateness:
    """How far an event was behind the watermark, and that watermark, in milliseconds."""

    lateness_ms: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """The events that count, and the question about them. ``about``: the event or key in question, for users.
    ``record``: the record in question, if there is one.

    ``dead``: the reason why that record is not an event; then there are no events. ``late``: the lateness of the event
    in question, if it was late.
    """

    topic: str
    events: pl.DataFrame
    question: ExplainQuestion
    about: str
    record: KafkaRecord | None = None
    dead: str | None = None
    late: Lateness | None = None
    duplicate: bool = False
    notes: tuple[str, ...] = ()


def decode_lines(
    path: Path, lines: Sequence[bytes], schema: StreamSchema, rule: CompiledRule, clock_ms: int
) -> Evidence:
    """Decode lines of one JSON event each, in order of arrival. The last one is the event in question; after it the
    stream ends, as in a rule's tests."""
    count = len(lines)
    decode = EventDecoder(schema, clock_ms)
    events = decode.of_lines(lines)
    if decode.dead_letters:
        raise no_event(path, schema, decode.dead_letters)
    if events.height < count:
        raise no_event(path, schema, [OTHER_EVENT])
    if rule.group_by and count > 1:
        key = events[count - 1].select(rule.group_by).row(0, named=True)
        events = events.filter([pl.col(n).eq_missing(pl.lit(v)) for n, v in key.items()])
    question = ExplainQuestion(row=events.height - 1, closing_ms=_END_MS)
    return Evidence(path.name, events, question, about_last(path), notes=missing_notes(schema))


def drop_late_events(reader: KafkaReader, late_topic: str, evidence: Evidence, most: int) -> Evidence:
    """Return the evidence without the events on the app's late lane, because rules with state did not count them.

    The event in question stays, so that its conditions can be shown. ``most``: the most late records to read.
    """
    late = _late_events(reader, late_topic, evidence.topic, most)
    events, row = evidence.events, evidence.question.row
    positions = [*zip(events[PARTITION].to_list(), events[OFFSET].to_list(), strict=True)]
    asked_position = None if row is None else positions[row]
    kept = [n for n, position in enumerate(positions) if position not in late or position == asked_position]
    if len(kept) == events.height:
        return replace(evidence, late=late.get(asked_position) if asked_position is not None else None)
    note = f"{events.height - len(kept):,} events of the key were late and do not count"
    question = replace(evidence.question, row=None if row is None else kept.index(row))
    return replace(
        evidence,
        events=events[kept],
        question=question,
        late=late.get(asked_position) if asked_position is not None else None,
        notes=(*evidence.notes, note),
    )


def drop_duplicates(schema: StreamSchema, evidence: Evidence) -> Evidence:
    """Return the evidence without the events that do not count because the stream has ``deduplicate``.

    Of the copies of an event the first by partition and offset is kept, or the one in question.
    """
    deduplication = for_stream(schema)
    events, row = evidence.events, evidence.question.row
    if deduplication is None or not events.height:
        return evidence
    numbers = pl.Series(_ROW, range(events.height), pl.Int64)
    kept = deduplication.filter(events.with_columns(numbers))[_ROW].to_list()
    if len(kept) == events.height:
        return evidence
    duplicate = row is not None and row not in kept
    if row is not None and duplicate:
        ids = events[schema.event_id].to_list() if schema.event_id is not None else []
        kept = sorted([*(n for n in kept if ids[n] != ids[row]), row])
    question = replace(evidence.question, row=None if row is None else kept.index(row))
    note = f"{events.height - len(kept):,} events of the key are duplicates and do not count"
    return replace(evidence, events=events[kept], question=question, duplicate=duplicate, notes=(*evidence.notes, note))


def _late_events(reader: KafkaReader, late_topic: str, topic: str, most: int) -> Mapping[tuple[int, int], Lateness]:
    late: dict[tuple[int, int], Lateness] = {}
    for table in reader.backwards(late_topic, most):
        for value in table.column("value").to_pylist():
            body = orjson.loads(value or b"{}")
            source = body.get("source", {})
            if source.get("topic") == topic:
                position = source["partition"], source["offset"]
                late[position] = Lateness(body["lateness_ms"], body["watermark_ms"])
    return late


def explain_evidence(
    rule: CompiledRule, schema: StreamSchema, evidence: Evidence, support: Sequence[CompiledRule], lists: ListStore
) -> ExplainResult:
    """Explain the rule over the events of the evidence."""
    explanation = explain_rule(rule, schema, evidence.topic, evidence.events, evidence.question, support, lists)
    list_names = sorted({name for used in (rule, *support) for name in used.lists})
    note = f"lists are used with their present content, at the time of the event: {', '.join(list_names)}"
    return ExplainResult(explanation, evidence.about, (), (*evidence.notes, *((note,) if list_names else ())))
