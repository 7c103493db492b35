"""Turns a match of a sequence into the firings of its rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence import COUNT, DURATION, ENDED, STARTED
from rulecore.firing import FiringTime, Origin, RuleFiring
from rulecore.groups.sequences.automaton import Match
from rulecore.groups.sequences.ids import required_sequence
from rulecore.language.types import Value
from streamcore.offsets import PARTITIONS_PER_TOPIC


@dataclass(frozen=True, slots=True)
class SequenceMatch:
    """A match of the sequence with this number, for the key in this key slot."""

    sequence: int
    key_slot: int
    match: Match


def to_firing(rule: CompiledRule, key: Mapping[str, Value], match: Match, topic: str, since_ms: int) -> RuleFiring:
    """Return the firing of a rule for a match. ``since_ms``: the latest event time before the sequence was known.

    Two matches of a rule version and key never have an equal first event, so partition and offset of the first and the
    last event, with the number of events, identify the firing (``mark``).
    """
    origins = tuple(Origin(topic, e[1] % PARTITIONS_PER_TOPIC, e[2], e[0]) for e in match.events)
    first, last = origins[0], origins[-1]
    span_ms = required_sequence(rule).program.span_ms
    return RuleFiring(
        rule=rule,
        key=key,
        mark=(first.partition, first.offset, last.partition, last.offset, len(origins)),
        time_ms=match.end_ms,
        start_ms=first.event_ms,
        end_ms=match.end_ms,
        timing=FiringTime.FINAL,
        row=None,
        values=_values(rule, match),
        incomplete=last.event_ms - span_ms <= since_ms,
        events=origins,
    )


def _values(rule: CompiledRule, match: Match) -> dict[str, Value]:
    """Return the values of the alert: count, times and captured values."""
    sequence = required_sequence(rule)
    started, ended = match.events[0][0], match.events[-1][0]
    values: dict[str, Value] = {
        COUNT: len(match.events),
        DURATION: ended - started,
        STARTED: started,
        ENDED: ended,
    }
    for capture in sequence.captures:
        last_of_step = match.events[sequence.program.step_ends[capture.step] - 1]
        values[capture.name] = last_of_step[4].get(capture.column)
    return values
