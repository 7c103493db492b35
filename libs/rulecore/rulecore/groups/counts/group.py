"""Rules over windows of a number of events of a key that satisfy `where`, in order of arrival.

``{count: 100}``: windows of 100 events, one after the other. ``{count: 100, every: 10}``: a window of the last 100
events ends with every tenth event. The table stores *panes* of ``every`` (or ``count``) events; a window is a run of
panes. An early rule is evaluated after each event, on the window that ends with the pane being filled, and fires once
per window; that window may hold fewer than ``count`` events. A final rule is evaluated at the event that completes a
window of ``count`` events.

Late events are not counted. A window starts and ends with the earliest and the latest event time in it. A key without
an event for ``GroupSettings.idle_ms`` of event time starts with empty windows again. The result does not depend on how
the input is divided into cuts, as long as a key's events arrive in one order, as the events of one partition do.

An event makes a rule fire at most once, so its partition and offset distinguish the firings of a rule.
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
from rulecore.state_size import StateSize
from streamcore.schema import OFFSET, PARTITION, StreamSchema
from streamcore.state import StateTable

Ints = npt.NDArray[np.int64]
_PANES = "panes"
_EVENTS, _FIRST, _LAST, _LATEST = "events.n", "first.m", "last.m", "latest.m"
_OWN_PARTIALS = {
    _EVENTS: Partial("n", Combine.SUM, whole=True),
    _FIRST: Partial("m", Combine.MIN, whole=True),
    _LAST: Partial("m", Combine.MAX, whole=True),
    _LATEST: Partial("m", Combine.MAX, whole=True),
}


class CountGroup(SubgroupedWindows):
    """The rules over windows whose panes have a common number of events."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        super().__init__(group, schema, settings, CountSubgroup)


class CountSubgroup:
    """The windows of the events that satisfy one `where`. ``unit``: events per pane; ``dtypes``: of the key columns.

    ``sets``: by column of a ``count_distinct``, the distinct values of each pane.
    """

    def __init__(self, dtypes: Mapping[str, pl.DataType], unit: int, settings: GroupSettings) -> None:
        self.panes = CountTable(dtypes, unit, _EVENTS, _LATEST)
        self.settings = settings
        self.sets: dict[str, DistinctTable] = {}
        self.spec: SubgroupSpec | None = None

    def set_spec(self, spec: SubgroupSpec) -> None:
        """Set the rules to evaluate, and keep exactly the columns that they need."""
        self.spec = spec
        bits = [having.bits.max(initial=0) for having in spec.having.values()]
        self.panes.keep_columns([*spec.aggregations.values()], (int(max(bits, default=0)) >> 6) + 1, _OWN_PARTIALS)
        self.panes.panes = max(_window(rule).panes for rule in spec.rules)
        self.sets = {c: self._sets(c) for c in spec.distinct}
        for column, dtype in spec.distinct.items():
            self.sets[column].dtype = dtype

    def clear_fired(self, bit: int) -> None:
        """Clear this fired bit in all panes, before another rule gets the bit."""
        self.panes.clear_fired(bit)

    def add(self, events: MatchedEvents, _context: CutContext) -> CountUpdate:
        """Evaluate the windows that end with the pane of each event, without changing the state."""
        assert self.spec is not None
        panes = self.panes
        numbered = panes.number(panes.keys.assign(events.frame), events.times, self.settings.idle_ms)
        order = numbered.order
        times = events.times[order]
        values: dict[str, Array] = {n: v[order] for n, v in events.values.items()}
        values |= {_EVENTS: np.ones(len(order), np.int64), _FIRST: times, _LAST: times, _LATEST: numbered.latest}
        contents = panes.contents(numbered, values)
        distinct = {n: [v[i] for i in order.tolist()] for n, v in events.distinct.items()}
        update = CountUpdate(self, events, numbered, contents, distinct)
        for (emit, length), having in self.spec.having.items():
            if having and not update.failures:
                totals = panes.totals(numbered, contents, length)
                counts = {n: distinct_totals(self.sets[n], numbered, v, length) for n, v in distinct.items()}
                key_slots = numbered.codes >> SHIFT
                snapshots = WindowSnapshots(events.row[order], key_slots, totals[_FIRST], totals[_LAST], totals, counts)
                update.failures += self._evaluate(emit, having, snapshots, update)
        return update

    def _evaluate(
        self, emit: Emit, having: Having, snapshots: WindowSnapshots, update: CountUpdate
    ) -> list[RuleFailure]:
        """Evaluate `having` on the snapshots, add the hits to ``update``, and return the failures of rules.

        With ``Emit.FINAL``, only complete windows are evaluated.
        """
        assert self.spec is not None
        rows = np.arange(len(snapshots.row))
        if emit is Emit.FINAL:
            size = _window(having.members[0].rule).count
            rows = np.flatnonzero(update.numbered.last & (snapshots.totals[_EVENTS] == size))
            snapshots = snapshots.select(rows)
        hits, failures = self.spec.evaluate(having, snapshots, self.panes.keys)
        update.evaluated.append((emit, having, snapshots, rows, hits))
        return failures

    def close(self, context: CutContext) -> CountExpiry:
        """Let ``commit`` drop the keys without an event for ``idle_ms``. No window ends with the watermark."""
        self.panes.idle_before_ms = context.next_watermark_ms - self.settings.idle_ms + 1
        return CountExpiry(self)

    def is_incomplete(self, rule: CompiledRule, start_ms: int) -> bool:
        """Return whether the window holds an event from before one of the rule's aggregates was counted."""
        assert self.spec is not None
        return start_ms <= self.spec.since(rule)

    def _sets(self, column: str) -> DistinctTable:
        """Return the table of a ``count_distinct``, created if needed."""
        return self.sets.setdefault(column, DistinctTable(self.panes.keys, pl.Null(), self.settings.distinct))

    def state_size(self) -> StateSize:
        """Return the size of all panes and distinct values, or more."""
        return sum((sets.state_size for sets in self.sets.values()), self.panes.state_size)

    def state_parts(self) -> tuple[StateSize, Mapping[str, StateSize]]:
        """Return the exact size of the panes that a window may still read, and of their distinct values."""
        codes = self.panes.runs.codes()
        living = self.panes.living(codes)
        kept = codes[living]
        distinct = {c: sets.measure_living(lambda own: np.isin(own, kept)) for c, sets in self.sets.items()}
        return self.panes.state_sizes({"": living})[""], distinct

    def tables(self) -> Mapping[str, StateTable]:
        """Return the table of panes, and one of distinct values for each ``count_distinct``."""
        return {_PANES: self.panes, **self.sets}

    def table(self, content: str) -> StateTable:
        """Return the table of that content, created if needed."""
        return self.panes if content == _PANES else self._sets(content)


