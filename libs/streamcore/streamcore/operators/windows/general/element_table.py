"""The state tables of elements, of the number of arrived elements per key, and of the operator's progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.general.window_table import ARRIVED, NUMBER, KeyedJournaledTable, SlotBuckets
from streamcore.operators.windows.journal import GONE, JournaledTable
from streamcore.schema import EVENT_MS
from streamcore.state.scope import keep_rows, merged
from streamcore.state.table import HASH
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.model import Element, Fields

SEQUENCE = "__sequence"
WATERMARK = "__watermark_ms"


class ElementTable(KeyedJournaledTable):
    """The elements that at least one window holds, by key slot and number. It is an ``ElementBuffer``.

    ``Element.key`` is the key slot.
    """

    def __init__(self, keys: KeySlots, schema: Mapping[str, pl.DataType]) -> None:
        self._value_dtypes = {name: dtype for name, dtype in schema.items() if name not in keys.dtypes}
        super().__init__(keys, {**self._value_dtypes, EVENT_MS: pl.Int64(), NUMBER: pl.Int64()}, [NUMBER])
        self.held: dict[int, dict[int, Element]] = {}
        self._holders: dict[tuple[int, int], int] = {}
        self._dirty: dict[tuple[int, int], None] = {}
        self._buckets = SlotBuckets(keys)

    def hold(self, element: Element) -> None:
        key_slot, number = cast(int, element.key), element.number
        if key_slot not in self.held:
            self.held[key_slot] = {}
            self._buckets.add(key_slot)
        if number not in self.held[key_slot]:
            self.held[key_slot][number] = element
            self._dirty[key_slot, number] = None
        self._holders[key_slot, number] = self._holders.get((key_slot, number), 0) + 1

    def release(self, element: Element) -> None:
        key_slot, number = cast(int, element.key), element.number
        self._holders[key_slot, number] -= 1
        if self._holders[key_slot, number]:
            return
        del self._holders[key_slot, number]
        del self.held[key_slot][number]
        self._dirty[key_slot, number] = None
        if not self.held[key_slot]:
            del self.held[key_slot]
            self._buckets.remove(key_slot)

    def _take_changes(self) -> pl.DataFrame | None:
        if not self._dirty:
            return None
        names, self._dirty = list(self._dirty), {}
        held = [element for key_slot, number in names if (element := self.held.get(key_slot, {}).get(number))]
        released = [(key_slot, number) for key_slot, number in names if number not in self.held.get(key_slot, {})]
        tombstones = self.tombstones(
            [key_slot for key_slot, _ in released], {NUMBER: [number for _, number in released]}
        )
        return pl.concat([self._rows(held), tombstones])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        key_slots = self._buckets.key_slots_in(bucket, buckets, self.held)
        return self._rows([element for key_slot in key_slots for element in self.held[key_slot].values()])

    def _rows(self, elements: Sequence[Element]) -> pl.DataFrame:
        columns = [pl.Series(n, [e.value[n] for e in elements], dtype=dtype) for n, dtype in self._value_dtypes.items()]
        columns.append(pl.Series(EVENT_MS, [e.event_ms for e in elements], dtype=pl.Int64))
        columns.append(pl.Series(NUMBER, [e.number for e in elements], dtype=pl.Int64))
        return self.frame([cast(int, element.key) for element in elements], columns)

    def restore(self, rows: pl.DataFrame) -> dict[int, list[Element]]:
        """Return all stored elements by key slot, in order of arrival. The caller must ``hold`` those in windows."""
        rows = rows.sort(NUMBER)
        elements_by_key_slot: dict[int, list[Element]] = {}
        key_slots = self.keys.assign(rows).tolist()
        values = iter_fields(rows.select([*self.keys.dtypes, *self._value_dtypes]))
        for key_slot, value, event_ms, number in zip(key_slots, values, rows[EVENT_MS], rows[NUMBER], strict=True):
            elements_by_key_slot.setdefault(key_slot, []).append(Element(key_slot, value, event_ms, number))
        return elements_by_key_slot

    def clear_changes(self) -> None:
        """Mark the elements held since ``restore`` as stored."""
        self._dirty = {}


def iter_fields(rows: pl.DataFrame) -> Iterator[Fields]:
    """Return an iterator over the rows, each as a mapping of its fields."""
    return cast(Iterator[Fields], rows.iter_rows(named=True))


class ArrivalTable(KeyedJournaledTable):
    """How many elements of each key have arrived. Count windows need this count for ever."""

    def __init__(self, keys: KeySlots) -> None:
        super().__init__(keys, {ARRIVED: pl.Int64()}, [])
        self._arrived = np.empty(0, dtype=np.int64)
        self._dirty: list[Ints] = []

    def number(self, key_slots: Ints) -> Ints:
        """Count the rows as arrived. Return, for each row, how many rows of its key arrived before it."""
        self._reserve()
        order = np.argsort(key_slots, kind="stable")
        distinct, starts, counts = np.unique(key_slots[order], return_index=True, return_counts=True)
        numbers = np.empty(len(key_slots), dtype=np.int64)
        numbers[order] = np.arange(len(key_slots)) - np.repeat(starts, counts) + self._arrived[key_slots[order]]
        self.keys.hold(distinct[self._arrived[distinct] == 0])
        self._arrived[distinct] += counts
        self._dirty.append(distinct)
        return numbers

    def count_for(self, key_slot: int) -> int:
        """Return how many elements of this key have arrived."""
        return int(self._arrived[key_slot])

    def _take_changes(self) -> pl.DataFrame | None:
        if not self._dirty:
            return None
        key_slots, self._dirty = np.unique(np.concatenate(self._dirty)), []
        return self._rows(key_slots)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        key_slots = np.flatnonzero(self._arrived > 0)
        return self._rows(key_slots[self.keys.in_bucket(key_slots, bucket, buckets)])

    def _rows(self, key_slots: Ints) -> pl.DataFrame:
        return self.frame(key_slots.tolist(), [pl.Series(ARRIVED, self._arrived[key_slots])])

    def restore(self, rows: pl.DataFrame) -> None:
        """Load all stored rows."""
        key_slots = self.keys.assign(rows)
        self.keys.hold(key_slots)
        self._reserve()
        self._arrived[key_slots] = rows[ARRIVED].to_numpy()

    def _reserve(self) -> None:
        if len(self._arrived) < self.keys.size:
            larger = np.zeros(2 * self.keys.size, dtype=np.int64)
            larger[: len(self._arrived)] = self._arrived
            self._arrived = larger


class ProgressTable(JournaledTable):
    """The table of the operator's progress. It has one row: the number of elements so far, and the watermark."""

    scope = merged(keep_rows)

    def __init__(self) -> None:
        super().__init__({SEQUENCE: pl.Int64(), WATERMARK: pl.Int64()}, [])
        self.sequence = 0
        self.watermark_ms = NO_WATERMARK
        self._stored = (self.sequence, self.watermark_ms)

    def take(self, count: int) -> int:
        """Reserve numbers for ``count`` elements, and return the first."""
        self.sequence += count
        return self.sequence - count

    def _take_changes(self) -> pl.DataFrame | None:
        current = (self.sequence, self.watermark_ms)
        if current == self._stored:
            return None
        self._stored = current
        return self.rows(0, 1)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:  # noqa: ARG002 - its hash is 0
        data = {HASH: [0], SEQUENCE: [self.sequence], WATERMARK: [self.watermark_ms], GONE: [False]}
        return pl.DataFrame(data if bucket == 0 else None, schema=self.schema)

    def apply_loaded(self) -> bool:
        """Apply the loaded rows; return whether there were any.

        There can be several rows if the number of shards has changed.
        """
        if not self.loaded:
            return False
        rows, self.loaded = pl.concat(self.loaded), []
        self.sequence = max(self.sequence, *rows[SEQUENCE].to_list())
        self.watermark_ms = max(self.watermark_ms, *rows[WATERMARK].to_list())
        self._stored = (self.sequence, self.watermark_ms)
        return True


def number_rows(progress: ProgressTable, arrivals: ArrivalTable | None, key_slots: Ints) -> Ints:
    """Return the arrival numbers of the rows, counted per key for count windows, and per operator otherwise."""
    first = progress.take(len(key_slots))
    return np.arange(first, first + len(key_slots)) if arrivals is None else arrivals.number(key_slots)


def take_loaded(progress: ProgressTable, journals: Mapping[str, JournaledTable]) -> dict[str, pl.DataFrame] | None:
    """Apply the loaded progress, and return the rows loaded since the last step by table; None without any."""
    if not (progress.apply_loaded() or any(table.loaded for table in journals.values())):
        return None
    return {name: table.take_loaded() for name, table in journals.items()}
