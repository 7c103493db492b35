"""Rules over sessions: runs of a key's events that satisfy `where`, with less than a gap between neighbours.

An event a whole gap after the last one begins a new session, as in ``streamcore.windowing``; a session ends when the
watermark passes its last event and the gap. An event that comes out of order may join two sessions into one.

An early rule is evaluated on the session of each of its events, in order of arrival, as the session stands just after
it. It fires once a session: where two are joined, the rule has fired for both if it had for one. Its alert names the
session by its start as it was known then; an earlier event that comes later does not change what was said. A final
rule is evaluated once, on what the session holds when the watermark ends it.

How the input is cut makes no difference: everything follows from the order of the key's events and the watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compiled import CompiledRule
from rulecore.firing import Failure, Firing, Timing
from rulecore.groups import GroupId, Moment
from rulecore.having import Having, Hits
from rulecore.lane_group import LaneGroup
from rulecore.lanes import LaneSpec, Own, Seen, Told, firings
from rulecore.model import Emit
from rulecore.session_table import SessionSets, SessionTable
from rulecore.session_trail import Trail, counted, fired, laid, summed
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema
from streamcore.state import StateTable

Ints = npt.NDArray[np.int64]
_SESSIONS = "sessions"


class SessionGroup(LaneGroup):
    """Rules over sessions of one gap."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        super().__init__(group, schema, settings, SessionLane)


class SessionLane:
    """The sessions of the events that satisfy one `where`."""

    def __init__(self, dtypes: Mapping[str, pl.DataType], gap_ms: int, settings: GroupSettings) -> None:
        self.table_ = SessionTable(dtypes, gap_ms)
        self.max_distinct = settings.distinct
        self.sets: dict[str, SessionSets] = {}
        self.spec: LaneSpec | None = None

    def set_spec(self, spec: LaneSpec) -> None:
        """Evaluate these rules from now on."""
        self.spec = spec
        self.table_.keep_columns([*spec.aggregations.values()], [*spec.distinct])
        self.sets = {c: self._sets(c) for c in spec.distinct}
        for column, dtype in spec.distinct.items():
            self.sets[column].dtype = dtype

    def clear_fired(self, bit: int) -> None:
        """Forget where this bit's rule has fired."""
        self.table_.clear_fired(bit)

    def add(self, own: Own, _moment: Moment) -> Arrived:
        """What the lane's own events make of the sessions."""
        assert self.spec is not None
        table = self.table_
        self._settle()
        trail = laid(table, table.keys.assign(own.frame), own.times)
        totals, finals = summed(table, trail, own.values)
        counts, sets = {}, {}
        for column, values in own.distinct.items():
            counts[column], sets[column] = counted(table.sets[column], trail, own.times, values, self.max_distinct)
        seen = Seen(own.row, trail.slots, trail.start, trail.last + table.gap_ms, totals, counts)
        arrived = Arrived(self, own.times, trail, seen, finals, sets)
        having = self.spec.having.get((Emit.EARLY, 1))
        if having:
            hits, arrived.failures = self.spec.evaluate(having, seen, table.keys)
            arrived.having, arrived.hits = having, hits
        return arrived

    def close(self, moment: Moment) -> Ended:
        """The sessions that the watermark ends."""
        assert self.spec is not None
        table = self.table_
        self._settle()
        table.drop(table.over(moment.watermark_ms))  # they ended in a cut that another process ran
        over = table.over(moment.next_watermark_ms)
        end = table.last[over] + table.gap_ms
        over = over[np.lexsort((table.keys.hashes[table.slot[over]], end))]
        totals = {name: column[over] for name, column in table.columns.items()}
        counts = {
            c: np.fromiter((len(sets.get(e, ())) for e in over.tolist()), np.int64, len(over))
            for c, sets in table.sets.items()
        }
        nowhere = np.full(len(over), -1)
        seen = Seen(nowhere, table.slot[over], table.start[over], table.last[over] + table.gap_ms, totals, counts)
        ended = Ended(self, over, seen)
        having = self.spec.having.get((Emit.FINAL, 1))
        if having and len(over):
            ended.hits, ended.failures = self.spec.evaluate(having, seen, table.keys)
            ended.having = having
        return ended

    def warming(self, rule: CompiledRule, start_ms: int) -> bool:
        """Whether an event that was never counted may belong to the session: one less than a gap before it."""
        assert self.spec is not None
        return start_ms < self.spec.since(rule) + self.table_.gap_ms

    def _settle(self) -> None:
        """Take the values that were loaded."""
        if self.table_.loaded:
            self.table_.loaded = False
            for sets in self.sets.values():
                sets.settle()

    def _sets(self, column: str) -> SessionSets:
        return self.sets.setdefault(column, SessionSets(self.table_, column, pl.Null()))

    def tables(self) -> Mapping[str, StateTable]:
        """The sessions, and the values of each distinct count."""
        return {_SESSIONS: self.table_, **self.sets}

    def table(self, what: str) -> StateTable:
        """The table of that name, made if need be."""
        return self.table_ if what == _SESSIONS else self._sets(what)


