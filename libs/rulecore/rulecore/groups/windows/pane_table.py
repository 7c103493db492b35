"""The panes of window rules: event time in equal pieces, each with the partials of every aggregate for each key.

A window of ``size`` that slides by ``slide`` is a run of ``size / slide`` panes; a tumbling window is a single pane. An
event is added once, however many windows it belongs to (the paned windows of Li, Maier, Tufte, Papadimos,
Tucker: "No pane, no gain", 2005).

An entry is a pane of a key. Its code is ``key_slot << 32 | pane``, where ``key_slot`` is the key's number in
``KeySlots``. Entries are sorted by code, so the panes of a window of a key are neighbours, found by two binary searches
(``pane_runs``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.windows.aggregation import Aggregation, Array, Combine, Partial
from rulecore.groups.windows.pane_runs import Runs
from rulecore.groups.windows.running import running
from rulecore.state_size import NUMBER_BYTES, StateSize, key_bytes, key_bytes_at_most
from streamcore.columnar.grouping import expand_counts
from streamcore.columnar.key_slots import KeySlots
from streamcore.state.table import HASH

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PANE = "__pane"
FIRED = "__fired"
SHIFT = 32
PANE_MASK = (1 << SHIFT) - 1


@dataclass(frozen=True, slots=True)
class PaneRows:
    """Events in order of arrival: key slot, pane number, and the value that each adds to every partial column."""

    key_slots: Ints
    panes: Ints
    values: Mapping[str, Array]

    @property
    def codes(self) -> Ints:
        """The code of each event's entry."""
        return (self.key_slots << SHIFT) | self.panes


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows with their combined partials (``totals``).

    ``row``: the event just after which the totals hold, -1 for a closed window.
    """

    row: Ints
    key_slots: Ints
    end_panes: Ints
    totals: Mapping[str, Array]

    @property
    def codes(self) -> Ints:
        """The code of each window: that of its last pane."""
        return (self.key_slots << SHIFT) | self.end_panes


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The entries of a cut's events. ``entry``: for each event, the index of its entry in ``codes``; ``born``: for each
    entry, the first event of the cut in it, -1 if it held data before."""

    codes: Ints
    entry: Ints
    born: Ints

    def born_at(self, codes: Ints) -> Ints:
        """Return ``born`` of any codes: -1 for an entry without events in this cut."""
        index = np.minimum(np.searchsorted(self.codes, codes), max(len(self.codes) - 1, 0))
        return np.where(self.codes[index] == codes, self.born[index], -1)


@dataclass(frozen=True, slots=True)
class WindowLayout:
    """Pairs of an event and a window that contains it, one per row, ordered by window and then by arrival.

    ``event``: the event of each row. ``segment``: the window of each row, as an index of ``segments``, the codes of the
    windows. ``there``: whether the window's last pane holds data at the time of the event. Rows where it does not still
    add to the totals of later rows.
    """

    event: Ints
    segment: Ints
    segments: Ints
    there: Mask

    @property
    def codes(self) -> Ints:
        """The window code of each row where ``there`` is true."""
        return self.segments[self.segment[self.there]]


