"""What session and count windows have in common: the events that satisfy one `where` make windows of their own.

Rules of a group that have the same `where` share a lane: its windows, and under their fingerprints its aggregates.
A lane says which events are its own and what each contributes; ``sessions`` and ``counted`` say what windows they make.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.compiled import AggregateSpec, CompiledRule
from rulecore.firing import Failure, Firing, Timing
from rulecore.having import Having, Hits
from rulecore.lang import Expr
from rulecore.lang.compile import to_polars
from rulecore.members import (
    DTYPES,
    EVALUATION_ERRORS,
    GroupMemory,
    Member,
    argument_kind,
    argument_type,
    member_of,
    raises,
    rows_column,
    version_of,
)
from rulecore.model import Emit, Mode
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.windows import Aggregation, KeyIndex
from streamcore.windows.aggregates import Array

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Own:
    """A lane's own events, in order of arrival: their places in the cut's frame; the key columns, partition and offset;
    and what they contribute: an array a partial, and for a distinct count a list of values (None: nothing to count).
    """

    row: Ints
    times: Ints
    frame: pl.DataFrame
    values: Mapping[str, Array]
    distinct: Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True)
class Seen:
    """Windows as rules saw them, a row each: after an event (``row``: its place in the frame) or at the end (-1)."""

    row: Ints
    slots: Ints
    start_ms: Ints
    end_ms: Ints
    totals: Mapping[str, Array]
    counts: Mapping[str, Ints]

    def kept(self, some: Ints) -> Seen:
        """Some of the rows."""
        totals = {n: v[some] for n, v in self.totals.items()}
        counts = {n: v[some] for n, v in self.counts.items()}
        return Seen(self.row[some], self.slots[some], self.start_ms[some], self.end_ms[some], totals, counts)


class LaneSpec:
    """The rules of one lane, and what is kept for them."""

    def __init__(self, rules: Sequence[CompiledRule], members: Sequence[Member], since_ms: Mapping[str, int]) -> None:
        self.name = rows_column(rules[0])
        self.where: Expr | None = rules[0].where
        self.rules = tuple(rules)
        self.since_ms = since_ms
        self.specs: dict[str, AggregateSpec] = {s.column: s for r in rules for s in r.aggregates}
        numeric = [self.specs[c] for c in sorted(self.specs) if self.specs[c].function != "count_distinct"]
        self.aggregations = {s.column: Aggregation(s.column, s.function, argument_type(s)) for s in numeric}
        sets = [self.specs[c] for c in sorted(self.specs) if self.specs[c].function == "count_distinct"]
        self.distinct = {s.column: DTYPES[argument_kind(s)] for s in sets}
        alike: dict[tuple[Emit, int], list[Member]] = {}
        for member in members:
            alike.setdefault((member.rule.rule.emit, member.panes), []).append(member)
        self.having = {how: Having(some) for how, some in sorted(alike.items())}

    def expressions(self, column: str) -> list[pl.Expr]:
        """What an own event contributes to an aggregate; columns of values for a distinct count."""
        argument = self.specs[column].argument
        value = None if argument is None else to_polars(argument)
        every = pl.col(EVENT_MS).is_not_null()  # gives a literal the frame's height
        if column in self.aggregations:
            return self.aggregations[column].contributions(every, value)
        assert value is not None, "a distinct count has an argument"
        return [pl.when(every).then(value).alias(column)]

    def own(self, frame: pl.DataFrame, row: Ints, keys: Sequence[str]) -> tuple[Own, list[Failure]]:
        """The events at these rows, which satisfy `where`, with what they contribute."""
        mine = frame[row]
        failures: list[Failure] = []
        try:
            columns = mine.select([e for column in self.specs for e in self.expressions(column)])
        except EVALUATION_ERRORS:
            failures = self._blamed({c: reason for c in self.specs if (reason := self._broken(mine, c))})
            columns = mine.select([])
        values = {n: columns[n].to_numpy() for n in columns.columns if n not in self.distinct}
        distinct = {n: columns[n].to_list() for n in columns.columns if n in self.distinct}
        return Own(row, mine[EVENT_MS].to_numpy(), mine.select(*keys, PARTITION, OFFSET), values, distinct), failures

    def _broken(self, frame: pl.DataFrame, column: str) -> str | None:
        try:
            return raises(frame, self.expressions(column))
        except EVALUATION_ERRORS as error:
            return f"{type(error).__name__}: {error}"

    def _blamed(self, broken: Mapping[str, str]) -> list[Failure]:
        """Every rule that needs a broken aggregate, with the first reason."""
        found = [(r, [s.column for s in r.aggregates if s.column in broken]) for r in self.rules]
        return [Failure(rule, broken[columns[0]]) for rule, columns in found if columns]

    def evaluate(self, having: Having, seen: Seen, keys: KeyIndex) -> tuple[Hits, list[Failure]]:
        """Which conditions are true of which rows."""
        results = [self.aggregations[n].result(seen.totals) for n in sorted(having.needs & self.aggregations.keys())]
        results += [pl.Series(n, seen.counts[n]) for n in sorted(having.needs & seen.counts.keys())]
        frame = pl.DataFrame(results)
        if having.needs & keys.dtypes.keys():
            frame = frame.hstack(keys.frame(seen.slots))
        return having.evaluate(frame)

    def values(self, hits: Hits, having: Having, seen: Seen) -> Mapping[str, list[object]]:
        """By column of the rules that hit: its physical value in every row of ``seen``."""
        shown = sorted({s.column for n in np.unique(hits.member).tolist() for s in having.members[n].rule.aggregates})
        return {
            c: self.aggregations[c].result(seen.totals).to_list() if c in self.aggregations else seen.counts[c].tolist()
            for c in shown
        }

    def since(self, rule: CompiledRule) -> int:
        """The event time from which on all that the rule looks at is complete."""
        return max(self.since_ms[n] for n in [*(s.column for s in rule.aggregates), self.name])


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of one hit, besides what its row says."""

    mark: tuple[object, ...]
    time_ms: int
    timing: Timing
    warming: bool