@dataclass(slots=True)
class Arrived:
    """What the events of a cut make of a lane's sessions."""

    lane: SessionLane
    times: Ints
    trail: Trail
    seen: Seen
    finals: Mapping[str, Ints]
    sets: Mapping[str, Mapping[int, dict[object, int]]]
    having: Having | None = None
    hits: Hits | None = None
    failures: list[Failure] = field(default_factory=list)

    def keep(self) -> list[Firing]:
        """Write the sessions; the first hit of each rule in each of them fires."""
        said, masks = self._fired()
        table, trail = self.lane.table_, self.trail
        table.absorb(trail.absorbed)
        for one in trail.touched:
            segment = trail.segments[one.segment]
            if segment.entry < 0:
                segment.entry = table.new(segment.slot, segment.anchor)
            if mask := masks.get(one.segment):
                table.fired[segment.entry] = mask
            for column, fresh in self.sets.items():
                self.lane.sets[column].put(segment.entry, fresh.get(one.segment, {}))
        entries = np.array([trail.segments[one.segment].entry for one in trail.touched], np.int64)
        numbers = np.array([one.segment for one in trail.touched], np.int64)
        start = np.array([one.start for one in trail.touched], np.int64)
        last = np.array([one.last for one in trail.touched], np.int64)
        table.write(entries, start, last, {n: v[numbers] for n, v in self.finals.items()})
        return said

    def _fired(self) -> tuple[list[Firing], dict[int, int]]:
        spec, having, trail = self.lane.spec, self.having, self.trail
        hits = self.hits
        if having is None or hits is None:
            having, hits = Having(()), Hits(np.empty(0, np.int64), np.empty(0, np.int64))
        hits, masks = fired(self.lane.table_, trail, hits, having.bits)
        assert spec is not None
        told = [
            Told((start,), time, Timing.EARLY, self.lane.warming(having.members[member].rule, start))
            for start, time, member in zip(
                trail.start[hits.row].tolist(), self.times[hits.row].tolist(), hits.member.tolist(), strict=True
            )
        ]
        return list(firings(spec, having, hits, self.seen, self.lane.table_.keys, told)), masks


@dataclass(slots=True)
class Ended:
    """The sessions that a watermark ends, in order of their ends and then of their keys' hashes."""

    lane: SessionLane
    entries: Ints
    seen: Seen
    having: Having | None = None
    hits: Hits | None = None
    failures: Sequence[Failure] = ()

    def keep(self) -> list[Firing]:
        """Forget the sessions; what they fired at last."""
        found: list[Firing] = []
        spec, seen = self.lane.spec, self.seen
        if self.having is not None and self.hits is not None and spec is not None:
            rows, members = self.hits.row.tolist(), self.hits.member.tolist()
            told = []
            for row, member in zip(rows, members, strict=True):
                start, rule = int(seen.start_ms[row]), self.having.members[member].rule
                told.append(Told((start,), int(seen.end_ms[row]), Timing.FINAL, self.lane.warming(rule, start)))
            found = list(firings(spec, self.having, self.hits, seen, self.lane.table_.keys, told))
        self.lane.table_.drop(self.entries)
        return found
