"""The group of session rules. A session is a run of a key's events that satisfy ``where``, less than a gap apart.

An event a whole gap after the last one begins a new session, as in ``streamcore.windowing``; a session ends when the
watermark passes its last event and the gap. An event that comes out of order may join two sessions into one.

An early rule is evaluated on the session of each event, in order of arrival, just after the event. It fires once per
session. When two sessions are joined, it has fired for the joined one if it had fired for either. Its alert shows the
start of the session as known at that time; an earlier event that arrives later does not change the alert. A final rule
is evaluated once, when the watermark ends the session.

The result depends on the order of the key's events and on the watermark, not on how the input is divided into cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import Emit
from rulecore.firing import FiringTime, RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.sessions.merge import SessionUpdates, combine_partials, count_distinct, mark_fired, merge_events
from rulecore.groups.sessions.table import SessionSets, SessionTable
from rulecore.groups.subgrouped import SubgroupedWindows
from rulecore.groups.subgroups import FiringDetails, MatchedEvents, SubgroupSpec, WindowSnapshots, firings
from rulecore.groups.windows.having import Having, RuleHits
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize
from streamcore.schema import StreamSchema
from streamcore.state import StateTable

Ints = npt.NDArray[np.int64]
_SESSIONS = "sessions"


class SessionGroup(SubgroupedWindows):
    """The ``RuleGroup`` of session rules with one gap."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        super().__init__(group, schema, settings, SessionSubgroup)


class SessionSubgroup:
    """The ``Subgroup`` of the sessions of events that satisfy one ``where``."""

    def __init__(self, dtypes: Mapping[str, pl.DataType], gap_ms: int, settings: GroupSettings) -> None:
        self.sessions = SessionTable(dtypes, gap_ms)
        self.max_distinct = settings.distinct
        self.sets: dict[str, SessionSets] = {}
        self.spec: SubgroupSpec | None = None

    def set_spec(self, spec: SubgroupSpec) -> None:
        """Evaluate exactly these rules from now on, and keep exactly their aggregates."""
        self.spec = spec
        self.sessions.keep_columns([*spec.aggregations.values()], [*spec.distinct])
        self.sets = {c: self._sets(c) for c in spec.distinct}
        for column, dtype in spec.distinct.items():
            self.sets[column].dtype = dtype

    def clear_fired(self, bit: int) -> None:
        """Clear this fired bit in all sessions."""
        self.sessions.clear_fired(bit)

    def add(self, events: MatchedEvents, _context: CutContext) -> EventUpdate:
        """Compute the change that events of the subgroup make to its sessions."""
        assert self.spec is not None
        table = self.sessions
        self._apply_loaded()
        updates = merge_events(table, table.keys.assign(events.frame), events.times)
        totals, finals = combine_partials(table, updates, events.values)
        counts, sets = {}, {}
        for column, values in events.distinct.items():
            counts[column], sets[column] = count_distinct(
                table.sets[column], updates, events.times, values, self.max_distinct
            )
        snapshots = WindowSnapshots(
            events.row, updates.key_slots, updates.start, updates.last + table.gap_ms, totals, counts
        )
        update = EventUpdate(self, events.times, updates, snapshots, finals, sets)
        having = self.spec.having.get((Emit.EARLY, 1))
        if having:
            hits, update.failures = self.spec.evaluate(having, snapshots, table.keys)
            update.having, update.hits = having, hits
        return update

    def close(self, context: CutContext) -> WatermarkUpdate:
        """Compute the end of the sessions that the watermark of this cut passes."""
        assert self.spec is not None
        table = self.sessions
        self._apply_loaded()
        table.drop(table.ended_sessions(context.watermark_ms))  # loaded sessions that ended before this cut
        over = table.ended_sessions(context.next_watermark_ms)
        end = table.last[over] + table.gap_ms
        over = over[np.lexsort((table.keys.hashes[table.key_slot[over]], end))]
        totals = {name: column[over] for name, column in table.columns.items()}
        counts = {
            c: np.fromiter((len(sets.get(e, ())) for e in over.tolist()), np.int64, len(over))
            for c, sets in table.sets.items()
        }
        no_event = np.full(len(over), -1)
        snapshots = WindowSnapshots(
            no_event, table.key_slot[over], table.start[over], table.last[over] + table.gap_ms, totals, counts
        )
        update = WatermarkUpdate(self, over, snapshots)
        having = self.spec.having.get((Emit.FINAL, 1))
        if having and len(over):
            update.hits, update.failures = self.spec.evaluate(having, snapshots, table.keys)
            update.having = having
        return update

    def is_incomplete(self, rule: CompiledRule, start_ms: int) -> bool:
        """Return whether an event from before the rule may belong to the session: less than a gap before its start."""
        assert self.spec is not None
        return start_ms < self.spec.since(rule) + self.sessions.gap_ms

    def _apply_loaded(self) -> None:
        """Assign loaded distinct values to the loaded sessions."""
        if self.sessions.loaded:
            self.sessions.loaded = False
            for sets in self.sets.values():
                sets.apply_loaded()

    def _sets(self, column: str) -> SessionSets:
        """Return the table of a ``count_distinct``, created if needed."""
        return self.sets.setdefault(column, SessionSets(self.sessions, column, pl.Null()))

    def state_size(self) -> StateSize:
        """Return the size of all sessions and distinct values, or more."""
        return sum((count.size for count in self.sessions.counts.values()), self.sessions.state_size())

    def state_parts(self) -> tuple[StateSize, Mapping[str, StateSize]]:
        """Return the exact size of the sessions, and of their distinct values."""
        self._apply_loaded()
        return self.sessions.exact_state_size(), {c: count.size for c, count in self.sessions.counts.items()}

    def tables(self) -> Mapping[str, StateTable]:
        """Return the table of sessions, and one of distinct values for each ``count_distinct``."""
        return {_SESSIONS: self.sessions, **self.sets}

    def table(self, content: str) -> StateTable:
        """Return the table of that content, created if needed."""
        return self.sessions if content == _SESSIONS else self._sets(content)


