"""The structure of a sequence in the form that its automaton runs: the step awaited after each number of taken events.

Every entry of the rule's ``sequence`` is a *role* that an event may have for it: entry i is bit i of a whole number. An
event's roles are all the entries whose condition it satisfies; the first step is therefore bit 0.

Promises: equal structures have equal programs and equal roles, so stored roles stay good for as long as a structure
exists. Refuses to know conditions, events and names of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rulecore.documents.rule_kinds import SequenceStep, Skip, Without

BEGINS = 1  #: the role of the first step

#: In ``limit_ms``: the step's time began with an earlier event.
UNCHANGED = -1


@dataclass(frozen=True, slots=True)
class SequenceProgram:
    """All tuples are by the number of events taken so far, from 0.

    ``awaits``: the role that the next event must have (for all but the last number).
    ``ends``: roles that end the partial, 0 for none.
    ``limit_ms``: how long from the event just taken until the step's last one, where that event began the step's time.
    ``span_ms``: from the first event to the last. ``quiet_ms``: of a final ``without``, None without one.
    ``step_ends``: how many events are taken when each step is over, step by step. ``length``: events of a match.
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
    """Return the program of a sequence that ``kinds.check_sequence`` accepts."""
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
        limit_ms[1] = limit_ms[0]  # the first step's time begins with its own first event
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
