"""Several aggregates as one: their partials side by side, in columns named ``<aggregate>.<partial>``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.aggregates.aggregate import Aggregate, Ints, Partials
from streamcore.schema import EVENT_MS

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Bundle:
    """Aggregates over rows of ``schema``, by the names of their results."""

    aggregates: Mapping[str, Aggregate]
    schema: Mapping[str, pl.DataType]

    @property
    def results(self) -> Mapping[str, pl.DataType]:
        """The types of the results; ``ConfigError`` where an aggregate does not fit the schema."""
        return {name: aggregate.check(self.schema) for name, aggregate in self.aggregates.items()}

    @property
    def dtypes(self) -> Mapping[str, pl.DataType]:
        """The columns of the partials, as they are stored."""
        return {
            f"{name}.{column}": dtype
            for name, aggregate in self.aggregates.items()
            for column, dtype in aggregate.dtypes(self.schema).items()
        }

    def nothing(self) -> Columns:
        """One partial, of no rows."""
        rows = pl.DataFrame(schema={**self.schema, EVENT_MS: pl.Int64()})
        none = np.empty(0, dtype=np.int64)
        return self.group(rows, none, none, 1)

    def group(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Columns:
        """One partial a group."""
        return self._joined({n: a.group(rows, numbers, group, groups) for n, a in self.aggregates.items()})

    def merge(self, left: Columns, right: Columns) -> Columns:
        """Combine one by one."""
        return self._joined({n: a.merge(self._of(n, left), self._of(n, right)) for n, a in self.aggregates.items()})

    def subtract(self, total: Columns, part: Columns) -> Columns:
        """Take away one by one, where all of them can be undone."""
        return self._joined({n: a.subtract(self._of(n, total), self._of(n, part)) for n, a in self.aggregates.items()})

    def reduce(self, partials: Columns, starts: Ints) -> Columns:
        """Combine runs, none of which is empty."""
        return self._joined({n: a.reduce(self._of(n, partials), starts) for n, a in self.aggregates.items()})

    def values(self, partials: Columns) -> list[pl.Series]:
        """The results, a column an aggregate."""
        return [a.result(self._of(n, partials), self.schema).alias(n) for n, a in self.aggregates.items()]

    def truncated(self, partials: Columns) -> int:
        """How many partials of any aggregate have left something out because of its limit."""
        return sum(int(a.truncated(self._of(n, partials)).sum()) for n, a in self.aggregates.items())

    def store(self, partials: Columns) -> list[pl.Series]:
        """The partials as columns for keeping."""
        return [
            series.alias(f"{name}.{column}")
            for name, aggregate in self.aggregates.items()
            for column, series in zip(
                self._names(name), aggregate.store(self._of(name, partials), self.schema), strict=True
            )
        ]

    def load(self, rows: pl.DataFrame) -> Columns:
        """The partials from a frame that holds their columns."""
        return self._joined(
            {n: a.load([rows[f"{n}.{c}"] for c in self._names(n)], self.schema) for n, a in self.aggregates.items()}
        )

    def _names(self, name: str) -> list[str]:
        return list(self.aggregates[name].dtypes(self.schema))

    def _of(self, name: str, columns: Columns) -> Partials:
        return {column: columns[f"{name}.{column}"] for column in self._names(name)}

    @staticmethod
    def _joined(parts: Mapping[str, Partials]) -> Columns:
        return {f"{name}.{column}": array for name, partials in parts.items() for column, array in partials.items()}


def at(columns: Columns, rows: Ints) -> Columns:
    """The partials at these places."""
    return {name: column[rows] for name, column in columns.items()}


def joined(parts: list[Columns]) -> Columns:
    """Partials one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
