"""The entries of sequence, absence and score rules: their shapes, and the combinations allowed."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Final

from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, Tag, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.scalars import ColumnName, Duration, Expression, StepName, abbreviate, parse_duration_ms
from streamcore.durations import render_duration

MAX_TIMES: Final = 1_000
MAX_GROUP_STEPS: Final = 20
MAX_SIGNALS: Final = 200
RuleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$")]
ListName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class StepContiguity(enum.StrEnum):
    """What may lie between the event before and an event of the step: nothing, what is not of the step, anything."""

    NEXT = "next"
    FOLLOWED_BY = "followed_by"
    FOLLOWED_BY_ANY = "followed_by_any"


class StepTimes(DocumentModel):
    """From ``min`` to ``max`` times; without ``max`` any number of times from ``min`` on.

    ``{at_least: 3}`` is short for ``{min: 3}``, and ``{at_most: 3}`` for ``{min: 1, max: 3}``.
    """

    accepted_entries: ClassVar = ("at_least", "at_most")

    min: Annotated[int, Field(ge=0, le=MAX_TIMES), Field(description="Fewest events; 0 makes the step optional.")]
    max: Annotated[int | None, Field(ge=1, le=MAX_TIMES), Field(description="Most events; without it any number.")] = (
        None
    )

    @model_validator(mode="before")
    @classmethod
    def _read_words(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        found = dict(value)
        for word, entry in (("at_least", "min"), ("at_most", "max")):
            if word in found and entry in found:
                raise ValueError(f"times: write one of {word} and {entry}, which are the same")
            if word in found:
                found[entry] = found.pop(word)
        if "at_most" in value:
            found.setdefault("min", 1)
        return found

    @model_validator(mode="after")
    def _check_order(self) -> StepTimes:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"times: max {self.max} is below min {self.min}")
        return self


class Repetition(DocumentModel):
    """The common options of steps and groups: how they follow the step before, and how often they occur.

    ``within``: the longest time from the last event of the previous step (in the first step: from its own first event)
    to the last of these events.
    """

    contiguity: Annotated[
        StepContiguity,
        Field(strict=False),
        Field(description="What may lie before the event; `{next: NAME}` and the like are short for it."),
    ] = StepContiguity.FOLLOWED_BY
    times: Annotated[
        Annotated[int, Field(ge=1, le=MAX_TIMES)] | StepTimes,
        Field(description="How many such events complete the step: a number, or {min: 2, max: 4}."),
    ] = 1
    optional: Annotated[bool, Field(description="Whether the step may be left out.")] = False
    until: Annotated[
        Expression | None, Field(description="Condition at whose first event a step without max takes no more events.")
    ] = None
    consecutive: Annotated[bool, Field(description="Whether nothing may come between the events of the step.")] = False
    allow_combinations: Annotated[
        bool, Field(description="Whether the step may leave out events that satisfy its condition.")
    ] = False
    within: Annotated[
        Duration | None, Field(description="Longest time from the step before to the last event of this step.")
    ] = None

    @property
    def bounds(self) -> tuple[int, int | None]:
        """The fewest and the most times."""
        return (self.times.min, self.times.max) if isinstance(self.times, StepTimes) else (self.times, self.times)

    @model_validator(mode="after")
    def _check_combination(self) -> Repetition:
        if self.bounds == (1, 1) and (self.consecutive or self.allow_combinations):
            raise ValueError("consecutive and allow_combinations are for steps with times")
        if self.consecutive and self.allow_combinations:
            raise ValueError("consecutive and allow_combinations: only one of them")
        if self.until is not None and self.bounds[1] is not None:
            raise ValueError("until: the step takes a limited number of events; write times: {min: 1} without max")
        return self


class SequenceStep(Repetition):
    """Events that satisfy ``where``, as often as ``times`` says. ``where`` may read the events of earlier steps.

    ``a.amount`` is the value of the last event of step a, and so is ``last(a.amount)``; there are ``first``, ``sum``,
    ``min``, ``max``, ``avg`` and ``count(a)``. The events of the step itself that were taken before can be read, too.
    """

    accepted_entries: ClassVar = (*StepContiguity,)

    step: Annotated[StepName, Field(description="Name of the step; messages refer to it as {step.column}.")]
    where: Annotated[Expression, Field(description="Condition that an event of the step satisfies.")]
    greedy: Annotated[
        bool, Field(description="Whether the step takes as many events as it can before the next step takes one.")
    ] = False

    @model_validator(mode="before")
    @classmethod
    def _read_contiguity(cls, value: object) -> object:
        """Read ``{next: NAME}`` and the like as ``{step: NAME, contiguity: next}``."""
        if not isinstance(value, Mapping):
            return value
        given = [word.value for word in StepContiguity if word.value in value]
        if not given:
            return value
        if len(given) > 1 or "step" in value or "contiguity" in value:
            raise ValueError(f"a step has one of step, {', '.join(StepContiguity)}")
        rest = {name: entry for name, entry in value.items() if name != given[0]}
        return {"step": value[given[0]], "contiguity": given[0], **rest}

    @model_validator(mode="after")
    def _check_greedy(self) -> SequenceStep:
        least, most = self.bounds
        if self.greedy and (least == most or self.allow_combinations):
            raise ValueError("greedy: is for steps with times from min to max, and not with allow_combinations")
        return self


class Without(DocumentModel):
    """No event between the neighbouring steps satisfies the condition.

    At the end of a sequence: no event within ``within`` after the last step does; the sequence matches when that time
    has passed. ``directly``: only the event right after the step before is forbidden.
    """

    without: Annotated[
        Expression, Field(description="Condition that no event between the neighbouring steps may satisfy.")
    ]
    directly: Annotated[bool, Field(description="Whether only the next event is forbidden, not later ones.")] = False
    within: Annotated[
        Duration | None,
        Field(description="At the end of a sequence: how long after the last step no such event may come."),
    ] = None


class StepGroup(Repetition):
    """Steps that occur together, as often as ``times`` says."""

    group: Annotated[
        tuple[Annotated[SequenceStep, Tag("step")] | Annotated[Without, Tag("without")], ...],
        Field(strict=False, min_length=1, max_length=MAX_GROUP_STEPS),
        Field(description="Steps that occur one after the other, and `without` between them."),
    ]


def _tag_for(value: object) -> str:
    for tag, kind in (("without", Without), ("group", StepGroup)):
        if isinstance(value, kind) or (isinstance(value, Mapping) and tag in value):
            return tag
    return "step"


SequenceItem = Annotated[
    Annotated[SequenceStep, Tag("step")] | Annotated[Without, Tag("without")] | Annotated[StepGroup, Tag("group")],
    Discriminator(_tag_for),
]


class Skip(enum.StrEnum):
    """Which other partial matches a match discards.

    ``past_last``: those that began up to its last event. ``to_next``: those that began with its first event. ``none``:
    no others.
    """

    PAST_LAST = "past_last"
    TO_NEXT = "to_next"
    NONE = "none"


class SkipToStep(DocumentModel):
    """A match discards the partial matches that began before the first or last event of one of its steps."""

    to_first: Annotated[StepName | None, Field(description="Step to whose first event the search goes on.")] = None
    to_last: Annotated[StepName | None, Field(description="Step to whose last event the search goes on.")] = None

    @model_validator(mode="after")
    def _check_one(self) -> SkipToStep:
        if (self.to_first is None) == (self.to_last is None):
            raise ValueError("skip: write one of {to_first: STEP} and {to_last: STEP}")
        return self

    @property
    def step(self) -> str:
        """The name of the step."""
        return self.to_first or self.to_last or ""


class TimedOut(enum.StrEnum):
    """What happens with a partial match whose time is over. ``emit``: an alert with ``timed_out`` true."""

    DROP = "drop"
    EMIT = "emit"


def flatten_steps(items: Sequence[SequenceStep | Without | StepGroup]) -> list[SequenceStep]:
    """Return the steps in order, those of groups in their place."""
    found = []
    for item in items:
        if isinstance(item, StepGroup):
            found += [step for step in item.group if isinstance(step, SequenceStep)]
        elif isinstance(item, SequenceStep):
            found.append(item)
    return found


def check_sequence(items: Sequence[SequenceStep | Without | StepGroup], span_ms: int, skip: Skip | SkipToStep) -> None:
    """Raise ``ValueError`` for items that do not make a sequence of at most ``span_ms``."""
    steps = flatten_steps(items)
    if not steps or isinstance(items[0], Without):
        raise ValueError("sequence: begins with a step; a `without` before it cannot be expressed")
    if len(steps) == 1 and steps[0].times == 1 and len(items) == 1 and not isinstance(items[0], StepGroup):
        raise ValueError("sequence: one event is no sequence; write an event rule with `where`")
    names = [s.step for s in steps]
    if repeated := [name for n, name in enumerate(names) if name in names[:n]]:
        raise ValueError(f"sequence: two steps are named {repeated[0]}; give each a name of its own")
    if isinstance(skip, SkipToStep) and skip.step not in names:
        raise ValueError(f"skip: there is no step {skip.step}; write one of {', '.join(names)}")
    for before, item in itertools.pairwise(items):
        if isinstance(before, Without) and isinstance(item, Without):
            raise ValueError("sequence: two `without` in a row; join their conditions by or")
        if isinstance(item, Without) and isinstance(before, Repetition) and _may_be_left_out(before):
            raise ValueError("sequence: a `without` after an optional step; what it follows is unclear")
    for item in items[:-1]:
        if isinstance(item, Without) and item.within is not None:
            raise ValueError("sequence: only a `without` at the end has `within`; between steps leave it out")
    last = items[-1]
    if isinstance(last, Without) and (last.within is None) != last.directly:
        raise ValueError(
            "sequence: a `without` at the end needs `within`: how long after the last step it holds"
            if last.within is None
            else "sequence: a `without` with `directly` has no `within`: it is about the next event"
        )
    for item in items:
        if item.within is not None and item.within > span_ms:
            longest = render_duration(span_ms)
            raise ValueError(f"sequence: within: {render_duration(item.within)} is longer than the rule's, {longest}")


def _may_be_left_out(item: Repetition) -> bool:
    return item.optional or item.bounds[0] == 0


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
    "SkipToStep",
    "StepContiguity",
    "StepGroup",
    "StepTimes",
    "TimedOut",
    "Without",
    "flatten_steps",
]
