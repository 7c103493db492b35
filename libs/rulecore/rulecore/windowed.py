"""Windowed rules of one stream that group alike over panes of one length: evaluated together, over shared aggregates.

Aggregates are kept once, whatever the number of rules that ask for them, under their fingerprints. A new version of a
rule with another threshold finds its state there. A rule fires once per key and window; that it has fired is a bit
beside the pane that ends the window, so it is stored, expires and is restored with the pane.

An early rule is evaluated after each of its events, in order of arrival, on every window that contains the event and
ends at a pane that holds data by then. A final rule is evaluated once, when the watermark passes the window's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore import lang
from rulecore.compiled import AggregateSpec, CompiledRule
from rulecore.firing import Failure, Firing, Timing
from rulecore.groups import GroupId, Moment
from rulecore.lang import Expr
from rulecore.members import (
    DTYPES,
    EVALUATION_ERRORS,
    GroupMemory,
    Member,
    argument_kind,
    argument_type,
    masks,
    member_of,
    panes_of,
    raises,
    rows_column,
    version_of,
)
from rulecore.model import Emit, Mode
from rulecore.settings import GroupSettings
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK
from streamcore.windows import Aggregation, Arrivals, DistinctTable, Layout, PaneRows, PaneTable, Windows

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the rows that count come from: their places in the frame, and the event times of all its rows."""

    rows: Ints
    times: Ints


