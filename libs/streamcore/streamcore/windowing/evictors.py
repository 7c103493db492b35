"""Evictors: which elements of a pane its window function receives.

An evictor is immutable, and ``keep`` is a pure function of the pane's elements in order of arrival. The elements that
it leaves out stay in the window, and a later pane may contain them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from streamcore.arguments import check_whole
from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.windowing.model import Element, Scalar


class Evictor(ABC):
    """The base class of evictors."""

    @abstractmethod
    def keep(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        """Return the elements that the window function receives, in their order."""


@dataclass(frozen=True)
class KeepCount(Evictor):
    """Keeps the last ``count`` elements by arrival."""

    count: int

    def __post_init__(self) -> None:
        check_whole(count=self.count)
        if self.count < 1:
            raise ConfigError(f"KeepCount needs a positive count, not {self.count}")

    def keep(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        return tuple(elements[-self.count :])


@dataclass(frozen=True)
class KeepRecent(Evictor):
    """Keeps the elements less than ``span_ms`` of event time before the latest element."""

    span_ms: DurationField = DurationField()

    def __post_init__(self) -> None:
        if self.span_ms < 1:
            raise ConfigError(f"span_ms must be positive, not {self.span_ms}")

    def keep(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        latest_ms = max((element.event_ms for element in elements), default=0)
        return tuple(element for element in elements if latest_ms - element.event_ms < self.span_ms)


@dataclass(frozen=True)
class KeepNear(Evictor):
    """Keeps the elements whose ``field`` differs by less than ``delta`` from the last number in this field.

    An element without a number in the field is kept.
    """

    field: str
    delta: Decimal

    def __post_init__(self) -> None:
        if self.delta <= 0:
            raise ConfigError(f"delta must be positive, not {self.delta}")

    def keep(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        numbers = [_number(element.value.get(self.field)) for element in elements]
        last = next((number for number in reversed(numbers) if number is not None), None)
        pairs = zip(elements, numbers, strict=True)
        return tuple(e for e, n in pairs if n is None or last is None or abs(n - last) < self.delta)


def _number(value: Scalar) -> Decimal | None:
    """Return a finite number as a decimal of equal value; None for every other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(value)
    return number if number.is_finite() else None
