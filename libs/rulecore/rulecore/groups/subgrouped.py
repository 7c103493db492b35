"""A group of rules whose windows each belong to one subgroup: sessions, and windows of so many events.

The group gives every subgroup its own events and its rules; a subgroup computes the firings without changing
anything, and only when no rule of any subgroup failed are all updates committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.subgroups import MatchedEvents, SubgroupSpec, match_events, subgroup_specs
from rulecore.groups.windows.members import DTYPES, GroupMetadata, rows_column, window_panes
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema
from streamcore.state import KeyValueTable, StateTable


class PreparedUpdate(Protocol):
    """The update that a subgroup computed and has not applied yet."""

    @property
    def failures(self) -> Sequence[RuleFailure]:
        """Whose rules failed."""
        ...

    def commit(self) -> list[RuleFiring]:
        """Apply the update once nothing has failed; return the firings, by event and rule."""
        ...


class Subgroup(Protocol):
    """The windows of the events that satisfy one `where`."""

    def set_spec(self, spec: SubgroupSpec) -> None:
        """Evaluate these rules from now on, and keep their aggregates."""
        ...

    def clear_fired(self, bit: int) -> None:
        """Forget where this bit's rule has fired."""
        ...

    def add(self, events: MatchedEvents, context: CutContext) -> PreparedUpdate:
        """Process the events of the subgroup."""
        ...

    def close(self, context: CutContext) -> PreparedUpdate:
        """Advance the watermark to ``context.next_watermark_ms``."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return the subgroup's tables, by their content."""
        ...

    def table(self, what: str) -> StateTable:
        """Return the table of that name, created if needed."""
        ...


#: Makes an empty subgroup: the columns of the key, the group's unit, the limits.
SubgroupFactory = Callable[[Mapping[str, pl.DataType], int, GroupSettings], Subgroup]


class SubgroupedWindows:
    """The subgroups of one group.

    A subgroup is named by its `where` and the event time at which it began to be kept, so rows of one that was
    given up are never taken for those of a later one.
    """

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings, make: SubgroupFactory) -> None:
        self.group = group
        self.settings = settings
        self.make = make
        fields = [schema.get(name) for name in group.group_by]
        self.dtypes = {f.name: DTYPES[f.type.kind] for f in fields if f is not None}
        self.subgroups: dict[str, Subgroup] = {}
        self.specs: dict[str, SubgroupSpec] = {}

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, _watermark_ms: int) -> None:
        """Evaluate these rules from now on. ``now_ms``: the latest event time so far, for state that starts empty."""
        metadata = GroupMetadata.from_json(memory.get(str(self.group)))
        names = {n for r in rules for n in (rows_column(r), *(s.column for s in r.aggregates))}
        panes = max(window_panes(rule) for rule in rules)
        grown = panes > metadata.panes > 0
        metadata.since_ms = {n: now_ms if grown else metadata.since_ms.get(n, now_ms) for n in sorted(names)}
        metadata.panes = panes
        freed = metadata.assign_bits(rules)
        memory.put(str(self.group), metadata.to_json())
        self.specs = {_name(spec, metadata): spec for spec in subgroup_specs(rules, metadata).values()}
        self.subgroups = {name: self._lane(name) for name in self.specs}
        for name, subgroup in self.subgroups.items():
            for bit in freed:
                subgroup.clear_fired(bit)
            subgroup.set_spec(self.specs[name])

    def _lane(self, name: str) -> Subgroup:
        if name not in self.subgroups:
            self.subgroups[name] = self.make(self.dtypes, self.group.unit, self.settings)
        return self.subgroups[name]

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Take the events in, on time and in order of arrival."""
        if not frame.height:
            return [], []
        rows, failures = match_events(frame, [*self.specs.values()])
        updates = []
        for (name, spec), row in zip(self.specs.items(), rows, strict=not failures):
            if row.size:
                own, broken = spec.select_events(frame, row, [*self.dtypes])
                failures += broken
                if not failures:
                    updates.append(self.subgroups[name].add(own, context))
        return _commit_all(updates, failures)

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Fire the windows that the watermark ends, and drop expired state."""
        return _commit_all([subgroup.close(context) for subgroup in self.subgroups.values()], [])

    # --- state --------------------------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, int]:
        """Return no metrics: only time drops entries."""
        return {}

    def tables(self) -> dict[str, StateTable]:
        """Return the tables of all subgroups by name."""
        return {
            f"{what}:{self.group}:{name}": table
            for name, subgroup in self.subgroups.items()
            for what, table in subgroup.tables().items()
        }

    def table(self, name: str) -> StateTable:
        """Return the table of that name, created if needed."""
        what, _, subgroup = name.split(":")
        return self._lane(subgroup).table(what)


def _name(spec: SubgroupSpec, metadata: GroupMetadata) -> str:
    return f"{spec.name}@{metadata.since_ms[spec.name]}"


def _commit_all(
    updates: Sequence[PreparedUpdate], failures: Sequence[RuleFailure]
) -> tuple[list[RuleFiring], list[RuleFailure]]:
    failed = [*failures, *(f for update in updates for f in update.failures)]
    if failed:
        return [], failed
    firings = [firing for update in updates for firing in update.commit()]
    return sorted(firings, key=lambda f: -1 if f.row is None else f.row), []
