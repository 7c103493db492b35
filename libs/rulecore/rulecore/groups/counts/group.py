"""Rules over windows of so many events of a key that satisfy `where`, in order of arrival.

``{count: 100}``: windows of 100 events, one after the other. ``{count: 100, every: 10}``: a window of the last 100 ends
with every tenth event. An early rule is evaluated after each event, on the window that ends with the piece of ``every``
(or ``count``) events which is being filled, and fires once a window; such a window may hold fewer events than
``count`` so far. A final rule is evaluated at the event that makes a window whole, and only on whole ones: at a key's
first events there is none yet.

A late event does not count, as everywhere. A window starts and ends with the earliest and the latest event time in it.
A key without an event for ``GroupSettings.idle_ms`` of event time begins anew. How the input is cut makes no difference
as long as a key's events come in one order, as those of one partition do.

An event makes a rule fire at most once, so the event itself distinguishes firings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compile.rule import CompiledRule, EventCountWindow
from rulecore.documents.rule import Emit
from rulecore.firing import FiringTime, RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.counts.table import CountTable, NumberedEvents, PaneContents, distinct_totals
from rulecore.groups.subgrouped import SubgroupedWindows
from rulecore.groups.subgroups import FiringDetails, MatchedEvents, SubgroupSpec, WindowSnapshots, firings
from rulecore.groups.windows import Combine, DistinctTable, Partial
from rulecore.groups.windows.aggregation import Array
from rulecore.groups.windows.having import Having, RuleHits
from rulecore.groups.windows.pane_table import SHIFT
from rulecore.settings import GroupSettings
from streamcore.schema import OFFSET, PARTITION, StreamSchema
from streamcore.state import StateTable

Ints = npt.NDArray[np.int64]
_PANES = "panes"
_EVENTS, _FIRST, _LAST, _LATEST = "events.n", "first.m", "last.m", "latest.m"
_OWN = {
    _EVENTS: Partial("n", Combine.SUM, whole=True),
    _FIRST: Partial("m", Combine.MIN, whole=True),
    _LAST: Partial("m", Combine.MAX, whole=True),
    _LATEST: Partial("m", Combine.MAX, whole=True),
}


class CountGroup(SubgroupedWindows):
    """Rules over windows whose pieces have the same number of events."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        super().__init__(group, schema, settings, CountSubgroup)


class CountSubgroup:
    """The windows of the events that satisfy one `where`."""

    def __init__(self, dtypes: Mapping[str, pl.DataType], unit: int, settings: GroupSettings) -> None:
        self.panes = CountTable(dtypes, unit, _EVENTS, _LATEST)
        self.settings = settings
        self.sets: dict[str, DistinctTable] = {}
        self.spec: SubgroupSpec | None = None

    def set_spec(self, spec: SubgroupSpec) -> None:
        """Evaluate these rules from now on."""
        self.spec = spec
        bits = [having.bits.max(initial=0) for having in spec.having.values()]
        self.panes.keep_columns([*spec.aggregations.values()], (int(max(bits, default=0)) >> 6) + 1, _OWN)
        self.panes.panes = max(_panes(rule) for rule in spec.rules)
        self.sets = {c: self._sets(c) for c in spec.distinct}
        for column, dtype in spec.distinct.items():
            self.sets[column].dtype = dtype

    def clear_fired(self, bit: int) -> None:
        """Forget where this bit's rule has fired."""
        self.panes.clear_fired(bit)

    def add(self, events: MatchedEvents, _context: CutContext) -> CountUpdate:
        """Evaluate the windows that end with the pane of each event."""
        assert self.spec is not None
        panes = self.panes
        numbered = panes.number(panes.keys.assign(events.frame), events.times, self.settings.idle_ms)
        order = numbered.order
        times = events.times[order]
        values: dict[str, Array] = {n: v[order] for n, v in events.values.items()}
        values |= {_EVENTS: np.ones(len(order), np.int64), _FIRST: times, _LAST: times, _LATEST: numbered.latest}
        contents = panes.contents(numbered, values)
        distinct = {n: [v[i] for i in order.tolist()] for n, v in events.distinct.items()}
        arrived = CountUpdate(self, events, numbered, contents, distinct)
        for (emit, length), having in self.spec.having.items():
            if having and not arrived.failures:
                totals = panes.totals(numbered, contents, length)
                counts = {n: distinct_totals(self.sets[n], numbered, v, length) for n, v in distinct.items()}
                slots = numbered.codes >> SHIFT
                snapshots = WindowSnapshots(events.row[order], slots, totals[_FIRST], totals[_LAST], totals, counts)
                arrived.failures += self._evaluate(emit, having, snapshots, arrived)
        return arrived

    def _evaluate(
        self, emit: Emit, having: Having, snapshots: WindowSnapshots, arrived: CountUpdate
    ) -> list[RuleFailure]:
        assert self.spec is not None
        rows = np.arange(len(snapshots.row))
        if emit is Emit.FINAL:
            size = _window(having.members[0].rule).count
            rows = np.flatnonzero(arrived.numbered.last & (snapshots.totals[_EVENTS] == size))
            snapshots = snapshots.select(rows)
        hits, failures = self.spec.evaluate(having, snapshots, self.panes.keys)
        arrived.evaluated.append((emit, having, snapshots, rows, hits))
        return failures

    def close(self, context: CutContext) -> CountExpiry:
        """Drop the keys that had no event for long; no window ends with the watermark."""
        self.panes.idle_before_ms = context.next_watermark_ms - self.settings.idle_ms + 1
        return CountExpiry(self)

    def is_incomplete(self, rule: CompiledRule, start_ms: int) -> bool:
        """Return whether the window holds an event from before an aggregate was kept."""
        assert self.spec is not None
        return start_ms <= self.spec.since(rule)

    def _sets(self, column: str) -> DistinctTable:
        return self.sets.setdefault(column, DistinctTable(self.panes.keys, pl.Null(), self.settings.distinct))

    def tables(self) -> Mapping[str, StateTable]:
        """Return the panes, and the values of each distinct count."""
        return {_PANES: self.panes, **self.sets}

    def table(self, what: str) -> StateTable:
        """Return the table of that name, created if needed."""
        return self.panes if what == _PANES else self._sets(what)


