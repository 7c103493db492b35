"""The tables of live windows: what is stored of them, and how it is read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl

from streamcore.hashing import bucket_of
from streamcore.operators.windows.arena import NOTHING, Arena
from streamcore.operators.windows.contents import Content
from streamcore.operators.windows.journal import GONE, Journal
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.live import LiveWindow
from streamcore.operators.windows.table import Ints
from streamcore.state.table import HASH
from streamcore.windowing.triggers import TriggerState
from streamcore.windowing.values import AnyWindow, CountWindow

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
    """First and end, of either kind of window."""
    return (window.first, window.end) if isinstance(window, CountWindow) else (window.start_ms, window.end_ms)


class SlotBuckets:
    """The slots of each bucket, found once and then kept up to date."""

    def __init__(self, keys: KeySlots) -> None:
        self.keys = keys
        self._buckets = 0
        self._slots: dict[int, set[int]] = {}

    def of(self, bucket: int, buckets: int, every: Iterable[int]) -> list[int]:
        """Those of one bucket, in order. ``every``: all slots, for when the number of buckets is new."""
        if buckets != self._buckets:
            self._buckets, self._slots = buckets, {}
            for slot in every:
                self.add(slot)
        return sorted(self._slots.get(bucket, ()))

    def add(self, slot: int) -> None:
        if self._buckets:
            self._slots.setdefault(self._of(slot), set()).add(slot)

    def remove(self, slot: int) -> None:
        if self._buckets:
            self._slots[self._of(slot)].discard(slot)

    def _of(self, slot: int) -> int:
        return int(bucket_of(self.keys.hashes[slot : slot + 1], self._buckets)[0])


class KeyedJournal(Journal):
    """A journal of rows under slots."""

    def __init__(self, keys: KeySlots, columns: Mapping[str, pl.DataType], name: Sequence[str]) -> None:
        super().__init__({**keys.dtypes, **columns}, [*keys.dtypes, *name])
        self.keys = keys

    def frame(self, slots: Sequence[int] | Ints, columns: Sequence[pl.Series]) -> pl.DataFrame:
        """Live rows: the columns after the key's, in the order of the schema."""
        at = np.asarray(slots, dtype=np.int64)
        hashes = pl.Series(HASH, self.keys.hashes[at])
        gone = pl.repeat(False, len(at), dtype=pl.Boolean(), eager=True).alias(GONE)
        return pl.DataFrame([hashes, *self.keys.frame(at).get_columns(), *columns, gone])

    def tombs(self, slots: Sequence[int] | Ints, names: Mapping[str, Sequence[int] | Ints]) -> pl.DataFrame:
        """Rows that are gone."""
        at = np.asarray(slots, dtype=np.int64)
        known = [pl.Series(HASH, self.keys.hashes[at]), *self.keys.frame(at).get_columns()]
        named = [pl.Series(name, values, dtype=pl.Int64) for name, values in names.items()]
        there = {series.name: series for series in [*known, *named]}
        there[GONE] = pl.repeat(True, len(at), dtype=pl.Boolean(), eager=True)
        nothing = {n: pl.repeat(None, len(at), dtype=t, eager=True) for n, t in self.schema.items() if n not in there}
        return pl.DataFrame({name: (there | nothing)[name] for name in self.schema})


class WindowTable(KeyedJournal):
    """Live windows: trigger, counts, and the partials of what they hold."""

    def __init__(self, keys: KeySlots, arena: Arena | None) -> None:
        self.arena = arena
        partials = arena.bundle.dtypes if arena else {}
        super().__init__(keys, {FIRST: pl.Int64(), END: pl.Int64(), CONTROL: pl.Binary(), **partials}, [FIRST, END])
        self.live: dict[int, dict[AnyWindow, LiveWindow]] = {}
        self.count = 0
        self.dirty: dict[Name, None] = {}
        self.buckets = SlotBuckets(keys)

    def get(self, slot: int, window: AnyWindow) -> LiveWindow | None:
        of = self.live.get(slot)
        return None if of is None else of.get(window)

    def put(self, live: LiveWindow) -> None:
        if live.slot not in self.live:
            self.live[live.slot] = {}
            self.keys.hold(np.array([live.slot]))
            self.buckets.add(live.slot)
        self.live[live.slot][live.window] = live
        self.count += 1
        self.dirty[live.slot, live.window] = None

    def pop(self, slot: int, window: AnyWindow) -> LiveWindow:
        of = self.live[slot]
        live = of.pop(window)
        self.count -= 1
        self.dirty[slot, window] = None
        if not of:
            del self.live[slot]
            self.keys.release(np.array([slot]))
            self.buckets.remove(slot)
        return live

    def of(self, slot: int) -> Iterable[AnyWindow]:
        """The windows of a key."""
        return self.live.get(slot, ())

    def names(self) -> list[Name]:
        """All of them."""
        return [(slot, window) for slot, of in self.live.items() for window in of]

    def _changed(self) -> pl.DataFrame | None:
        if not self.dirty:
            return None
        found = [(name, self.get(*name)) for name in self.dirty]
        self.dirty = {}
        gone = [name for name, live in found if live is None]
        ends = [bounds(window) for _, window in gone]
        names = {FIRST: [first for first, _ in ends], END: [end for _, end in ends]}
        tombs = self.tombs([slot for slot, _ in gone], names)
        return pl.concat([self._rows([live for _, live in found if live is not None]), tombs])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        slots = self.buckets.of(bucket, buckets, self.live)
        return self._rows([live for slot in slots for live in self.live[slot].values()])

    def _rows(self, lives: Sequence[LiveWindow]) -> pl.DataFrame:
        ends = [bounds(live.window) for live in lives]
        columns = [
            pl.Series(FIRST, [first for first, _ in ends], dtype=pl.Int64),
            pl.Series(END, [end for _, end in ends], dtype=pl.Int64),
            pl.Series(CONTROL, [_control(live) for live in lives], dtype=pl.Binary),
        ]
        if self.arena is not None:
            columns += self.arena.store(np.fromiter((live.content.node for live in lives), np.int64, len(lives)))
        return self.frame([live.slot for live in lives], columns)

    def restore(self, rows: pl.DataFrame, window: Callable[[int, int], AnyWindow]) -> None:
        """Take all live rows; ``window``: a window from its bounds."""
        slots = self.keys.assign(rows).tolist()
        nodes = [NOTHING] * rows.height if self.arena is None else self.arena.load(rows)
        for slot, node, first, end, control in zip(slots, nodes, rows[FIRST], rows[END], rows[CONTROL], strict=True):
            self.put(_live(slot, window(first, end), node, control))
        self.dirty = {}


def _control(live: LiveWindow) -> bytes:
    content = live.content
    numbers = [live.unfired, live.fired, live.latest_ms, content.since, content.upto]
    return orjson.dumps([_state(live.trigger), live.awaits, *numbers])


def _live(slot: int, window: AnyWindow, node: int, control: bytes) -> LiveWindow:
    trigger, awaits, unfired, fired, latest_ms, since, upto = orjson.loads(control)
    content = Content(node, since=since, upto=upto)
    return LiveWindow(slot, window, _trigger(trigger), awaits, content, unfired, fired, latest_ms)


def _state(state: TriggerState) -> list[object]:
    return [state.done, state.count, state.since_ms, state.flag, [_state(part) for part in state.parts]]


def _trigger(stored: Sequence[Any]) -> TriggerState:
    done, count, since_ms, flag, parts = stored
    return TriggerState(bool(done), count, since_ms, bool(flag), tuple(_trigger(part) for part in parts))
