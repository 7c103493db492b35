"""The time of the latest event of each key, and a value of it: the state of ``last`` and ``time_since_last``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.features.arrivals import NEVER, Ints, KeyedArrivals, Mask
from rulecore.state_size import KEY_BYTES, NUMBER_BYTES, StateSize, characters
from streamcore.columnar.key_slots import KeySlots
from streamcore.state.table import HASH

TIME = "__time"
VALUE = "__value"
_ENTRY_BYTES = 3 * NUMBER_BYTES + KEY_BYTES

Objects = npt.NDArray[np.object_]


class LatestTable:
    """A ``StateTable`` with one row a key, whose keys are the group's. ``dtype``: of the value; None: only a time."""

    def __init__(self, keys: KeySlots, dtype: pl.DataType | None) -> None:
        self.keys = keys
        self.dtype = dtype
        self._times: Ints = np.empty(0, np.int64)  # by key slot; NEVER: no row
        self._values: Objects = np.empty(0, object)
        self._dirty: list[Ints] = []
        self._characters = 0  # of the values

    # --- reading and writing ------------------------------------------------------------------------------------

    def times(self, arrivals: KeyedArrivals, counted: Mask, *, including_this: bool) -> Ints:
        """Return the latest time of the counted events of the key before each sorted event, or with it."""
        return arrivals.latest(counted, self._stored(arrivals), including_this=including_this)

    def values(self, arrivals: KeyedArrivals, counted: Mask, values: pl.Series, *, including_this: bool) -> pl.Series:
        """Return the value of the event that ``times`` has the time of. ``values``: of each sorted event."""
        assert self.dtype is not None, "a table with values"
        stored = self._stored(arrivals)
        event = arrivals.latest_event(counted, stored, including_this=including_this)
        kept = self.values_at(arrivals.key_slots)
        both = pl.concat([kept, values.cast(self.dtype)])
        found: pl.Series = both.gather(np.where(event < 0, arrivals.key, len(kept) + event))
        return found

    def write(self, arrivals: KeyedArrivals, counted: Mask, values: pl.Series | None) -> None:
        """Keep the latest counted event of each key."""
        last = arrivals.last(arrivals.latest_event(counted, self._stored(arrivals), including_this=True))
        changed = np.flatnonzero(last >= 0)
        slots, event = arrivals.key_slots[changed], last[changed]
        self.put(slots, arrivals.times[event], None if values is None else values.gather(event).to_list())

    def put(self, slots: Ints, times: Ints, values: Sequence[object] | None) -> None:
        """Set the rows of distinct key slots."""
        self._grow()
        self._times[slots] = times
        if values is not None:
            self._put_values(slots, values)
        self._dirty.append(slots)

    def merge(self, slots: Ints, times: Ints, values: Sequence[object] | None, *, earliest: bool = False) -> None:
        """Add older events to the rows of distinct key slots: a row stays if it has a later time, and of equal times
        too; with ``earliest`` only if it has an earlier one. ``values``: None for a table of times."""
        stored = self.at(slots)
        newer = np.flatnonzero((stored == NEVER) | ((times <= stored) if earliest else (times > stored)))
        own = None if values is None else [values[at] for at in newer.tolist()]
        self.put(slots[newer], times[newer], own)

    def values_at(self, slots: Ints) -> pl.Series:
        """Return the values of the rows in these key slots."""
        return pl.Series(VALUE, self._values[slots].tolist(), dtype=self.dtype)

    def _put_values(self, slots: Ints, values: Sequence[object]) -> None:
        """Set the values of distinct slots."""
        if self.dtype == pl.String:
            self._characters += characters(values) - characters(self._values[slots].tolist())
        self._values[slots] = np.array([*values, None], object)[:-1]  # with one more, rows of equal length stay values

    def _stored(self, arrivals: KeyedArrivals) -> Ints:
        """Return by number of key its time."""
        return self.at(arrivals.key_slots)

    def at(self, slots: Ints) -> Ints:
        """Return the latest time of the keys in these slots, ``NEVER`` without one."""
        self._grow()
        return self._times[slots]

    def _grow(self) -> None:
        if len(self._times) < self.keys.size:
            more = 2 * self.keys.size - len(self._times)
            self._times = np.concatenate([self._times, np.full(more, NEVER)])
            self._values = np.concatenate([self._values, np.full(more, None, object)])

    def expire(self, before_ms: int) -> bool:
        """Drop the rows of events before this time; return whether there was one."""
        old = np.flatnonzero((self._times < before_ms) & (self._times > NEVER))
        self._times[old] = NEVER
        self._put_values(old, [None] * len(old))
        return bool(len(old))

    def used(self) -> Ints:
        """Return the key slots that have a row, in ascending order."""
        return np.flatnonzero(self._times > NEVER)

    # --- size ---------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all rows, or more."""
        slots = len(self._times)
        return StateSize(slots, slots * _ENTRY_BYTES + self.keys.frame_bytes + self._characters)

    def exact_size(self) -> StateSize:
        """Return the size of all rows."""
        used = self.used()
        frame = self.keys.frame(used)
        text = sum(int(frame[n].str.len_chars().sum()) for n, kind in self.keys.dtypes.items() if kind == pl.String)
        own = characters(self._values[used].tolist()) if self.dtype == pl.String else 0
        return StateSize(len(used), len(used) * _ENTRY_BYTES + text + own)

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        one = len(self._dirty) == 1  # of distinct slots
        dirty = np.sort(self._dirty[0]) if one else np.unique(np.concatenate([np.empty(0, np.int64), *self._dirty]))
        self._dirty = []
        return self._frame(dirty[self._times[dirty] > NEVER])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        used = self.used()
        return self._frame(used[self.keys.in_bucket(used, bucket, buckets)])

    def load(self, rows: pl.DataFrame) -> None:
        slots = self.keys.assign(rows)
        self._grow()
        self._times[slots] = rows[TIME].to_numpy()
        if self.dtype is not None:
            latest = dict(zip(slots.tolist(), rows[VALUE].to_list(), strict=True))  # of a key that has several rows
            self._put_values(np.array([*latest], np.int64), [*latest.values()])

    def _frame(self, slots: Ints) -> pl.DataFrame:
        columns = [pl.Series(HASH, self.keys.hashes[slots]), pl.Series(TIME, self._times[slots])]
        if self.dtype is not None:
            columns.append(pl.Series(VALUE, self._values[slots].tolist(), dtype=self.dtype))
        return pl.DataFrame([*self.keys.frame(slots).get_columns(), *columns])


