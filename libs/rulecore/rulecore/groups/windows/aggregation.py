"""Incremental aggregates: the numbers that an aggregate stores in a pane, how they combine, and its result.

An aggregate stores one or more *partials* in every pane. Partials of two panes, or of a pane and one more event,
combine with an associative operation, so windows can share panes and add them up in any grouping. Whole numbers and
decimals are exact. A sum of decimals with more digits than a decimal has is NULL; one beyond 64 bits wraps, unseen.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.schema import EVENT_MS, Kind, Type

#: A column of partials: int64 or float64, according to ``Partial.dtype``.
Array = npt.NDArray[Any]


class Combine(enum.Enum):
    """The operation that combines two partials."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"

    @property
    def operation(self) -> np.ufunc:
        """The operation on two numbers, or on two columns of numbers."""
        return _OPERATIONS[self]


_OPERATIONS: Mapping[Combine, np.ufunc] = {Combine.SUM: np.add, Combine.MIN: np.minimum, Combine.MAX: np.maximum}


@dataclass(frozen=True, slots=True)
class Partial:
    """One stored number per pane. ``suffix``: of its column's name; ``whole``: int64, otherwise float64."""

    suffix: str
    combine: Combine
    whole: bool

    @property
    def dtype(self) -> type[np.int64] | type[np.float64]:
        """The numpy type of a column of this partial."""
        return np.int64 if self.whole else np.float64

    @property
    def identity(self) -> int | float:
        """The number that changes nothing when it is combined: the contribution of an event that is not counted."""
        if self.combine is Combine.SUM:
            return 0
        if self.whole:
            limits = np.iinfo(np.int64)
            return int(limits.max if self.combine is Combine.MIN else limits.min)
        return float("inf") if self.combine is Combine.MIN else float("-inf")


_COUNT = Partial("n", Combine.SUM, whole=True)
_LATEST = Partial("t", Combine.MAX, whole=True)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate of the events of a pane or window.

    ``function``: count, sum, avg, stddev, min, max, time_decayed_count, time_decayed_sum. ``argument``: the type of
    the aggregated value; None counts events.
    """

    name: str
    function: str
    argument: Type | None

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The numbers stored in a pane: the count of contributions ``n``, the sum ``s``, the sum of squares ``q``, the
        minimum or maximum ``m``, or the latest event time ``t``."""
        whole = self.argument is not None and self.argument.kind is not Kind.DOUBLE
        match self.function:
            case "count":
                return (_COUNT,)
            case "sum" | "avg":
                return (_COUNT, Partial("s", Combine.SUM, whole))
            case "time_decayed_count" | "time_decayed_sum":
                return (_COUNT, Partial("s", Combine.SUM, whole=False), _LATEST)
            case "stddev":
                return (_COUNT, Partial("s", Combine.SUM, whole=False), Partial("q", Combine.SUM, whole=False))
            case "min" | "max":
                return (_COUNT, Partial("m", Combine(self.function), whole))
        raise ValueError(f"no incremental form of {self.function}")

    def column(self, partial: Partial) -> str:
        """Return the name of a partial's column in a pane table."""
        return f"{self.name}.{partial.suffix}"

    def contributions(self, counts: pl.Expr, value: pl.Expr | None) -> list[pl.Expr]:
        """Return the contribution of each event to each partial, one column per partial.

        ``counts``: whether the event is counted. ``value``: the physical value of the argument; an event with NULL is
        not counted. None for ``count`` without an argument.
        """
        present = counts if value is None else counts & value.is_not_null()
        result = [present.cast(pl.Int64).alias(self.column(_COUNT))]
        for partial in self.partials[1:]:
            assert value is not None, "only count has no argument"
            raw = pl.col(EVENT_MS) if partial == _LATEST else value.cast(pl.Int64 if partial.whole else pl.Float64)
            if partial != _LATEST and self.function in ("stddev", "time_decayed_sum"):
                raw = raw / self._unit
                raw = raw * raw if partial.suffix == "q" else raw
            result.append(pl.when(present).then(raw).otherwise(partial.identity).alias(self.column(partial)))
        return result

    def result(self, totals: Mapping[str, Array]) -> pl.Series:
        """Return the physical value of the aggregate for each row of partials; NULL where no event contributed.

        A ``stddev`` of fewer than two events is NULL. A ``count`` is never NULL.
        """
        count = totals[self.column(_COUNT)]
        if self.function == "count":
            return pl.Series(self.name, count)
        if self.function == "time_decayed_count":
            return pl.Series(self.name, totals[self.column(self.partials[1])])
        values = [totals[self.column(p)] for p in self.partials[1:]]
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._value(count, values)

    def _value(self, count: Array, values: Sequence[Array]) -> pl.Series:
        first = values[0]
        if self.function == "stddev":
            spread = np.maximum(values[1] - first * first / count, 0.0) / (count - 1)
            return _nullable(self.name, np.sqrt(spread), count > 1)
        if self.function == "avg":
            return _nullable(self.name, first / count / self._unit, count > 0)
        if self.function == "sum" and first.dtype == np.int64:
            return _nullable(self.name, first, (count > 0) & (np.abs(first) < self._bound))
        return _nullable(self.name, first, count > 0)

    @property
    def _unit(self) -> float:
        """The physical units in 1: a power of ten for a decimal, else 1."""
        return float(10**self.argument.scale) if self.argument is not None else 1.0

    @property
    def _bound(self) -> int:
        """The absolute value from which on a whole sum is NULL, since it may not fit its type."""
        decimal = self.argument is not None and self.argument.kind is Kind.DECIMAL
        return 10**18 if decimal else np.iinfo(np.int64).max


def _nullable(name: str, values: Array, present: npt.NDArray[np.bool_]) -> pl.Series:
    series = pl.Series(name, values)
    return series if present.all() else series.zip_with(pl.Series(present), pl.Series(name, [None], dtype=series.dtype))
