"""Computes the change that a cut's events make to sessions, without changing the table.

``merge_events`` assigns each event to a *segment*: the events of one session between two joins of sessions. A segment
starts empty, from a stored session, or from the two segments that it joins. The values of a session at an event are
those at the start of the segment, combined with the segment's events up to this one. ``combine_partials`` computes them
on whole columns, in one pass for each depth of joins in the cut; mostly there are no joins.

The events of a key that come in the order of their times, behind the start of its one stored session, only lengthen the
last session or begin another: these are assigned in columns. Those of the other keys are assigned one by one.
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
_NONE = -1


@dataclass(slots=True)
class SessionSegment:
    """The events of one session between two joins; see the top of the module.

    ``entry``: the entry of the stored session that the segment continues, -1 for none. ``parents``: the numbers of the
    two segments that it joins, if any. ``depth``: the number of joins on the longest way back to a first segment.
    """

    key_slot: int
    anchor: int
    entry: int = _NONE
    parents: tuple[int, ...] = ()
    depth: int = 0


@dataclass(slots=True)
class OpenSession:
    """A session after the events so far. ``start``, ``last``: the times of its first and its last event, in ms.

    ``segment``: the number of its latest segment. ``touched``: whether an event of the cut was added to it.
    """

    start: int
    last: int
    segment: int
    touched: bool = False


@dataclass(frozen=True, slots=True)
class SessionSegments:
    """The segments of a cut in columns, by their numbers; the fields are those of ``SessionSegment``. ``parents``: of
    the segments that join others; these have lower numbers."""

    key_slot: Ints
    anchor: Ints
    entry: Ints
    depth: Ints
    parents: Mapping[int, tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.key_slot)


@dataclass(frozen=True, slots=True)
class TouchedSessions:
    """The sessions with new events, as they are after the cut: their latest segments and their bounds."""

    segment: Ints
    start: Ints
    last: Ints


@dataclass(frozen=True, slots=True)
class SessionUpdates:
    """The assignment of a cut's events to sessions.

    ``key_slots``, ``segment``, ``start``, ``last``: by event, the key, segment number and bounds of its session just
    after it. ``absorbed``: the entries of stored sessions that were joined to an earlier one.
    """

    key_slots: Ints
    segment: Ints
    start: Ints
    last: Ints
    segments: SessionSegments
    touched: TouchedSessions
    absorbed: Sequence[int]


class _SessionMerger:
    """Adds the events of a cut one by one to the sessions of their keys. ``open``: sessions by key slot and start."""

    def __init__(self, table: SessionTable) -> None:
        self.table = table
        self.gap_ms = table.gap_ms
        self.segments: list[SessionSegment] = []
        self.absorbed: list[int] = []
        self.open: dict[int, list[OpenSession]] = {}

    def add_event(self, key_slot: int, time: int) -> OpenSession:
        """Add an event to its session, new or joined if need be, and return the session."""
        known = self.open[key_slot]
        at = bisect_right(known, time, key=_start) if known and time < known[-1].start else len(known)
        after = at < len(known) and known[at].start - self.gap_ms < time
        before = at > 0 and time < known[at - 1].last + self.gap_ms
        if before and after:
            session = self._join(key_slot, known[at - 1], known.pop(at))
        elif before or after:
            session = known[at - 1 if before else at]
        else:
            session = OpenSession(time, time, self._add_segment(SessionSegment(key_slot, time)))
            known.insert(at, session)
        session.start, session.last = min(session.start, time), max(session.last, time)
        session.touched = True
        return session

    def open_stored(self, key_slots: Sequence[int]) -> None:
        """Load the stored sessions of these distinct keys, and sort those of each key by start."""
        entries = [entry for key_slot in key_slots for entry in self.table.entries_by_key_slot.get(key_slot, ())]
        at = np.array(entries, np.int64)
        table = self.table
        columns = (table.key_slot[at], table.anchor[at], table.start[at], table.last[at])
        self.open = {key_slot: [] for key_slot in key_slots}
        for entry, key_slot, anchor, start, last in zip(entries, *(c.tolist() for c in columns), strict=True):
            self.open[key_slot].append(
                OpenSession(start, last, self._add_segment(SessionSegment(key_slot, anchor, entry)))
            )
        for known in self.open.values():
            if len(known) > 1:
                known.sort(key=_start)

    def _join(self, key_slot: int, first: OpenSession, other: OpenSession) -> OpenSession:
        """Join two sessions into the earlier one, and return it.

        An event never joins more than two, since the sessions of a key are at least a gap apart.
        """
        parts = [self.segments[session.segment] for session in (first, other)]
        if parts[1].entry >= 0:
            self.absorbed.append(parts[1].entry)
        depth = 1 + max(part.depth for part in parts)
        joined = SessionSegment(key_slot, parts[0].anchor, parts[0].entry, (first.segment, other.segment), depth)
        first.last, first.segment = other.last, self._add_segment(joined)
        return first

    def _add_segment(self, segment: SessionSegment) -> int:
        """Add a segment and return its number."""
        self.segments.append(segment)
        return len(self.segments) - 1


def _start(session: OpenSession) -> int:
    return session.start


def merge_events(table: SessionTable, key_slots: Ints, times: Ints) -> SessionUpdates:
    """Assign every event, in order of arrival, to a session of its key. The table does not change.

    ``key_slots``, ``times``: the key slot and the event time in ms of each event, of at least one event.
    """
    order = np.argsort(key_slots, kind="stable")
    keys, sorted_times = key_slots[order], times[order]
    first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    size = np.diff(first, append=len(keys))
    entry, several = _stored_entries(table, keys[first])
    is_stored = entry >= 0
    stored_start = np.where(is_stored, table.start[entry], sorted_times[first])
    stored_last = np.where(is_stored, table.last[entry], sorted_times[first])
    falls = np.diff(sorted_times, prepend=sorted_times[0]) < 0
    falls[first] = sorted_times[first] < stored_start
    in_order = ~(several | np.logical_or.reduceat(falls, first))
    fast = np.repeat(in_order, size)
    parts = []
    if in_order.any():
        sizes = size[in_order]
        of_key = _OrderedKeys(entry[in_order], stored_start[in_order], stored_last[in_order], sizes)
        parts.append((order[fast], _extend_in_order(table, keys[fast], sorted_times[fast], of_key)))
    if not in_order.all():
        rows = np.sort(order[~fast])  # in order of arrival
        parts.append((rows, _merge_one_by_one(table, key_slots[rows], times[rows])))
    return _join_updates(key_slots, parts)


@dataclass(frozen=True, slots=True)
class _OrderedKeys:
    """The keys whose events come in order, in columns: the entry of the stored session or -1, its bounds in ms, and the
    number of the key's events. Without a stored session both bounds are the time of the first event."""

    entry: Ints
    start: Ints
    last: Ints
    size: Ints


