"""The contract of an aggregate: how many rows become one value, in columns, a piece at a time.

What an aggregate remembers of some rows is a *partial*: a fixed set of columns, so that the partials of a million
groups are a few arrays. Partials are made from rows (``group``), combined with each other (``merge``, ``reduce``) and
read (``result``); combining is associative, so rows may be aggregated in any pieces. ``subtract`` undoes a
combination, where that is possible without loss.

An aggregate is a frozen value: it holds what was asked for, never data, and it can be pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.windowing.values import Element, Result

#: Columns of equal length by name: int64, float64, bool, or objects that ``dtypes`` says how to store.
Partials = Mapping[str, npt.NDArray[Any]]
Ints = npt.NDArray[np.int64]


class Aggregate(ABC):
    """An aggregate over columns of a row."""

    #: Whether ``subtract`` is there.
    invertible: ClassVar[bool] = False

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """The columns it reads."""

    @abstractmethod
    def check(self, schema: Mapping[str, pl.DataType]) -> pl.DataType:
        """The type of the result over rows of these columns; ``ConfigError`` where they do not fit."""

    @abstractmethod
    def dtypes(self, schema: Mapping[str, pl.DataType]) -> Mapping[str, pl.DataType]:
        """The columns of a partial and how they are stored: Int64, Float64, Boolean; Binary for objects."""

    @abstractmethod
    def group(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        """One partial a group. ``group``: the group of each row, ``0 .. groups - 1``; rows are in order of arrival.

        ``numbers``: for each row how many rows of its key arrived before it, ever: it breaks ties of event time. A
        group without rows gets the partial of nothing.
        """

    @abstractmethod
    def merge(self, left: Partials, right: Partials) -> Partials:
        """Combine partials one by one. Where arrival matters, they hold what is needed to tell (``numbers``)."""

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        """Combine runs of partials: run i is ``starts[i]`` up to ``starts[i + 1]``, the last to the end; none is empty.

        By doubling: as many merges as the longest run has bits. An aggregate may know a faster way.
        """
        length = len(next(iter(partials.values())))
        counts = np.diff(np.append(starts, length))
        run = np.repeat(np.arange(len(starts)), counts)
        columns = {name: column.copy() for name, column in partials.items()}
        step = 1
        while counts.size and step < counts.max():
            place = np.arange(length) - np.repeat(starts, counts)
            left = np.flatnonzero((place % (2 * step) == 0) & (place + step < counts[run]))
            merged = self.merge(_at(columns, left), _at(columns, left + step))
            for name, column in merged.items():
                columns[name][left] = column
            step *= 2
        return _at(columns, starts)

    def subtract(self, total: Partials, part: Partials) -> Partials:
        """``total`` without ``part``, one by one, where ``total`` was combined from it."""
        raise NotImplementedError(f"{type(self).__name__} cannot be undone")

    @abstractmethod
    def result(self, partials: Partials, schema: Mapping[str, pl.DataType]) -> pl.Series:
        """The value of each partial, of the type that ``check`` answers; null where there is none."""

    @abstractmethod
    def store(self, partials: Partials) -> Sequence[pl.Series]:
        """The partials as columns of ``dtypes``, for keeping."""

    @abstractmethod
    def load(self, columns: Sequence[pl.Series]) -> Partials:
        """What ``store`` gave."""

    @abstractmethod
    def reference(self, elements: Sequence[Element]) -> Result:
        """The value over elements in order of arrival, computed afresh, as plainly as it can be written."""


def _at(partials: Partials, places: Ints) -> dict[str, npt.NDArray[Any]]:
    return {name: column[places] for name, column in partials.items()}