@dataclass(slots=True)
class EventUpdate:
    """The change that the events of a cut make to a subgroup's sessions."""

    subgroup: SessionSubgroup
    times: Ints
    updates: SessionUpdates
    snapshots: WindowSnapshots
    finals: Mapping[str, Ints]
    sets: Mapping[str, Mapping[int, dict[object, int]]]
    having: Having | None = None
    hits: RuleHits | None = None
    failures: list[RuleFailure] = field(default_factory=list)

    def commit(self) -> list[RuleFiring]:
        """Store the changed sessions, and return the firings: the first hit of each rule in each session."""
        new_firings, masks = self._first_hits()
        table, updates = self.subgroup.sessions, self.updates
        table.absorb(updates.absorbed)
        touched, segments = updates.touched, updates.segments
        entries = segments.entry[touched.segment]
        new = touched.segment[entries < 0]
        entries[entries < 0] = table.new_entries(segments.key_slot[new], segments.anchor[new])
        fired = np.full(len(segments), -1)
        fired[touched.segment] = entries
        changed = fired[[*masks]].tolist()
        table.fired |= {entry: mask for entry, mask in zip(changed, masks.values(), strict=True) if mask and entry >= 0}
        for column, fresh in self.sets.items():
            sets = self.subgroup.sets[column]
            for segment, entry in zip(touched.segment.tolist(), entries.tolist(), strict=True):
                sets.put(entry, fresh.get(segment, {}))
        finals = {name: values[touched.segment] for name, values in self.finals.items()}
        table.write(entries, touched.start, touched.last, finals)
        return new_firings

    def _first_hits(self) -> tuple[list[RuleFiring], dict[int, int]]:
        """Return the firings, and the fired bits of each changed session by segment."""
        spec, having, updates = self.subgroup.spec, self.having, self.updates
        hits = self.hits
        if having is None or hits is None:
            having, hits = Having(()), RuleHits(np.empty(0, np.int64), np.empty(0, np.int64))
        hits, masks = mark_fired(self.subgroup.sessions, updates, hits, having.bits)
        assert spec is not None
        details = [
            FiringDetails(
                (start,), time, FiringTime.EARLY, self.subgroup.is_incomplete(having.members[member].rule, start)
            )
            for start, time, member in zip(
                updates.start[hits.row].tolist(), self.times[hits.row].tolist(), hits.member.tolist(), strict=True
            )
        ]
        return list(firings(spec, having, hits, self.snapshots, self.subgroup.sessions.keys, details)), masks


@dataclass(slots=True)
class WatermarkUpdate:
    """The end of the sessions that a watermark passes, by end time and then by key hash."""

    subgroup: SessionSubgroup
    entries: Ints
    snapshots: WindowSnapshots
    having: Having | None = None
    hits: RuleHits | None = None
    failures: Sequence[RuleFailure] = ()

    def commit(self) -> list[RuleFiring]:
        """Drop the ended sessions, and return the firings of the final rules."""
        final_firings: list[RuleFiring] = []
        spec, snapshots = self.subgroup.spec, self.snapshots
        if self.having is not None and self.hits is not None and spec is not None:
            rows, members = self.hits.row.tolist(), self.hits.member.tolist()
            details = []
            for row, member in zip(rows, members, strict=True):
                start, rule = int(snapshots.start_ms[row]), self.having.members[member].rule
                details.append(
                    FiringDetails(
                        (start,), int(snapshots.end_ms[row]), FiringTime.FINAL, self.subgroup.is_incomplete(rule, start)
                    )
                )
            final_firings = list(firings(spec, self.having, self.hits, snapshots, self.subgroup.sessions.keys, details))
        self.subgroup.sessions.drop(self.entries)
        return final_firings
