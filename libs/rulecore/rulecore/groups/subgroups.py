"""Subgroups: the rules of a group of session windows or count windows with an equal ``where``.

The rules of a subgroup share its windows, and the aggregates of these by fingerprint. This module selects the events of
a subgroup and what they add to aggregates; ``groups.sessions`` and ``groups.counts`` assign them to windows.
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
    EVALUATION_ERRORS,
    GroupMember,
    GroupMetadata,
    argument_type,
    evaluation_error,
    rows_column,
    to_member,
    version_name,
)
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from streamcore.columnar.key_slots import KeySlots
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import EVENT_MS, OFFSET, PARTITION

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchedEvents:
    """The events of a cut that satisfy the ``where`` of a subgroup, in order of arrival.

    ``row``: the row of each in the cut's frame. ``times``: event times. ``frame``: key columns, partition and offset.
    ``values``: by partial, what each event adds. ``distinct``: by ``count_distinct``, the value of each event or None.
    """

    row: Ints
    times: Ints
    frame: pl.DataFrame
    values: Mapping[str, Array]
    distinct: Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class WindowSnapshots:
    """Windows on which rules are evaluated, one per row: as they are just after an event, or when they end.

    ``row``: the row of the event in the cut's frame, -1 for a window that ends. ``totals``: combined partials.
    ``counts``: by ``count_distinct``, the number of values.
    """

    row: Ints
    key_slots: Ints
    start_ms: Ints
    end_ms: Ints
    totals: Mapping[str, Array]
    counts: Mapping[str, Ints]

    def select(self, at: Ints) -> WindowSnapshots:
        """Return the rows at these indexes."""
        totals = {n: v[at] for n, v in self.totals.items()}
        counts = {n: v[at] for n, v in self.counts.items()}
        return WindowSnapshots(self.row[at], self.key_slots[at], self.start_ms[at], self.end_ms[at], totals, counts)


class SubgroupSpec:
    """The rules of one subgroup, and the aggregates that they need.

    ``name``: the column that counts the subgroup's events. ``having``: the evaluated rules by ``emit`` and panes.
    """

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
        self.distinct = {s.column: polars_type(argument_type(s)) for s in sets}
        by_window: dict[tuple[Emit, int], list[GroupMember]] = {}
        for member in members:
            by_window.setdefault((member.rule.rule.emit, member.panes), []).append(member)
        self.having = {window: Having(alike) for window, alike in sorted(by_window.items())}

    def expressions(self, column: str) -> list[pl.Expr]:
        """Return the expressions of what an event adds to an aggregate; for ``count_distinct``, its value."""
        argument = self.specs[column].argument
        value = None if argument is None else to_polars(argument)
        every = pl.col(EVENT_MS).is_not_null()  # gives a literal the frame's height
        if column in self.aggregations:
            return self.aggregations[column].contributions(every, value)
        assert value is not None, "count_distinct has an argument"
        return [pl.when(every).then(value).alias(column)]

    def select_events(
        self, frame: pl.DataFrame, row: Ints, keys: Sequence[str]
    ) -> tuple[MatchedEvents, list[RuleFailure]]:
        """Return the events at these rows, which satisfy ``where``, and the rules that failed."""
        events = frame[row]
        failures: list[RuleFailure] = []
        try:
            columns = events.select([e for column in self.specs for e in self.expressions(column)])
        except EVALUATION_ERRORS:
            failures = self._failures_for(
                {c: reason for c in self.specs if (reason := self._evaluation_error(events, c))}
            )
            columns = events.select([])
        values = {n: columns[n].to_numpy() for n in columns.columns if n not in self.distinct}
        distinct = {n: columns[n].to_list() for n in columns.columns if n in self.distinct}
        return MatchedEvents(
            row, events[EVENT_MS].to_numpy(), events.select(*keys, PARTITION, OFFSET), values, distinct
        ), failures

    def _evaluation_error(self, frame: pl.DataFrame, column: str) -> str | None:
        """Return the error that computing an aggregate's expressions raises, None if it raises none."""
        try:
            return evaluation_error(frame, self.expressions(column))
        except EVALUATION_ERRORS as error:
            return f"{type(error).__name__}: {error}"

    def _failures_for(self, broken: Mapping[str, str]) -> list[RuleFailure]:
        """Return a failure for each rule that needs a failed aggregate. ``broken``: the error by column."""
        affected = [(r, [s.column for s in r.aggregates if s.column in broken]) for r in self.rules]
        return [RuleFailure(rule, broken[columns[0]]) for rule, columns in affected if columns]

    def evaluate(
        self, having: Having, snapshots: WindowSnapshots, keys: KeySlots
    ) -> tuple[RuleHits, list[RuleFailure]]:
        """Return the pairs of a window and a rule whose ``having`` is true, and the rules that failed."""
        results = [
            self.aggregations[n].result(snapshots.totals) for n in sorted(having.needs & self.aggregations.keys())
        ]
        results += [pl.Series(n, snapshots.counts[n]) for n in sorted(having.needs & snapshots.counts.keys())]
        frame = pl.DataFrame(results)
        if having.needs & keys.dtypes.keys():
            frame = frame.hstack(keys.frame(snapshots.key_slots))
        return having.evaluate(frame)

    def values(self, hits: RuleHits, having: Having, snapshots: WindowSnapshots) -> Mapping[str, list[object]]:
        """Return the physical values of the aggregates of the rules with hits, by column, for every row."""
        shown = sorted({s.column for n in np.unique(hits.member).tolist() for s in having.members[n].rule.aggregates})
        return {
            c: self.aggregations[c].result(snapshots.totals).to_list()
            if c in self.aggregations
            else snapshots.counts[c].tolist()
            for c in shown
        }

    def since(self, rule: CompiledRule) -> int:
        """Return the event time from which all aggregates of the rule are complete."""
        return max(self.since_ms[n] for n in [*(s.column for s in rule.aggregates), self.name])


