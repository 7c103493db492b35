"""What an explanation is about, as a value; and which of its events the app did not count, because they were late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import polars as pl
import pyarrow as pa

from headgate.decoding import Decoding
from headgate.explain_ask import Answer
from headgate.explain_file import about_last, no_event
from rulecore.compiled import CompiledRule
from rulecore.explain_rule import explain_rule
from rulecore.explanation import Question
from rulecore.lists.store import ListStore
from streamcore.schema import OFFSET, PARTITION, StreamSchema

if TYPE_CHECKING:  # an explanation from files reads nothing
    from headgate.explain_reading import Found, Reading

_END_MS = 2**53


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


def events_of_lines(
    path: Path, lines: Sequence[bytes], schema: StreamSchema, rule: CompiledRule, clock_ms: int
) -> Inquiry:
    """One JSON event a line, in order of arrival; the last is the one in question. After it time ends, as in a rule's
    tests."""
    count = len(lines)
    decode = Decoding(schema, clock_ms)
    events = decode(pa.array(lines, pa.binary()), pa.array([0] * count, pa.int32()), pa.array(range(count), pa.int64()))
    if decode.dead:
        raise no_event(path, schema, decode.dead)
    if rule.group_by and count > 1:
        key = events[count - 1].select(rule.group_by).row(0, named=True)
        events = events.filter([pl.col(n).eq_missing(pl.lit(v)) for n, v in key.items()])
    question = Question(row=events.height - 1, closing_ms=_END_MS)
    return Inquiry(path.name, events, question, about_last(path))


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


def explained(
    rule: CompiledRule, schema: StreamSchema, inquiry: Inquiry, support: Sequence[CompiledRule], lists: ListStore
) -> Answer:
    """The rule over the events of an inquiry."""
    explanation = explain_rule(rule, schema, inquiry.topic, inquiry.events, inquiry.question, support, lists)
    asked = sorted({name for one in (rule, *support) for name in one.lists})
    note = f"lists are asked as they are now, at the event's time: {', '.join(asked)}"
    return Answer(explanation, inquiry.about, (), (*inquiry.notes, *((note,) if asked else ())))
