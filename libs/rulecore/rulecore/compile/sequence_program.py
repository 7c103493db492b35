"""The program of a sequence's automaton: the role that the next event must have, after each number of taken events.

Every entry of the rule's ``sequence`` is a *role*: entry i is bit i of a whole number. The roles of an event are the
entries whose conditions it satisfies. A *partial match* is a key's sequence that has begun and is not complete.

Equal sequences have equal programs and roles, so stored roles stay valid as long as the sequence does not change. This
module does not know conditions, events or names of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rulecore.documents.rule_kinds import SequenceStep, Skip, Without

BEGINS = 1  #: the role of the first step

#: In ``limit_ms``: the event does not start the time limit of a step; an earlier event did.
UNCHANGED = -1


@dataclass(frozen=True, slots=True)
class SequenceProgram:
    """The program of a sequence. ``awaits``, ``ends`` and ``limit_ms`` are by the number of events taken, from 0.

    ``awaits``: the role that the next event must have (not for the last number, the complete match).
    ``ends``: the roles whose events end the partial match, 0 for none.
    ``limit_ms``: the longest time from the event just taken to the last event of the awaited step, if the time limit of
    that step starts with the event just taken; else ``UNCHANGED``.
    ``span_ms``: the longest time from the first event to the last.
    ``quiet_ms``: the time that a final ``without`` waits for its event; None without one.
    ``step_ends``: by step, the number of events taken when it is complete. ``length``: the events of a match.
    """

    awaits: tuple[int, ...]
    ends: tuple[int, ...]
    limit_ms: tuple[int, ...]
    span_ms: int
    quiet_ms: int | None
    skip: Skip
    step_ends: tuple[int, ...]
    length: int


def build_program(items: Sequence[SequenceStep | Without], span_ms: int, skip: Skip) -> SequenceProgram:
    """Return the program of a sequence that ``rule_kinds.check_sequence`` accepts."""
    awaits: list[int] = []
    ends: list[int] = []
    limit_ms: list[int] = []
    step_ends: list[int] = []
    between, quiet_ms = 0, None
    for number, item in enumerate(items):
        if isinstance(item, Without):
            between, quiet_ms = 1 << number, item.within
            continue
        within = span_ms if item.within is None else item.within
        limit_ms += [within] + [UNCHANGED] * (item.times - 1)
        awaits += [1 << number] * item.times
        ends += [between] + [0] * (item.times - 1)
        step_ends.append(len(awaits))
        between = 0
    if isinstance(items[0], SequenceStep) and items[0].times > 1:
        limit_ms[1] = limit_ms[0]  # the time limit of the first step starts with the step's first event
    return SequenceProgram(
        awaits=tuple(awaits),
        ends=(*ends, between),
        limit_ms=(*limit_ms, UNCHANGED),
        span_ms=span_ms,
        quiet_ms=quiet_ms,
        skip=skip,
        step_ends=tuple(step_ends),
        length=len(awaits),
    )
