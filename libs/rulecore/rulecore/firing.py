"""The firing of a rule of any kind. ``AlertDispatcher`` decides whether it becomes an alert."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rulecore.compile.rule import CompiledRule
from rulecore.language.types import Value


class FiringTime(enum.StrEnum):
    """When a rule fires: ``early``, at an event; ``final``, when the watermark passes or a count window is full."""

    EARLY = "early"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of an event in its topic, and its event time in epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    event_ms: int

    @property
    def place(self) -> dict[str, object]:
        """The topic, partition and offset of the event, as alerts show them."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


@dataclass(frozen=True, slots=True)
class RuleFiring:
    """One firing of a rule for a key. Times are event times in epoch milliseconds.

    ``key``: physical values by the columns of ``group_by``. ``values``: physical values by ``AlertField.column``.
    ``mark`` distinguishes the firings of one rule version and key, and does not change when the firing is computed
    again. ``time_ms`` is the time at which the rule fired; it evaluated the time from ``start_ms`` to ``end_ms``.
    ``row``: the row, in the frame given to the group, of the event at which the rule fired; None if it fired at a
    watermark or at an event of an earlier cut. ``incomplete``: the window began before the rule counted events.
    ``events``: the events that made the rule fire, in order, for kinds of rules that keep them. ``steps``: of a
    sequence the name of the step that took each of them. ``origin``: of the event of an earlier cut at which the rule
    fired, for rules that evaluate events in order of time.
    """

    rule: CompiledRule
    key: Mapping[str, Value]
    mark: tuple[object, ...]
    time_ms: int
    start_ms: int
    end_ms: int
    timing: FiringTime
    row: int | None
    values: Mapping[str, Value]
    incomplete: bool
    events: tuple[Origin, ...] = ()
    steps: tuple[str, ...] = ()
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """A rule whose evaluation raised, and the error. Its group's state is unchanged."""

    rule: CompiledRule
    reason: str
