"""A pattern as a value: steps that follow one another, with quantifiers, and what happens after a match.

::

    Pattern.begin("failed").where(pl.col("status") == "failed").times(3)
        .followed_by("paid").where(pl.col("status") == "ok")
        .within("10m")

Every method returns another pattern. Names and meanings are those of Flink's CEP library; see the package docstring.
``ConfigError`` for what cannot be combined, where it is written.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from streamcore.arguments import check_type, check_whole
from streamcore.durations import Duration, duration_ms
from streamcore.errors import ConfigError

#: The most steps of a pattern, those of groups included, and the most distinct conditions.
MAX_STEPS = 1_000
MAX_CONDITIONS = 62
#: The most events that a step takes by ``times``.
MAX_TIMES = 1_000


class Contiguity(enum.StrEnum):
    """What may lie between the events of two neighbouring steps, or of one step.

    STRICT: nothing. RELAXED: events that do not satisfy the step's condition. RELAXED_ANY: any events, so there are
    several ways to go on. NOT_NEXT and NOT_FOLLOWED_BY are steps that forbid an event.
    """

    STRICT = "next"
    RELAXED = "followed_by"
    RELAXED_ANY = "followed_by_any"
    NOT_NEXT = "not_next"
    NOT_FOLLOWED_BY = "not_followed_by"

    @property
    def negates(self) -> bool:
        """Whether the step forbids an event."""
        return self in (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOWED_BY)


class WithinType(enum.StrEnum):
    """What a time limit is about: the first and the last event of a match, or a step and the event before it.

    SINCE_STEP_BEFORE: all events of the step, from the last event of the step before it; of the first step, from its
    own first event. BETWEEN_TIMES: two events of the step.
    """

    FIRST_AND_LAST = "first_and_last"
    PREVIOUS_AND_CURRENT = "previous_and_current"
    SINCE_STEP_BEFORE = "since_step_before"
    BETWEEN_TIMES = "between_times"


class SkipKind(enum.StrEnum):
    """Which partial matches a match discards (``AfterMatchSkip``)."""

    NO_SKIP = "no_skip"
    TO_NEXT = "skip_to_next"
    PAST_LAST_EVENT = "skip_past_last_event"
    TO_FIRST = "skip_to_first"
    TO_LAST = "skip_to_last"


@dataclass(frozen=True, slots=True)
class AfterMatchSkip:
    """What a match discards: partial matches, and matches that are not emitted yet. ``step``: for TO_FIRST, TO_LAST.

    NO_SKIP: nothing. TO_NEXT: what began with the match's first event. PAST_LAST_EVENT: what began with one of its
    events or between them. TO_FIRST, TO_LAST: what began before the first or last event of a step.
    """

    kind: SkipKind = SkipKind.NO_SKIP
    step: str = ""


def no_skip() -> AfterMatchSkip:
    """Return the strategy by which every possible match is emitted."""
    return AfterMatchSkip()


def skip_to_next() -> AfterMatchSkip:
    """Return the strategy that discards every partial match that began with the same event as the match."""
    return AfterMatchSkip(SkipKind.TO_NEXT)


def skip_past_last_event() -> AfterMatchSkip:
    """Return the strategy that discards every partial match that began before the match ended."""
    return AfterMatchSkip(SkipKind.PAST_LAST_EVENT)


def skip_to_first(step: str) -> AfterMatchSkip:
    """Return the strategy that discards every partial match that began before the first event of the step."""
    return AfterMatchSkip(SkipKind.TO_FIRST, step)


def skip_to_last(step: str) -> AfterMatchSkip:
    """Return the strategy that discards every partial match that began before the last event of the step."""
    return AfterMatchSkip(SkipKind.TO_LAST, step)


@dataclass(frozen=True, eq=False)
class Disjunction:
    """The condition of a step: it holds if all conditions of one of the alternatives hold. Without any, it is true.

    A condition is whatever the owner of the rows can evaluate for a column of them, or an ``IterativeCondition``.
    """

    alternatives: tuple[tuple[Any, ...], ...] = ()

    def also(self, condition: object) -> Disjunction:
        """Return the condition with another one, which must hold as well."""
        return Disjunction(tuple((*all_of, condition) for all_of in self.alternatives or ((),)))

    def otherwise(self, condition: object) -> Disjunction:
        """Return the condition with an alternative."""
        return Disjunction((*self.alternatives, (condition,)))


@dataclass(frozen=True, slots=True)
class Excluded:
    """Among the conditions of an alternative: that these do not all hold."""

    conditions: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Step:
    """A step: events that satisfy ``condition``, or the events of ``group``. ``first``: the condition of the first
    event if that is another one.

    ``least``, ``most``: how many times it takes an event or goes through the group; ``most`` None: without limit.
    ``inner``: the contiguity between these times; None: relaxed, or in the first step of a group that of the group.
    ``until``: from an event that satisfies it on, the step takes none.
    ``limit_ms``, ``limit``: a time limit of this step. ``repeats``: the step has a quantifier.
    ``forbid_at_end_only``: a ``not_followed_by`` behind a step with ``times`` counts when all its events are there,
    not from the first one on.
    """

    name: str
    contiguity: Contiguity
    condition: Disjunction = field(default_factory=Disjunction)
    first: Disjunction | None = None
    group: Pattern | None = None
    least: int = 1
    most: int | None = 1
    repeats: bool = False
    optional: bool = False
    greedy: bool = False
    inner: Contiguity | None = None
    until: Disjunction | None = None
    limit_ms: int | None = None
    limit: WithinType = WithinType.PREVIOUS_AND_CURRENT
    forbid_at_end_only: bool = False

    @property
    def loops(self) -> bool:
        """Whether the step takes any number of events."""
        return self.most is None


@dataclass(frozen=True, eq=False)
class Pattern:
    """Steps in order, and what applies to all of them. Methods after a step change the last one.

    ``within_ms``: the time from the first event of a match within which the last one comes (exclusive).
    """

    steps: tuple[Step, ...]
    skip: AfterMatchSkip = AfterMatchSkip()
    within_ms: int | None = None

    # --- steps --------------------------------------------------------------------------------------------------

    @classmethod
    def begin(cls, first: str | Pattern, skip: AfterMatchSkip | None = None) -> Pattern:
        """Begin with a step of this name, or with a group. ``skip``: what happens after a match; by default no skip."""
        if skip is not None:
            check_type("begin: skip", skip, AfterMatchSkip, "write such as skip_past_last_event()")
        return cls((_step(first, Contiguity.STRICT, "begin"),), skip or AfterMatchSkip())

    def next(self, step: str | Pattern) -> Pattern:
        """Add a step, or a group, whose event comes right after the event before."""
        return self._add(step, Contiguity.STRICT)

    def followed_by(self, step: str | Pattern) -> Pattern:
        """Add a step, or a group, that takes the next event that satisfies its condition."""
        return self._add(step, Contiguity.RELAXED)

    def followed_by_any(self, step: str | Pattern) -> Pattern:
        """Add a step, or a group, that takes any later event that satisfies its condition, each in another match."""
        return self._add(step, Contiguity.RELAXED_ANY)

    def not_next(self, step: str) -> Pattern:
        """Add a step that forbids an event that satisfies its condition right after the event before."""
        return self._add(step, Contiguity.NOT_NEXT)

    def not_followed_by(self, step: str) -> Pattern:
        """Add a step that forbids events that satisfy its condition until the next step; at the end, with ``within``.

        At the end the match is emitted when the time is over: that of ``within`` of the whole pattern, or of this step.
        """
        return self._add(step, Contiguity.NOT_FOLLOWED_BY)

    # --- conditions ---------------------------------------------------------------------------------------------

    def where(self, condition: object) -> Pattern:
        """Set the condition of an event of the step; several calls are joined by and."""
        step = self._last("where", group=False)
        return self._replace(condition=step.condition.also(condition))

    def or_where(self, condition: object) -> Pattern:
        """Add an alternative to the condition of the step."""
        step = self._last("or_where", group=False)
        return self._replace(condition=step.condition.otherwise(condition))

    def until(self, condition: object) -> Pattern:
        """Let the step take no more from an event on that satisfies the condition; for ``one_or_more`` and the like."""
        step = self._last("until")
        if not step.loops:
            raise ConfigError(f"pattern: until: {step.name!r} takes a limited number of events; it needs none")
        if step.until is not None:
            raise ConfigError(f"pattern: until: {step.name!r} has one already; join the conditions by |")
        return self._replace(until=Disjunction(((condition,),)))

    # --- quantifiers --------------------------------------------------------------------------------------------

    def one_or_more(self, *, within_ms: Duration | None = None) -> Pattern:
        """Let the step take one event or more. ``within_ms``: the longest time between two of them (exclusive)."""
        return self.times_or_more(1, within_ms=within_ms)

    def times(self, least: int, most: int | None = None, *, within_ms: Duration | None = None) -> Pattern:
        """Let the step take so many events, or from ``least`` to ``most``. ``within_ms``: as in ``one_or_more``."""
        most = least if most is None else most
        check_whole(least=least, most=most)
        if not 0 <= least <= most or not 1 <= most <= MAX_TIMES:
            raise ConfigError(f"pattern: times({least}, {most}): from 0 to {MAX_TIMES}, the first not above the second")
        pattern = self._quantify("times", max(1, least), most, within_ms)
        return pattern.optional() if least == 0 else pattern

    def times_or_more(self, least: int, *, within_ms: Duration | None = None) -> Pattern:
        """Let the step take so many events or more. ``within_ms``: as in ``one_or_more``."""
        check_whole(least=least)
        if not 1 <= least <= MAX_TIMES:
            raise ConfigError(f"pattern: times_or_more({least}): from 1 to {MAX_TIMES}")
        return self._quantify("times_or_more", least, None, within_ms)

    def optional(self) -> Pattern:
        """Let the step take nothing as well."""
        step = self._last("optional")
        if step.optional:
            raise ConfigError(f"pattern: optional: {step.name!r} is optional already")
        if len(self.steps) > 1 and self.steps[-2].greedy:
            raise ConfigError(
                f"pattern: optional: the step before {step.name!r} is greedy, and its end is not known then"
            )
        return self._replace(optional=True)

    def greedy(self) -> Pattern:
        """Let the step take as many events as it can: while it can take an event, the next step does not."""
        step = self._last("greedy", group=False)
        if not step.repeats:
            raise ConfigError(f"pattern: greedy: {step.name!r} takes one event; write such as one_or_more() before it")
        if step.inner is Contiguity.RELAXED_ANY:
            raise ConfigError(f"pattern: greedy: {step.name!r} allows combinations, so it is not greedy")
        return self._replace(greedy=True)

    def consecutive(self) -> Pattern:
        """Let the events of the step come right after one another."""
        return self._set_inner("consecutive", Contiguity.STRICT)

    def allow_combinations(self) -> Pattern:
        """Let the step leave out events that satisfy its condition, so that it takes every combination of them."""
        if self.steps[-1].greedy:
            raise ConfigError(f"pattern: allow_combinations: {self.steps[-1].name!r} is greedy")
        return self._set_inner("allow_combinations", Contiguity.RELAXED_ANY)

    # --- time ---------------------------------------------------------------------------------------------------

    def within(self, within_ms: Duration, between: WithinType = WithinType.FIRST_AND_LAST) -> Pattern:
        """Set a time limit (exclusive): of the pattern, or between the step and the event before.

        An event that comes so long after the first event, or the event before, is too late.
        """
        within_ms = duration_ms("within", within_ms)
        check_type("within: between", between, WithinType, "write such as WithinType.PREVIOUS_AND_CURRENT")
        if within_ms < 1:
            raise ConfigError(f"pattern: within({within_ms}): at least 1 millisecond")
        if between is WithinType.FIRST_AND_LAST:
            shortest = within_ms if self.within_ms is None else min(within_ms, self.within_ms)
            return replace(self, within_ms=shortest)
        if len(self.steps) == 1 and between is WithinType.PREVIOUS_AND_CURRENT and not self.steps[0].repeats:
            raise ConfigError("pattern: within: the first step has no event before it")
        return self._replace(limit_ms=within_ms, limit=between)

    # --- reading ------------------------------------------------------------------------------------------------

    def all_steps(self) -> Iterator[Step]:
        """Yield the steps that have conditions, those of groups in their place."""
        for step in self.steps:
            if step.group is None:
                yield step
            else:
                yield from step.group.all_steps()

    @property
    def step_names(self) -> tuple[str, ...]:
        """The names of the steps that take events, in order."""
        return tuple(step.name for step in self.all_steps() if not step.contiguity.negates)

    # --- changing -----------------------------------------------------------------------------------------------

    def _add(self, step: str | Pattern, contiguity: Contiguity) -> Pattern:
        before = self.steps[-1]
        if contiguity.negates and before.optional:
            raise ConfigError(
                f"pattern: {contiguity} after the optional step {before.name!r}: what it follows is unclear"
            )
        if contiguity.negates and not isinstance(step, str):
            raise ConfigError(f"pattern: {contiguity} takes the name of a step, not a group")
        if before.contiguity is Contiguity.NOT_NEXT and contiguity is Contiguity.NOT_NEXT:
            raise ConfigError("pattern: two not_next in a row; join their conditions by |")
        pattern = replace(self, steps=(*self.steps, _step(step, contiguity, contiguity.value)))
        names = [step.name for step in pattern.all_steps()]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"pattern: two steps are named {repeated!r}")
        if len(names) > MAX_STEPS:
            raise ConfigError(f"pattern: more than {MAX_STEPS} steps")
        return pattern

    def _quantify(self, method: str, least: int, most: int | None, within_ms: Duration | None) -> Pattern:
        step = self._last(method)
        if step.repeats:
            raise ConfigError(f"pattern: {method}: {step.name!r} has a quantifier already")
        pattern = self._replace(least=least, most=most, repeats=True)
        if within_ms is None:
            return pattern
        return pattern.within(within_ms, WithinType.BETWEEN_TIMES)

    def _set_inner(self, method: str, contiguity: Contiguity) -> Pattern:
        step = self._last(method)
        if not step.repeats:
            raise ConfigError(
                f"pattern: {method}: {step.name!r} takes one event; write such as one_or_more() before it"
            )
        return self._replace(inner=contiguity)

    def _last(self, method: str, *, group: bool = True) -> Step:
        step = self.steps[-1]
        if step.group is not None and not group:
            raise ConfigError(f"pattern: {method}: cannot be applied to a group; apply it to a step of the group")
        if step.contiguity.negates and method not in ("where", "or_where"):
            raise ConfigError(f"pattern: {method}: cannot be applied to {step.contiguity}({step.name!r})")
        return step

    def _replace(self, **changes: Any) -> Pattern:
        return replace(self, steps=(*self.steps[:-1], replace(self.steps[-1], **changes)))


def _step(step: str | Pattern, contiguity: Contiguity, method: str) -> Step:
    if isinstance(step, Pattern):
        if step.steps[-1].contiguity.negates:
            raise ConfigError(
                f"pattern: {method}: the group ends with {step.steps[-1].contiguity}; put it behind the group"
            )
        if step.steps[0].optional:
            raise ConfigError(f"pattern: {method}: the group begins with an optional step; let the group be optional")
        return Step("/".join(step.step_names), contiguity, group=step)
    check_type(f"pattern: {method}", step, str, "write the name of a step, or a Pattern as a group")
    if not step or step.startswith("__"):
        raise ConfigError(f"pattern: {method}: {step!r} is no name of a step")
    return Step(step, contiguity)
