"""A state table of rows by key and event time: the rows that joins keep of their inputs.

Rows that arrive together become a sorted run, and runs of similar size are merged (an LSM tree, O'Neil et al. 1996). So
a row is copied O(log n) times, and the cost of a cut is that of the rows it touches. A row is identified by key hash,
time and number of arrival. A row dropped by time is not reported as a change, because the owner drops it again after a
load. A deleted row is reported once, as a tombstone without its columns. Keys must not be null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.hashing import UInt64Array, hash_columns
from streamcore.schema import EVENT_MS
from streamcore.state.cold.paged_state import is_member
from streamcore.state.sorted_run import DELETED, LIVE, MARKED, Ints, Mask, SortedRun, build_run, concat_runs, merge_runs
from streamcore.state.table import HASH
from streamcore.windowing.model import END_OF_TIME_MS

#: Columns of stored rows: the row's number in order of arrival (int64) and its state (int8).
NUMBER = "__number"
STATE = "__state"


class Matches(NamedTuple):
    """Pairs: the index of a row in the run given to ``find``, and the place of a matching row of the table."""

    rows: Ints
    places: Ints


class RowTable:
    """A ``StateTable`` of rows. A *place* is the index of a row, valid until the next ``changes`` or ``load``.

    ``schema``: the columns of the rows, with ``EVENT_MS``. ``keys``: the key columns, never null. All times are epoch
    milliseconds. ``cold_count``: how many more live rows are on disk.
    """

    def __init__(self, schema: Mapping[str, pl.DataType], keys: tuple[str, ...]) -> None:
        self.schema = pl.Schema(schema)
        self.keys = keys
        self._runs: list[SortedRun] = []
        self._bases: list[int] = []  # the place of each run's first row
        self._live = 0
        self.cold_count = 0
        self._next_number = 0
        self._reported_below = 0  # rows from this number on have never been among the changes
        self._written: list[Ints] = []
        self._deleted: list[Ints] = []

    def __len__(self) -> int:
        """Return the number of live rows, with the cold ones."""
        return self._live + self.cold_count

    @property
    def rows_in_memory(self) -> int:
        """Return the number of live rows plus that of dropped rows whose run has not been rewritten yet."""
        return sum(len(run) for run in self._runs)

    # --- writing ------------------------------------------------------------------------------------------------

    def to_run(self, rows: pl.DataFrame) -> SortedRun:
        """Number these rows, which are in order of arrival; return them as a run for ``add``, ``find`` and ``last``."""
        numbers = np.arange(self._next_number, self._next_number + rows.height)
        self._next_number += rows.height
        hashes = hash_columns([rows[key] for key in self.keys], rows.height)
        states = np.full(rows.height, LIVE, dtype=np.int8)
        return build_run(
            self.keys, hashes, rows[EVENT_MS].to_numpy(), numbers, rows.select(self.schema.names()), states
        )

    def add(self, run: SortedRun) -> Ints:
        """Add these rows. Return their places."""
        places = self._append(run)
        self._written.append(places)
        return places

    def mark(self, places: Ints) -> None:
        """Mark these rows. A place may be repeated."""
        unmarked = _distinct(places)
        unmarked = unmarked[self.states(unmarked) == LIVE]
        for run, local, _ in self._split(unmarked):
            run.states[local] |= MARKED
        self._written.append(unmarked)

    def delete(self, places: Ints) -> None:
        """Delete these rows, which must be distinct and live."""
        for run, local, _ in self._split(places):
            run.drop(local)
        self._live -= len(places)
        self._deleted.append(places)

    def expire(self, before_ms: int) -> Ints:
        """Drop the rows before this time. Return their places."""
        pairs = zip(self._bases, self._runs, strict=True)
        dropped = _concat([base + run.expire(before_ms) for base, run in pairs])
        self._live -= len(dropped)
        return dropped

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, of: SortedRun, low_ms: int, high_ms: int) -> Matches:
        """Return, for each row of ``of``, the rows of its key that are ``low_ms`` to ``high_ms`` later (inclusive)."""
        rows, places = [], []
        for base, run in zip(self._bases, self._runs, strict=True):
            row, place = run.matches(of, low_ms, high_ms)
            equal = run.same_keys(place, of, row)
            rows.append(row[equal])
            places.append(base + place[equal])
        return Matches(_concat(rows), _concat(places))

    def last(self, of: SortedRun) -> Ints:
        """Return, for each row of ``of``, the place of the last row of its key that is not later.

        Of equal times, the last to arrive. -1 if there is none, or if that row has been dropped; so a caller must drop
        the rows of a key oldest first.
        """
        best = np.full(len(of), -1)
        times, numbers = np.full(len(of), -END_OF_TIME_MS), np.full(len(of), -1)
        for base, run in zip(self._bases, self._runs, strict=True):
            place = run.last(of)
            time, number = run.times[place], run.numbers[place]
            better = (place >= 0) & ((time > times) | ((time == times) & (number > numbers)))
            best[better], times[better], numbers[better] = base + place[better], time[better], number[better]
        has_place = np.flatnonzero(best >= 0)
        best[has_place[self.states(best[has_place]) >= DELETED]] = -1
        return best

    def between(self, low_ms: int, high_ms: int) -> Ints:
        """Return the places of the rows from ``low_ms`` up to, not including, ``high_ms``."""
        parts = []
        for base, run in zip(self._bases, self._runs, strict=True):
            low, high = np.searchsorted(run.sorted_times, [low_ms, high_ms])
            places = run.by_time[low:high]
            parts.append(base + places[run.states[places] < DELETED])
        return _concat(parts)

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
        """Return the rows at these distinct places as a run, for ``find`` and ``last``."""
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
        """Return the rows added, marked or deleted since the last call. Merges runs, so places become invalid."""
        written, deleted = _distinct(_concat(self._written)), np.sort(_concat(self._deleted))
        written = written[self.states(written) < DELETED]
        deleted = deleted[self.numbers(deleted) < self._reported_below]
        rows = self._to_stored_rows(np.concatenate([written, deleted]))
        payload = [name for name in self.schema.names() if name != EVENT_MS]
        if len(deleted):
            rows = rows.with_columns(pl.when(pl.col(STATE) < DELETED).then(pl.col(payload)))
        self._written, self._deleted = [], []
        self._reported_below = self._next_number
        self._merge_runs()
        return rows

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        pairs = zip(self._bases, self._runs, strict=True)
        places = _concat([base + run.in_bucket(bucket, buckets) for base, run in pairs])
        return self._to_stored_rows(places[self.states(places) < DELETED])

    def load(self, rows: pl.DataFrame) -> None:
        rows = rows.sort(NUMBER)
        numbers, states = rows[NUMBER].to_numpy(), rows[STATE].to_numpy().astype(np.int8)
        frame = rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items())
        run = build_run(self.keys, rows[HASH].to_numpy(), rows[EVENT_MS].to_numpy(), numbers, frame, states)
        exists = self._load_existing(run)
        self._append(run.take(np.flatnonzero(~exists & (run.states < DELETED))))
        self.skip_numbers(next_number(rows))
        self._merge_runs()

    def _load_existing(self, of: SortedRun) -> Mask:
        """Set the state of rows of ``of`` that the table has already. Return a mask of these rows."""
        exists = np.zeros(len(of), dtype=bool)
        for run in self._runs:
            row, place = run.matches(of, 0, 0)
            equal_number = of.numbers[row] == run.numbers[place]
            row, place = row[equal_number], place[equal_number]
            deleted = of.states[row] >= DELETED
            run.states[place[~deleted]] = of.states[row[~deleted]]
            run.drop(place[deleted])
            self._live -= int(deleted.sum())
            exists[row] = True
        return exists

    def _to_stored_rows(self, places: Ints) -> pl.DataFrame:
        hashes = np.empty(len(places), dtype=np.uint64)
        for run, local, index in self._split(places):
            hashes[index] = run.hashes[local]
        states = self.states(places).astype(np.int8)
        columns = [pl.Series(HASH, hashes), pl.Series(NUMBER, self.numbers(places)), pl.Series(STATE, states)]
        return self.frame(places).hstack(columns)

    # --- paging -------------------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Return about how many bytes the columns of the rows take."""
        return sum(int(run.frame.estimated_size()) for run in self._runs)

    @property
    def next_number(self) -> int:
        """Return the number of the next row that arrives."""
        return self._next_number

    def skip_numbers(self, next_number: int) -> None:
        """Give no row that arrives a number before this one: rows on disk have them."""
        self._next_number = self._reported_below = max(self._next_number, next_number)

    def hashes_and_numbers(self) -> tuple[UInt64Array, Ints]:
        """Return the key hashes and numbers of arrival of all live rows in memory."""
        live = [np.flatnonzero(run.states < DELETED) for run in self._runs]
        hashes = [run.hashes[places] for run, places in zip(self._runs, live, strict=True)]
        numbers = [run.numbers[places] for run, places in zip(self._runs, live, strict=True)]
        return np.concatenate([np.empty(0, np.uint64), *hashes]), _concat(numbers)

    def take_out(self, hashes: UInt64Array) -> pl.DataFrame:
        """Forget the rows of these keys, without tombstones, and return the live ones as they are stored."""
        masks = [is_member(run.hashes, hashes) for run in self._runs]
        pairs = [(run, mask & (run.states < DELETED)) for run, mask in zip(self._runs, masks, strict=True)]
        chosen = [base + np.flatnonzero(mask) for base, (_, mask) in zip(self._bases, pairs, strict=True)]
        rows = self._to_stored_rows(_concat(chosen))
        self._live -= rows.height
        kept = [np.flatnonzero(~mask & (run.states < DELETED)) if mask.any() else None for run, mask in pairs]
        self._runs = [run if places is None else run.take(places) for (run, _), places in zip(pairs, kept, strict=True)]
        self._merge_runs()
        return rows

    # --- runs ---------------------------------------------------------------------------------------------------

    def _append(self, run: SortedRun) -> Ints:
        base = self.rows_in_memory
        if len(run):
            self._runs.append(run)
            self._bases.append(base)
            self._live += len(run)
        return np.arange(base, base + len(run))

    def _split(self, places: Ints) -> list[tuple[SortedRun, Ints, Ints]]:
        """Return, for each run with any of the places: the run, its local places, and their indexes in ``places``."""
        run_index = np.searchsorted(self._bases, places, "right") - 1
        parts = []
        for number in np.flatnonzero(np.bincount(run_index, minlength=len(self._runs))).tolist():
            index = np.flatnonzero(run_index == number)
            parts.append((self._runs[number], places[index] - self._bases[number], index))
        return parts

    def _merge_runs(self) -> None:
        """Rewrite runs whose rows are mostly dropped, and merge: each run is at least twice as long as the next."""
        runs: list[SortedRun] = []
        for run in self._runs:
            if run.deleted_count < len(run):
                runs.append(merge_runs([run]) if 2 * run.deleted_count > len(run) else run)
        while len(runs) > 1 and len(runs[-2]) < 2 * len(runs[-1]):
            runs[-2:] = [merge_runs(runs[-2:])]
        self._runs = runs
        self._bases = np.cumsum([0, *(len(run) for run in runs)])[:-1].tolist()


def next_number(rows: pl.DataFrame) -> int:
    """Return the number after those of stored rows."""
    return int(rows[NUMBER].to_numpy().max(initial=-1)) + 1


def _concat(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _distinct(places: Ints) -> Ints:
    """Return the sorted distinct places. They are mostly sorted already, which makes a stable sort fast."""
    places = np.sort(places, kind="stable")
    return places[np.diff(places, prepend=-1) > 0]