class PaneTable:
    """A ``StateTable`` of the panes of one group. ``partials``: the stored columns, by name."""

    def __init__(self, dtypes: Mapping[str, pl.DataType], pane_ms: int) -> None:
        self.keys = KeySlots(dtypes)
        self.pane_ms = pane_ms
        self.runs = Runs()
        self.partials: dict[str, Partial] = {}
        self._dirty: list[Ints] = []

    # --- columns ------------------------------------------------------------------------------------------------

    def keep_columns(
        self,
        aggregations: Sequence[Aggregation],
        fired_words: int,
        others: Mapping[str, Partial] = MappingProxyType({}),
    ) -> None:
        """Keep exactly the columns of these aggregates, ``fired_words`` columns of 64 fired bits, and ``others``.

        A new column starts empty in all panes.
        """
        wanted = {a.column(p): p for a in aggregations for p in a.partials} | dict(others)
        wanted |= {f"{FIRED}.{n}": Partial("fired", Combine.SUM, whole=True) for n in range(fired_words)}
        removed = self.partials.keys() - wanted.keys()
        self.runs.set_columns({n: (p.dtype, p.identity) for n, p in wanted.items()})
        for aggregation in aggregations:  # a pane that was stored without the column was loaded with 0 in it
            counter, *numbers = aggregation.partials
            for partial in numbers:
                self.runs.reset(aggregation.column(partial), aggregation.column(counter), partial.identity)
        self.partials = wanted
        if removed:
            self._drop_empty()

    def _drop_empty(self) -> None:
        """Drop the panes that only removed aggregates had counted, and the keys without panes."""
        self.runs.codes()
        counters = [n for n in self.partials if n.endswith(".n")]
        self.retain(np.logical_or.reduce([self.runs.column(n) > 0 for n in counters]))

    # --- size ---------------------------------------------------------------------------------------------------

    @property
    def state_size(self) -> StateSize:
        """The size of all panes and keys, or more; expired panes count until they are dropped."""
        return StateSize(len(self.runs), len(self.runs) * self._pane_bytes + key_bytes_at_most(self.keys))

    @property
    def _pane_bytes(self) -> int:
        return NUMBER_BYTES * (1 + len(self.partials))

    def state_sizes(self, masks: Mapping[str, Mask]) -> Mapping[str, StateSize]:
        """Return the size of sets of panes and their keys. ``masks``: by name, a bit for each of ``runs.codes()``."""
        codes = self.runs.codes()
        key_slots = codes >> SHIFT
        first = np.diff(key_slots, prepend=-1) != 0
        key_of = np.cumsum(first) - 1  # codes are sorted by key slot
        by_key = key_bytes(self.keys, key_slots[first])
        sizes = {}
        for name, mask in masks.items():
            keys = by_key[np.bincount(key_of[mask], minlength=len(by_key)) > 0]
            panes = int(np.count_nonzero(mask))
            sizes[name] = StateSize(panes, panes * self._pane_bytes + int(keys.sum()))
        return sizes

    def pane_numbers(self, event_ms: Ints) -> Ints:
        """Return the pane number of each event time."""
        return event_ms // self.pane_ms

    # --- reading windows ----------------------------------------------------------------------------------------

    def arrive(self, rows: PaneRows) -> Arrivals:
        """Insert the missing entries of a cut's events. Called once per cut, before ``layout`` and ``add``."""
        codes, first_row, entry = np.unique(rows.codes, return_index=True, return_inverse=True)
        known = self.runs.contains(codes)
        self.runs.insert(codes[~known])
        return Arrivals(codes, entry, np.where(known, -1, first_row))

    def layout(self, arrivals: Arrivals, panes: int) -> WindowLayout:
        """Return the windows of ``panes`` panes that contain each event (see ``WindowLayout.there``).

        For events in order of time that is one window per event.
        """
        pair_code, pair_window = self.runs.members(arrivals.codes, arrivals.codes + panes)
        segments, pair_segment = np.unique(pair_window, return_inverse=True)
        event, pair = _join(arrivals.entry, pair_code, len(arrivals.codes))
        order = np.argsort(pair_segment[pair], kind="stable")
        event, segment = event[order], pair_segment[pair][order]
        return WindowLayout(event, segment, segments, arrivals.born_at(segments)[segment] <= event)

    def own_arrivals(self, name: str, rows: PaneRows) -> Arrivals:
        """Return the arrivals of those events that count in column ``name``, with an empty ``entry``."""
        counted = np.flatnonzero(rows.values[name] > 0)
        codes, first = np.unique(rows.codes[counted], return_index=True)
        return Arrivals(codes, counted[:0], counted[first])

    def holds_own(self, name: str, own: Arrivals, codes: Ints, event: Ints) -> Mask:
        """Return whether each entry holds an event that counts in column ``name``, just after the event given for it.

        ``own``: the result of ``own_arrivals``.
        """
        stored: Mask = self.runs.read(name, self.runs.locate(codes), 0) > 0
        if not len(own.codes):
            return stored
        index = np.minimum(np.searchsorted(own.codes, codes), len(own.codes) - 1)
        arrived: Mask = (own.codes[index] == codes) & (own.born[index] <= event)
        return arrived | stored

    def trail(self, rows: PaneRows, layout: WindowLayout, panes: int) -> Windows:
        """Return the windows of the layout's rows where ``there`` is true, with their totals just after the event."""
        base = self._totals(layout.segments, panes)
        totals = {}
        for name, values in rows.values.items():
            after_event = running(self.partials[name], values[layout.event], layout.segment, base[name])
            totals[name] = after_event[layout.there]
        windows = layout.codes
        return Windows(layout.event[layout.there], windows >> SHIFT, windows & PANE_MASK, totals)

    def closing(self, after_pane: int, last_pane: int, panes: int) -> Windows:
        """Return the windows of ``panes`` panes that hold data and end at a pane in ``(after_pane, last_pane]``."""
        after_pane = max(after_pane, -1)
        codes = self.runs.codes()
        pane = codes & PANE_MASK
        near = codes[(pane <= last_pane) & (pane > after_pane - panes + 1)]
        first = np.maximum(near, ((near >> SHIFT) << SHIFT) | (after_pane + 1)) if near.size else near
        last = np.minimum(near + panes - 1, ((near >> SHIFT) << SHIFT) | last_pane)
        windows = np.unique(expand_counts(first, last - first + 1))
        no_event = np.full(len(windows), -1, dtype=np.int64)
        return Windows(no_event, windows >> SHIFT, windows & PANE_MASK, self._totals(windows, panes))

    def _totals(self, windows: Ints, panes: int) -> dict[str, Array]:
        """Return the combined stored partials of the windows with these codes."""
        ranges = self.runs.ranges(np.maximum(windows - panes + 1, (windows >> SHIFT) << SHIFT), windows + 1)
        return {
            name: self.runs.combine(name, partial.combine, ranges)
            for name, partial in self.partials.items()
            if not name.startswith(FIRED)
        }

    # --- writing ------------------------------------------------------------------------------------------------

    def add(self, rows: PaneRows, arrivals: Arrivals) -> None:
        """Add the events' values to their panes, which ``arrive`` has inserted."""
        codes = arrivals.codes
        locations = self.runs.locate(codes)
        for name, values in rows.values.items():
            partial = self.partials[name]
            self.runs.merge(
                name, partial.combine, locations, _combine_groups(partial, values, arrivals.entry, len(codes))
            )
        self._dirty.append(codes)

    def has_fired(self, codes: Ints, bits: Ints) -> Mask:
        """Return whether bit ``bits[i]`` is set in entry ``codes[i]``; a missing entry has no bits set."""
        result = np.zeros(len(codes), dtype=bool)
        locations = self.runs.locate(codes)
        for word, rows in _by_word(bits):
            masks = self.runs.read(f"{FIRED}.{word}", locations, 0)[rows]
            result[rows] = (masks >> (bits[rows] & 63)) & 1 == 1
        return result

    def set_fired(self, codes: Ints, bits: Ints) -> None:
        """Set bit ``bits[i]`` in entry ``codes[i]``, which must exist."""
        for word, rows in _by_word(bits):
            name = f"{FIRED}.{word}"
            touched, entry = np.unique(codes[rows], return_inverse=True)
            mask = np.zeros(len(touched), np.int64)
            np.bitwise_or.at(mask, entry, np.int64(1) << (bits[rows] & 63))
            locations = self.runs.locate(touched)
            self.runs.write(name, locations, self.runs.read(name, locations, 0) | mask)
            self._dirty.append(touched)

    def clear_fired(self, bit: int) -> None:
        """Clear a bit in all entries, before it is assigned to another rule version."""
        codes = self.runs.codes()
        known = f"{FIRED}.{bit >> 6}" in self.partials
        touched = codes[self.has_fired(codes, np.full(len(codes), bit))] if known else codes[:0]
        name = f"{FIRED}.{bit >> 6}"
        if touched.size:
            mask = np.uint64(~(1 << (bit & 63)) & 0xFFFFFFFFFFFFFFFF).view(np.int64)
            locations = self.runs.locate(touched)
            self.runs.write(name, locations, self.runs.read(name, locations, 0) & mask)
            self._dirty.append(touched)

    def expire(self, first_pane: int) -> None:
        """Drop the panes before this one, and the keys without panes."""
        codes = self.runs.codes()
        self.retain((codes & PANE_MASK) >= first_pane)

    def retain(self, live: Mask) -> None:
        """Drop the panes where the mask is false, one bit per entry of ``runs.codes()``, and the keys without panes."""
        if live.all():
            return
        self.runs.retain(live)
        self.keys.keep(np.unique(self.runs.codes() >> SHIFT))

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        one = len(self._dirty) == 1  # sorted and distinct, as all of them are
        dirty = self._dirty[0] if one else np.unique(np.concatenate([np.empty(0, np.int64), *self._dirty]))
        self._dirty = []
        return self._frame(dirty[self.runs.contains(dirty)])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        key_slots = np.flatnonzero(self.keys.in_bucket(np.arange(self.keys.size), bucket, buckets))
        return self._frame(self.runs.members(key_slots << SHIFT, (key_slots + 1) << SHIFT)[1])

    def load(self, rows: pl.DataFrame) -> None:
        key_slots = self.keys.assign(rows)
        codes = (key_slots << SHIFT) | rows[PANE].to_numpy()
        order = np.argsort(codes)
        codes = codes[order]
        names = [c for c in rows.columns if c not in self.keys.dtypes and c not in (HASH, PANE)]
        for name in names:
            if name not in self.partials:
                self.partials[name] = _stored_partial(name, rows[name])
        self.runs.set_columns({n: (p.dtype, p.identity) for n, p in self.partials.items()})
        self.runs.insert(codes[~self.runs.contains(codes)])
        locations = self.runs.locate(codes)
        for name in names:
            self.runs.write(name, locations, rows[name].to_numpy()[order])

    def _frame(self, codes: Ints) -> pl.DataFrame:
        """Return the entries with these codes as rows of the table."""
        key_slots = codes >> SHIFT
        columns = [pl.Series(HASH, self.keys.hashes[key_slots]), pl.Series(PANE, codes & PANE_MASK)]
        locations = self.runs.locate(codes)
        columns += [pl.Series(n, self.runs.read(n, locations, p.identity)) for n, p in self.partials.items()]
        return pl.DataFrame([*self.keys.frame(key_slots).get_columns(), *columns])


