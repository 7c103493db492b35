"""Rows kept by key and event time until they are dropped: the rows that joins remember of their inputs.

Exists so that every join finds and drops rows the same way: rows that arrive together become a sorted run, and runs of
like size are merged now and then (the idea of an LSM tree, O'Neil et al. 1996), so a row is copied as often as the
number of rows has bits, and a cut costs what it touches. Promises: rows are identified by key hash, time and number of
arrival; a row dropped by time needs no trace, for a load drops it again; a row that is deleted is once
among the changes, without its columns. Refuses to know the meaning of rows, watermarks, and null keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.hashing import hash_columns
from streamcore.schema import EVENT_MS
from streamcore.state.sorted_run import DELETED, LIVE, MARKED, Ints, Mask, SortedRun, build_run, concat_runs, merge_runs
from streamcore.state.table import HASH
from streamcore.windowing.model import END_OF_TIME_MS

#: Columns of what is stored: the row's number in order of arrival (int64) and its state (int8).
NUMBER = "__number"
STATE = "__state"


class Matches(NamedTuple):
    """Pairs: an index into the run that was asked about, and the place of a row that is kept."""

    rows: Ints
    places: Ints


class RowTable:
    """A ``StateTable`` of rows. A *place* names a row until ``changes`` or ``load`` is called next.

    ``schema``: the rows' columns, ``EVENT_MS`` among them. ``keys``: those that rows are found by, never null.
    """

    def __init__(self, schema: Mapping[str, pl.DataType], keys: tuple[str, ...]) -> None:
        self.schema = pl.Schema(schema)
        self.keys = keys
        self._runs: list[SortedRun] = []
        self._bases: list[int] = []  # the place of each run's first row
        self._live = 0
        self._next_number = 0
        self._reported_below = 0  # rows from this number on have never been among the changes
        self._written: list[Ints] = []
        self._deleted: list[Ints] = []

    def __len__(self) -> int:
        """Return the rows kept."""
        return self._live

    @property
    def rows_in_memory(self) -> int:
        """The rows in memory: those kept, and those dropped whose run has not been rewritten yet."""
        return sum(len(run) for run in self._runs)

    # --- writing ------------------------------------------------------------------------------------------------

    def to_run(self, rows: pl.DataFrame) -> SortedRun:
        """Rows in order of arrival as a run: to be added, to be asked about, or both."""
        numbers = np.arange(self._next_number, self._next_number + rows.height)
        self._next_number += rows.height
        hashes = hash_columns([rows[key] for key in self.keys], rows.height)
        states = np.full(rows.height, LIVE, dtype=np.int8)
        return build_run(
            self.keys, hashes, rows[EVENT_MS].to_numpy(), numbers, rows.select(self.schema.names()), states
        )

    def add(self, run: SortedRun) -> Ints:
        """Keep these rows. Returns their places."""
        places = self._append(run)
        self._written.append(places)
        return places

    def mark(self, places: Ints) -> None:
        """Set the mark of these rows; a place may come more than once."""
        fresh = _distinct(places)
        fresh = fresh[self.states(fresh) == LIVE]
        for run, local, _ in self._split(fresh):
            run.states[local] |= MARKED
        self._written.append(fresh)

    def delete(self, places: Ints) -> None:
        """Drop these rows one by one, distinct and live."""
        for run, local, _ in self._split(places):
            run.drop(local)
        self._live -= len(places)
        self._deleted.append(places)

    def expire(self, before_ms: int) -> Ints:
        """Drop the rows before this time. Returns their places."""
        pairs = zip(self._bases, self._runs, strict=True)
        dropped = _together([base + run.expire(before_ms) for base, run in pairs])
        self._live -= len(dropped)
        return dropped

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, of: SortedRun, low_ms: int, high_ms: int) -> Matches:
        """Return the rows of the same key whose time is ``low_ms`` to ``high_ms`` (both inclusive) after that of a
        row."""
        rows, places = [], []
        for base, run in zip(self._bases, self._runs, strict=True):
            row, place = run.matches(of, low_ms, high_ms)
            equal = run.same_keys(place, of, row)
            rows.append(row[equal])
            places.append(base + place[equal])
        return Matches(_together(rows), _together(places))

    def last(self, of: SortedRun) -> Ints:
        """For each row the place of the last row of its key that is not after it; of one time, the last to arrive.

        -1 where there is none, or where that one has been dropped. Rows are dropped in any order, but a caller of
        this must drop a row before, or with, the one after it.
        """
        best = np.full(len(of), -1)
        times, numbers = np.full(len(of), -END_OF_TIME_MS), np.full(len(of), -1)
        for base, run in zip(self._bases, self._runs, strict=True):
            place = run.last(of)
            time, number = run.times[place], run.numbers[place]
            better = (place >= 0) & ((time > times) | ((time == times) & (number > numbers)))
            best[better], times[better], numbers[better] = base + place[better], time[better], number[better]
        found = np.flatnonzero(best >= 0)
        best[found[self.states(best[found]) >= DELETED]] = -1
        return best

    def between(self, low_ms: int, high_ms: int) -> Ints:
        """Return the places of the rows from ``low_ms`` up to, not including, ``high_ms``."""
        found = []
        for base, run in zip(self._bases, self._runs, strict=True):
            low, high = np.searchsorted(run.sorted_times, [low_ms, high_ms])
            places = run.by_time[low:high]
            found.append(base + places[run.states[places] < DELETED])
        return _together(found)

    def frame(self, places: Ints) -> pl.DataFrame:
        """Return the rows at these places, in that order."""
        parts = [run.frame[local] for run, local, _ in self._split(places)]
        if not parts:
            return self.schema.to_frame()
        if len(parts) == 1:
            return parts[0]
        order = np.concatenate([index for *_, index in self._split(places)])
        return pl.concat(parts)[np.argsort(order)]

    def run(self, places: Ints) -> SortedRun:
        """Return the rows at these distinct places as a run, to ask another table about or this one."""
        parts = [run.take(np.sort(local)) for run, local, _ in self._split(places)]
        return concat_runs(parts) if parts else self.to_run(self.schema.to_frame())

    def numbers(self, places: Ints) -> Ints:
        """Return the numbers of arrival at these places."""
        return self._read(places, lambda run: run.numbers)

    def times(self, places: Ints) -> Ints:
        """Return the event times at these places."""
        return self._read(places, lambda run: run.times)

    def states(self, places: Ints) -> Ints:
        """Return the states at these places."""
        return self._read(places, lambda run: run.states)

    def _read(self, places: Ints, column: Callable[[SortedRun], npt.NDArray[np.signedinteger]]) -> Ints:
        result = np.empty(len(places), dtype=np.int64)
        for run, local, index in self._split(places):
            result[index] = column(run)[local]
        return result

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        """Rows added, marked or deleted. Ends a cut: runs are merged, and places are no longer good."""
        written, deleted = _distinct(_together(self._written)), np.sort(_together(self._deleted))
        written = written[self.states(written) < DELETED]
        deleted = deleted[self.numbers(deleted) < self._reported_below]
        rows = self._to_stored_rows(np.concatenate([written, deleted]))
        payload = [name for name in self.schema.names() if name != EVENT_MS]
        if len(deleted):
            rows = rows.with_columns(pl.when(pl.col(STATE) < DELETED).then(pl.col(payload)))
        self._written, self._deleted = [], []
        self._reported_below = self._next_number
        self._tidy()
        return rows

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        pairs = zip(self._bases, self._runs, strict=True)
        places = _together([base + run.in_bucket(bucket, buckets) for base, run in pairs])
        return self._to_stored_rows(places[self.states(places) < DELETED])

    def load(self, rows: pl.DataFrame) -> None:
        rows = rows.sort(NUMBER)
        numbers, states = rows[NUMBER].to_numpy(), rows[STATE].to_numpy().astype(np.int8)
        frame = rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items())
        run = build_run(self.keys, rows[HASH].to_numpy(), rows[EVENT_MS].to_numpy(), numbers, frame, states)
        known = self._load_known(run)
        self._append(run.take(np.flatnonzero(~known & (run.states < DELETED))))
        self._next_number = self._reported_below = max(self._next_number, int(numbers.max(initial=-1)) + 1)
        self._tidy()

    def _load_known(self, of: SortedRun) -> Mask:
        """Give rows that are here the state that they are loaded with. Returns which those are."""
        known = np.zeros(len(of), dtype=bool)
        for run in self._runs:
            row, place = run.matches(of, 0, 0)
            same = of.numbers[row] == run.numbers[place]
            row, place = row[same], place[same]
            gone = of.states[row] >= DELETED
            run.states[place[~gone]] = of.states[row[~gone]]
            run.drop(place[gone])
            self._live -= int(gone.sum())
            known[row] = True
        return known

    def _to_stored_rows(self, places: Ints) -> pl.DataFrame:
        hashes = np.empty(len(places), dtype=np.uint64)
        for run, local, index in self._split(places):
            hashes[index] = run.hashes[local]
        states = self.states(places).astype(np.int8)
        columns = [pl.Series(HASH, hashes), pl.Series(NUMBER, self.numbers(places)), pl.Series(STATE, states)]
        return self.frame(places).hstack(columns)

    # --- runs ---------------------------------------------------------------------------------------------------

    def _append(self, run: SortedRun) -> Ints:
        base = self.rows_in_memory
        if len(run):
            self._runs.append(run)
            self._bases.append(base)
            self._live += len(run)
        return np.arange(base, base + len(run))

    def _split(self, places: Ints) -> list[tuple[SortedRun, Ints, Ints]]:
        """For each run that is concerned: the places in it, and the indices of those among ``places``."""
        which = np.searchsorted(self._bases, places, "right") - 1
        parts = []
        for number in np.flatnonzero(np.bincount(which, minlength=len(self._runs))).tolist():
            index = np.flatnonzero(which == number)
            parts.append((self._runs[number], places[index] - self._bases[number], index))
        return parts

    def _tidy(self) -> None:
        """Rewrite runs that are mostly dropped; then no run is shorter than twice the one after it."""
        runs: list[SortedRun] = []
        for run in self._runs:
            if run.deleted_count < len(run):
                runs.append(merge_runs([run]) if 2 * run.deleted_count > len(run) else run)
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            runs[-2:] = [merge_runs(runs[-2:])]
        self._runs = runs
        self._bases = np.cumsum([0, *(len(run) for run in runs)])[:-1].tolist()


def _together(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _distinct(places: Ints) -> Ints:
    """In order, each once. Most are in order already, which a stable sort makes use of; ``np.unique`` would hash."""
    places = np.sort(places, kind="stable")
    return places[np.diff(places, prepend=-1) > 0]
