"""The group of all feature rules whose events one key of a stream routes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import orjson
import polars as pl

from rulecore.compile.feature import CompiledFeature
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleMode
from rulecore.firing import FiringTime, RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.feature_values import FeatureValues
from rulecore.groups.features.arrivals import Ints, Mask
from rulecore.groups.features.history import History, Reading, StoredFeature
from rulecore.groups.windows.members import EVALUATION_ERRORS, version_name
from rulecore.key_columns import keyed_schema
from rulecore.matching.matcher import EventMatcher
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize, StateUse
from streamcore.columnar.polars_types import polars_type
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import KeyValueTable, StateTable

_TABLE = "feature"


class _LoadedRows:
    """Rows that are loaded before the rules are known, and with them the columns of their table."""

    def __init__(self) -> None:
        self.frames: list[pl.DataFrame] = []

    def changes(self) -> pl.DataFrame:
        return pl.DataFrame()

    def rows(self, _bucket: int, _buckets: int) -> pl.DataFrame:
        return pl.DataFrame()

    def load(self, rows: pl.DataFrame) -> None:
        self.frames.append(rows)


class FeatureGroup:
    """Feature rules and their features: a ``RuleGroup``. Features with one set of key columns share a ``History``.
    Those of other keys are in a stage of their own (``GroupSettings.feature_stage``), which gives their values.

    ``since_ms``: by fingerprint of a feature, the event time from which it is complete. ``generation``: by fingerprint,
    how often the feature was given up; part of the name of its state, so that rows of a feature that was given up are
    never read as those of a later one.
    """

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.settings = settings
        self._schema = schema
        self._dtypes = {field.name: polars_type(field.type) for field in schema.fields}
        self._rules: tuple[CompiledRule, ...] = ()
        self._matcher: EventMatcher[CompiledRule] = EventMatcher([])
        self._histories: dict[tuple[str, ...], History] = {}
        self._read: dict[str, tuple[tuple[str, ...], str, CompiledFeature]] = {}  # by column: key, state, feature
        self._loaded: dict[str, _LoadedRows] = {}
        self._has_stage = settings.feature_stage
        self.since_ms: dict[str, int] = {}
        self.generation: dict[str, int] = {}

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``)."""
        self._rules = tuple(rules)
        features = [feature for rule in rules for feature in self._own(rule)]
        longest: dict[str, CompiledFeature] = {}
        for feature in features:
            kept = longest.get(feature.fingerprint, feature)
            longest[feature.fingerprint] = feature if feature.panes >= kept.panes else kept
        self._remember(longest, memory, now_ms, watermark_ms)
        by_key: dict[tuple[str, ...], list[StoredFeature]] = {}
        for feature in longest.values():
            by_key.setdefault(feature.by, []).append(self._store(feature))
        self._histories = {by: self._histories.get(by) or self._new_history(by) for by in sorted(by_key)}
        for by, history in self._histories.items():
            history.set_features(sorted(by_key[by], key=lambda one: one.name))
        self._read = {one.column: (one.by, self._name(one), one) for one in features}
        self._matcher = self._make_matcher(rules)
        self._take_loaded()

    def _make_matcher(self, rules: Sequence[CompiledRule]) -> EventMatcher[CompiledRule]:
        """Return what finds the rules that fire at an event."""
        return EventMatcher([rule for rule in rules if rule.rule.status is not RuleMode.PAUSED])

    def _own(self, rule: CompiledRule) -> tuple[CompiledFeature, ...]:
        """Return the features of a rule whose state is here."""
        every = rule.features
        return tuple(one for one in every if one.route_key == rule.route_key) if self._has_stage else every

    def _remember(
        self, features: Mapping[str, CompiledFeature], memory: KeyValueTable, now_ms: int, watermark_ms: int
    ) -> None:
        """Set ``since_ms`` and ``generation``, and store them with the panes that each feature keeps."""
        stored = memory.get(str(self.group))
        known = {} if stored is None else orjson.loads(stored)
        document: dict[str, tuple[int, int, int]] = {}
        self.since_ms, self.generation = {}, {}
        for fingerprint, (_since, panes, generation) in known.items():
            if fingerprint not in features:  # 0 panes: it was given up
                document[fingerprint] = (0, 0, generation + (panes > 0))
        for fingerprint, feature in sorted(features.items()):
            since, panes, generation = known.get(fingerprint, (now_ms, 0, 0))
            if not panes:
                since = now_ms
            elif feature.panes > panes:  # older panes are gone
                since = max(since, (watermark_ms // feature.pane_ms - panes + 1) * feature.pane_ms)
            document[fingerprint] = (since, feature.panes, generation)
            self.since_ms[fingerprint], self.generation[fingerprint] = since, generation
        memory.put(str(self.group), orjson.dumps(document, option=orjson.OPT_SORT_KEYS))

    def _new_history(self, by: tuple[str, ...]) -> History:
        types = {field.name: field.type for field in keyed_schema(self._schema, by).fields}
        return History({name: polars_type(types[name]) for name in by})

    def _store(self, feature: CompiledFeature) -> StoredFeature:
        """Return a feature as it is stored."""
        return StoredFeature(self._name(feature), feature, feature.panes)

    def _name(self, feature: CompiledFeature) -> str:
        """Return the name of the state of a feature."""
        return self._state_name(feature.fingerprint)

    def _state_name(self, fingerprint: str) -> str:
        return f"{fingerprint}@{self.generation[fingerprint]}"

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Evaluate the rules on events that are not late, in order of arrival, and add the events to the state."""
        return self._evaluate(frame, context)

    def _evaluate(self, frame: pl.DataFrame, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Evaluate the rules on events in this order, and add the events to the state."""
        if not frame.height:
            return [], []
        try:
            readings = {by: history.arrive(frame) for by, history in self._histories.items()}
        except EVALUATION_ERRORS as error:
            return [], self._failures(frame, error)
        firings, failures = self._take_values(frame.with_columns(self._values(readings).values()), context)
        if failures:
            return [], failures
        for by, history in self._histories.items():
            history.write(readings[by])
        return firings, []

    def _take_values(self, events: pl.DataFrame, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Evaluate the conditions on events with the values of the features that are here."""
        if self._has_stage:
            others = (one for rule in self._rules for one in rule.features if one.route_key != rule.route_key)
            events = context.values.join(events, others)
        matches = self._matcher.match(events)
        if matches.failed:
            return [], [RuleFailure(self._matcher.rules[number], reason) for number, reason in matches.failed]
        return [*self._firings(events, matches.row.astype(np.int64), matches.rule.astype(np.int64), context)], []

    # --- backfill -----------------------------------------------------------------------------------------------

    def count(self, frame: pl.DataFrame) -> list[RuleFailure]:
        """Add events of any time, in any order, without evaluating a rule; return the rules that failed."""
        if not frame.height:
            return []
        try:
            readings = {by: history.arrive(frame) for by, history in self._histories.items()}
        except EVALUATION_ERRORS as error:
            return self._failures(frame, error)
        for by, history in self._histories.items():
            history.write(readings[by])
        return []

    def all_since_ms(self) -> Mapping[str, int]:
        """Return the event time from which each feature is complete, by fingerprint."""
        return self.since_ms

    def since_by_column(self, rule: CompiledRule) -> Mapping[str, int]:
        """Return the event time from which each feature of the rule that is here is complete, by fingerprint."""
        known = self.since_ms
        return {one.fingerprint: known[one.fingerprint] for one in rule.features if one.fingerprint in known}

    def complete_since(self, names: Iterable[str], since_ms: int, memory: KeyValueTable) -> None:
        """Store that these features are complete from this event time on."""
        document = orjson.loads(memory.get(str(self.group)) or b"{}")
        for name in names:
            self.since_ms[name] = since_ms
            document[name][0] = since_ms
        memory.put(str(self.group), orjson.dumps(document, option=orjson.OPT_SORT_KEYS))

    def backfill_types(self, fingerprint: str) -> Mapping[str, pl.DataType]:
        """Return the columns of the rows of a feature, those of its key first."""
        history, name = self._find_state(fingerprint)
        return {**history.keys.dtypes, **history.backfill_types(name)}

    def backfill_rows(self, fingerprint: str) -> pl.DataFrame:
        """Return all rows of a feature, with the columns of ``backfill_types``."""
        history, name = self._find_state(fingerprint)
        return history.backfill_rows(name)

    def add_backfill(self, name: str, rows: pl.DataFrame) -> None:
        """Add older events to the feature with this fingerprint."""
        history, state = self._find_state(name)
        history.add_backfill(state, rows)

    def pane_ms(self, fingerprint: str) -> int:
        """Return the length of the panes of a feature."""
        history, name = self._find_state(fingerprint)
        return history.features[name].feature.pane_ms

    def _find_state(self, fingerprint: str) -> tuple[History, str]:
        """Return the history of a feature, and the name of its state."""
        name = self._state_name(fingerprint)
        return next(one for one in self._histories.values() if name in one.features), name

    def values(self, frame: pl.DataFrame) -> Mapping[str, pl.Series]:
        """Return by column the value of each feature at these events, in order of arrival, and change no state."""
        return self._values({by: history.arrive(frame) for by, history in self._histories.items()})

    def _values(self, readings: Mapping[tuple[str, ...], Reading]) -> Mapping[str, pl.Series]:
        read = self._read.items()
        return {column: self._histories[by].read(readings[by], name, one) for column, (by, name, one) in read}

    def _failures(self, frame: pl.DataFrame, error: BaseException) -> list[RuleFailure]:
        """Return the rules of which a feature cannot be computed on these events."""
        broken = {}
        for history in self._histories.values():
            for name, one in history.features.items():
                try:
                    frame.select(one.expressions())
                except EVALUATION_ERRORS as own:
                    broken[name] = f"{type(own).__name__}: {own}"
        if not broken:
            raise error
        found = []
        for rule in self._rules:
            reasons = [broken[self._name(one)] for one in self._own(rule) if self._name(one) in broken]
            found += [RuleFailure(rule, reasons[0])] if reasons else []
        return found

    def _firings(
        self,
        events: pl.DataFrame,
        rows: Ints,
        rules: Ints,
        context: CutContext,
    ) -> Iterator[RuleFiring]:
        """Yield a firing for each match, in order of event and rule."""
        since_ms = {**context.values.since_ms, **self.since_ms}
        if self._has_stage:
            is_known = self._known_matches(events, rows, rules)
            rows, rules = rows[is_known], rules[is_known]
        for values, row, number in zip(events[rows].to_dicts(), rows.tolist(), rules.tolist(), strict=True):
            rule = self._matcher.rules[number]
            partition, offset, time_ms = values[PARTITION], values[OFFSET], values[EVENT_MS]
            shown = (*(field.column for field in rule.alert_fields), *(one.column for one in rule.placeholders))
            yield RuleFiring(
                rule=rule,
                key={name: values[name] for name in rule.group_by},
                mark=(context.find_topic(partition), partition % PARTITIONS_PER_TOPIC, offset),
                time_ms=time_ms,
                start_ms=min((time_ms // f.pane_ms - f.panes + 1) * f.pane_ms for f in rule.features),
                end_ms=time_ms,
                timing=FiringTime.EARLY,
                row=row,
                values={name: values[name] for name in shown},
                incomplete=any(
                    (time_ms // f.pane_ms - f.panes + 1) * f.pane_ms <= since_ms.get(f.fingerprint, time_ms)
                    for f in rule.features
                ),
            )

    def _known_matches(self, events: pl.DataFrame, rows: Ints, rules: Ints) -> Mask:
        """Return of each match whether the features of other keys have values at its event."""
        known = np.ones(len(rows), bool)
        for number in np.unique(rules).tolist():
            present = FeatureValues.is_known(self._matcher.rules[number], events)
            if present is not None:
                own = rules == number
                known[own] = present.to_numpy()[rows[own]]
        return known

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Drop the state that no later event reads."""
        for history in self._histories.values():
            history.expire(context.next_watermark_ms)
        return [], []

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of the state of all features (see ``StateHolder``)."""
        return sum((history.state_size() for history in self._histories.values()), StateSize())

    def state_use(self, _watermark_ms: int) -> StateUse:
        """Return the size of the tables that each rule's features are in."""
        sizes = {by: history.exact_sizes() for by, history in self._histories.items()}
        total = sum((size for own in sizes.values() for size in own.values()), StateSize())
        by_rule = {}
        for rule in self._rules:
            used = {(one.by, self._histories[one.by].table_name(self._name(one))) for one in self._own(rule)}
            by_rule[version_name(rule)] = sum((sizes[by][name] for by, name in used), StateSize())
        return StateUse(total, by_rule)

    def metrics(self) -> Mapping[str, int]:
        """Return no metrics: no limit drops entries."""
        return {}

    def tables(self) -> dict[str, StateTable]:
        """Return the tables of all features by name."""
        return {self._table_name(by, n): t for by, one in self._histories.items() for n, t in one.tables().items()}

    def _table_name(self, by: tuple[str, ...], name: str) -> str:
        """Return the name of a table. A hash stands for the key columns, whose names may have any sign."""
        columns = hashlib.blake2b(orjson.dumps(by), digest_size=8).hexdigest()
        return f"{_TABLE}:{self.group}:{columns}/{name}"

    def table(self, name: str) -> StateTable:
        """Return the table of that name; before the rules are set, one that keeps its rows for them."""
        tables = self.tables()
        return tables[name] if name in tables else self._loaded.setdefault(name, _LoadedRows())

    def _take_loaded(self) -> None:
        """Load the rows that came before the rules."""
        tables = self.tables()
        loaded, self._loaded = self._loaded, {}
        for name, rows in loaded.items():
            for frame in rows.frames if name in tables else ():
                tables[name].load(frame)
        for history in self._histories.values():
            history.drop_unknown()