def _window(rule: CompiledRule) -> EventCountWindow:
    assert isinstance(rule.window, EventCountWindow)
    return rule.window


@dataclass(slots=True)
class CountUpdate:
    """The change that the events of a cut make to a subgroup's windows.

    ``distinct``: by column, the values of the events, in the order of ``numbered``. ``evaluated``: for each `having`,
    the evaluated windows, their rows in ``numbered``, and the hits, whose ``row`` is a row of the evaluated windows.
    """

    subgroup: CountSubgroup
    events: MatchedEvents
    numbered: NumberedEvents
    contents: PaneContents
    distinct: Mapping[str, Sequence[object]]
    evaluated: list[tuple[Emit, Having, WindowSnapshots, Ints, RuleHits]] = field(default_factory=list)
    failures: list[RuleFailure] = field(default_factory=list)

    def commit(self) -> list[RuleFiring]:
        """Write the panes and return the firings. An early rule fires only at its first hit in each window."""
        panes = self.subgroup.panes
        panes.write(self.numbered, self.contents)
        for column, values in self.distinct.items():
            self.subgroup.sets[column].add(self.numbered.codes, values)
        new_firings: list[RuleFiring] = []
        for emit, having, snapshots, rows, hits in self.evaluated:
            firing_hits = self._first_hits(having, rows, hits) if emit is Emit.EARLY else hits
            new_firings += self._firings(emit, having, snapshots, firing_hits)
        return new_firings

    def _first_hits(self, having: Having, rows: Ints, hits: RuleHits) -> RuleHits:
        """Return each rule's first hit in each window where it has not fired, and set its fired bit there."""
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
        index = np.searchsorted(events.row, snapshots.row[hits.row])
        event_ids = zip(events.frame[PARTITION].gather(index), events.frame[OFFSET].gather(index), strict=True)
        timing = FiringTime.EARLY if emit is Emit.EARLY else FiringTime.FINAL
        starts, times = snapshots.start_ms[hits.row].tolist(), events.times[index].tolist()
        details = [
            FiringDetails(event_id, time, timing, self.subgroup.is_incomplete(having.members[member].rule, start))
            for event_id, start, time, member in zip(event_ids, starts, times, hits.member.tolist(), strict=True)
        ]
        return list(firings(spec, having, hits, snapshots, self.subgroup.panes.keys, details))


@dataclass(slots=True)
class CountExpiry:
    """The change at the end of a cut. It has no firings."""

    subgroup: CountSubgroup
    failures: Sequence[RuleFailure] = ()

    def commit(self) -> list[RuleFiring]:
        """Drop the panes that no window will read again, and their distinct values and keys."""
        panes, sets = self.subgroup.panes, self.subgroup.sets
        if (codes := panes.tidy()) is not None:
            for table in sets.values():
                table.retain(codes)
            panes.free_keys()
        return []
