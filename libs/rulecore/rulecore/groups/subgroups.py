"""The shared part of session and count windows: the events that satisfy one `where` make windows of their events.

Rules of a group that have the same `where` share a subgroup: its windows, and under their fingerprints its aggregates.
A subgroup selects its own events and their contributions; ``sessions`` and ``counts`` make windows of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compile.rule import AggregateSpec, CompiledRule
from rulecore.documents.rule import Emit, RuleMode
from rulecore.firing import FiringTime, RuleFailure, RuleFiring
from rulecore.groups.windows import Aggregation
from rulecore.groups.windows.aggregation import Array
from rulecore.groups.windows.having import Having, RuleHits
from rulecore.groups.windows.members import (
    DTYPES,
    EVALUATION_ERRORS,
    GroupMember,
    GroupMetadata,
    argument_kind,
    argument_type,
    evaluation_error,
    rows_column,
    to_member,
    version_name,
)
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from streamcore.columnar.key_slots import KeySlots
from streamcore.schema import EVENT_MS, OFFSET, PARTITION

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchedEvents:
    """A subgroup's own events, in order of arrival.

    Their places in the cut's frame; the key columns, partition and offset; and their contributions: an array a
    partial, and for a distinct count a list of values (None: nothing to count).
    """

    row: Ints
    times: Ints
    frame: pl.DataFrame
    values: Mapping[str, Array]
    distinct: Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class WindowSnapshots:
    """Windows as rules saw them, a row each: after an event (``row``: its place in the frame) or at the end (-1)."""

    row: Ints
    slots: Ints
    start_ms: Ints
    end_ms: Ints
    totals: Mapping[str, Array]
    counts: Mapping[str, Ints]

    def select(self, some: Ints) -> WindowSnapshots:
        """Return some of the rows."""
        totals = {n: v[some] for n, v in self.totals.items()}
        counts = {n: v[some] for n, v in self.counts.items()}
        return WindowSnapshots(self.row[some], self.slots[some], self.start_ms[some], self.end_ms[some], totals, counts)


class SubgroupSpec:
    """The rules of one subgroup, and the state kept for them."""

    def __init__(
        self, rules: Sequence[CompiledRule], members: Sequence[GroupMember], since_ms: Mapping[str, int]
    ) -> None:
        self.name = rows_column(rules[0])
        self.where: Expr | None = rules[0].where
        self.rules = tuple(rules)
        self.since_ms = since_ms
        self.specs: dict[str, AggregateSpec] = {s.column: s for r in rules for s in r.aggregates}
        numeric = [self.specs[c] for c in sorted(self.specs) if self.specs[c].function != "count_distinct"]
        self.aggregations = {s.column: Aggregation(s.column, s.function, argument_type(s)) for s in numeric}
        sets = [self.specs[c] for c in sorted(self.specs) if self.specs[c].function == "count_distinct"]
        self.distinct = {s.column: DTYPES[argument_kind(s)] for s in sets}
        alike: dict[tuple[Emit, int], list[GroupMember]] = {}
        for member in members:
            alike.setdefault((member.rule.rule.emit, member.panes), []).append(member)
        self.having = {how: Having(some) for how, some in sorted(alike.items())}

    def expressions(self, column: str) -> list[pl.Expr]:
        """Return the contributions of an event to an aggregate; for a distinct count a column of values."""
        argument = self.specs[column].argument
        value = None if argument is None else to_polars(argument)
        every = pl.col(EVENT_MS).is_not_null()  # gives a literal the frame's height
        if column in self.aggregations:
            return self.aggregations[column].contributions(every, value)
        assert value is not None, "a distinct count has an argument"
        return [pl.when(every).then(value).alias(column)]

    def select_events(
        self, frame: pl.DataFrame, row: Ints, keys: Sequence[str]
    ) -> tuple[MatchedEvents, list[RuleFailure]]:
        """Select the events at these rows, which satisfy `where`, with their contributions."""
        mine = frame[row]
        failures: list[RuleFailure] = []
        try:
            columns = mine.select([e for column in self.specs for e in self.expressions(column)])
        except EVALUATION_ERRORS:
            failures = self._failures_for(
                {c: reason for c in self.specs if (reason := self._evaluation_error(mine, c))}
            )
            columns = mine.select([])
        values = {n: columns[n].to_numpy() for n in columns.columns if n not in self.distinct}
        distinct = {n: columns[n].to_list() for n in columns.columns if n in self.distinct}
        return MatchedEvents(
            row, mine[EVENT_MS].to_numpy(), mine.select(*keys, PARTITION, OFFSET), values, distinct
        ), failures

    def _evaluation_error(self, frame: pl.DataFrame, column: str) -> str | None:
        try:
            return evaluation_error(frame, self.expressions(column))
        except EVALUATION_ERRORS as error:
            return f"{type(error).__name__}: {error}"

    def _failures_for(self, broken: Mapping[str, str]) -> list[RuleFailure]:
        """Return every rule that needs a broken aggregate, with the first reason."""
        found = [(r, [s.column for s in r.aggregates if s.column in broken]) for r in self.rules]
        return [RuleFailure(rule, broken[columns[0]]) for rule, columns in found if columns]

    def evaluate(
        self, having: Having, snapshots: WindowSnapshots, keys: KeySlots
    ) -> tuple[RuleHits, list[RuleFailure]]:
        """Return which conditions are true of which rows."""
        results = [
            self.aggregations[n].result(snapshots.totals) for n in sorted(having.needs & self.aggregations.keys())
        ]
        results += [pl.Series(n, snapshots.counts[n]) for n in sorted(having.needs & snapshots.counts.keys())]
        frame = pl.DataFrame(results)
        if having.needs & keys.dtypes.keys():
            frame = frame.hstack(keys.frame(snapshots.slots))
        return having.evaluate(frame)

    def values(self, hits: RuleHits, having: Having, snapshots: WindowSnapshots) -> Mapping[str, list[object]]:
        """Return by column of the rules that hit: its physical value in every row of ``seen``."""
        shown = sorted({s.column for n in np.unique(hits.member).tolist() for s in having.members[n].rule.aggregates})
        return {
            c: self.aggregations[c].result(snapshots.totals).to_list()
            if c in self.aggregations
            else snapshots.counts[c].tolist()
            for c in shown
        }

    def since(self, rule: CompiledRule) -> int:
        """Return the event time from which on all aggregates of the rule are complete."""
        return max(self.since_ms[n] for n in [*(s.column for s in rule.aggregates), self.name])


@dataclass(frozen=True, slots=True)
class FiringDetails:
    """The details of one hit that its row does not hold."""

    mark: tuple[object, ...]
    time_ms: int
    timing: FiringTime
    incomplete: bool


def firings(
    spec: SubgroupSpec,
    having: Having,
    hits: RuleHits,
    snapshots: WindowSnapshots,
    keys: KeySlots,
    details: Sequence[FiringDetails],
) -> Iterator[RuleFiring]:
    """Yield a firing for each hit; ``details`` are in the order of the hits."""
    if not len(hits.row):
        return
    at, place = np.unique(hits.row, return_inverse=True)
    some = snapshots.select(at)
    values = spec.values(hits, having, some)
    key = keys.frame(some.slots).to_dicts() if keys.dtypes else [{}] * len(at)
    for number, i, detail in zip(hits.member.tolist(), place.tolist(), details, strict=True):
        rule, row = having.members[number].rule, int(some.row[i])
        yield RuleFiring(
            rule=rule,
            key=key[i],
            mark=detail.mark,
            time_ms=detail.time_ms,
            start_ms=int(some.start_ms[i]),
            end_ms=int(some.end_ms[i]),
            timing=detail.timing,
            row=None if row < 0 else row,
            values={s.column: values[s.column][i] for s in rule.aggregates},
            incomplete=detail.incomplete,
        )


def match_events(frame: pl.DataFrame, subgroups: Sequence[SubgroupSpec]) -> tuple[list[Ints], list[RuleFailure]]:
    """Return for each subgroup the rows of its own events; on an error, whose fault it is."""
    try:
        wheres = [_where(subgroup).alias(subgroup.name) for subgroup in subgroups]
        found = frame.select(wheres)
        return [np.flatnonzero(found[subgroup.name].to_numpy()) for subgroup in subgroups], []
    except EVALUATION_ERRORS:
        broken = [(subgroup, reason) for subgroup in subgroups if (reason := _evaluation_error(frame, subgroup))]
        return [], [RuleFailure(rule, reason) for subgroup, reason in broken for rule in subgroup.rules]


def _where(subgroup: SubgroupSpec) -> pl.Expr:
    every = pl.col(EVENT_MS).is_not_null()
    return every if subgroup.where is None else to_polars(subgroup.where).fill_null(value=False) & every


def _evaluation_error(frame: pl.DataFrame, subgroup: SubgroupSpec) -> str | None:
    try:
        return evaluation_error(frame, [_where(subgroup)])
    except EVALUATION_ERRORS as error:
        return f"{type(error).__name__}: {error}"


def subgroup_specs(rules: Sequence[CompiledRule], metadata: GroupMetadata) -> dict[str, SubgroupSpec]:
    """Return the subgroups of these rules by name. Paused rules keep their aggregates and are not evaluated."""
    alike: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        alike.setdefault(rows_column(rule), []).append(rule)
    specs = {}
    for name, some in sorted(alike.items()):
        members = [to_member(r, metadata.bits[version_name(r)]) for r in some if r.rule.status is not RuleMode.PAUSED]
        specs[name] = SubgroupSpec(some, members, metadata.since_ms)
    return specs
