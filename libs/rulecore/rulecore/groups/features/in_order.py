"""Feature rules that evaluate events in order of event time: each when the watermark has passed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

import orjson
import polars as pl

from rulecore.compile.feature import CompiledFeature
from rulecore.compile.rule import CompiledRule
from rulecore.firing import Origin, RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.features.group import FeatureGroup
from rulecore.groups.features.history import StoredFeature
from rulecore.groups.sequences.event_buffer import CONDITIONS, EventBuffer, value_column
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize, StateUse
from streamcore.hashing import hash_columns
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import HASH, KeyValueTable, StateTable

#: The buffer keeps events by the conditions that they satisfy; here every event is kept.
_EVERY: Final = 0
_WAITING: Final = "waiting"
#: Of a waiting event: the number of the rules that were known when it came (``InOrderFeatureGroup``).
_KNOWN: Final = "__known"


class InOrderFeatureGroup(FeatureGroup):
    """A ``FeatureGroup`` whose events wait for the watermark, and are then evaluated in order of time, partition and
    offset. So a value does not depend on the order in which events arrive, as long as none is late.

    Of a waiting event there are only the columns that rules read when it came, and the backfill of a feature has
    counted what came before the feature was known. So each change of rules that brings a column or a feature has a
    number: an event is evaluated by the rules whose columns were known when it came, and counted by the features that
    were. At an event that came before one of its features a rule fires as ``incomplete``.
    """

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        super().__init__(group, schema, settings)
        self.buffer = EventBuffer({name: self._dtypes[name] for name in group.group_by})
        self._fields: tuple[str, ...] = ()  # the columns that are kept beside the key
        self._passed: pl.DataFrame | None = None  # by the watermark in this cut, while failed rules go into quarantine
        self._dropped = 0
        self._known: dict[str, int] = {}  # of a column or a feature, the number of the rules that brought it
        self._number = 0  # of the latest rules that brought one

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``)."""
        self._remember_known(rules, memory)
        super().set_rules(rules, memory, now_ms, watermark_ms)
        read = {name for rule in rules for name in rule.reads} - {*self.group.group_by}
        self._fields = tuple(sorted(read))
        self.buffer.keep([_EVERY], {_KNOWN: pl.Int64(), **{name: self._dtypes[name] for name in self._fields}})

    def _remember_known(self, rules: Sequence[CompiledRule], memory: KeyValueTable) -> None:
        """Set the numbers of all columns and features, and store them."""
        key = f"{self.group}/known"
        number, known = orjson.loads(memory.get(key) or b"[0,{}]")
        names = sorted({name for rule in rules for name in (*rule.reads, *map(_feature_name, rule.features))})
        self._number = number + any(name not in known for name in names)
        self._known = {name: known.get(name, self._number) for name in names}
        memory.put(key, orjson.dumps([self._number, self._known]))

    def _store(self, feature: CompiledFeature) -> StoredFeature:
        since = pl.col(_KNOWN) >= self._known[_feature_name(feature)]
        return replace(super()._store(feature), counts_event=since)

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, _context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Keep the events until the watermark passes them."""
        if frame.height:
            keys = frame.select(self.buffer.keys)
            every = pl.lit(pl.Series([[_EVERY]], dtype=pl.List(pl.Int32))).first()
            self.buffer.add(
                frame.select(
                    pl.Series(HASH, hash_columns(keys.get_columns(), keys.height)),
                    *self.buffer.keys,
                    EVENT_MS,
                    pl.col(PARTITION).cast(pl.Int64),
                    OFFSET,
                    every.alias(CONDITIONS),
                    pl.lit(self._number, pl.Int64).alias(value_column(_KNOWN)),
                    *(pl.col(name).alias(value_column(name)) for name in self._fields),
                )
            )
        return [], []

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Evaluate the rules on the events that the watermark passes, and drop the state that no later event reads."""
        if self._passed is None:
            self.buffer.drop_before(context.watermark_ms)
            self._passed = self.buffer.release(context.next_watermark_ms).sort(EVENT_MS, PARTITION, OFFSET)
            self._dropped += self.buffer.limit_fresh(self.settings.events)
        columns = [column for rule in self._rules for column in rule.columns]
        contents = cast("Mapping[str, ListContent]", context.lists)
        events = self._passed.rename({value_column(name): name for name in (_KNOWN, *self._fields)})
        firings, failures = self._evaluate(with_list_columns(events, columns, contents), context)
        if failures:
            return [], failures
        self._passed = None
        super().close(context)
        return [*self._keep_known(firings, events[_KNOWN].to_list())], []

    def _keep_known(self, firings: Iterable[RuleFiring], known: Sequence[int]) -> Iterator[RuleFiring]:
        """Yield the firings at events that had all columns of the rule. ``known``: of each event, its number."""
        for one in firings:
            assert one.row is not None
            number = known[one.row]
            if all(self._known[name] <= number for name in one.rule.reads):
                is_new = any(self._known[_feature_name(feature)] > number for feature in one.rule.features)
                yield replace(one, row=None, origin=_origin(one), incomplete=one.incomplete or is_new)

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of the state of all features and of the waiting events (see ``StateHolder``)."""
        return super().state_size() + self.buffer.state_size

    def state_use(self, watermark_ms: int) -> StateUse:
        """Return the size of the tables that each rule's features are in, and for each that of the waiting events."""
        use = super().state_use(watermark_ms)
        waiting = self.buffer.state_sizes({"": [_EVERY]})[""]
        return StateUse(use.total + waiting, {name: size + waiting for name, size in use.by_rule.items()})

    def metrics(self) -> Mapping[str, int]:
        """Return the events that the limit of waiting events dropped since the last call."""
        dropped, self._dropped = self._dropped, 0
        return {"events_dropped": dropped}

    def tables(self) -> dict[str, StateTable]:
        """Return the tables of all features and of the waiting events by name."""
        return {f"{_WAITING}:{self.group}": self.buffer, **super().tables()}

    def table(self, name: str) -> StateTable:
        """Return the table of that name; before the rules are set, one that keeps its rows for them."""
        return self.buffer if name.startswith(f"{_WAITING}:") else super().table(name)


def _feature_name(feature: CompiledFeature) -> str:
    return f"feature {feature.fingerprint}"


def _origin(firing: RuleFiring) -> Origin:
    topic, partition, offset = firing.mark
    assert isinstance(topic, str)
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    return Origin(topic, partition, offset, firing.time_ms)
