"""A group of rules whose windows each belong to one lane: sessions, and windows of so many events.

The group gives every lane its own events and its rules; a lane works out what would fire without changing anything,
and only when no rule of any lane failed are all of them told to keep what they worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import polars as pl

from rulecore.compiled import CompiledRule
from rulecore.firing import Failure, Firing
from rulecore.groups import GroupId, Moment
from rulecore.lanes import LaneSpec, Own, lane_specs, owned
from rulecore.members import DTYPES, GroupMemory, panes_of, rows_column
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema
from streamcore.state import KeyValueTable, StateTable


class Prepared(Protocol):
    """What a lane worked out."""

    @property
    def failures(self) -> Sequence[Failure]:
        """Whose rules failed."""
        ...

    def keep(self) -> list[Firing]:
        """Apply it, which no failure forbids; what fires, by event and rule."""
        ...


class Lane(Protocol):
    """The windows of the events that satisfy one `where`."""

    def set_spec(self, spec: LaneSpec) -> None:
        """Evaluate these rules from now on, and keep their aggregates."""
        ...

    def clear_fired(self, bit: int) -> None:
        """Forget where this bit's rule has fired."""
        ...

    def add(self, own: Own, moment: Moment) -> Prepared:
        """The lane's own events arrive."""
        ...

    def close(self, moment: Moment) -> Prepared:
        """The watermark goes to ``moment.next_watermark_ms``."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """The lane's tables, by what they hold."""
        ...

    def table(self, what: str) -> StateTable:
        """The table of that name, made if need be."""
        ...


#: Makes an empty lane: the columns of the key, the group's unit, the limits.
MakeLane = Callable[[Mapping[str, pl.DataType], int, GroupSettings], Lane]


class LaneGroup:
    """The lanes of one group. A lane is named by its `where` and the event time at which it began to be kept, so rows
    of one that was given up are never taken for those of a later one."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings, make: MakeLane) -> None:
        self.group = group
        self.settings = settings
        self.make = make
        fields = [schema.get(name) for name in group.group_by]
        self.dtypes = {f.name: DTYPES[f.type.kind] for f in fields if f is not None}
        self.lanes: dict[str, Lane] = {}
        self.specs: dict[str, LaneSpec] = {}

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, _watermark_ms: int) -> None:
        """Evaluate these rules from now on. ``now_ms``: the latest event time seen before, for what starts empty."""
        kept = GroupMemory.from_json(memory.get(str(self.group)))
        names = {n for r in rules for n in (rows_column(r), *(s.column for s in r.aggregates))}
        panes = max(panes_of(rule) for rule in rules)
        grown = panes > kept.panes > 0
        kept.since_ms = {n: now_ms if grown else kept.since_ms.get(n, now_ms) for n in sorted(names)}
        kept.panes = panes
        freed = kept.give_bits(rules)
        memory.put(str(self.group), kept.to_json())
        self.specs = {_name(spec, kept): spec for spec in lane_specs(rules, kept).values()}
        self.lanes = {name: self._lane(name) for name in self.specs}
        for name, lane in self.lanes.items():
            for bit in freed:
                lane.clear_fired(bit)
            lane.set_spec(self.specs[name])

    def _lane(self, name: str) -> Lane:
        if name not in self.lanes:
            self.lanes[name] = self.make(self.dtypes, self.group.unit, self.settings)
        return self.lanes[name]

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Take the events in, on time and in order of arrival."""
        if not frame.height:
            return [], []
        rows, failures = owned(frame, [*self.specs.values()])
        prepared = []
        for (name, spec), row in zip(self.specs.items(), rows, strict=not failures):
            if row.size:
                own, broken = spec.own(frame, row, [*self.dtypes])
                failures += broken
                if not failures:
                    prepared.append(self.lanes[name].add(own, moment))
        return _settled(prepared, failures)

    def close(self, moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Fire what the watermark ends, and forget what is over."""
        return _settled([lane.close(moment) for lane in self.lanes.values()], [])

    # --- state --------------------------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, int]:
        """Nothing is dropped but by time."""
        return {}

    def tables(self) -> dict[str, StateTable]:
        """The tables of all lanes by name."""
        return {
            f"{what}:{self.group}:{name}": table
            for name, lane in self.lanes.items()
            for what, table in lane.tables().items()
        }

    def table(self, name: str) -> StateTable:
        """The table of that name, made if need be."""
        what, _, lane = name.split(":")
        return self._lane(lane).table(what)


def _name(spec: LaneSpec, kept: GroupMemory) -> str:
    return f"{spec.name}@{kept.since_ms[spec.name]}"


def _settled(prepared: Sequence[Prepared], failures: Sequence[Failure]) -> tuple[list[Firing], list[Failure]]:
    failed = [*failures, *(f for one in prepared for f in one.failures)]
    if failed:
        return [], failed
    firings = [firing for one in prepared for firing in one.keep()]
    return sorted(firings, key=lambda f: -1 if f.row is None else f.row), []
