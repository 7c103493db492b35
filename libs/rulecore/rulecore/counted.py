"""Rules over windows of so many events of a key that satisfy `where`, in order of arrival.

``{count: 100}``: windows of 100 events, one after the other. ``{count: 100, every: 10}``: a window of the last 100 ends
with every tenth event. An early rule is evaluated after each event, on the window that ends with the piece of ``every``
(or ``count``) events which is being filled, and fires once a window; such a window may hold fewer events than
``count`` so far. A final rule is evaluated at the event that makes a window whole, and only on whole ones: at a key's
first events there is none yet.

A late event does not count, as everywhere. A window starts and ends with the earliest and the latest event time in it.
A key without an event for ``GroupSettings.idle_ms`` of event time begins anew. How the input is cut makes no difference
as long as a key's events come in one order, as those of one partition do.

An event makes a rule fire at most once, so the event itself is what tells firings apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compiled import CompiledRule, CountWindow
from rulecore.firing import Failure, Firing, Timing
from rulecore.groups import GroupId, Moment
from rulecore.having import Having, Hits
from rulecore.lane_group import LaneGroup
from rulecore.lanes import LaneSpec, Own, Seen, Told, firings
from rulecore.model import Emit
from rulecore.settings import GroupSettings
from streamcore.schema import OFFSET, PARTITION, StreamSchema
from streamcore.state import StateTable
from streamcore.windows import Combine, DistinctTable, Partial
from streamcore.windows.aggregates import Array
from streamcore.windows.counted import Contents, CountTable, Numbered, distinct_totals
from streamcore.windows.panes import SHIFT

Ints = npt.NDArray[np.int64]
_PANES = "panes"
_EVENTS, _FIRST, _LAST, _LATEST = "events.n", "first.m", "last.m", "latest.m"
_OWN = {
    _EVENTS: Partial("n", Combine.SUM, whole=True),
    _FIRST: Partial("m", Combine.MIN, whole=True),
    _LAST: Partial("m", Combine.MAX, whole=True),
    _LATEST: Partial("m", Combine.MAX, whole=True),
}


class CountGroup(LaneGroup):
    """Rules over windows whose pieces have the same number of events."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        super().__init__(group, schema, settings, CountLane)


class CountLane:
    """The windows of the events that satisfy one `where`."""

    def __init__(self, dtypes: Mapping[str, pl.DataType], unit: int, settings: GroupSettings) -> None:
        self.panes = CountTable(dtypes, unit, _EVENTS, _LATEST)
        self.settings = settings
        self.sets: dict[str, DistinctTable] = {}
        self.spec: LaneSpec | None = None

    def set_spec(self, spec: LaneSpec) -> None:
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

    def add(self, own: Own, _moment: Moment) -> Arrived:
        """What every own event sees of the windows that end with its piece."""
        assert self.spec is not None
        panes = self.panes
        numbered = panes.number(panes.keys.assign(own.frame), own.times, self.settings.idle_ms)
        order = numbered.order
        times = own.times[order]
        values: dict[str, Array] = {n: v[order] for n, v in own.values.items()}
        values |= {_EVENTS: np.ones(len(order), np.int64), _FIRST: times, _LAST: times, _LATEST: numbered.latest}
        contents = panes.contents(numbered, values)
        distinct = {n: [v[i] for i in order.tolist()] for n, v in own.distinct.items()}
        arrived = Arrived(self, own, numbered, contents, distinct)
        for (emit, length), having in self.spec.having.items():
            if having and not arrived.failures:
                totals = panes.totals(numbered, contents, length)
                counts = {n: distinct_totals(self.sets[n], numbered, v, length) for n, v in distinct.items()}
                slots = numbered.codes >> SHIFT
                seen = Seen(own.row[order], slots, totals[_FIRST], totals[_LAST], totals, counts)
                arrived.failures += self._evaluate(emit, having, seen, arrived)
        return arrived

    def _evaluate(self, emit: Emit, having: Having, seen: Seen, arrived: Arrived) -> list[Failure]:
        assert self.spec is not None
        rows = np.arange(len(seen.row))
        if emit is Emit.FINAL:
            size = _window(having.members[0].rule).count
            rows = np.flatnonzero(arrived.numbered.last & (seen.totals[_EVENTS] == size))
            seen = seen.kept(rows)
        hits, failures = self.spec.evaluate(having, seen, self.panes.keys)
        arrived.evaluated.append((emit, having, seen, rows, hits))
        return failures

    def close(self, moment: Moment) -> Closed:
        """Nothing ends with the watermark, but keys that had no event for long are forgotten."""
        self.panes.idle_before_ms = moment.next_watermark_ms - self.settings.idle_ms + 1
        return Closed(self)

    def warming(self, rule: CompiledRule, start_ms: int) -> bool:
        """Whether the window holds an event from before an aggregate was kept."""
        assert self.spec is not None
        return start_ms <= self.spec.since(rule)

    def _sets(self, column: str) -> DistinctTable:
        return self.sets.setdefault(column, DistinctTable(self.panes.keys, pl.Null(), self.settings.distinct))

    def tables(self) -> Mapping[str, StateTable]:
        """The panes, and the values of each distinct count."""
        return {_PANES: self.panes, **self.sets}

    def table(self, what: str) -> StateTable:
        """The table of that name, made if need be."""
        return self.panes if what == _PANES else self._sets(what)


