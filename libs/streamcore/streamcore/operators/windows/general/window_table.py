"""The state table of live windows, and the base class of the tables whose rows have a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.hashing import bucket_for
from streamcore.operators.windows.general.contents import WindowContent
from streamcore.operators.windows.general.live_window import LiveWindow
from streamcore.operators.windows.general.partial_store import NOTHING, PartialStore
from streamcore.operators.windows.journal import GONE, JournaledTable
from streamcore.state.table import HASH
from streamcore.windowing.model import AnyWindow, CountWindow
from streamcore.windowing.triggers import TriggerState

FIRST = "__first"
END = "__end"
CONTROL = "__control"
PANE = "__pane"
LATEST = "__latest_ms"
UPTO = "__upto"
NUMBER = "__number"
ARRIVED = "__arrived"

Name = tuple[int, AnyWindow]


def bounds(window: AnyWindow) -> tuple[int, int]:
    """Return the bounds of a window: in milliseconds, or in element numbers for a count window; end exclusive."""
    return (window.first, window.end) if isinstance(window, CountWindow) else (window.start_ms, window.end_ms)


class SlotBuckets:
    """The key slots of each bucket of the state log, computed once and then kept up to date."""

    def __init__(self, keys: KeySlots) -> None:
        self.keys = keys
        self._buckets = 0
        self._key_slots: dict[int, set[int]] = {}

    def key_slots_in(self, bucket: int, buckets: int, every: Iterable[int]) -> list[int]:
        """Return the key slots of one bucket, in order. ``every``: all key slots, read if ``buckets`` has changed."""
        if buckets != self._buckets:
            self._buckets, self._key_slots = buckets, {}
            for key_slot in every:
                self.add(key_slot)
        return sorted(self._key_slots.get(bucket, ()))

    def add(self, key_slot: int) -> None:
        if self._buckets:
            self._key_slots.setdefault(self._bucket_for(key_slot), set()).add(key_slot)

    def remove(self, key_slot: int) -> None:
        if self._buckets:
            self._key_slots[self._bucket_for(key_slot)].discard(key_slot)

    def _bucket_for(self, key_slot: int) -> int:
        return int(bucket_for(self.keys.hashes[key_slot : key_slot + 1], self._buckets)[0])


class KeyedJournaledTable(JournaledTable):
    """A journaled table whose rows have a key. ``name``: the columns that identify a row within its key."""

    def __init__(self, keys: KeySlots, columns: Mapping[str, pl.DataType], name: Sequence[str]) -> None:
        super().__init__({**keys.dtypes, **columns}, [*keys.dtypes, *name])
        self.keys = keys
        self._no_rows = pl.DataFrame(schema=self.schema)

    def frame(self, key_slots: Sequence[int] | Ints, columns: Sequence[pl.Series]) -> pl.DataFrame:
        """Return live rows of the keys with these key slots.

        ``columns``, each of shape (key slots,): the columns after the key columns, in the order of the schema.
        """
        key_slot_array = np.asarray(key_slots, dtype=np.int64)
        hashes = pl.Series(HASH, self.keys.hashes[key_slot_array])
        is_deleted = pl.Series(GONE, np.zeros(len(key_slot_array), dtype=bool))
        return pl.DataFrame([hashes, *self.keys.frame(key_slot_array).get_columns(), *columns, is_deleted])

    def tombstones(self, key_slots: Sequence[int] | Ints, names: Mapping[str, Sequence[int] | Ints]) -> pl.DataFrame:
        """Return the tombstones of rows. ``names``: the columns that identify each row within its key."""
        key_slot_array = np.asarray(key_slots, dtype=np.int64)
        filled = [
            pl.Series(HASH, self.keys.hashes[key_slot_array]),
            *self.keys.frame(key_slot_array).get_columns(),
            *(pl.Series(name, values, dtype=pl.Int64) for name, values in names.items()),
            pl.Series(GONE, np.ones(len(key_slot_array), dtype=bool)),
        ]
        nulls = self._no_rows.clear(len(key_slot_array)).get_columns() if len(key_slot_array) else []
        columns = {series.name: series for series in [*nulls, *filled]}
        return pl.DataFrame([columns[name] for name in self.schema]) if nulls else self._no_rows


class WindowTable(KeyedJournaledTable):
    """The live windows of a shard, by key slot and window, with their trigger states, counts and partials."""

    def __init__(self, keys: KeySlots, partial_store: PartialStore | None) -> None:
        self.partial_store = partial_store
        partials = partial_store.aggregate_set.partial_types if partial_store else {}
        super().__init__(keys, {FIRST: pl.Int64(), END: pl.Int64(), CONTROL: pl.Binary(), **partials}, [FIRST, END])
        self.live: dict[int, dict[AnyWindow, LiveWindow]] = {}
        self.count = 0
        self.dirty: dict[Name, None] = {}
        self.buckets = SlotBuckets(keys)

    def get(self, key_slot: int, window: AnyWindow) -> LiveWindow | None:
        windows = self.live.get(key_slot)
        return None if windows is None else windows.get(window)

    def put(self, live: LiveWindow) -> None:
        if live.key_slot not in self.live:
            self.live[live.key_slot] = {}
            self.keys.hold(np.array([live.key_slot]))
            self.buckets.add(live.key_slot)
        self.live[live.key_slot][live.window] = live
        self.count += 1
        self.dirty[live.key_slot, live.window] = None

    def pop(self, key_slot: int, window: AnyWindow) -> LiveWindow:
        windows = self.live[key_slot]
        live = windows.pop(window)
        self.count -= 1
        self.dirty[key_slot, window] = None
        if not windows:
            del self.live[key_slot]
            self.keys.release(np.array([key_slot]))
            self.buckets.remove(key_slot)
        return live

    def windows_for(self, key_slot: int) -> Iterable[AnyWindow]:
        """Return the windows of a key."""
        return self.live.get(key_slot, ())

    def names(self) -> list[Name]:
        """Return key slot and window of all live windows."""
        return [(key_slot, window) for key_slot, windows in self.live.items() for window in windows]

    def _take_changes(self) -> pl.DataFrame | None:
        if not self.dirty:
            return None
        changed = [(name, self.get(*name)) for name in self.dirty]
        self.dirty = {}
        deleted = [name for name, live in changed if live is None]
        ends = [bounds(window) for _, window in deleted]
        names = {FIRST: [first for first, _ in ends], END: [end for _, end in ends]}
        tombstones = self.tombstones([key_slot for key_slot, _ in deleted], names)
        return pl.concat([self._rows([live for _, live in changed if live is not None]), tombstones])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        key_slots = self.buckets.key_slots_in(bucket, buckets, self.live)
        return self._rows([live for key_slot in key_slots for live in self.live[key_slot].values()])

    def _rows(self, lives: Sequence[LiveWindow]) -> pl.DataFrame:
        ends = [bounds(live.window) for live in lives]
        columns = [
            pl.Series(FIRST, [first for first, _ in ends], dtype=pl.Int64),
            pl.Series(END, [end for _, end in ends], dtype=pl.Int64),
            pl.Series(CONTROL, [_encode_control(live) for live in lives], dtype=pl.Binary),
        ]
        if self.partial_store is not None:
            columns += self.partial_store.store(
                np.fromiter((live.content.node for live in lives), np.int64, len(lives))
            )
        return self.frame([live.key_slot for live in lives], columns)

    def restore(self, rows: pl.DataFrame, window: Callable[[int, int], AnyWindow]) -> None:
        """Load all live rows. ``window``: builds a window from its bounds."""
        key_slots = self.keys.assign(rows).tolist()
        nodes = [NOTHING] * rows.height if self.partial_store is None else self.partial_store.load(rows)
        for key_slot, node, first, end, control in zip(
            key_slots, nodes, rows[FIRST], rows[END], rows[CONTROL], strict=True
        ):
            self.put(_decode_live(key_slot, window(first, end), node, control))
        self.dirty = {}


def _encode_control(live: LiveWindow) -> bytes:
    content = live.content
    numbers = [live.unfired, live.fired, live.latest_ms, content.since, content.upto]
    return orjson.dumps([_state(live.trigger), live.awaits, *numbers])


def _decode_live(key_slot: int, window: AnyWindow, node: int, control: bytes) -> LiveWindow:
    trigger, awaits, unfired, fired, latest_ms, since, upto = orjson.loads(control)
    content = WindowContent(node, since=since, upto=upto)
    return LiveWindow(key_slot, window, _trigger(trigger), awaits, content, unfired, fired, latest_ms)


def _state(state: TriggerState) -> list[object]:
    return [state.done, state.count, state.since_ms, state.flag, [_state(part) for part in state.parts]]


def _trigger(stored: Sequence[Any]) -> TriggerState:
    done, count, since_ms, flag, parts = stored
    return TriggerState(bool(done), count, since_ms, bool(flag), tuple(_trigger(part) for part in parts))
