"""The change that a cut's events make to sessions, computed before anything is written.

The events of a key are gone through in order of arrival, once, and each is given to a *segment*: the events of one
session between two joinings. A segment begins empty, from a stored session, or from the segments that it joins; at each
event, the values are those of its segment's beginning and of the segment's events up to it. That is arithmetic on whole
columns, one pass for each depth of joining within the cut, and there is mostly none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rulecore.groups.sessions.table import SessionTable
from rulecore.groups.windows.aggregation import Array
from rulecore.groups.windows.having import RuleHits
from rulecore.groups.windows.running import running

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class SessionSegment:
    """``entry``: the stored session that it continues, -1 for none; ``parents``: the segments that it joins."""

    slot: int
    anchor: int
    entry: int = -1
    parents: tuple[int, ...] = ()
    depth: int = 0


@dataclass(slots=True)
class OpenSession:
    """A session as it stands: its bounds, and its latest segment."""

    start: int
    last: int
    segment: int
    touched: bool = False


@dataclass(frozen=True, slots=True)
class SessionUpdates:
    """``slots``, ``segment``, ``start`` and ``last`` are by event: the session as it stands just after it.

    ``touched``: the sessions that took events; ``absorbed``: entries of stored ones that are part of another now.
    """

    slots: Ints
    segment: Ints
    start: Ints
    last: Ints
    segments: Sequence[SessionSegment]
    touched: Sequence[OpenSession]
    absorbed: Sequence[int]


class _SessionMerger:
    """The sessions of the keys that have events, while the events are gone through."""

    def __init__(self, table: SessionTable) -> None:
        self.table = table
        self.gap_ms = table.gap_ms
        self.segments: list[SessionSegment] = []
        self.absorbed: list[int] = []
        self.open: dict[int, list[OpenSession]] = {}

    def add_event(self, slot: int, time: int) -> OpenSession:
        """Add an event to its session and return the session."""
        known = self.open[slot]
        at = bisect_right(known, time, key=_start) if known and time < known[-1].start else len(known)
        after = at < len(known) and known[at].start - self.gap_ms < time
        before = at > 0 and time < known[at - 1].last + self.gap_ms
        if before and after:
            found = self._join(slot, known[at - 1], known.pop(at))
        elif before or after:
            found = known[at - 1 if before else at]
        else:
            found = OpenSession(time, time, self._segment(SessionSegment(slot, time)))
            known.insert(at, found)
        found.start, found.last = min(found.start, time), max(found.last, time)
        found.touched = True
        return found

    def open_stored(self, slots: Sequence[int]) -> None:
        """Load the stored sessions of these distinct keys, those of a key by their starts."""
        entries = [entry for slot in slots for entry in self.table.entries_by_slot.get(slot, ())]
        at = np.array(entries, np.int64)
        table = self.table
        columns = (table.slot[at], table.anchor[at], table.start[at], table.last[at])
        self.open = {slot: [] for slot in slots}
        for entry, slot, anchor, start, last in zip(entries, *(c.tolist() for c in columns), strict=True):
            self.open[slot].append(OpenSession(start, last, self._segment(SessionSegment(slot, anchor, entry))))
        for known in self.open.values():
            if len(known) > 1:
                known.sort(key=_start)

    def _join(self, slot: int, first: OpenSession, other: OpenSession) -> OpenSession:
        """Join two sessions into the earlier one. An event never joins more: a key's sessions are a gap apart."""
        parts = [self.segments[one.segment] for one in (first, other)]
        if parts[1].entry >= 0:
            self.absorbed.append(parts[1].entry)
        depth = 1 + max(part.depth for part in parts)
        joined = SessionSegment(slot, parts[0].anchor, parts[0].entry, (first.segment, other.segment), depth)
        first.last, first.segment = other.last, self._segment(joined)
        return first

    def _segment(self, segment: SessionSegment) -> int:
        self.segments.append(segment)
        return len(self.segments) - 1


def _start(session: OpenSession) -> int:
    return session.start


def merge_events(table: SessionTable, slots: Ints, times: Ints) -> SessionUpdates:
    """Give every event, in order of arrival, to a session of its key."""
    layout = _SessionMerger(table)
    listed = slots.tolist()
    layout.open_stored(list(dict.fromkeys(listed)))
    seen = []
    for slot, time in zip(listed, times.tolist(), strict=True):
        session = layout.add_event(slot, time)
        seen.append((session.segment, session.start, session.last))
    segment, start, last = np.array(seen, np.int64).T
    touched = [one for known in layout.open.values() for one in known if one.touched]
    return SessionUpdates(slots, segment, start, last, layout.segments, touched, layout.absorbed)


