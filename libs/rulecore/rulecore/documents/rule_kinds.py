"""The entries of sequence, absence and score rules: their shapes, and the combinations allowed."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, Tag, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.scalars import ColumnName, Duration, Expression, abbreviate, parse_duration_ms
from streamcore.durations import render_duration

MAX_TIMES: Final = 1_000
MAX_SIGNALS: Final = 200
RuleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
ListName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class SequenceStep(DocumentModel):
    """``times`` events that satisfy ``where``; other events may come between them.

    ``within``: the longest time from the last event of the previous step (in the first step: from its own first event)
    to the last of these events.
    """

    step: Annotated[ColumnName, Field(description="Name of the step; messages refer to it as {step.column}.")]
    where: Annotated[Expression, Field(description="Condition that an event of the step satisfies.")]
    times: Annotated[int, Field(ge=1, le=MAX_TIMES), Field(description="How many such events complete the step.")] = 1
    within: Annotated[
        Duration | None, Field(description="Longest time from the step before to the last event of this step.")
    ] = None


class Without(DocumentModel):
    """No event between the neighbouring steps satisfies the condition.

    At the end of a sequence: no event within ``within`` after the last step does; the sequence matches when that time
    has passed.
    """

    without: Annotated[
        Expression, Field(description="Condition that no event between the neighbouring steps may satisfy.")
    ]
    within: Annotated[
        Duration | None,
        Field(description="At the end of a sequence: how long after the last step no such event may come."),
    ] = None


def _tag_for(value: object) -> str:
    return "without" if isinstance(value, Without) or (isinstance(value, Mapping) and "without" in value) else "step"


SequenceItem = Annotated[
    Annotated[SequenceStep, Tag("step")] | Annotated[Without, Tag("without")], Discriminator(_tag_for)
]


class Skip(enum.StrEnum):
    """Which other partial matches a match discards.

    ``past_last``: those that began up to its last event. ``to_next``: those that began with its first event. ``none``:
    no others.
    """

    PAST_LAST = "past_last"
    TO_NEXT = "to_next"
    NONE = "none"


def check_sequence(items: Sequence[SequenceStep | Without], span_ms: int) -> None:
    """Raise ``ValueError`` for items that do not make a sequence of at most ``span_ms``."""
    steps = [item for item in items if isinstance(item, SequenceStep)]
    if not steps or isinstance(items[0], Without):
        raise ValueError("sequence: begins with a step; a `without` before it cannot be expressed")
    if len(steps) == 1 and steps[0].times == 1 and len(items) == 1:
        raise ValueError("sequence: one event is no sequence; write an event rule with `where`")
    if len({s.step for s in steps}) != len(steps):
        raise ValueError("sequence: two steps have the same name")
    for before, item in itertools.pairwise(items):
        if isinstance(before, Without) and isinstance(item, Without):
            raise ValueError("sequence: two `without` in a row; join their conditions by or")
    for item in items[:-1]:
        if isinstance(item, Without) and item.within is not None:
            raise ValueError("sequence: only a `without` at the end has `within`; between steps leave it out")
    last = items[-1]
    if isinstance(last, Without) and last.within is None:
        raise ValueError("sequence: a `without` at the end needs `within`: how long after the last step it holds")
    for item in items:
        if item.within is not None and item.within > span_ms:
            longest = render_duration(span_ms)
            raise ValueError(f"sequence: within: {render_duration(item.within)} is longer than the rule's, {longest}")


class Again(enum.StrEnum):
    """``once``: a missing event alerts once, and again only after the event has come."""

    ONCE = "once"


class ListedKeys(DocumentModel):
    """The expected keys are the entries of a list. A key is expected even if no event of it was ever read."""

    list: Annotated[ListName, Field(description="Name of the list whose entries are the expected keys.")]


def _check_population(value: object) -> object:
    if value == "seen" or isinstance(value, ListedKeys | Mapping):
        return value
    raise ValueError(f"{abbreviate(value)} is no set of keys; write seen, or {{list: name}}")


def _read_again(value: object) -> object:
    """Return the value, with the word as a constant. Raise one error, not one per member of the union."""
    if value == Again.ONCE:
        return Again.ONCE
    try:
        parse_duration_ms(value)
    except ValueError:
        raise ValueError(f"{abbreviate(value)} is neither once nor a duration; write once, or 30s, 5m, 1h") from None
    return value


class EventExpectation(DocumentModel):
    """An event that must come for each key at least once per ``every``; an alert reports its absence.

    ``of``: the expected keys, which are those seen or those of a list. ``again``: ``once``, or the time after which a
    missing event alerts again. ``forget``: the time without the event after which a seen key is forgotten.
    """

    where: Annotated[Expression, Field(description="Condition that the expected event satisfies.")]
    every: Annotated[Duration, Field(description="Longest time between two such events of a key.")]
    of: Annotated[
        ListedKeys | str,
        BeforeValidator(_check_population),
        Field(description="Keys that are expected: seen ones, or those of a list."),
    ] = "seen"
    again: Annotated[
        Again | Duration,
        BeforeValidator(_read_again),
        PlainSerializer(lambda v: v.value if isinstance(v, Again) else render_duration(v)),
        Field(description="Whether a missing event alerts once, or again after each such duration."),
    ] = Again.ONCE
    forget: Annotated[Duration | None, Field(description="How long a seen key without the event is remembered.")] = None

    @model_validator(mode="after")
    def _check_forget(self) -> EventExpectation:
        if self.forget is not None and self.forget < self.every:
            raise ValueError("expect: `forget` must not be shorter than `every`, or nothing would ever be missed")
        if self.forget is not None and isinstance(self.of, ListedKeys):
            raise ValueError("expect: `forget` is for keys that were seen; with a list, leave it out")
        return self


class SignalCounting(enum.StrEnum):
    """``once``: the best match of each rule within the time counts; ``every``: every match counts."""

    ONCE = "once"
    EVERY = "every"


def _read_signals(value: object) -> object:
    """Return a list of rules as a mapping to None: each rule then counts with its own score."""
    if isinstance(value, list | tuple):
        if odd := [name for name in value if not isinstance(name, str)]:
            raise ValueError(f"{abbreviate(odd[0])} is no rule's id")
        return dict.fromkeys(value)
    return value


class Score(DocumentModel):
    """Adds the scores of other rules for a key over the last ``within``; alerts when the sum reaches ``limit``.

    ``of``: the points of each rule; None for the ``score`` in the ``then`` of that rule.
    """

    of: Annotated[
        dict[RuleName, Annotated[int, Field(ge=1, le=1_000)] | None],
        BeforeValidator(_read_signals),
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
