"""The entries of sequence, absence and score rules: their shapes, and the combinations allowed."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, Tag, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.scalars import ColumnName, Duration, Expression, abbreviate, render_duration

MAX_TIMES: Final = 1_000
MAX_SIGNALS: Final = 200
RuleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
ListName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class SequenceStep(DocumentModel):
    """An event that satisfies ``where``, ``times`` times one after the other; other events may come between.

    ``within``: the last of them at most so long after the step before it (the first step: after its own first event).
    """

    step: Annotated[ColumnName, Field(description="Name of the step; messages refer to it as {step.column}.")]
    where: Annotated[Expression, Field(description="Condition that an event of the step satisfies.")]
    times: Annotated[int, Field(ge=1, le=MAX_TIMES), Field(description="How many such events complete the step.")] = 1
    within: Annotated[
        Duration | None, Field(description="Longest time from the step before to the last event of this step.")
    ] = None


class Without(DocumentModel):
    """No event that satisfies the condition between the steps before and after it.

    At the end: none for ``within`` after the last step; the sequence is complete when that time has passed.
    """

    without: Annotated[
        Expression, Field(description="Condition that no event between the neighbouring steps may satisfy.")
    ]
    within: Annotated[
        Duration | None,
        Field(description="At the end of a sequence: how long after the last step no such event may come."),
    ] = None


def _item_kind(value: object) -> str:
    return "without" if isinstance(value, Without) or (isinstance(value, Mapping) and "without" in value) else "step"


SequenceItem = Annotated[
    Annotated[SequenceStep, Tag("step")] | Annotated[Without, Tag("without")], Discriminator(_item_kind)
]


class Skip(enum.StrEnum):
    """Where to look on after a match: behind its last event, from the next event after its first, or everywhere."""

    PAST_LAST = "past_last"
    TO_NEXT = "to_next"
    NONE = "none"


def check_sequence(items: Sequence[SequenceStep | Without], span_ms: int) -> None:
    """Raise ``ValueError`` for items that do not make a sequence of at most ``span_ms``."""
    steps = [item for item in items if isinstance(item, SequenceStep)]
    if not steps or isinstance(items[0], Without):
        raise ValueError("sequence: begins with a step; what must not come before it cannot be expressed")
    if len(steps) == 1 and steps[0].times == 1 and len(items) == 1:
        raise ValueError("sequence: one event is no sequence; write an event rule with `where`")
    if len({s.step for s in steps}) != len(steps):
        raise ValueError("sequence: two steps have one name")
    for before, item in itertools.pairwise(items):
        if isinstance(before, Without) and isinstance(item, Without):
            raise ValueError("sequence: two `without` in a row; join their conditions by or")
    for item in items[:-1]:
        if isinstance(item, Without) and item.within is not None:
            raise ValueError("sequence: `within` of a `without` is for the last one; between steps it lasts as they do")
    last = items[-1]
    if isinstance(last, Without) and last.within is None:
        raise ValueError("sequence: the last `without` needs `within`: how long after the last step nothing may come")
    for item in items:
        if item.within is not None and item.within > span_ms:
            longest = render_duration(span_ms)
            raise ValueError(f"sequence: within: {render_duration(item.within)} is longer than the whole, {longest}")


class Again(enum.StrEnum):
    """``once``: no second alert until the event came again."""

    ONCE = "once"


class ListedKeys(DocumentModel):
    """The population is the content of a list: armed from the beginning, whether or not a key was ever seen."""

    list: Annotated[ListName, Field(description="Name of the list whose entries are the expected keys.")]


def _population(value: object) -> object:
    if value == "seen" or isinstance(value, ListedKeys | Mapping):
        return value
    raise ValueError(f"{abbreviate(value)} is no population; write seen, or {{list: name}}")


def _again(value: object) -> object:
    return Again.ONCE if value == "once" else value


class EventExpectation(DocumentModel):
    """The event that must come for each key at least ``every`` so long, or an alert reports its absence.

    ``of``: keys that were seen, or those of a list. ``again``: ``once``, or an alert more for every such duration that
    it still does not come. ``forget``: a key that was seen is forgotten after so long without the event.
    """

    where: Annotated[Expression, Field(description="Condition that the expected event satisfies.")]
    every: Annotated[Duration, Field(description="Longest time between two such events of a key.")]
    of: Annotated[
        ListedKeys | str,
        BeforeValidator(_population),
        Field(description="Keys that are expected: seen ones, or those of a list."),
    ] = "seen"
    again: Annotated[
        Again | Duration,
        BeforeValidator(_again),
        PlainSerializer(lambda v: v.value if isinstance(v, Again) else render_duration(v)),
        Field(description="Whether a missing event alerts once, or again after each such duration."),
    ] = Again.ONCE
    forget: Annotated[Duration | None, Field(description="How long a seen key without the event is remembered.")] = None

    @model_validator(mode="after")
    def _consistent(self) -> EventExpectation:
        if self.forget is not None and self.forget < self.every:
            raise ValueError("expect: `forget` must not be shorter than `every`, or nothing would ever be missed")
        if self.forget is not None and isinstance(self.of, ListedKeys):
            raise ValueError("expect: `forget` is for keys that were seen; a list says itself who is on it")
        return self


class SignalCounting(enum.StrEnum):
    """``once``: the largest weight of each rule within the time; ``every``: each time that it matched."""

    ONCE = "once"
    EVERY = "every"


def _signals(value: object) -> object:
    """Return a list of rules has the weights that these have themselves."""
    if isinstance(value, list | tuple):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"{abbreviate(odd[0])} is no rule's id")
        return dict.fromkeys(value)
    return value


class Score(DocumentModel):
    """Adds the scores of other rules for a key over the last ``within``; alerts when the sum reaches ``limit``.

    ``of``: rules and weights, or only the rules, whose weight is then the ``score`` of their ``then``.
    """

    of: Annotated[
        dict[RuleName, Annotated[int, Field(ge=1, le=1_000)] | None],
        BeforeValidator(_signals),
        Field(min_length=1, max_length=MAX_SIGNALS),
        Field(description="Rules that give points: a list, or a mapping to points that replace their own scores."),
    ]
    within: Annotated[Duration, Field(description="How long a match counts, in event time.")]
    limit: Annotated[int, Field(ge=1, le=1_000_000), Field(description="Sum of points from which on the rule alerts.")]
    count: Annotated[
        SignalCounting,
        Field(strict=False),
        Field(description="Whether the best match of each rule counts, or every match."),
    ] = SignalCounting.ONCE


__all__ = [
    "Again",
    "ColumnName",
    "EventExpectation",
    "ListedKeys",
    "Score",
    "SequenceItem",
    "SequenceStep",
    "SignalCounting",
    "Skip",
    "Without",
]
