"""The aggregate that counts how many steps of a funnel the rows of a group reach in order.

Step n counts only at or after the event time at which step n - 1 was reached. The order of arrival does not matter. A
partial stores the event times of the rows of each step. It omits times that cannot change the result: if the rows so
far reach step n at time t, rows of step n after t cannot make the group reach it earlier. So a group whose rows are in
the order of the funnel needs one time per step.
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
#: The time and the step of a row are stored as one number, ``time * _STEP_CODES + step``. So sorted numbers are ordered
#: by time, and equal times by step.
_STEP_CODES = 32
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Funnel(Aggregate):
    """The number of steps that the rows of a group reach in order, from 0 to ``len(steps)``.

    ``column``: a text column with the step of a row; rows with another value or null do not count. Or a column of whole
    numbers, for rows that may be several steps: bit n (from 0) is 1 for a row that is ``steps[n]``. Such a row counts
    for each of them. ``limit``: how many times a partial stores at most; it keeps the earliest.
    """

    column: str
    steps: tuple[str, ...]
    limit: int = 1_000

    def __post_init__(self) -> None:
        if not 0 < len(self.steps) < _STEP_CODES or len(set(self.steps)) < len(self.steps):
            raise ConfigError(f"{self}: 1 to {_STEP_CODES - 1} different steps are needed")
        if self.limit < len(self.steps):
            raise ConfigError(f"{self}: limit must be at least the number of steps")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        if (dtype := self.column_type(schema, self.column)) not in (pl.String, pl.Int64):
            raise self.type_error(self.column, dtype, "text or Int64")
        return pl.Int64()

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:  # noqa: ARG002 - the same for all types
        return {_STEPS: pl.Binary(), _MORE: pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        step_rows, step = self._row_steps(rows[self.column])
        codes = rows[EVENT_MS].to_numpy()[step_rows] * _STEP_CODES + step
        return self._compact(codes, group[step_rows], groups)

    def _row_steps(self, column: pl.Series) -> tuple[Ints, Ints]:
        """Return the row and the step of each step that a row is."""
        if column.dtype == pl.String:
            step = column.replace_strict(self.steps, range(len(self.steps)), default=-1, return_dtype=pl.Int64)
            rows = np.flatnonzero(step.to_numpy() >= 0)
            return rows, step.to_numpy()[rows]
        bits = column.fill_null(0).to_numpy()
        found = [np.flatnonzero(bits >> step & 1) for step in range(len(self.steps))]
        return np.concatenate(found), np.repeat(np.arange(len(found)), [len(rows) for rows in found])

    def merge(self, left: Partials, right: Partials) -> Partials:
        sides = [_flatten(side[_STEPS]) for side in (left, right)]
        codes, group = (np.concatenate(parts) for parts in zip(*sides, strict=True))
        compacted = self._compact(codes, group, len(left[_STEPS]))
        return {_STEPS: compacted[_STEPS], _MORE: compacted[_MORE] | left[_MORE] | right[_MORE]}

    def find_truncated(self, partials: Partials) -> Mask:
        return partials[_MORE]

    def result(self, partials: Partials, schema: Schema) -> pl.Series:  # noqa: ARG002
        times = self._step_times(*_flatten(partials[_STEPS]), len(partials[_STEPS]))
        return pl.Series((times != _NEVER).sum(axis=0), dtype=pl.Int64)

    def reference(self, elements: Sequence[Element]) -> Result:
        after = None
        for reached, step in enumerate(self.steps):
            times = [e.event_ms for e in elements if self._is_step(e.value.get(self.column), reached, step)]
            in_order = [time_ms for time_ms in times if after is None or time_ms >= after]
            if not in_order:
                return reached
            after = min(in_order)
        return len(self.steps)

    @staticmethod
    def _is_step(value: object, number: int, step: str) -> bool:
        return bool(value >> number & 1) if isinstance(value, int) else value == step

    def _compact(self, codes: Ints, group: Ints, groups: int) -> Partials:
        """Return partials of these codes, without repeated codes and codes that cannot change the result.

        ``codes`` and ``group`` have shape (rows,): time and step of each row as one number, and its group.
        """
        times = self._step_times(codes, group, groups)
        useful = codes // _STEP_CODES <= times[codes % _STEP_CODES, group]
        codes, group = codes[useful], group[useful]
        order = np.lexsort((codes, group))
        codes, group = codes[order], group[order]
        repeated = np.zeros(len(codes), dtype=bool)
        repeated[1:] = (codes[1:] == codes[:-1]) & (group[1:] == group[:-1])
        codes, group = codes[~repeated], group[~repeated]
        counts = np.bincount(group, minlength=groups)
        is_truncated = counts > self.limit
        if is_truncated.any():
            within_limit = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts) < self.limit
            codes, counts = codes[within_limit], np.minimum(counts, self.limit)
        return {_STEPS: _split_bytes(codes, counts), _MORE: is_truncated}

    def _step_times(self, codes: Ints, group: Ints, groups: int) -> Array:
        """Return the time at which each group reaches each step, of shape (steps, groups), or ``_NEVER``."""
        row_step, time_ms = codes % _STEP_CODES, codes // _STEP_CODES
        times = np.full((len(self.steps), groups), _NEVER)
        after = np.full(groups, np.iinfo(np.int64).min)
        for step in range(len(self.steps)):
            step_rows = np.flatnonzero(row_step == step)
            step_rows = step_rows[time_ms[step_rows] >= after[group[step_rows]]]
            np.minimum.at(times[step], group[step_rows], time_ms[step_rows])
            after = times[step]
        return times


def _split_bytes(codes: Ints, counts: Ints) -> Array:
    """Return the codes of each group as one bytes object, little-endian int64.

    ``counts``, of shape (groups,): how many of the codes, which are ordered by group, each group has. Bytes objects
    are not tracked by Python's garbage collector.
    """
    data, ends = codes.astype("<i8").tobytes(), np.cumsum(counts) * 8
    starts = (ends - counts * 8).tolist()
    return object_array([data[start:end] for start, end in zip(starts, ends.tolist(), strict=True)])


def _flatten(steps: Array) -> tuple[Ints, Ints]:
    """Return the codes of all groups, and the group of each code."""
    pieces = steps.tolist()
    counts = np.fromiter(map(len, pieces), np.int64, len(pieces)) // 8
    codes = np.frombuffer(b"".join(pieces), dtype="<i8").astype(np.int64)
    return codes, np.repeat(np.arange(len(pieces)), counts)