class ValueTimes:
    """A ``StateTable`` of the values of each key, with the time of the latest event of each: the state of ``seen`` and
    ``count_distinct``. Its keys are its own: the group's columns and the value."""

    def __init__(self, by: Mapping[str, pl.DataType], dtype: pl.DataType) -> None:
        self.by = tuple(by)
        self.keys = KeySlots({**by, VALUE: dtype})
        self._latest = LatestTable(self.keys, None)

    def arrive(self, frame: pl.DataFrame, times: Ints) -> KeyedArrivals:
        """Return events sorted by key and value. ``frame``: the key columns and ``VALUE``, in order of arrival."""
        return KeyedArrivals.sort(self.keys.assign(frame), times)

    def times(self, arrivals: KeyedArrivals, counted: Mask, *, including_this: bool) -> Ints:
        """Return the latest time of the value before each sorted event, or with it."""
        return self._latest.times(arrivals, counted, including_this=including_this)

    def write(self, arrivals: KeyedArrivals, counted: Mask) -> None:
        """Keep the latest time of each value."""
        self._latest.write(arrivals, counted, None)

    def merge(self, rows: pl.DataFrame) -> None:
        """Add older events: the key columns, ``VALUE`` and ``TIME``, each value of a key once."""
        self._latest.merge(self.keys.assign(rows), rows[TIME].to_numpy(), None)

    def stored(self, slots: Ints) -> Ints:
        """Return the latest time of the value in each of these slots before this cut, ``NEVER`` without one."""
        return self._latest.at(slots)

    def expire(self, before_ms: int) -> bool:
        """Drop the values that were last seen before this time; return whether there was one."""
        dropped = self._latest.expire(before_ms)
        used = self._latest.used()
        if dropped or len(self.keys) > 2 * len(used) + 4_096:
            self.keys.keep(used)
        return dropped

    def entries(self) -> tuple[pl.DataFrame, Ints]:
        """Return the key columns and the latest time of every value of every key."""
        used = self._latest.used()
        return self.keys.frame(used).select(self.by), self._latest.at(used)

    def state_size(self) -> StateSize:
        """Return the size of all rows, or more."""
        return self._latest.state_size()

    def exact_size(self) -> StateSize:
        """Return the size of all rows."""
        return self._latest.exact_size()

    def changes(self) -> pl.DataFrame:
        return self._latest.changes()

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._latest.rows(bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        self._latest.load(rows)
