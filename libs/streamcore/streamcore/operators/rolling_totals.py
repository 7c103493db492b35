"""What rolling totals are made of: a span, cut into steps, and what its steps add up to for each key.

A row is added to its step and to the total once, and a step that is over is taken away from the total as a whole, so
the work does not grow with the number of steps. Refuses to know late rows and what is said when.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.errors import ConfigError
from streamcore.operators.windows.bundle import Bundle, Columns, at
from streamcore.operators.windows.grouping import distinct, grown, numbered, sorted_distinct
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.pieces import Pieces
from streamcore.operators.windows.table import Ints
from streamcore.schema import EVENT_MS
from streamcore.watermark import END_OF_TIME_MS

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Span:
    """``name`` ends the names of its columns, as ``1h`` in ``views_1h``; ``step_ms``: how exactly it rolls."""

    name: str
    span_ms: int
    step_ms: int

    def __post_init__(self) -> None:
        if not 0 < self.step_ms <= self.span_ms or self.span_ms % self.step_ms:
            raise ConfigError(f"span {self.name}: {self.span_ms} ms must be a whole number of steps of {self.step_ms}")

    def expired(self, watermark_ms: int) -> int:
        """The steps below this number are over."""
        return watermark_ms // self.step_ms - self.span_ms // self.step_ms + 1

    def end_ms(self, step: int) -> int:
        """The watermark at which the rows of a step are over."""
        return step * self.step_ms + self.span_ms


class Totals:
    """One span: its steps with data, and by slot what they add up to."""

    def __init__(self, span: Span, keys: KeySlots, bundle: Bundle) -> None:
        self.span = span
        self.keys = keys
        self.bundle = bundle
        self.pieces = Pieces(keys, bundle)
        self._nothing = bundle.nothing()
        self._columns = at(self._nothing, _NONE)

    def of(self, slots: Ints) -> Columns:
        """The totals of these slots."""
        self._reserve()
        return at(self._columns, slots)

    def over(self, watermark_ms: int) -> Ints:
        """The slots, maybe several times, of which something is over at this watermark."""
        numbers = self.pieces.before(self.span.expired(watermark_ms))
        return np.concatenate([_NONE, *(self.pieces[number].slots for number in numbers)])

    def add(self, rows: pl.DataFrame, slots: Ints, watermark_ms: int, room: int) -> int:
        """Add the rows that are not over. Returns how many were refused for want of room."""
        self._reserve()
        step = rows[EVENT_MS].to_numpy() // self.span.step_ms
        live = np.flatnonzero(step >= self.span.expired(watermark_ms))
        if live.size < rows.height:
            rows, slots, step = rows[live], slots[live], step[live]
        return self._add(rows, slots, step, room) if rows.height else 0

    def _add(self, rows: pl.DataFrame, slots: Ints, step: Ints, room: int) -> int:
        lane, lanes = numbered(step)
        group, one = distinct(lane * self.keys.size + slots, lanes * self.keys.size)
        found = [(number, np.flatnonzero(step[one] == number)) for number in sorted_distinct(step[one]).tolist()]
        entries = np.empty(len(one), dtype=np.int64)
        for number, mine in found:
            entries[mine] = self.pieces.find(number, slots[one[mine]])
        kept = _with_room(entries, room)
        partials = self.bundle.group(rows, np.arange(rows.height), group, len(one))
        for number, mine in found:
            taken = mine[kept[mine]]
            if taken.size:
                self._put(number, slots[one[taken]], entries[taken], at(partials, taken))
        return int((~kept[group]).sum())

    def _put(self, number: int, slots: Ints, entries: Ints, partials: Columns) -> None:
        self.pieces.put(number, slots, entries, partials)
        self._write(slots, self.bundle.merge(at(self._columns, slots), partials))

    def expire(self, watermark_ms: int) -> tuple[Ints, Ints]:
        """Take away the steps that are over. Returns their slots, maybe several times, and when each was over."""
        end = self.span.expired(watermark_ms)
        slots, times = [_NONE], [_NONE]
        for number in self.pieces.before(end):
            piece = self.pieces[number]
            self._write(piece.slots, self.bundle.subtract(self.of(piece.slots), piece.partials))
            slots.append(piece.slots.copy())
            times.append(np.full(len(piece), self.span.end_ms(number)))
        self.pieces.remove(end)
        return np.concatenate(slots), np.concatenate(times)

    def restore(self, rows: pl.DataFrame) -> None:
        """Take all rows that were stored; some of them may be over."""
        self.pieces.restore(rows)
        self._reserve()
        for number in self.pieces.before(END_OF_TIME_MS):
            piece = self.pieces[number]
            self._write(piece.slots, self.bundle.merge(at(self._columns, piece.slots), piece.partials))

    def _write(self, slots: Ints, totals: Columns) -> None:
        for name, values in totals.items():
            self._columns[name][slots] = values

    def _reserve(self) -> None:
        """Room for every slot; a slot that is given to another key holds nothing again, for all was taken away."""
        for name, column in self._columns.items():
            if len(column) < self.keys.size:
                room = grown(column, 2 * self.keys.size)
                room[len(column) :] = self._nothing[name][0]
                self._columns[name] = room


def _with_room(entries: Ints, room: int) -> npt.NDArray[np.bool_]:
    """Which of the entries there is room for: those that are there, and of the new ones the first."""
    kept = np.ones(len(entries), dtype=bool)
    kept[np.flatnonzero(entries < 0)[max(room, 0) :]] = False
    return kept