@dataclass(frozen=True, slots=True)
class FiringDetails:
    """The contents of a firing besides its window: see ``RuleFiring``."""

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
    """Yield a firing for each hit. ``details``: one per hit."""
    if not len(hits.row):
        return
    at, inverse = np.unique(hits.row, return_inverse=True)
    windows = snapshots.select(at)
    values = spec.values(hits, having, windows)
    key = keys.frame(windows.key_slots).to_dicts() if keys.dtypes else [{}] * len(at)
    for number, i, detail in zip(hits.member.tolist(), inverse.tolist(), details, strict=True):
        rule, row = having.members[number].rule, int(windows.row[i])
        yield RuleFiring(
            rule=rule,
            key=key[i],
            mark=detail.mark,
            time_ms=detail.time_ms,
            start_ms=int(windows.start_ms[i]),
            end_ms=int(windows.end_ms[i]),
            timing=detail.timing,
            row=None if row < 0 else row,
            values={s.column: values[s.column][i] for s in rule.aggregates},
            incomplete=detail.incomplete,
        )


def match_events(frame: pl.DataFrame, subgroups: Sequence[SubgroupSpec]) -> tuple[list[Ints], list[RuleFailure]]:
    """Return for each subgroup the rows that satisfy its ``where``; or nothing, and the rules that failed."""
    try:
        wheres = [_where(subgroup).alias(subgroup.name) for subgroup in subgroups]
        truth = frame.select(wheres)
        return [np.flatnonzero(truth[subgroup.name].to_numpy()) for subgroup in subgroups], []
    except EVALUATION_ERRORS:
        broken = [(subgroup, reason) for subgroup in subgroups if (reason := _evaluation_error(frame, subgroup))]
        return [], [RuleFailure(rule, reason) for subgroup, reason in broken for rule in subgroup.rules]


def _where(subgroup: SubgroupSpec) -> pl.Expr:
    """Return the expression that is true for the subgroup's events."""
    every = pl.col(EVENT_MS).is_not_null()
    return every if subgroup.where is None else to_polars(subgroup.where).fill_null(value=False) & every


def _evaluation_error(frame: pl.DataFrame, subgroup: SubgroupSpec) -> str | None:
    """Return the error that evaluating the subgroup's ``where`` raises, None if it raises none."""
    try:
        return evaluation_error(frame, [_where(subgroup)])
    except EVALUATION_ERRORS as error:
        return f"{type(error).__name__}: {error}"


def subgroup_specs(rules: Sequence[CompiledRule], metadata: GroupMetadata) -> dict[str, SubgroupSpec]:
    """Return the subgroups of these rules by name. A paused rule keeps its aggregates and is not evaluated."""
    by_name: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        by_name.setdefault(rows_column(rule), []).append(rule)
    specs = {}
    for name, alike in sorted(by_name.items()):
        members = [to_member(r, metadata.bits[version_name(r)]) for r in alike if r.rule.status is not RuleMode.PAUSED]
        specs[name] = SubgroupSpec(alike, members, metadata.since_ms)
    return specs