class WindowGroup:
    """The panes of one group and the rules over them."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.max_distinct = settings.distinct
        fields = [schema.get(name) for name in group.group_by]
        self.panes = PaneTable({f.name: DTYPES[f.type.kind] for f in fields if f is not None}, group.unit)
        self.distinct: dict[str, DistinctTable] = {}
        self.members: tuple[Member, ...] = ()
        self.aggregations: dict[str, Aggregation] = {}
        self._filters: dict[str, Expr | None] = {}
        self._arguments: dict[str, Expr | None] = {}
        self.kept = GroupMemory()

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate these rules from now on. ``now_ms``: the latest event time seen before, for what starts empty."""
        kept = GroupMemory.from_json(memory.get(str(self.group)))
        specs = {s.column: s for rule in rules for s in rule.aggregates}
        self._set_aggregates(specs, {rows_column(r): r.where for r in rules})
        panes = max(panes_of(rule) for rule in rules)
        self._set_since(kept, panes, now_ms, watermark_ms)
        self._set_bits(kept, rules)
        kept.panes = panes
        memory.put(str(self.group), kept.to_json())
        self.kept = kept
        words = (max(kept.bits.values(), default=0) >> 6) + 1
        self.panes.keep_columns([*self.aggregations.values()], words)
        self.members = tuple(member_of(r, kept.bits[version_of(r)]) for r in rules if r.rule.status is not Mode.PAUSED)

    def _set_aggregates(self, specs: Mapping[str, AggregateSpec], rows: Mapping[str, Expr | None]) -> None:
        numeric = {c: s for c, s in specs.items() if s.function != "count_distinct"}
        self.aggregations = {c: Aggregation(c, s.function, argument_type(s)) for c, s in sorted(numeric.items())}
        self.aggregations |= {c: Aggregation(c, "count", None) for c in sorted(rows)}
        self._filters = {c: s.where for c, s in specs.items()} | dict(rows)
        self._arguments = {c: s.argument for c, s in specs.items()} | dict.fromkeys(rows)
        for column in specs.keys() - numeric.keys():
            self.distinct_table(column).dtype = DTYPES[argument_kind(specs[column])]
        self.distinct = {c: t for c, t in self.distinct.items() if c in specs}

    def distinct_table(self, column: str) -> DistinctTable:
        """The table of a distinct count, made if need be: its type is known when the rules are."""
        return self.distinct.setdefault(column, DistinctTable(self.panes.keys, pl.Null(), self.max_distinct))

    def _set_since(self, kept: GroupMemory, panes: int, now_ms: int, watermark_ms: int) -> None:
        """A new aggregate is complete from now on; a longer window finds only what the shorter one kept."""
        first = self._first_pane(watermark_ms, kept.panes) * self.group.unit if kept.panes else NO_WATERMARK
        grown = panes > kept.panes and bool(kept.panes) and watermark_ms > NO_WATERMARK
        names = [*self._filters]
        since = {n: kept.since_ms.get(n, now_ms) for n in names}
        kept.since_ms = {n: max(s, first) for n, s in since.items()} if grown else since

    def _set_bits(self, kept: GroupMemory, rules: Sequence[CompiledRule]) -> None:
        wanted = [version_of(r) for r in rules]
        for version in [v for v in kept.bits if v not in wanted]:
            self.panes.clear_fired(kept.bits.pop(version))
        used = set(kept.bits.values())
        free = iter(n for n in range(len(wanted) + len(used)) if n not in used)
        for version in sorted(wanted):
            if version not in kept.bits:
                kept.bits[version] = next(free)

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, _moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Take the events in (on time, in order of arrival) and evaluate the early rules after each of them."""
        columns, failures = self._contributions(frame)
        counted = [c for c in columns.columns if c.endswith(".n")]
        some = columns.select(pl.any_horizontal(pl.col(counted) > 0)).to_series().to_numpy()
        index = np.flatnonzero(some)
        if failures or not index.size:
            return [], failures
        taken, columns = (frame, columns) if len(index) == frame.height else (frame[index], columns[index])
        slots = self.panes.keys.assign(taken)
        values = {n: columns[n].to_numpy() for n in columns.columns if not n.startswith("distinct:")}
        rows = PaneRows(slots, self.panes.pane_of(taken[EVENT_MS].to_numpy()), values)
        distinct = {n: columns[f"distinct:{n}"].to_list() for n in self.distinct}
        arrivals = self.panes.arrive(rows)
        firings, failures = self._early(rows, arrivals, distinct, _Source(index, frame[EVENT_MS].to_numpy()))
        if failures:
            return [], failures
        self.panes.add(rows, arrivals)
        for name, listed in distinct.items():
            self.distinct[name].add(rows.codes, listed)
        return firings, []

    def close(self, moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Evaluate the final rules on the windows that end between two watermarks, then forget what has expired."""
        after = moment.watermark_ms // self.group.unit - 1
        last = moment.next_watermark_ms // self.group.unit - 1
        if last <= after:
            return [], []
        firings: list[Firing] = []
        failures: list[Failure] = []
        final = [m for m in self.members if m.rule.rule.emit is Emit.FINAL]
        for panes in sorted({m.panes for m in final}):
            windows = self.panes.closing(after, last, panes)
            counts = {c: t.totals(windows.codes, panes) for c, t in self.distinct.items()}
            members = [m for m in final if m.panes == panes]
            hits, failed = self._evaluate(members, windows, counts, None)
            failures += failed
            for member, rows in hits:
                some = rows[windows.totals[f"{member.rows}.n"][rows] > 0]
                firings += self._firings(member, windows, counts, some, None)
        self._expire(moment.next_watermark_ms)
        return firings, failures

    def _expire(self, watermark_ms: int) -> None:
        first = self._first_pane(watermark_ms, max((m.panes for m in self.members), default=self.kept.panes))
        for table in self.distinct.values():
            table.expire(first)
        self.panes.expire(first)

    def _first_pane(self, watermark_ms: int, panes: int) -> int:
        """The first pane that is part of a window which the watermark has not passed."""
        return max(0, watermark_ms // self.group.unit - panes + 1)

    def _contributions(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Failure]]:
        """A column a partial, and a column of values a distinct count; on an error, whose fault it is."""
        expressions = {name: self._expressions(name) for name in self._filters}
        try:
            return frame.select([e for es in expressions.values() for e in es]), []
        except EVALUATION_ERRORS:
            broken = {name: error for name, es in expressions.items() if (error := raises(frame, es))}
        blamed = [
            Failure(m.rule, reason)
            for m in self.members
            for name, reason in broken.items()
            if name == m.rows or name in m.needs
        ]
        return frame.clear().select([e for n, es in expressions.items() if n not in broken for e in es]), blamed

    def _expressions(self, name: str) -> list[pl.Expr]:
        where, argument = self._filters[name], self._arguments[name]
        counts = pl.lit(value=True) if where is None else lang.to_polars(where).fill_null(value=False)
        counts = counts & pl.col(EVENT_MS).is_not_null()  # gives a literal the frame's height
        value = None if argument is None else lang.to_polars(argument)
        if name in self.aggregations:
            return self.aggregations[name].contributions(counts, value)
        assert value is not None, "a distinct count has an argument"
        return [pl.when(counts).then(value).alias(f"distinct:{name}")]

    def _early(
        self, rows: PaneRows, arrivals: Arrivals, distinct: Mapping[str, list[object]], source: _Source
    ) -> tuple[list[Firing], list[Failure]]:
        firings: list[Firing] = []
        early = [m for m in self.members if m.rule.rule.emit is Emit.EARLY]
        plans = []
        for panes in sorted({m.panes for m in early}):
            layout = self.panes.layout(arrivals, panes)
            windows = self.panes.trail(rows, layout, panes)
            counts = self._distinct_counts(layout, panes, distinct)
            members = [m for m in early if m.panes == panes]
            hits, failures = self._evaluate(members, windows, counts, rows)
            if failures:
                return [], failures
            plans.append((windows, counts, hits))
        for windows, counts, hits in plans:
            for member, hit in hits:
                first = self._first_unfired(member, windows, hit)
                firings += self._firings(member, windows, counts, first, source)
        return firings, []

    def _distinct_counts(self, layout: Layout, panes: int, distinct: Mapping[str, list[object]]) -> dict[str, Ints]:
        return {n: t.trail(layout, panes, distinct[n])[layout.there] for n, t in self.distinct.items()}

    def _first_unfired(self, member: Member, windows: Windows, hits: Ints) -> Ints:
        """The first hit in each window that has not fired yet; marks it fired."""
        codes = windows.codes[hits]
        fresh = ~self.panes.fired(codes, member.bit)
        codes, first = np.unique(codes[fresh], return_index=True)
        self.panes.set_fired(codes, member.bit)
        return hits[fresh][first]

    def _evaluate(
        self, members: Sequence[Member], windows: Windows, counts: Mapping[str, Ints], rows: PaneRows | None
    ) -> tuple[list[tuple[Member, Ints]], list[Failure]]:
        """For each rule the windows where `having` is true, of those rows that are the rule's own events."""
        if not len(windows.slots):
            return [], []
        needed = frozenset[str]().union(*(m.needs for m in members))
        results = [self.aggregations[n].result(windows.totals) for n in sorted(needed & self.aggregations.keys())]
        results += [pl.Series(n, counts[n]) for n in sorted(needed & counts.keys())]
        frame = pl.DataFrame(results)
        if needed & set(self.group.group_by):
            frame = frame.hstack(self.panes.keys.frame(windows.slots))
        hits: list[tuple[Member, Ints]] = []
        failures: list[Failure] = []
        arrivals: dict[str, Arrivals] = {}
        for member, mask in zip(members, masks(frame, members), strict=True):
            if isinstance(mask, str):
                failures.append(Failure(member.rule, mask))
                continue
            hit = np.flatnonzero(mask)
            if rows is not None and hit.size:
                name = f"{member.rows}.n"
                if name not in arrivals:
                    arrivals[name] = self.panes.own_arrivals(name, rows)
                hit = self._own(name, arrivals[name], rows, windows, hit)
            if hit.size:
                hits.append((member, hit))
        return hits, failures

    def _own(self, name: str, own: Arrivals, rows: PaneRows, windows: Windows, hit: Ints) -> Ints:
        """Hits at the rule's own events, on windows whose last pane holds such an event: other rules' do not count."""
        hit = hit[rows.values[name][windows.row[hit]] > 0]
        return hit[self.panes.holds_own(name, own, windows.codes[hit], windows.row[hit])]

    def _firings(
        self, member: Member, windows: Windows, counts: Mapping[str, Ints], at: Ints, source: _Source | None
    ) -> Iterable[Firing]:
        if not at.size:
            return
        at = self._in_order(windows, at)
        part = {n: v[at] for n, v in windows.totals.items()}
        own = [s.column for s in member.rule.aggregates]
        values = {
            c: (self.aggregations[c].result(part).to_list() if c in self.aggregations else counts[c][at].tolist())
            for c in own
        }
        keys = self.panes.keys.frame(windows.slots[at]).to_dicts() if self.group.group_by else [{}] * len(at)
        since = max(self.kept.since_ms[n] for n in [*own, member.rows])
        for i, (end_pane, row) in enumerate(zip(windows.end_panes[at].tolist(), windows.row[at].tolist(), strict=True)):
            end_ms = (end_pane + 1) * self.group.unit
            start_ms = end_ms - member.panes * self.group.unit
            yield Firing(
                rule=member.rule,
                key=keys[i],
                mark=(start_ms, end_ms),
                time_ms=end_ms if source is None else int(source.times[source.rows[row]]),
                start_ms=start_ms,
                end_ms=end_ms,
                timing=Timing.FINAL if source is None else Timing.EARLY,
                row=None if source is None else int(source.rows[row]),
                values={c: v[i] for c, v in values.items()},
                warming=start_ms < since,
            )

    def _in_order(self, windows: Windows, at: Ints) -> Ints:
        """By event, window and key. Slots are no order: another process that runs the cut again numbers keys anew."""
        hashes = self.panes.keys.hashes[windows.slots[at]]
        order: Ints = at[np.lexsort((hashes, windows.end_panes[at], windows.row[at]))]
        return order

    # --- state --------------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, StateTable]:
        """The group's tables by name."""
        tables: dict[str, StateTable] = {f"panes:{self.group}": self.panes}
        return tables | {f"distinct:{self.group}:{name}": table for name, table in self.distinct.items()}

    def table(self, name: str) -> StateTable:
        """The table of that name, made if need be."""
        what, _, *column = name.split(":")
        return self.panes if what == "panes" else self.distinct_table(column[0])