def _by_word(bits: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield the 64-bit words that hold these bits, each with the indexes of its bits in ``bits``."""
    words = bits >> 6
    for word in np.unique(words).tolist():
        yield word, np.flatnonzero(words == word)


def _stored_partial(name: str, column: pl.Series) -> Partial:
    """Return a partial for a stored column that is loaded before ``keep_columns`` names its aggregate."""
    suffix = name.rsplit(".", 1)[1]
    return Partial(suffix, Combine.SUM, whole=column.dtype == pl.Int64)


def _join(inverse: Ints, pair_code: Ints, codes: int) -> tuple[Ints, Ints]:
    """Return the joined indexes of events and of pairs of an entry and a window.

    ``inverse``: the entry of each event. ``pair_code``: the entry of each pair, ascending. ``codes``: the number of
    entries.
    """
    counts = np.bincount(pair_code, minlength=codes)
    starts = np.cumsum(counts) - counts
    event = np.repeat(np.arange(len(inverse)), counts[inverse])
    return event, expand_counts(starts[inverse], counts[inverse])


def _combine_groups(partial: Partial, values: Array, group: Ints, groups: int) -> Array:
    """Return the combined values of each group. ``group``: the group of each value."""
    result = np.full(groups, partial.identity, dtype=partial.dtype)
    partial.combine.operation.at(result, group, values)
    return result
