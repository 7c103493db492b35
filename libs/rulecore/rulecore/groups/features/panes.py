"""Features that panes hold: counts, sums, means, least and largest values, deviations, by key and pane.

A feature of n panes reads the pane of the event, the n - 1 before it, and later ones: what arrived before the event
with a later time counts, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rulecore.groups.features.arrivals import Ints, KeyedArrivals, Mask
from rulecore.groups.features.decay import TimeDecay
from rulecore.groups.windows.aggregation import Aggregation, Array, Partial
from rulecore.groups.windows.pane_runs import EntryRanges
from rulecore.groups.windows.pane_table import PANE_MASK, SHIFT, PaneRows, PaneTable
from rulecore.groups.windows.running import running
from streamcore.columnar.grouping import expand_counts
from streamcore.columnar.key_slots import KeySlots

_MOST_PAIRS = 2_000_000  # in memory at once


@dataclass(frozen=True, slots=True)
class PaneSpans:
    """Spans of panes that features read at events, one for each key and pane that has an event; and pairs of an event
    and a span that holds it, ordered by span and then by arrival.

    ``slots``, ``panes``: by span, the key slot and the pane of its events. ``length``: in panes. ``event``, ``span``:
    of each pair. ``own``: for each sorted event, its pair with the span of its own pane.
    """

    slots: Ints
    panes: Ints
    length: int
    event: Ints
    span: Ints
    own: Ints

    @classmethod
    def of(cls, arrivals: KeyedArrivals, panes: Ints, length: int) -> PaneSpans:
        """Return the spans of these events. ``panes``: of each sorted event."""
        codes, span_of = np.unique((arrivals.slots << SHIFT) | panes, return_inverse=True)
        slots, own_pane = codes >> SHIFT, codes & PANE_MASK
        if len(codes) == len(arrivals.first):  # each key has events in one pane only
            event, span = np.arange(len(panes)), arrivals.key
        else:
            last = np.zeros(len(codes), np.int64)
            np.maximum.at(last, span_of, np.arange(len(panes)))
            first = arrivals.first[np.searchsorted(arrivals.key_slots, slots)]
            parts = [
                _pairs(first[part], last[part], part, panes, own_pane[part] - length)
                for part in _slices(last - first + 1)
            ]
            event, span = (np.concatenate(column) for column in zip(*parts, strict=True))
        pairs = np.flatnonzero(span == span_of[event])
        own = np.empty(len(panes), np.int64)
        own[event[pairs]] = pairs
        return cls(slots, own_pane, length, event, span, own)

    @property
    def event_panes(self) -> Ints:
        """The pane of the event of each pair."""
        own: Ints = self.panes[self.span[self.own]]
        return own[self.event]

    @property
    def oldest(self) -> Ints:
        """The oldest pane of each span."""
        return np.maximum(self.panes - self.length + 1, 0)

    def run(self, partial: Partial, values: Array, stored: Array, *, including_this: bool) -> Array:
        """Return the running value of a partial at each sorted event: before it, or with it.

        ``values``: by pair, the contribution of its event. ``stored``: by span, the value before this cut.
        """
        return running(partial, values, self.span, stored, before=not including_this)[self.own]


def distinct_sorted(values: Ints) -> Ints:
    """Return the distinct ones of values in ascending order."""
    return values[np.flatnonzero(np.diff(values, prepend=-1))]


def _slices(counts: Ints) -> Iterator[Ints]:
    """Yield the numbers of spans in pieces that have at most ``_MOST_PAIRS`` pairs, or one span."""
    piece = (np.cumsum(counts) - 1) // _MOST_PAIRS
    yield from np.split(np.arange(len(counts)), np.flatnonzero(np.diff(piece)) + 1)


def _pairs(first: Ints, last: Ints, span: Ints, panes: Ints, before: Ints) -> tuple[Ints, Ints]:
    """Return the pairs of some spans: the events from ``first`` to ``last`` whose pane is after ``before``."""
    counts = last - first + 1
    event = expand_counts(first, counts)
    kept = panes[event] > np.repeat(before, counts)
    return event[kept], np.repeat(span, counts)[kept]


@dataclass(frozen=True, slots=True)
class _Move:
    """Moves sums from the beginning of their panes to that of the pane of a span."""

    decay: TimeDecay
    spans: PaneSpans

    def __call__(self, sums: Array, codes: Ints, span: Ints) -> Array:
        moved: Array = sums * self.decay.between(codes & PANE_MASK, self.spans.panes[span])
        return moved


class FeaturePanes(PaneTable):
    """The panes of features with one set of key columns and one length of panes. The keys are the group's."""

    def __init__(self, keys: KeySlots, pane_ms: int) -> None:
        super().__init__(keys.dtypes, pane_ms)
        self.keys = keys

    def ranges(self, spans: PaneSpans) -> EntryRanges:
        """Return the stored panes of each span, until panes are written or dropped."""
        return self.runs.ranges((spans.slots << SHIFT) | spans.oldest, (spans.slots + 1) << SHIFT)

    def read(
        self,
        spans: PaneSpans,
        ranges: EntryRanges,
        values: Mapping[str, Array],
        decay: TimeDecay | None = None,
        *,
        including_this: bool,
    ) -> Mapping[str, Array]:
        """Return the partials of a feature at each sorted event.

        ``ranges``: of ``spans``. ``values``: by column, the contribution of each event. With ``decay`` the sums are as
        of the beginning of the event's pane.
        """
        read = {}
        for name, own in values.items():
            partial = self.partials[name]
            added, move = own[spans.event], None
            if decay is not None and not partial.whole:
                move = _Move(decay, spans)
                added = move(added, spans.event_panes, spans.span)
            stored = self.runs.combine(name, partial.combine, ranges, move)
            read[name] = spans.run(partial, added, stored, including_this=including_this)
        return read

    def write(self, arrivals: KeyedArrivals, panes: Ints, values: Mapping[str, Array]) -> None:
        """Add the contributions of sorted events, by column. Events that no feature counts take no state."""
        counted = np.logical_or.reduce([own > 0 for name, own in values.items() if name.endswith(".n")])
        at = np.flatnonzero(counted)
        rows = PaneRows(arrivals.slots[at], panes[at], {name: own[at] for name, own in values.items()})
        self.add(rows, self.arrive(rows))

    def retain(self, live: Mask) -> None:
        """Drop the panes where the mask is false. The group forgets the keys."""
        if not live.all():
            self.runs.retain(live)

    def used(self) -> Ints:
        """Return the key slots that have panes, in ascending order."""
        return distinct_sorted(self.runs.codes() >> SHIFT)

    def keep_aggregations(self, aggregations: Sequence[Aggregation]) -> None:
        """Keep exactly the columns of these aggregates, and the panes in which one of them has counted an event."""
        self.keep_columns(aggregations, 0)
        self._drop_empty()
