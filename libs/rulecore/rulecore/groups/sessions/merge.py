"""Computes the change that a cut's events make to sessions, without changing the table.

``merge_events`` goes through the events of a key once, in order of arrival, and assigns each to a *segment*: the events
of one session between two joins of sessions. A segment starts empty, from a stored session, or from the two segments
that it joins. The values of a session at an event are those at the start of the segment, combined with the segment's
events up to this one. ``combine_partials`` computes them on whole columns, in one pass for each depth of joins in the
cut; mostly there are no joins.
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
    """The events of one session between two joins; see the top of the module.

    ``entry``: the entry of the stored session that the segment continues, -1 for none. ``parents``: the numbers of the
    two segments that it joins, if any. ``depth``: the number of joins on the longest way back to a first segment.
    """

    key_slot: int
    anchor: int
    entry: int = -1
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
class SessionUpdates:
    """The assignment of a cut's events to sessions.

    ``key_slots``, ``segment``, ``start``, ``last``: by event, the key, segment number and bounds of its session just
    after it. ``touched``: the sessions with new events. ``absorbed``: the entries of stored sessions that were joined
    to an earlier one.
    """

    key_slots: Ints
    segment: Ints
    start: Ints
    last: Ints
    segments: Sequence[SessionSegment]
    touched: Sequence[OpenSession]
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
    merger = _SessionMerger(table)
    key_slot_list = key_slots.tolist()
    merger.open_stored(list(dict.fromkeys(key_slot_list)))
    by_event = []
    for key_slot, time in zip(key_slot_list, times.tolist(), strict=True):
        session = merger.add_event(key_slot, time)
        by_event.append((session.segment, session.start, session.last))
    segment, start, last = np.array(by_event, np.int64).T
    touched = [session for sessions in merger.open.values() for session in sessions if session.touched]
    return SessionUpdates(key_slots, segment, start, last, merger.segments, touched, merger.absorbed)


def combine_partials(
    table: SessionTable, updates: SessionUpdates, values: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the totals of every partial just after each event, and at the end of each segment.

    ``values``: by partial, the contribution of each event.
    """
    depths = np.array([s.depth for s in updates.segments], np.int64)
    order = np.lexsort((updates.segment, depths[updates.segment]))
    segment = updates.segment[order]
    edges = np.searchsorted(depths[segment], np.arange(int(depths.max(initial=0)) + 2))
    joined = _joins_by_depth(updates.segments, len(edges) - 1)
    stored = np.array([i for i, s in enumerate(updates.segments) if s.entry >= 0 and not s.parents], np.int64)
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
            rows, segment_of_row = order[start:stop], segment[start:stop]
            seen[rows] = running(partial, column[rows].astype(partial.dtype), segment_of_row, state)
            ends = np.flatnonzero(np.diff(segment_of_row, append=-1))
            state[segment_of_row[ends]] = seen[rows[ends]]
        totals[name], finals[name] = seen, state
    return totals, finals


def _joins_by_depth(segments: Sequence[SessionSegment], depths: int) -> list[list[tuple[int, tuple[int, ...]]]]:
    """Return, by depth, the number and the parents of each segment that joins others."""
    by_depth: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(depths)]
    for number, segment in enumerate(segments):
        if segment.parents:
            by_depth[segment.depth].append((number, segment.parents))
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

    def start_segment(number: int) -> None:
        segment = updates.segments[number]
        fresh[number] = {}
        held[number] = {} if segment.entry < 0 or segment.parents else stored.get(segment.entry, {})
        for parent in segment.parents:
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
    hits_of_segment: dict[int, list[int]] = {}
    for hit in np.sort(first).tolist():
        hits_of_segment.setdefault(int(segments[hit]), []).append(hit)
    masks: dict[int, int] = {}
    chosen: list[int] = []
    joins = [number for number, segment in enumerate(updates.segments) if segment.parents]
    for number in sorted({*hits_of_segment, *joins}):  # the parents of a segment have lower numbers
        mask = _initial_bits(table, updates, number, masks)
        for hit in hits_of_segment.get(number, ()):
            bit = 1 << int(bits[hits.member[hit]])
            if not mask & bit:
                mask |= bit
                chosen.append(hit)
        masks[number] = mask
    return hits.select(np.array(sorted(chosen), np.int64)), masks


def _initial_bits(table: SessionTable, updates: SessionUpdates, number: int, masks: Mapping[int, int]) -> int:
    """Return the fired bits at the start of a segment: those of its stored session, or of its parents."""
    segment = updates.segments[number]
    mask = 0 if segment.parents else table.fired.get(segment.entry, 0)
    for parent in segment.parents:
        mask |= masks[parent] if parent in masks else _initial_bits(table, updates, parent, masks)
    return mask
