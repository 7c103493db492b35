"""The group of window rules of one stream with equal ``group_by`` and pane length: they share aggregates.

Each aggregate is stored once under its fingerprint, however many rules use it. A new version of a rule with another
threshold therefore finds its state. A rule fires once per key and window. A bit in the last pane of the window
records that the rule has fired, so this fact is stored, expires and is restored with the pane.

An early rule is evaluated after each of its events, in order of arrival, on every window that contains the event and
ends at a pane that holds data by then. A final rule is evaluated once, when the watermark passes the window's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compile.rule import AggregateSpec, CompiledRule
from rulecore.documents.rule import Emit, RuleMode
from rulecore.firing import FiringTime, RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.windows import Aggregation, Arrivals, DistinctTable, PaneRows, PaneTable, WindowLayout, Windows
from rulecore.groups.windows.distinct_table import VALUE
from rulecore.groups.windows.having import Having, RuleHits
from rulecore.groups.windows.members import (
    EVALUATION_ERRORS,
    GroupMember,
    GroupMetadata,
    argument_type,
    evaluation_error,
    rows_column,
    to_member,
    version_name,
    window_panes,
)
from rulecore.groups.windows.pane_table import PANE, PANE_MASK
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize, StateUse
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Source:
    """The row of each contribution in the frame of events, and the event times of the whole frame."""

    rows: Ints
    times: Ints


@dataclass(frozen=True, slots=True)
class _Contributions:
    """What the events of a frame add to the aggregates, one row per contributing event.

    ``index``: the row of each contributing event in the frame. ``distinct``: the value of each contributing event, for
    each ``count_distinct``, by column.
    """

    index: Ints
    rows: PaneRows
    distinct: Mapping[str, list[object]]


class WindowGroup:
    """The ``RuleGroup`` of window rules: its panes, its distinct values and the rules that read them."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.max_distinct = settings.distinct
        fields = [schema.get(name) for name in group.group_by]
        self.panes = PaneTable({f.name: polars_type(f.type) for f in fields if f is not None}, group.unit)
        self.distinct: dict[str, DistinctTable] = {}
        self.rules: tuple[CompiledRule, ...] = ()  # paused ones too
        self.members: tuple[GroupMember, ...] = ()
        self._having: dict[tuple[Emit, int], Having] = {}  # the number: panes in a window
        self.aggregations: dict[str, Aggregation] = {}
        self._filters: dict[str, Expr | None] = {}
        self._arguments: dict[str, Expr | None] = {}
        self.metadata = GroupMetadata()

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``)."""
        metadata = GroupMetadata.from_json(memory.get(str(self.group)))
        specs = {s.column: s for rule in rules for s in rule.aggregates}
        self._set_aggregates(specs, {rows_column(r): r.where for r in rules})
        panes = max(window_panes(rule) for rule in rules)
        self._set_since(metadata, panes, now_ms, watermark_ms)
        for bit in metadata.assign_bits(rules):
            self.panes.clear_fired(bit)
        metadata.panes = panes
        memory.put(str(self.group), metadata.to_json())
        self.metadata = metadata
        self.rules = tuple(rules)
        words = (max(metadata.bits.values(), default=0) >> 6) + 1
        self.panes.keep_columns([*self.aggregations.values()], words)
        self.members = tuple(
            to_member(r, metadata.bits[version_name(r)]) for r in rules if r.rule.status is not RuleMode.PAUSED
        )
        by_window: dict[tuple[Emit, int], list[GroupMember]] = {}
        for member in self.members:
            by_window.setdefault((member.rule.rule.emit, member.panes), []).append(member)
        self._having = {window: Having(members) for window, members in sorted(by_window.items())}

    def _set_aggregates(self, specs: Mapping[str, AggregateSpec], rows: Mapping[str, Expr | None]) -> None:
        """Keep the aggregates of ``specs``, by column, and a count of the events of each filter in ``rows``."""
        numeric = {c: s for c, s in specs.items() if s.function != "count_distinct"}
        self.aggregations = {c: Aggregation(c, s.function, argument_type(s)) for c, s in sorted(numeric.items())}
        self.aggregations |= {c: Aggregation(c, "count", None) for c in sorted(rows)}
        self._filters = {c: s.where for c, s in specs.items()} | dict(rows)
        self._arguments = {c: s.argument for c, s in specs.items()} | dict.fromkeys(rows)
        for column in specs.keys() - numeric.keys():
            self.distinct_table(column).dtype = polars_type(argument_type(specs[column]))
        self.distinct = {c: t for c, t in self.distinct.items() if c in specs}

    def distinct_table(self, column: str) -> DistinctTable:
        """Return the table of a ``count_distinct``, created if needed. ``set_rules`` sets the type of its values."""
        return self.distinct.setdefault(column, DistinctTable(self.panes.keys, pl.Null(), self.max_distinct))

    def _set_since(self, metadata: GroupMetadata, panes: int, now_ms: int, watermark_ms: int) -> None:
        """Set the event time from which each aggregate is complete.

        If the longest window has grown to ``panes`` panes, the aggregates are complete only from the first pane that
        was kept for the shorter window.
        """
        kept_ms = self._first_pane(watermark_ms, metadata.panes) * self.group.unit if metadata.panes else NO_WATERMARK
        grown = panes > metadata.panes and bool(metadata.panes) and watermark_ms > NO_WATERMARK
        names = [*self._filters]
        since = {n: metadata.since_ms.get(n, now_ms) for n in names}
        metadata.since_ms = {n: max(s, kept_ms) for n, s in since.items()} if grown else since

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, _context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Add events that are not late, in order of arrival, and evaluate the early rules after each of them."""
        contributions, failures = self._collect(frame)
        if contributions is None:
            return [], failures
        arrivals = self.panes.arrive(contributions.rows)
        source = _Source(contributions.index, frame[EVENT_MS].to_numpy())
        firings, failures = self._evaluate_early(contributions.rows, arrivals, contributions.distinct, source)
        if failures:
            return [], failures
        self._store(contributions, arrivals)
        return firings, []

    def count(self, frame: pl.DataFrame) -> list[RuleFailure]:
        """Add events of any time, in any order, without evaluating a rule; return the rules that failed."""
        contributions, failures = self._collect(frame)
        if contributions is not None:
            self._store(contributions, self.panes.arrive(contributions.rows))
        return failures

    def _collect(self, frame: pl.DataFrame) -> tuple[_Contributions | None, list[RuleFailure]]:
        """Return the contributions of the events, None if there are none or if rules failed; and the failed rules."""
        columns, failures = self._contributions(frame)
        counters = [c for c in columns.columns if c.endswith(".n")]
        contributes = columns.select(pl.any_horizontal(pl.col(counters) > 0)).to_series().to_numpy()
        index = np.flatnonzero(contributes)
        if failures or not index.size:
            return None, failures
        events, columns = (frame, columns) if len(index) == frame.height else (frame[index], columns[index])
        key_slots = self.panes.keys.assign(events)
        values = {n: columns[n].to_numpy() for n in columns.columns if not n.startswith("distinct:")}
        rows = PaneRows(key_slots, self.panes.pane_numbers(events[EVENT_MS].to_numpy()), values)
        return _Contributions(index, rows, {n: columns[f"distinct:{n}"].to_list() for n in self.distinct}), []

    def _store(self, contributions: _Contributions, arrivals: Arrivals) -> None:
        """Add contributions to the panes and the distinct values."""
        self.panes.add(contributions.rows, arrivals)
        for name, values in contributions.distinct.items():
            self.distinct[name].add(contributions.rows.codes, values)

    def add_backfill(self, name: str, rows: pl.DataFrame) -> None:
        """Add the partials of a backfill to an aggregate. ``rows``: as its table stores them, of keys of this shard."""
        codes = PaneRows(self.panes.keys.assign(rows), rows[PANE].to_numpy(), {})
        if name in self.distinct:
            self.panes.add(codes, self.panes.arrive(codes))
            self.distinct[name].add(codes.codes, rows[VALUE].to_list())
            return
        columns = [self.aggregations[name].column(p) for p in self.aggregations[name].partials]
        backfill = PaneRows(codes.key_slots, codes.panes, {c: rows[c].to_numpy() for c in columns})
        self.panes.add(backfill, self.panes.arrive(backfill))

    def all_since_ms(self) -> Mapping[str, int]:
        """Return the event time from which each aggregate is complete, by column."""
        return self.metadata.since_ms

    def since_by_column(self, rule: CompiledRule) -> dict[str, int]:
        """Return the event time from which each of the rule's aggregates is complete, by column."""
        return {n: self.metadata.since_ms[n] for n in [*(s.column for s in rule.aggregates), rows_column(rule)]}

    def complete_since(self, names: Iterable[str], since_ms: int, memory: KeyValueTable) -> None:
        """Store that these aggregates are complete from this event time on."""
        self.metadata.since_ms |= dict.fromkeys(names, since_ms)
        memory.put(str(self.group), self.metadata.to_json())

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Evaluate the final rules on the windows that the watermark of this cut ends, then drop expired state."""
        after = context.watermark_ms // self.group.unit - 1
        last = context.next_watermark_ms // self.group.unit - 1
        if last <= after:
            return [], []
        plans: list[tuple[Having, Windows, Mapping[str, Ints], RuleHits]] = []
        for (emit, panes), having in self._having.items():
            if emit is Emit.FINAL:
                windows = self.panes.closing(after, last, panes)
                counts = {c: t.totals(windows.codes, panes) for c, t in self.distinct.items()}
                hits, failures = self._evaluate(having, windows, counts)
                if failures:
                    return [], failures
                plans.append((having, windows, counts, hits.select(self._has_own_events(having, windows, hits))))
        firings = [
            f for having, windows, counts, hits in plans for f in self._firings(having, windows, counts, hits, None)
        ]
        self._expire(context.next_watermark_ms)
        return firings, []

    def _expire(self, watermark_ms: int) -> None:
        """Drop the panes and distinct values of windows that the watermark has passed."""
        first = self._first_kept_pane(watermark_ms)
        for table in self.distinct.values():
            table.expire(first)
        self.panes.expire(first)

    def _first_kept_pane(self, watermark_ms: int) -> int:
        """Return the first pane that a window of an evaluated rule may still read."""
        return self._first_pane(watermark_ms, max((m.panes for m in self.members), default=self.metadata.panes))

    def _first_pane(self, watermark_ms: int, panes: int) -> int:
        """Return the first pane that is part of a window which the watermark has not passed."""
        return max(0, watermark_ms // self.group.unit - panes + 1)

    def _contributions(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RuleFailure]]:
        """Return a column for each partial and each ``count_distinct``, and the rules whose expressions failed.

        If rules failed, the frame is empty and has no columns of theirs.
        """
        expressions = {name: self._expressions(name) for name in self._filters}
        try:
            return frame.select([e for es in expressions.values() for e in es]), []
        except EVALUATION_ERRORS:
            broken = {name: error for name, es in expressions.items() if (error := evaluation_error(frame, es))}
        failed_rules = [
            RuleFailure(m.rule, reason)
            for m in self.members
            for name, reason in broken.items()
            if name == m.rows or name in m.needs
        ]
        return frame.clear().select([e for n, es in expressions.items() if n not in broken for e in es]), failed_rules

    def _expressions(self, name: str) -> list[pl.Expr]:
        """Return the expressions that compute an aggregate's columns of contributions from a frame of events."""
        where, argument = self._filters[name], self._arguments[name]
        counts = pl.lit(value=True) if where is None else to_polars(where).fill_null(value=False)
        counts = counts & pl.col(EVENT_MS).is_not_null()  # gives a literal the frame's height
        value = None if argument is None else to_polars(argument)
        if name in self.aggregations:
            return self.aggregations[name].contributions(counts, value)
        assert value is not None, "count_distinct has an argument"
        return [pl.when(counts).then(value).alias(f"distinct:{name}")]

    def _evaluate_early(
        self, rows: PaneRows, arrivals: Arrivals, distinct: Mapping[str, list[object]], source: _Source
    ) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Return the firings of the early rules after each event, and mark them as fired; or the rules that failed."""
        plans = []
        for (emit, panes), having in self._having.items():
            if emit is Emit.EARLY:
                layout = self.panes.layout(arrivals, panes)
                windows = self.panes.trail(rows, layout, panes)
                counts = self._distinct_counts(layout, panes, distinct)
                hits, failures = self._evaluate(having, windows, counts)
                if failures:
                    return [], failures
                plans.append((having, windows, counts, hits.select(self._is_at_own_event(having, rows, windows, hits))))
        firings: list[RuleFiring] = []
        for having, windows, counts, hits in plans:
            firings += self._firings(having, windows, counts, self._first_unfired(having, windows, hits), source)
        return firings, []

    def _distinct_counts(
        self, layout: WindowLayout, panes: int, distinct: Mapping[str, list[object]]
    ) -> dict[str, Ints]:
        """Return the number of distinct values of each window just after its event, by column."""
        return {n: t.trail(layout, panes, distinct[n])[layout.there] for n, t in self.distinct.items()}

    def _first_unfired(self, having: Having, windows: Windows, hits: RuleHits) -> RuleHits:
        """Return each rule's first hit in each window that it has not fired for yet, and mark it as fired."""
        hits = hits.select(~self.panes.has_fired(windows.codes[hits.row], having.bits[hits.member]))
        codes, code = np.unique(windows.codes[hits.row], return_inverse=True)
        _, first = np.unique(hits.member * len(codes) + code, return_index=True)
        hits = hits.select(np.sort(first))
        self.panes.set_fired(windows.codes[hits.row], having.bits[hits.member])
        return hits

    def _evaluate(
        self, having: Having, windows: Windows, counts: Mapping[str, Ints]
    ) -> tuple[RuleHits, list[RuleFailure]]:
        """Return the pairs of a window and a rule whose ``having`` is true, and the rules that failed."""
        needed = having.needs
        results = [self.aggregations[n].result(windows.totals) for n in sorted(needed & self.aggregations.keys())]
        results += [pl.Series(n, counts[n]) for n in sorted(needed & counts.keys())]
        frame = pl.DataFrame(results)
        if needed & set(self.group.group_by):
            frame = frame.hstack(self.panes.keys.frame(windows.key_slots))
        return having.evaluate(frame)

    def _has_own_events(self, having: Having, windows: Windows, hits: RuleHits) -> Mask:
        """Return, for each hit, whether the window holds an event that satisfies the rule's ``where``."""
        holds = np.stack([windows.totals[f"{counter}.n"] > 0 for counter in having.counters])
        own: Mask = holds[having.owners[hits.member], hits.row]
        return own

    def _is_at_own_event(self, having: Having, rows: PaneRows, windows: Windows, hits: RuleHits) -> Mask:
        """Return, for each hit, whether an early rule may fire there.

        The event must satisfy the rule's ``where``, and so must an event in the last pane of the window.
        """
        own = np.zeros(len(hits.row), np.bool_)
        owners = having.owners[hits.member]
        for owner in np.unique(owners).tolist():
            name = f"{having.counters[owner]}.n"
            owned = np.flatnonzero(owners == owner)
            owned = owned[rows.values[name][windows.row[hits.row[owned]]] > 0]
            at = hits.row[owned]
            arrivals = self.panes.own_arrivals(name, rows)
            own[owned] = self.panes.holds_own(name, arrivals, windows.codes[at], windows.row[at])
        return own

    def _firings(
        self, having: Having, windows: Windows, counts: Mapping[str, Ints], hits: RuleHits, source: _Source | None
    ) -> Iterator[RuleFiring]:
        """Yield the firings of these hits, by event, window, key and rule. ``source``: None for final rules."""
        if not len(hits.row):
            return
        hits = hits.select(self._in_order(windows, hits))
        at, inverse = np.unique(hits.row, return_inverse=True)
        totals = {n: v[at] for n, v in windows.totals.items()}
        members = [having.members[number] for number in hits.member.tolist()]
        shown_columns = sorted({s.column for m in members for s in m.rule.aggregates})
        values = {
            c: (self.aggregations[c].result(totals).to_list() if c in self.aggregations else counts[c][at].tolist())
            for c in shown_columns
        }
        keys = self.panes.keys.frame(windows.key_slots[at]).to_dicts() if self.group.group_by else [{}] * len(at)
        ends = ((windows.end_panes[at] + 1) * self.group.unit).tolist()
        rows = windows.row[at].tolist()
        for member, i in zip(members, inverse.tolist(), strict=True):
            start_ms = ends[i] - member.panes * self.group.unit
            own = [s.column for s in member.rule.aggregates]
            yield RuleFiring(
                rule=member.rule,
                key=keys[i],
                mark=(start_ms, ends[i]),
                time_ms=ends[i] if source is None else int(source.times[source.rows[rows[i]]]),
                start_ms=start_ms,
                end_ms=ends[i],
                timing=FiringTime.FINAL if source is None else FiringTime.EARLY,
                row=None if source is None else int(source.rows[rows[i]]),
                values={c: values[c][i] for c in own},
                incomplete=start_ms < max(self.metadata.since_ms[n] for n in [*own, member.rows]),
            )

    def _in_order(self, windows: Windows, hits: RuleHits) -> Ints:
        """Return the order of hits by event, window, key hash and rule.

        Key slots must not decide: another process that replays the cut assigns other key slots.
        """
        at = hits.row
        hashes = self.panes.keys.hashes[windows.key_slots[at]]
        order: Ints = np.lexsort((hits.member, hashes, windows.end_panes[at], windows.row[at]))
        return order

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all panes, keys and distinct values (see ``StateHolder``)."""
        return sum((table.state_size for table in self.distinct.values()), self.panes.state_size)

    def state_use(self, watermark_ms: int) -> StateUse:
        """Return the size of the panes that hold events of each rule, and of its distinct values."""
        first = self._first_kept_pane(watermark_ms)
        kept = (self.panes.runs.codes() & PANE_MASK) >= first
        counters = {rows_column(rule) for rule in self.rules}
        masks = {name: kept & (self.panes.runs.column(f"{name}.n") > 0) for name in sorted(counters)}
        every = np.logical_or.reduce([kept & False, *masks.values()])
        panes = self.panes.state_sizes({"": every, **masks})
        distinct = {c: t.measure_living(lambda codes: (codes & PANE_MASK) >= first) for c, t in self.distinct.items()}
        by_rule = {
            version_name(rule): sum(
                (distinct[s.column] for s in rule.aggregates if s.column in distinct), panes[rows_column(rule)]
            )
            for rule in self.rules
        }
        return StateUse(sum(distinct.values(), panes[""]), by_rule)

    def metrics(self) -> Mapping[str, int]:
        """Return no metrics: no limit drops entries."""
        return {}

    def tables(self) -> dict[str, StateTable]:
        """Return the group's tables by name."""
        tables: dict[str, StateTable] = {f"panes:{self.group}": self.panes}
        return tables | {f"distinct:{self.group}:{name}": table for name, table in self.distinct.items()}

    def table(self, name: str) -> StateTable:
        """Return the table of that name, created if needed."""
        content, _, *column = name.split(":")
        return self.panes if content == "panes" else self.distinct_table(column[0])
