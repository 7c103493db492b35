"""Several aggregates as one: their partials side by side, in columns named ``<aggregate>.<partial>``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.aggregates.base import Aggregate, Ints, Partials
from streamcore.arguments import check_type
from streamcore.operators.failures import FAILED_REASON, FailedCall, PaneFailures
from streamcore.schema import EVENT_MS

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class AggregateSet:
    """Aggregates over rows of ``schema``, by the names of their results."""

    aggregates: Mapping[str, Aggregate]
    schema: Mapping[str, pl.DataType]

    @property
    def results(self) -> Mapping[str, pl.DataType]:
        """Return the types of the results; ``ConfigError`` where an aggregate does not fit the schema."""
        return {name: aggregate.check(self.schema) for name, aggregate in self.aggregates.items()}

    @property
    def partial_types(self) -> Mapping[str, pl.DataType]:
        """Return the stored columns of the partials, with their types."""
        return {
            f"{name}.{column}": dtype
            for name, aggregate in self.aggregates.items()
            for column, dtype in aggregate.partial_types(self.schema).items()
        }

    @cached_property
    def failures(self) -> PaneFailures | None:
        """Return the columns that ``values`` adds for failed partials; None if no aggregate calls the user's code."""
        return PaneFailures({}) if any(a.calls_user_code for a in self.aggregates.values()) else None

    def split_failing(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows that every aggregate can add, and the others with ``FAILED_REASON``."""
        reasons: dict[int, str] = {}
        for name, aggregate in self.aggregates.items():
            reasons = {n: f"{name}: {reason}" for n, reason in aggregate.failing_rows(rows).items()} | reasons
        failing = sorted(reasons)
        failed = rows[failing].with_columns(pl.Series(FAILED_REASON, [reasons[n] for n in failing], dtype=pl.String))
        if not failing:
            return rows, failed
        can_add = np.ones(rows.height, dtype=bool)
        can_add[failing] = False
        return rows.filter(pl.Series(can_add)), failed

    def empty_partial(self) -> Columns:
        """Return one partial, of no rows."""
        rows = pl.DataFrame(schema={**self.schema, EVENT_MS: pl.Int64()})
        none = np.empty(0, dtype=np.int64)
        return self.aggregate_groups(rows, none, none, 1)

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Columns:
        """Return one partial per group, for each aggregate."""
        return self._combine_columns(
            {n: a.aggregate_groups(rows, numbers, group, groups) for n, a in self.aggregates.items()}
        )

    def merge(self, left: Columns, right: Columns) -> Columns:
        """Combine one by one."""
        return self._combine_columns(
            {n: a.merge(self._partials(n, left), self._partials(n, right)) for n, a in self.aggregates.items()}
        )

    def subtract(self, total: Columns, part: Columns) -> Columns:
        """Take away one by one, where all of them can be undone."""
        return self._combine_columns(
            {n: a.subtract(self._partials(n, total), self._partials(n, part)) for n, a in self.aggregates.items()}
        )

    def reduce(self, partials: Columns, starts: Ints) -> Columns:
        """Combine runs, none of which is empty."""
        return self._combine_columns(
            {n: a.reduce(self._partials(n, partials), starts) for n, a in self.aggregates.items()}
        )

    def values(
        self,
        partials: Columns,
        failures: PaneFailures | None = None,
        failed_before: Mapping[int, FailedCall] | None = None,
    ) -> list[pl.Series]:
        """Return the results, a column an aggregate; then the columns of ``failures``, if there are any.

        ``failures``: by default those of the aggregates. ``failed_before``: earlier failures by number of partial.
        """
        failures = failures or self.failures
        columns: list[pl.Series] = []
        failed = dict(failed_before or {})
        for name, aggregate in self.aggregates.items():
            values, reasons = aggregate.try_result(self._partials(name, partials), self.schema)
            columns.append(values.alias(name))
            failed = {n: FailedCall(f"{name}: {reason}") for n, reason in reasons.items()} | failed
        return columns if failures is None else [*columns, *failures.series(len(columns[0]), failed)]

    def count_truncated(self, partials: Columns) -> int:
        """Return the number of partials, over all aggregates, that omit values because of a limit."""
        return sum(int(a.find_truncated(self._partials(n, partials)).sum()) for n, a in self.aggregates.items())

    def find_failed(self, partials: Columns) -> npt.NDArray[np.bool_]:
        """Return a mask of the partials for which a call of the user's code failed."""
        failed = np.zeros(len(next(iter(partials.values()))), dtype=bool)
        for name, aggregate in self.aggregates.items():
            if aggregate.calls_user_code:
                failed |= aggregate.find_failed(self._partials(name, partials))
        return failed

    def store(self, partials: Columns) -> list[pl.Series]:
        """Return the partials as columns for keeping."""
        return [
            series.alias(f"{name}.{column}")
            for name, aggregate in self.aggregates.items()
            for column, series in zip(
                self._names(name), aggregate.store(self._partials(name, partials), self.schema), strict=True
            )
        ]

    def load(self, rows: pl.DataFrame) -> Columns:
        """Return the partials from a frame that holds their columns."""
        return self._combine_columns(
            {n: a.load([rows[f"{n}.{c}"] for c in self._names(n)], self.schema) for n, a in self.aggregates.items()}
        )

    def _names(self, name: str) -> list[str]:
        return list(self.aggregates[name].partial_types(self.schema))

    def _partials(self, name: str, columns: Columns) -> Partials:
        return {column: columns[f"{name}.{column}"] for column in self._names(name)}

    @staticmethod
    def _combine_columns(parts: Mapping[str, Partials]) -> Columns:
        return {f"{name}.{column}": array for name, partials in parts.items() for column, array in partials.items()}


def take_rows(columns: Columns, rows: Ints) -> Columns:
    """Return the partials at these places."""
    return {name: column[rows] for name, column in columns.items()}


def concat_rows(parts: list[Columns]) -> Columns:
    """Return partials one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_aggregate(argument: str, aggregate: Aggregate) -> None:
    """Raise ``ConfigError`` unless it is an aggregate. ``argument``: in the error, such as ``aggregate revenue``."""
    check_type(argument, aggregate, Aggregate, "write such as Sum('amount') or Count()")