def _stored_entries(table: SessionTable, key_slots: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the entry of the first stored session of each of these distinct keys, -1 for none, and whether there are
    several."""
    found = [table.entries_by_key_slot.get(key_slot) for key_slot in key_slots.tolist()]
    entry = np.fromiter((one[0] if one else _NONE for one in found), np.int64, len(found))
    return entry, np.fromiter((one is not None and len(one) > 1 for one in found), np.bool_, len(found))


def _extend_in_order(table: SessionTable, keys: Ints, times: Ints, of_key: _OrderedKeys) -> SessionUpdates:
    """Assign the events of keys whose times do not fall. ``keys``, ``times``: of the events, sorted by key."""
    first = np.cumsum(of_key.size) - of_key.size
    stored_last = np.repeat(of_key.last, of_key.size)
    before = np.maximum(stored_last, np.roll(times, 1))
    before[first] = of_key.last
    begins = times - before >= table.gap_ms
    begins[first] |= of_key.entry < 0
    is_stored = np.zeros(len(times), np.bool_)
    is_stored[first] = ~begins[first]
    starts = np.flatnonzero(begins | is_stored)  # of the segments
    segment = np.cumsum(begins | is_stored) - 1
    key = np.repeat(np.arange(len(first)), of_key.size)
    continues = is_stored[starts]
    entry = np.where(continues, of_key.entry[key[starts]], _NONE)
    start = np.where(continues, of_key.start[key[starts]], times[starts])
    last = np.where(continues[segment], np.maximum(stored_last, times), times)
    ends = np.append(starts[1:], len(times)) - 1
    anchor = np.where(continues, table.anchor[entry], start)
    segments = SessionSegments(keys[starts], anchor, entry, np.zeros(len(starts), np.int64), {})
    touched = TouchedSessions(np.arange(len(starts)), start, last[ends])
    return SessionUpdates(keys, segment, start[segment], last, segments, touched, ())


def _merge_one_by_one(table: SessionTable, key_slots: Ints, times: Ints) -> SessionUpdates:
    """Assign events in order of arrival, one after the other."""
    merger = _SessionMerger(table)
    key_slot_list = key_slots.tolist()
    merger.open_stored(list(dict.fromkeys(key_slot_list)))
    by_event = []
    for key_slot, time in zip(key_slot_list, times.tolist(), strict=True):
        session = merger.add_event(key_slot, time)
        by_event.append((session.segment, session.start, session.last))
    segment, start, last = np.array(by_event, np.int64).T
    found = merger.segments
    key_slot, anchor, entry, depth = np.array([(s.key_slot, s.anchor, s.entry, s.depth) for s in found], np.int64).T
    parents = {number: one.parents for number, one in enumerate(found) if one.parents}
    sessions = [session for sessions in merger.open.values() for session in sessions if session.touched]
    touched = TouchedSessions(*np.array([(s.segment, s.start, s.last) for s in sessions], np.int64).T)
    segments = SessionSegments(key_slot, anchor, entry, depth, parents)
    return SessionUpdates(key_slots, segment, start, last, segments, touched, merger.absorbed)


def _join_updates(key_slots: Ints, parts: Sequence[tuple[Ints, SessionUpdates]]) -> SessionUpdates:
    """Return the assignment of all events. ``parts``: the places of some events each, and their assignment."""
    segment, start, last = (np.empty(len(key_slots), np.int64) for _ in range(3))
    parents: dict[int, tuple[int, ...]] = {}
    touched, before = [], 0
    for rows, one in parts:
        segment[rows], start[rows], last[rows] = one.segment + before, one.start, one.last
        for child, of_child in one.segments.parents.items():
            parents[child + before] = tuple(parent + before for parent in of_child)
        touched.append(one.touched.segment + before)
        before += len(one.segments)
    found = [one for _, one in parts]
    segments = SessionSegments(
        np.concatenate([one.segments.key_slot for one in found]),
        np.concatenate([one.segments.anchor for one in found]),
        np.concatenate([one.segments.entry for one in found]),
        np.concatenate([one.segments.depth for one in found]),
        parents,
    )
    sessions = TouchedSessions(
        np.concatenate(touched),
        np.concatenate([one.touched.start for one in found]),
        np.concatenate([one.touched.last for one in found]),
    )
    absorbed = [entry for one in found for entry in one.absorbed]
    return SessionUpdates(key_slots, segment, start, last, segments, sessions, absorbed)


def combine_partials(
    table: SessionTable, updates: SessionUpdates, values: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the totals of every partial just after each event, and at the end of each segment.

    ``values``: by partial, the contribution of each event.
    """
    segments = updates.segments
    depths = segments.depth
    order = np.lexsort((updates.segment, depths[updates.segment]))
    segment = updates.segment[order]
    edges = np.searchsorted(depths[segment], np.arange(int(depths.max(initial=0)) + 2))
    joined = _joins_by_depth(segments, len(edges) - 1)
    is_stored = segments.entry >= 0
    is_stored[[*segments.parents]] = False
    stored = np.flatnonzero(is_stored)
    entries = segments.entry[stored]
    totals, finals = {}, {}
    for name, column in values.items():
        partial = table.partials[name]
        state = np.full(len(segments), partial.identity, partial.dtype)
        state[stored] = table.columns[name][entries]
        seen = np.empty(len(column), partial.dtype)
        for level, (start, stop) in enumerate(pairwise(edges.tolist())):
            for child, parents in joined[level]:
                state[child] = partial.combine.operation(*state[list(parents)])
            rows, segment_of_row = order[start:stop], segment[start:stop]
            seen[rows] = running(partial, column[rows].astype(partial.dtype), segment_of_row, state)
            ends = np.flatnonzero(np.diff(segment_of_row, append=-1))
            state[segment_of_row[ends]] = seen[rows[ends]]
        totals[name], finals[name] = seen, state
    return totals, finals


def _joins_by_depth(segments: SessionSegments, depths: int) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Return, by depth, the number and the parents of each segment that joins others."""
    by_depth: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(depths)]
    for number, parents in segments.parents.items():
        by_depth[segments.depth[number]].append((number, parents))
    return by_depth


def count_distinct(
    stored: Mapping[int, dict[object, int]],
    updates: SessionUpdates,
    times: Ints,
    values: Sequence[object],
    max_values: int,
) -> tuple[Ints, dict[int, dict[object, int]]]:
    """Return the number of distinct values of each event's session just after the event, and the values to store.

    ``stored``: by entry, the values of a session with their event times. ``values``: the value of each event; None is
    not counted. The values to store are by segment, with their event times: all values for a segment that joins
    others, else the new ones. A session with ``max_values`` values takes no more.
    """
    fresh: dict[int, dict[object, int]] = {}
    held: dict[int, dict[object, int]] = {}
    counts = np.empty(len(values), np.int64)

    entries, parents_of = updates.segments.entry.tolist(), updates.segments.parents

    def start_segment(number: int) -> None:
        parents = parents_of.get(number, ())
        fresh[number] = {}
        held[number] = {} if entries[number] < 0 or parents else stored.get(entries[number], {})
        for parent in parents:
            if parent not in held:
                start_segment(parent)
            fresh[number] |= held[parent] | fresh[parent]

    for i, (number, time, value) in enumerate(zip(updates.segment.tolist(), times.tolist(), values, strict=True)):
        if number not in held:
            start_segment(number)
        known, new = held[number], fresh[number]
        if value is not None and value not in known and value not in new and len(known) + len(new) < max_values:
            new[value] = time
        counts[i] = len(known) + len(new)
    return counts, fresh


def mark_fired(
    table: SessionTable, updates: SessionUpdates, hits: RuleHits, bits: Ints
) -> tuple[RuleHits, dict[int, int]]:
    """Return each rule's first hit in each session where it has not fired, and the fired bits of the changed segments.

    ``bits``: by member of `having`, the number of its fired bit. The table does not change.
    """
    segments = updates.segment[hits.row]
    _, first = np.unique(hits.member * (len(updates.segments) + 1) + segments, return_index=True)
    first = first[np.lexsort((first, segments[first]))]  # the parents of a segment have lower numbers
    numbers, bits_of_hits = segments[first].tolist(), bits[hits.member[first]].tolist()
    masks: dict[int, int] = {}
    chosen: list[int] = []
    for hit, number, bit_number in zip(first.tolist(), numbers, bits_of_hits, strict=True):
        mask = masks[number] if number in masks else _initial_bits(table, updates, number, masks)
        bit = 1 << bit_number
        if not mask & bit:
            mask |= bit
            chosen.append(hit)
        masks[number] = mask
    for number in sorted(updates.segments.parents.keys() - masks.keys()):
        masks[number] = _initial_bits(table, updates, number, masks)
    return hits.select(np.array(sorted(chosen), np.int64)), masks


def _initial_bits(table: SessionTable, updates: SessionUpdates, number: int, masks: Mapping[int, int]) -> int:
    """Return the fired bits at the start of a segment: those of its stored session, or of its parents."""
    parents = updates.segments.parents.get(number, ())
    mask = 0 if parents else table.fired.get(int(updates.segments.entry[number]), 0)
    for parent in parents:
        mask |= masks[parent] if parent in masks else _initial_bits(table, updates, parent, masks)
    return mask
