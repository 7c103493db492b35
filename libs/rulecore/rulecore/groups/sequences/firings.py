"""Turns a match of a sequence into the firings of its rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence import COUNT, DURATION, ENDED, STARTED, TIMED_OUT
from rulecore.compile.sequence_conditions import compute_read
from rulecore.documents.rule_kinds import Without
from rulecore.firing import FiringTime, Origin, RuleFiring
from rulecore.groups.sequences.ids import required_sequence
from rulecore.language.types import Value
from rulecore.streams import is_union
from streamcore.offsets import PARTITIONS_PER_TOPIC


@dataclass(frozen=True, slots=True)
class MatchedEvent:
    """An event of a match. ``step``: the number of the step that took it. ``values``: by column."""

    event_ms: int
    partition: int
    offset: int
    step: int
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class SequenceMatch:
    """A match: its events in order, and the time ``certain_ms`` at which it is certain: that of its last event, the end
    of a quiet time, or the end of the partial matches that it waited for, because they began before it.

    ``timed_out``: it is a partial match whose time was over then.
    """

    events: Sequence[MatchedEvent]
    certain_ms: int
    timed_out: bool = False


def to_firing(
    rule: CompiledRule, key: Mapping[str, Value], match: SequenceMatch, find_topic: Callable[[int], str], since_ms: int
) -> RuleFiring:
    """Return the firing of a rule for a match. ``find_topic``: finds the topic of a partition of the app. ``since_ms``:
    the latest event time before the sequence was known."""
    origins = tuple(
        Origin(find_topic(e.partition), e.partition % PARTITIONS_PER_TOPIC, e.offset, e.event_ms) for e in match.events
    )
    first, last = origins[0], origins[-1]
    return RuleFiring(
        rule=rule,
        key=key,
        mark=_mark(rule, match, origins),
        time_ms=match.certain_ms,
        start_ms=first.event_ms,
        end_ms=find_end(rule, match),
        timing=FiringTime.FINAL,
        row=None,
        values=_values(rule, match),
        incomplete=last.event_ms - required_sequence(rule).span_ms <= since_ms,
        events=origins,
        steps=tuple(required_sequence(rule).automaton.steps[event.step] for event in match.events),
    )


def find_end(rule: CompiledRule, match: SequenceMatch) -> int:
    """Return the time of the last event of a match, or the end of the quiet time after it; of a partial match whose
    time was over, the end of that time."""
    if match.timed_out:
        return match.certain_ms
    quiet = (rule.rule.sequence or ())[-1]
    return match.events[-1].event_ms + ((quiet.within or 0) if isinstance(quiet, Without) else 0)


def _mark(rule: CompiledRule, match: SequenceMatch, origins: Sequence[Origin]) -> tuple[int, ...]:
    """Return what identifies the firing among those of its rule version and key.

    If there is at most one way from a first event, the first and the last one do; otherwise a digest of all events.
    """
    first, last = origins[0], origins[-1]
    ends = (first.partition, first.offset, last.partition, last.offset, len(origins))
    if required_sequence(rule).unambiguous and not match.timed_out and not is_union(rule.rule.on):
        return ends
    topics = [[o.topic] if is_union(rule.rule.on) else [] for o in origins]  # two topics have equal offsets
    events = [[e.step, o.partition, o.offset, *t] for e, o, t in zip(match.events, origins, topics, strict=True)]
    digest = hashlib.blake2b(orjson.dumps([match.timed_out, events]), digest_size=7).digest()
    return (*ends, int.from_bytes(digest, "big"))


def _values(rule: CompiledRule, match: SequenceMatch) -> dict[str, Value]:
    """Return the values of the alert: count, times and captured values."""
    steps = required_sequence(rule).automaton.steps
    started, ended = match.events[0].event_ms, match.events[-1].event_ms
    values: dict[str, Value] = {
        COUNT: len(match.events),
        DURATION: ended - started,
        STARTED: started,
        ENDED: ended,
        TIMED_OUT: match.timed_out,
    }
    captures = required_sequence(rule).captures
    taken: dict[str, list[Mapping[str, Value]]] = {}
    for event in match.events if captures else ():
        taken.setdefault(steps[event.step], []).append(event.values)
    for capture in captures:
        values[capture.name] = capture.read.to_physical(compute_read(capture.read.read, taken))
    return values
