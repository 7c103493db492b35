"""The firing of a rule of any kind, before it is decided whether it becomes an alert."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rulecore.compile.rule import CompiledRule
from rulecore.language.types import Value


class FiringTime(enum.StrEnum):
    """``early``: at an event; ``final``: when the watermark passed, or a window of so many events was whole."""

    EARLY = "early"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Origin:
    """An event: where it was read, and its event time in epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    event_ms: int

    @property
    def place(self) -> dict[str, object]:
        """Return where the event lies, in the form of an alert."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


@dataclass(frozen=True, slots=True)
class RuleFiring:
    """A rule fired for a key.

    ``key`` and ``values`` are physical; ``key`` by the columns of ``group_by``, ``values`` by ``Figure.column``.
    ``mark`` distinguishes the firings of a rule version and key, and is the same whenever the firing is computed.
    ``time_ms`` is the event time at which it fired; ``start_ms`` to ``end_ms`` is the time span that it evaluated.
    ``row``: index of the event at which it fired in the frame that was given, None for one at a watermark or for an
    event of an earlier cut. ``events``: those that made it fire, in order, where the kind of rule keeps them.
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


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """A rule whose evaluation raised. Nothing of it was applied."""

    rule: CompiledRule
    reason: str