def _window(rule: CompiledRule) -> EventCountWindow:
    assert isinstance(rule.window, EventCountWindow)
    return rule.window


def _panes(rule: CompiledRule) -> int:
    return _window(rule).panes


@dataclass(slots=True)
class CountUpdate:
    """The change that the events of a cut make to a subgroup's windows; ``evaluated``.

    Rows of ``WindowSnapshots`` by their places in order.
    """

    subgroup: CountSubgroup
    events: MatchedEvents
    numbered: NumberedEvents
    contents: PaneContents
    distinct: Mapping[str, Sequence[object]]
    evaluated: list[tuple[Emit, Having, WindowSnapshots, Ints, RuleHits]] = field(default_factory=list)
    failures: list[RuleFailure] = field(default_factory=list)

    def commit(self) -> list[RuleFiring]:
        """Write the panes; the first hit of each rule in each window fires."""
        panes = self.subgroup.panes
        panes.write(self.numbered, self.contents)
        for column, values in self.distinct.items():
            self.subgroup.sets[column].add(self.numbered.codes, values)
        found: list[RuleFiring] = []
        for emit, having, snapshots, rows, hits in self.evaluated:
            some = self._first_hits(having, rows, hits) if emit is Emit.EARLY else hits
            found += self._firings(emit, having, snapshots, some)
        return found

    def _first_hits(self, having: Having, rows: Ints, hits: RuleHits) -> RuleHits:
        panes, codes = self.subgroup.panes, self.numbered.codes
        hits = hits.select(~panes.has_fired(codes[rows[hits.row]], having.bits[hits.member]))
        segment = self.numbered.segment[rows[hits.row]]
        _, first = np.unique(hits.member * len(self.numbered.panes) + segment, return_index=True)
        hits = hits.select(np.sort(first))
        panes.set_fired(codes[rows[hits.row]], having.bits[hits.member])
        return hits

    def _firings(self, emit: Emit, having: Having, snapshots: WindowSnapshots, hits: RuleHits) -> list[RuleFiring]:
        spec, events = self.subgroup.spec, self.events
        assert spec is not None
        place = np.searchsorted(events.row, snapshots.row[hits.row])
        marks = zip(events.frame[PARTITION].gather(place), events.frame[OFFSET].gather(place), strict=True)
        timing = FiringTime.EARLY if emit is Emit.EARLY else FiringTime.FINAL
        starts, times = snapshots.start_ms[hits.row].tolist(), events.times[place].tolist()
        details = [
            FiringDetails(mark, time, timing, self.subgroup.is_incomplete(having.members[member].rule, start))
            for mark, start, time, member in zip(marks, starts, times, hits.member.tolist(), strict=True)
        ]
        return list(firings(spec, having, hits, snapshots, self.subgroup.panes.keys, details))


@dataclass(slots=True)
class CountExpiry:
    """The end of a cut."""

    subgroup: CountSubgroup
    failures: Sequence[RuleFailure] = ()

    def commit(self) -> list[RuleFiring]:
        """Drop the panes that no window will read again."""
        panes, sets = self.subgroup.panes, self.subgroup.sets
        if (codes := panes.tidy()) is not None:
            for table in sets.values():
                table.retain(codes)
            panes.free_keys()
        return []
