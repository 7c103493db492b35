"""The kernel of the stage for features: events by the keys of features in, their values at each event out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import polars as pl

from rulecore.compile.rule import STAGE_FAMILIES, CompiledRule
from rulecore.documents.rule import RuleMode
from rulecore.feature_stage.exchanges import FACTS, FIRST_ROUTE, values_rows
from rulecore.feature_stage.rows import StageFacts, values_for
from rulecore.groups.base import GroupId
from rulecore.groups.features.stage import StageFeatures
from rulecore.key_columns import Key, KeyColumn
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.list_columns import ListColumn, distinct
from rulecore.rule_stage import RuleStage
from rulecore.streams import stream_names
from streamcore.kernel import Cut, KernelOutput, StreamKey
from streamcore.schema import EVENT_MS
from streamcore.wire.lanes import Record


class FeatureKernel(RuleStage):
    """The ``Kernel`` of the stage on one shard. A group has the features of one key of a stream, of all rules of other
    keys that read them, and those that are published.

    A rule of which a feature fails or whose state is too large goes into quarantine, and the rules kernel is told.
    """

    metadata_table = "feature_groups"
    first_route = FIRST_ROUTE

    def _holds(self, kind: str) -> bool:
        return kind in STAGE_FAMILIES.values()

    def _groups_of_rule(self, rule: CompiledRule) -> Iterable[tuple[GroupId, CompiledRule]]:
        for key in self._keys_of_rule(rule):
            features = tuple(one for one in rule.stage_features if one.route_key == key)
            # The condition is that of all its features: with those of one key it would seem to read no other.
            yield GroupId.for_features(rule, key), replace(rule, features=features, where=rule.event_condition)

    def _keys_of_rule(self, rule: CompiledRule) -> Iterable[Key]:
        return sorted({one.route_key for one in rule.stage_features})

    def _find_columns(self, stream: str) -> tuple[KeyColumn | ListColumn, ...]:
        reading = [rule for rule in self.rules.with_state() if rule.rule.on == stream and rule.stage_features]
        return distinct(column for rule in reading for column in rule.columns)

    # --- a cut --------------------------------------------------------------------------------------------------

    def step(self, cut: Cut) -> KernelOutput:
        """Process a cut: control records, then the events of each group. The next stage answers the records."""
        self.published = ()
        before = self._aggregate_columns()
        self._apply_control(cut)
        contents = self.lists.contents(cut.clock_ms)
        events = {
            key: with_list_columns(frame, self.added_columns.get(key.stream, ()), contents)
            for key, frame in (*cut.events.items(), *self._union_events(cut.events))
        }
        records: list[Record] = []
        rows: dict[StreamKey, list[pl.DataFrame]] = {}
        for group_id in sorted(self.groups, key=str):
            if group_id in self.groups:  # the last rule of a group may go into quarantine
                frame = events.get(self._routed(group_id.stream, group_id.group_by))
                records += self._group_records(cut, group_id, frame, rows)
        records += self._enforce_budgets(cut.next_watermark_ms)
        joined = {key: pl.concat(frames, how="diagonal") for key, frames in rows.items()}
        joined[FACTS] = self._facts(before, is_first=cut.shard == 0).to_rows()
        return KernelOutput(records, rows=joined, counters=self._take_counters())

    def _group_records(
        self, cut: Cut, group_id: GroupId, frame: pl.DataFrame | None, rows: dict[StreamKey, list[pl.DataFrame]]
    ) -> list[Record]:
        """Add the events that are not late to a group, and the values at these events to ``rows``; return what rules
        in quarantine are reported with."""
        group, context = self.groups[group_id], self._cut_context(cut, group_id.stream)
        assert isinstance(group, StageFeatures), "make_group creates no other for the kinds of this stage"
        records: list[Record] = []
        if frame is not None:
            on_time = frame.filter(pl.col(EVENT_MS) >= cut.watermark_ms)
            records += self._run_until_valid(group, lambda: group.add(on_time, context))[1]
        records += self._run_until_valid(group, lambda: group.close(context))[1]
        found = group.take_events()
        if found is None or not found.height:
            return records
        first = stream_names(group_id.stream)[0]
        to = values_rows(first, [*self._routes[first]].index(group_id.group_by))
        for target, rules in _targets(group.rules).items():
            rows.setdefault(to, []).append(values_for(target, rules, found))
        return records

    def _facts(self, before: frozenset[str], *, is_first: bool) -> StageFacts:
        """Return the facts of this shard. ``before``: the features before this cut. ``is_first``: whether it says what
        all shards know."""
        since_ms: Mapping[str, int] = {}
        for group in self.groups.values() if is_first else ():
            assert isinstance(group, StageFeatures)
            since_ms = {**since_ms, **group.all_since_ms()}
        quarantined = {name: self.rules.quarantined[name] for name in self.rules.unconfirmed}
        return StageFacts(since_ms, frozenset(since_ms.keys() - before), quarantined)


def _targets(rules: Iterable[CompiledRule]) -> Mapping[GroupId, list[CompiledRule]]:
    """Return the evaluated rules by the group in which the next stage evaluates them. A published feature has none."""
    found: dict[GroupId, list[CompiledRule]] = {}
    for rule in rules:
        if rule.rule.status is not RuleMode.PAUSED:
            found.setdefault(GroupId(rule.family, rule.rule.on, rule.state_key), []).append(rule)
    return found
