"""What an explanation is about, as a value; and which of its events the app did not count, because they were late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson
import polars as pl

from rulecore.explain_rule import Question
from streamcore.schema import OFFSET, PARTITION

if TYPE_CHECKING:  # an explanation from files reads nothing
    from headgate.explain_reading import Found, Reading


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
