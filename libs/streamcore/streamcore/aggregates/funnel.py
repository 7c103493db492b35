"""How far the rows of a group got through a funnel: a list of steps, of which each counts only after the one before.

By event time: a step that has the same event time as the one before it counts as after it, so the order of arrival
does not matter. A partial holds the times at which steps were taken, as far as they can still matter: once the rows
so far make step n at some time, no later row of step n will ever make it earlier, whatever else comes. So a group that
goes through the funnel in order is remembered by one time a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.aggregates.base import Aggregate, Array, Ints, Mask, Partials, Schema
from streamcore.aggregates.list_columns import object_array
from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS
from streamcore.windowing.model import Element, Result

_STEPS, _MORE = "steps", "more"
#: A taken step is one number: its time times this, and the place of the step. Sorted numbers are in order of time, and
#: where times are equal in the order of the funnel.
_PLACES = 32
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Funnel(Aggregate):
    """How many of the first ``steps`` were taken in their order, from 0 to all. ``column``: text, the step of a row;
    rows with another value or null are no step. ``limit``: of more times than that a group has the earliest."""

    column: str
    steps: tuple[str, ...]
    limit: int = 1_000

    def __post_init__(self) -> None:
        if not 0 < len(self.steps) < _PLACES or len(set(self.steps)) < len(self.steps):
            raise ConfigError(f"{self}: from 1 to {_PLACES - 1} steps, each once")
        if self.limit < len(self.steps):
            raise ConfigError(f"{self}: limit must be at least the number of steps")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        if (dtype := self.column_type(schema, self.column)) != pl.String:
            raise self.type_error(self.column, dtype, "text")
        return pl.Int64()

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:  # noqa: ARG002 - the same for all types
        return {_STEPS: pl.Binary(), _MORE: pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        place = rows[self.column].replace_strict(self.steps, range(len(self.steps)), default=-1, return_dtype=pl.Int64)
        chosen = np.flatnonzero(place.to_numpy() >= 0)
        codes = rows[EVENT_MS].to_numpy()[chosen] * _PLACES + place.to_numpy()[chosen]
        return self._compact(codes, group[chosen], groups)

    def merge(self, left: Partials, right: Partials) -> Partials:
        sides = [_flatten(side[_STEPS]) for side in (left, right)]
        codes, group = (np.concatenate(parts) for parts in zip(*sides, strict=True))
        kept = self._compact(codes, group, len(left[_STEPS]))
        return {_STEPS: kept[_STEPS], _MORE: kept[_MORE] | left[_MORE] | right[_MORE]}

    def find_truncated(self, partials: Partials) -> Mask:
        return partials[_MORE]

    def result(self, partials: Partials, schema: Schema) -> pl.Series:  # noqa: ARG002
        times = self._step_times(*_flatten(partials[_STEPS]), len(partials[_STEPS]))
        return pl.Series((times != _NEVER).sum(axis=0), dtype=pl.Int64)

    def reference(self, elements: Sequence[Element]) -> Result:
        after = None
        for reached, step in enumerate(self.steps):
            taken = [e.event_ms for e in elements if e.value.get(self.column) == step]
            in_turn = [at for at in taken if after is None or at >= after]
            if not in_turn:
                return reached
            after = min(in_turn)
        return len(self.steps)

    def _compact(self, codes: Ints, group: Ints, groups: int) -> Partials:
        """Return partials of taken steps, without those that cannot matter any more."""
        times = self._step_times(codes, group, groups)
        useful = codes // _PLACES <= times[codes % _PLACES, group]
        codes, group = codes[useful], group[useful]
        order = np.lexsort((codes, group))
        codes, group = codes[order], group[order]
        again = np.zeros(len(codes), dtype=bool)
        again[1:] = (codes[1:] == codes[:-1]) & (group[1:] == group[:-1])
        codes, group = codes[~again], group[~again]
        counts = np.bincount(group, minlength=groups)
        more = counts > self.limit
        if more.any():
            within = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts) < self.limit
            codes, counts = codes[within], np.minimum(counts, self.limit)
        return {_STEPS: _split_bytes(codes, counts), _MORE: more}

    def _step_times(self, codes: Ints, group: Ints, groups: int) -> Array:
        """Return the time at which each group reaches each step, in its turn; ``_NEVER`` where it does not."""
        place, at = codes % _PLACES, codes // _PLACES
        times = np.full((len(self.steps), groups), _NEVER)
        after = np.full(groups, np.iinfo(np.int64).min)
        for step in range(len(self.steps)):
            step_rows = np.flatnonzero(place == step)
            step_rows = step_rows[at[step_rows] >= after[group[step_rows]]]
            np.minimum.at(times[step], group[step_rows], at[step_rows])
            after = times[step]
        return times


def _split_bytes(codes: Ints, counts: Ints) -> Array:
    """Return flat numbers as the bytes of each group's: little-endian, and nothing for Python's garbage collector to
    visit."""
    data, ends = codes.astype("<i8").tobytes(), np.cumsum(counts) * 8
    starts = (ends - counts * 8).tolist()
    return object_array([data[start:end] for start, end in zip(starts, ends.tolist(), strict=True)])


def _flatten(steps: Array) -> tuple[Ints, Ints]:
    """Return the numbers of all groups, and the group of each."""
    pieces = steps.tolist()
    counts = np.fromiter(map(len, pieces), np.int64, len(pieces)) // 8
    codes = np.frombuffer(b"".join(pieces), dtype="<i8").astype(np.int64)
    return codes, np.repeat(np.arange(len(pieces)), counts)
