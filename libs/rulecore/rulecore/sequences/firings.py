"""From a match to what its rules say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rulecore.compiled import CompiledRule
from rulecore.firing import Firing, Origin, Timing
from rulecore.lang.types import Value
from rulecore.sequences.automaton import Match
from rulecore.sequences.compile import COUNT, DURATION, ENDED, STARTED
from rulecore.sequences.memory import sequence_of
from streamcore.position import PARTITIONS_PER_TOPIC


@dataclass(frozen=True, slots=True)
class Found:
    """A match of a sequence for a key. ``sequence``: its number; ``slot``: the key's."""

    sequence: int
    slot: int
    match: Match


def firing(rule: CompiledRule, key: Mapping[str, Value], match: Match, topic: str, since_ms: int) -> Firing:
    """What a rule says of a match; ``since_ms``: the latest event time seen before its sequence was looked for.

    No two matches of a rule version and key have the same first event, so the places of the first and last events and
    their number are a mark.
    """
    origins = tuple(Origin(topic, e[1] % PARTITIONS_PER_TOPIC, e[2], e[0]) for e in match.events)
    first, last = origins[0], origins[-1]
    span_ms = sequence_of(rule).program.span_ms
    return Firing(
        rule=rule,
        key=key,
        mark=(first.partition, first.offset, last.partition, last.offset, len(origins)),
        time_ms=match.end_ms,
        start_ms=first.event_ms,
        end_ms=match.end_ms,
        timing=Timing.FINAL,
        row=None,
        values=_values(rule, match),
        warming=last.event_ms - span_ms <= since_ms,
        events=origins,
    )


def _values(rule: CompiledRule, match: Match) -> dict[str, Value]:
    sequence = sequence_of(rule)
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
