"""The common part of the groups of session windows and count windows: each window belongs to one subgroup.

A subgroup is the rules of a group with an equal ``where``. The group passes each subgroup its rules and its events. The
subgroup computes its firings without changing state; the group commits all updates only if no rule failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.subgroups import MatchedEvents, SubgroupSpec, match_events, subgroup_specs
from rulecore.groups.windows.members import GroupMetadata, rows_column, version_name, window_panes
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize, StateUse
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import StreamSchema
from streamcore.state import KeyValueTable, StateTable


class PreparedUpdate(Protocol):
    """The change of state that a subgroup has computed and not yet applied."""

    @property
    def failures(self) -> Sequence[RuleFailure]:
        """The rules that failed."""
        ...

    def commit(self) -> list[RuleFiring]:
        """Apply the change, and return the firings by event and rule. Called only if no rule of the group failed."""
        ...


class Subgroup(Protocol):
    """The windows of the events that satisfy one ``where``."""

    def set_spec(self, spec: SubgroupSpec) -> None:
        """Evaluate exactly these rules from now on, and keep exactly their aggregates."""
        ...

    def clear_fired(self, bit: int) -> None:
        """Clear this fired bit in all windows, before it is assigned to another rule version."""
        ...

    def add(self, events: MatchedEvents, context: CutContext) -> PreparedUpdate:
        """Compute the change that events of the subgroup make."""
        ...

    def close(self, context: CutContext) -> PreparedUpdate:
        """Compute the change that advancing the watermark to ``context.next_watermark_ms`` makes."""
        ...

    def state_size(self) -> StateSize:
        """Return the size of the subgroup's state, or more, in constant time."""
        ...

    def state_parts(self) -> tuple[StateSize, Mapping[str, StateSize]]:
        """Return the exact size of the windows, and that of the values of each ``count_distinct``."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return the subgroup's tables by content, the first part of a table's name in the group."""
        ...

    def table(self, content: str) -> StateTable:
        """Return the table of that content, created if needed."""
        ...


#: Creates an empty subgroup from the types of the key columns, ``GroupId.unit`` and the limits.
SubgroupFactory = Callable[[Mapping[str, pl.DataType], int, GroupSettings], Subgroup]


class SubgroupedWindows:
    """A ``RuleGroup`` of subgroups.

    The name of a subgroup is the fingerprint of its ``where`` with the event time from which it is complete, so rows of
    a deleted subgroup cannot be mistaken for those of a later one.
    """

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings, factory: SubgroupFactory) -> None:
        self.group = group
        self.settings = settings
        self._factory = factory
        fields = [schema.get(name) for name in group.group_by]
        self.dtypes = {f.name: polars_type(f.type) for f in fields if f is not None}
        self.subgroups: dict[str, Subgroup] = {}
        self.specs: dict[str, SubgroupSpec] = {}

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, _watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``)."""
        metadata = GroupMetadata.from_json(memory.get(str(self.group)))
        names = {n for r in rules for n in (rows_column(r), *(s.column for s in r.aggregates))}
        panes = max(window_panes(rule) for rule in rules)
        grown = panes > metadata.panes > 0
        metadata.since_ms = {n: now_ms if grown else metadata.since_ms.get(n, now_ms) for n in sorted(names)}
        metadata.panes = panes
        freed_bits = metadata.assign_bits(rules)
        memory.put(str(self.group), metadata.to_json())
        self.specs = {_subgroup_name(spec, metadata): spec for spec in subgroup_specs(rules, metadata).values()}
        self.subgroups = {name: self._subgroup(name) for name in self.specs}
        for name, subgroup in self.subgroups.items():
            for bit in freed_bits:
                subgroup.clear_fired(bit)
            subgroup.set_spec(self.specs[name])

    def _subgroup(self, name: str) -> Subgroup:
        """Return the subgroup of that name, created if needed."""
        if name not in self.subgroups:
            self.subgroups[name] = self._factory(self.dtypes, self.group.unit, self.settings)
        return self.subgroups[name]

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Add events that are not late, in order of arrival."""
        if not frame.height:
            return [], []
        rows, failures = match_events(frame, [*self.specs.values()])
        updates = []
        for (name, spec), row in zip(self.specs.items(), rows, strict=not failures):
            if row.size:
                own_events, failed_rules = spec.select_events(frame, row, [*self.dtypes])
                failures += failed_rules
                if not failures:
                    updates.append(self.subgroups[name].add(own_events, context))
        return _commit_all(updates, failures)

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Fire the windows that the watermark ends, and drop expired state."""
        return _commit_all([subgroup.close(context) for subgroup in self.subgroups.values()], [])

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of the windows of all subgroups (see ``StateHolder``)."""
        return sum((subgroup.state_size() for subgroup in self.subgroups.values()), StateSize())

    def state_use(self, _watermark_ms: int) -> StateUse:
        """Return the size of the windows that each rule reads, and of its distinct values."""
        total, by_rule = StateSize(), {}
        for name, spec in self.specs.items():
            windows, distinct = self.subgroups[name].state_parts()
            total = sum(distinct.values(), total + windows)
            for rule in spec.rules:
                own = (distinct[s.column] for s in rule.aggregates if s.column in distinct)
                by_rule[version_name(rule)] = sum(own, windows)
        return StateUse(total, by_rule)

    def metrics(self) -> Mapping[str, int]:
        """Return no metrics: no limit drops entries."""
        return {}

    def tables(self) -> dict[str, StateTable]:
        """Return the tables of all subgroups by name."""
        return {
            f"{content}:{self.group}:{name}": table
            for name, subgroup in self.subgroups.items()
            for content, table in subgroup.tables().items()
        }

    def table(self, name: str) -> StateTable:
        """Return the table of that name, created if needed."""
        content, _, subgroup = name.split(":")
        return self._subgroup(subgroup).table(content)


def _subgroup_name(spec: SubgroupSpec, metadata: GroupMetadata) -> str:
    """Return the name of a subgroup in the names of its tables."""
    return f"{spec.name}@{metadata.since_ms[spec.name]}"


def _commit_all(
    updates: Sequence[PreparedUpdate], failures: Sequence[RuleFailure]
) -> tuple[list[RuleFiring], list[RuleFailure]]:
    """Commit all updates and return their firings by event; if a rule failed, commit none and return the failures."""
    failed = [*failures, *(f for update in updates for f in update.failures)]
    if failed:
        return [], failed
    firings = [firing for update in updates for firing in update.commit()]
    return sorted(firings, key=lambda f: -1 if f.row is None else f.row), []
