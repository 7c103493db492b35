"""What every kind of rule says when it fires, before anyone decides whether that becomes an alert."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from rulecore.compiled import CompiledRule
from rulecore.lang.types import Value


class Timing(enum.StrEnum):
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
        """Where the event lies, as an alert says it."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule fired for a key.

    ``key`` and ``values`` are physical; ``key`` by the columns of ``group_by``, ``values`` by ``Figure.column``.
    ``mark`` tells the firings of a rule version and key apart, and is the same whenever the firing is computed.
    ``time_ms`` is the event time at which it fired; ``start_ms`` to ``end_ms`` what it looked at.
    ``row``: index of the event at which it fired in the frame that was given, None for one at a watermark or for an
    event of an earlier cut. ``events``: those that made it fire, in order, where the kind of rule keeps them.
    """

    rule: CompiledRule
    key: Mapping[str, Value]
    mark: tuple[object, ...]
    time_ms: int
    start_ms: int
    end_ms: int
    timing: Timing
    row: int | None
    values: Mapping[str, Value]
    warming: bool
    events: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule whose evaluation raised. Nothing of it was applied."""

    rule: CompiledRule
    reason: str
