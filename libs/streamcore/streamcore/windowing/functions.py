"""Window functions of the reference: from a pane's elements to one value, afresh for every pane.

Like SQL, a function over a field leaves out elements where it is missing or null. Sums are exact decimals, whatever
the number of terms. First and last are by event time, and by arrival where event times are equal. Nothing here is
incremental: that is the kernels' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from enum import StrEnum
from functools import reduce

from streamcore.errors import ConfigError
from streamcore.windowing.values import Element, Result, Scalar

#: A window function. The elements come in order of arrival and may be none.
WindowFunction = Callable[[Sequence[Element]], Result]

# Room for the sum of the largest and the smallest double; rounding would be an error, not a result.
_EXACT = Context(prec=2_000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation])
_MEAN = Context(prec=28, traps=[InvalidOperation])


class Aggregation(StrEnum):
    """What to compute. All but COUNT need a field; COUNT without one counts elements."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    COLLECT = "collect"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Aggregate:
    """An aggregation over a field. A ``WindowFunction``."""

    aggregation: Aggregation
    field: str | None = None

    def __post_init__(self) -> None:
        if self.field is None and self.aggregation is not Aggregation.COUNT:
            raise ConfigError(f"{self.aggregation} needs a field")

    def __call__(self, elements: Sequence[Element]) -> Result:
        if self.field is None:
            return len(elements)
        if self.aggregation in (Aggregation.FIRST, Aggregation.LAST):
            elements = sorted(elements, key=lambda element: (element.event_ms, element.number))
        values = [element.value.get(self.field) for element in elements]
        return _COMPUTE[self.aggregation]([value for value in values if value is not None])


def exact(value: Scalar) -> Decimal | None:
    """A finite number as a decimal of the same value; ``None`` for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = Decimal(value)
    return number if number.is_finite() else None


def _numbers(values: Sequence[Scalar]) -> list[Decimal]:
    numbers = [exact(value) for value in values]
    wrong = [value for value, number in zip(values, numbers, strict=True) if number is None]
    if wrong:
        raise ConfigError(f"a sum, mean, minimum or maximum needs finite numbers, not {wrong[0]!r}")
    return [number for number in numbers if number is not None]


def _sum(values: Sequence[Scalar]) -> Decimal:
    return reduce(_EXACT.add, _numbers(values), Decimal(0))


def _mean(values: Sequence[Scalar]) -> Decimal | None:
    return _MEAN.divide(_sum(values), Decimal(len(values))) if values else None


_COMPUTE: dict[Aggregation, Callable[[Sequence[Scalar]], Result]] = {
    Aggregation.COUNT: len,
    Aggregation.SUM: _sum,
    Aggregation.MIN: lambda values: min(_numbers(values), default=None),
    Aggregation.MAX: lambda values: max(_numbers(values), default=None),
    Aggregation.MEAN: _mean,
    Aggregation.COLLECT: tuple,
    Aggregation.FIRST: lambda values: values[0] if values else None,
    Aggregation.LAST: lambda values: values[-1] if values else None,
}