def firings(
    spec: LaneSpec, having: Having, hits: Hits, seen: Seen, keys: KeyIndex, told: Sequence[Told]
) -> Iterator[Firing]:
    """A firing a hit; ``told`` goes with the hits."""
    if not len(hits.row):
        return
    at, place = np.unique(hits.row, return_inverse=True)
    some = seen.kept(at)
    values = spec.values(hits, having, some)
    key = keys.frame(some.slots).to_dicts() if keys.dtypes else [{}] * len(at)
    for number, i, said in zip(hits.member.tolist(), place.tolist(), told, strict=True):
        rule, row = having.members[number].rule, int(some.row[i])
        yield Firing(
            rule=rule,
            key=key[i],
            mark=said.mark,
            time_ms=said.time_ms,
            start_ms=int(some.start_ms[i]),
            end_ms=int(some.end_ms[i]),
            timing=said.timing,
            row=None if row < 0 else row,
            values={s.column: values[s.column][i] for s in rule.aggregates},
            warming=said.warming,
        )


def owned(frame: pl.DataFrame, lanes: Sequence[LaneSpec]) -> tuple[list[Ints], list[Failure]]:
    """For each lane the rows of its own events; on an error, whose fault it is."""
    try:
        wheres = [_where(lane).alias(lane.name) for lane in lanes]
        found = frame.select(wheres)
        return [np.flatnonzero(found[lane.name].to_numpy()) for lane in lanes], []
    except EVALUATION_ERRORS:
        broken = [(lane, reason) for lane in lanes if (reason := _broken(frame, lane))]
        return [], [Failure(rule, reason) for lane, reason in broken for rule in lane.rules]


def _where(lane: LaneSpec) -> pl.Expr:
    every = pl.col(EVENT_MS).is_not_null()
    return every if lane.where is None else to_polars(lane.where).fill_null(value=False) & every


def _broken(frame: pl.DataFrame, lane: LaneSpec) -> str | None:
    try:
        return raises(frame, [_where(lane)])
    except EVALUATION_ERRORS as error:
        return f"{type(error).__name__}: {error}"


def lane_specs(rules: Sequence[CompiledRule], kept: GroupMemory) -> dict[str, LaneSpec]:
    """The lanes of these rules, by name; paused rules keep their aggregates and are not evaluated."""
    alike: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        alike.setdefault(rows_column(rule), []).append(rule)
    specs = {}
    for name, some in sorted(alike.items()):
        members = [member_of(r, kept.bits[version_of(r)]) for r in some if r.rule.status is not Mode.PAUSED]
        specs[name] = LaneSpec(some, members, kept.since_ms)
    return specs