def _window(rule: CompiledRule) -> CountWindow:
    assert isinstance(rule.window, CountWindow)
    return rule.window


def _panes(rule: CompiledRule) -> int:
    return _window(rule).panes


@dataclass(slots=True)
class Arrived:
    """What the events of a cut make of a lane's windows; ``evaluated``: rows of ``Seen`` by their places in order."""

    lane: CountLane
    own: Own
    numbered: Numbered
    contents: Contents
    distinct: Mapping[str, Sequence[object]]
    evaluated: list[tuple[Emit, Having, Seen, Ints, Hits]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def keep(self) -> list[Firing]:
        """Write the panes; the first hit of each rule in each window fires."""
        panes = self.lane.panes
        panes.write(self.numbered, self.contents)
        for column, values in self.distinct.items():
            self.lane.sets[column].add(self.numbered.codes, values)
        found: list[Firing] = []
        for emit, having, seen, rows, hits in self.evaluated:
            some = self._unfired(having, rows, hits) if emit is Emit.EARLY else hits
            found += self._said(emit, having, seen, some)
        return found

    def _unfired(self, having: Having, rows: Ints, hits: Hits) -> Hits:
        panes, codes = self.lane.panes, self.numbered.codes
        hits = hits.kept(~panes.fired(codes[rows[hits.row]], having.bits[hits.member]))
        segment = self.numbered.segment[rows[hits.row]]
        _, first = np.unique(hits.member * len(self.numbered.panes) + segment, return_index=True)
        hits = hits.kept(np.sort(first))
        panes.set_fired(codes[rows[hits.row]], having.bits[hits.member])
        return hits

    def _said(self, emit: Emit, having: Having, seen: Seen, hits: Hits) -> list[Firing]:
        spec, own = self.lane.spec, self.own
        assert spec is not None
        place = np.searchsorted(own.row, seen.row[hits.row])
        marks = zip(own.frame[PARTITION].gather(place), own.frame[OFFSET].gather(place), strict=True)
        timing = Timing.EARLY if emit is Emit.EARLY else Timing.FINAL
        starts, times = seen.start_ms[hits.row].tolist(), own.times[place].tolist()
        told = [
            Told(mark, time, timing, self.lane.warming(having.members[member].rule, start))
            for mark, start, time, member in zip(marks, starts, times, hits.member.tolist(), strict=True)
        ]
        return list(firings(spec, having, hits, seen, self.lane.panes.keys, told))


@dataclass(slots=True)
class Closed:
    """The end of a cut."""

    lane: CountLane
    failures: Sequence[Failure] = ()

    def keep(self) -> list[Firing]:
        """Forget what no window will look at again."""
        panes, sets = self.lane.panes, self.lane.sets
        if (codes := panes.tidy()) is not None:
            for table in sets.values():
                table.retain(codes)
            panes.free_keys()
        return []