def combine_partials(
    table: SessionTable, updates: SessionUpdates, values: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return every partial as each event saw it, and as each segment leaves it."""
    depths = np.array([one.depth for one in updates.segments], np.int64)
    order = np.lexsort((updates.segment, depths[updates.segment]))
    segment = updates.segment[order]
    edges = np.searchsorted(depths[segment], np.arange(int(depths.max(initial=0)) + 2))
    joined = _joins_by_depth(updates.segments, len(edges) - 1)
    stored = np.array([i for i, one in enumerate(updates.segments) if one.entry >= 0 and not one.parents], np.int64)
    entries = np.array([updates.segments[i].entry for i in stored.tolist()], np.int64)
    totals, finals = {}, {}
    for name, column in values.items():
        partial = table.partials[name]
        state = np.full(len(updates.segments), partial.identity, partial.dtype)
        state[stored] = table.columns[name][entries]
        seen = np.empty(len(column), partial.dtype)
        for level, (start, stop) in enumerate(pairwise(edges.tolist())):
            for child, parents in joined[level]:
                state[child] = partial.combine.operation(*state[list(parents)])
            rows, of = order[start:stop], segment[start:stop]
            seen[rows] = running(partial, column[rows].astype(partial.dtype), of, state)
            ends = np.flatnonzero(np.diff(of, append=-1))
            state[of[ends]] = seen[rows[ends]]
        totals[name], finals[name] = seen, state
    return totals, finals


def _joins_by_depth(segments: Sequence[SessionSegment], depths: int) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Return the segments that join others, by depth."""
    found: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(depths)]
    for number, one in enumerate(segments):
        if one.parents:
            found[one.depth].append((number, one.parents))
    return found


def count_distinct(
    stored: Mapping[int, dict[object, int]], updates: SessionUpdates, times: Ints, values: Sequence[object], most: int
) -> tuple[Ints, dict[int, dict[object, int]]]:
    """Count the distinct values that each event saw; return by segment those to keep, with their event times:
    of a joined one all that its parts have, of others the new ones.

    A session that has ``most`` values takes no more.
    """
    fresh: dict[int, dict[object, int]] = {}
    held: dict[int, dict[object, int]] = {}
    counts = np.empty(len(values), np.int64)

    def begin(number: int) -> None:
        segment = updates.segments[number]
        fresh[number] = {}
        held[number] = {} if segment.entry < 0 or segment.parents else stored.get(segment.entry, {})
        for parent in segment.parents:
            if parent not in held:
                begin(parent)
            fresh[number] |= held[parent] | fresh[parent]

    for i, (number, time, value) in enumerate(zip(updates.segment.tolist(), times.tolist(), values, strict=True)):
        if number not in held:
            begin(number)
        known, new = held[number], fresh[number]
        if value is not None and value not in known and value not in new and len(known) + len(new) < most:
            new[value] = time
        counts[i] = len(known) + len(new)
    return counts, fresh


def mark_fired(
    table: SessionTable, updates: SessionUpdates, hits: RuleHits, bits: Ints
) -> tuple[RuleHits, dict[int, int]]:
    """Return each rule's first hit in each session that it has not fired for; the bits of the segments that changed."""
    segments = updates.segment[hits.row]
    _, first = np.unique(hits.member * (len(updates.segments) + 1) + segments, return_index=True)
    mine: dict[int, list[int]] = {}
    for at in np.sort(first).tolist():
        mine.setdefault(int(segments[at]), []).append(at)
    masks: dict[int, int] = {}
    chosen: list[int] = []
    joins = [number for number, one in enumerate(updates.segments) if one.parents]
    for number in sorted({*mine, *joins}):  # those that a segment joins have lower numbers
        mask = _initial_bits(table, updates, number, masks)
        for at in mine.get(number, ()):
            bit = 1 << int(bits[hits.member[at]])
            if not mask & bit:
                mask |= bit
                chosen.append(at)
        masks[number] = mask
    return hits.select(np.array(sorted(chosen), np.int64)), masks


def _initial_bits(table: SessionTable, updates: SessionUpdates, number: int, masks: Mapping[int, int]) -> int:
    """Return the bits that a segment begins with."""
    one = updates.segments[number]
    mask = 0 if one.parents else table.fired.get(one.entry, 0)
    for parent in one.parents:
        mask |= masks[parent] if parent in masks else _initial_bits(table, updates, parent, masks)
    return mask
