"""What the stage for features sends to the rules kernel, as rows: values at events, and facts about features and
rules."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import polars as pl

from rulecore import language as lang
from rulecore.compile.rule import CompiledRule
from rulecore.feature_stage.exchanges import FACTS, RULE_HASH, find_route
from rulecore.groups.base import GroupId
from rulecore.groups.feature_values import FeatureValues
from rulecore.groups.windows.members import EVALUATION_ERRORS
from rulecore.key_columns import Key
from rulecore.language.columnar.compiler import to_polars
from streamcore.hashing import hash_columns
from streamcore.kernel import StreamKey
from streamcore.schema import OFFSET, PARTITION

#: The group of the rules for which a row is.
_TARGET: Final = "__target"
#: Most conditions by which events are left out: with more, evaluating them costs more than sending the events.
_MAX_CONDITIONS: Final = 32
_SINCE, _STARTED, _QUARANTINED = "since", "started", "quarantined"
_FACTS: Final = {"fact": pl.String, "name": pl.String, "ms": pl.Int64, "text": pl.String}


@dataclass(frozen=True, slots=True)
class StageFacts:
    """The event time from which each feature is complete, by fingerprint; those that start in this cut; and the rules
    that are in quarantine on a shard of the stage, with the reason, of which others do not know."""

    since_ms: Mapping[str, int] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    quarantined: Mapping[str, str] = field(default_factory=dict)

    def to_rows(self) -> pl.DataFrame:
        """Return the facts as rows."""
        rows: list[tuple[str, str, int | None, str | None]] = [
            (_STARTED if name in self.started else _SINCE, name, ms, None) for name, ms in sorted(self.since_ms.items())
        ]
        rows += [(_QUARANTINED, name, None, reason) for name, reason in sorted(self.quarantined.items())]
        return pl.DataFrame(rows, schema=_FACTS, orient="row")


@dataclass(frozen=True, slots=True)
class ComputedFeatures:
    """What a shard of the rules kernel gets in a cut. ``values``: by the group of the rules and the number of the key
    of the features, as rows."""

    since_ms: Mapping[str, int] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    quarantined: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[tuple[int, int], pl.DataFrame] = field(default_factory=dict)

    @classmethod
    def read(cls, rows: Mapping[StreamKey, pl.DataFrame]) -> ComputedFeatures:
        """Return what these rows say."""
        since_ms: dict[str, int] = {}
        started, quarantined = set[str](), dict[str, str]()
        for fact, name, ms, text in rows[FACTS].select(*_FACTS).rows() if FACTS in rows else ():
            if fact == _QUARANTINED:
                quarantined.setdefault(name, text)
                continue
            since_ms[name] = ms
            started |= {name} if fact == _STARTED else set()
        values = {}
        for key, frame in rows.items():
            if (route := find_route(key)) is not None:
                for (target,), own in frame.partition_by(_TARGET, as_dict=True, maintain_order=True).items():
                    values[target, route] = own
        return cls(since_ms, frozenset(started), quarantined, values)

    def find_values(self, group: GroupId, routes: Sequence[Key]) -> FeatureValues:
        """Return the values for a group of rules. ``routes``: the keys of its stream, or of the first one of a
        union."""
        target = target_number(group)
        frames = {routes[route]: frame for (own, route), frame in self.values.items() if own == target}
        return FeatureValues(frames, self.since_ms)


def target_number(group: GroupId) -> int:
    """Return a number that stands for a group of rules, of any generation, in rows."""
    text = str(replace(group, generation=0))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def values_for(group: GroupId, rules: Sequence[CompiledRule], events: pl.DataFrame) -> pl.DataFrame:
    """Return the rows for a group of rules. ``rules``: of the group, each with the features that ``events`` have."""
    events = _narrow(rules, events)
    columns = sorted({one.column for rule in rules for one in rule.features})
    hashes = hash_columns(events.select(group.group_by).get_columns(), events.height)
    return events.select(
        pl.Series(RULE_HASH, hashes, pl.UInt64),
        pl.lit(target_number(group), pl.Int64).alias(_TARGET),
        pl.col(PARTITION).cast(pl.Int32),
        OFFSET,
        *columns,
    )


def _narrow(rules: Sequence[CompiledRule], events: pl.DataFrame) -> pl.DataFrame:
    """Return the events at which one of the rules may fire, or more."""
    found = {lang.fingerprint(one): one for one in (rule.event_condition for rule in rules)}
    conditions = [to_polars(one).fill_null(value=False) for one in found.values() if one is not None]
    if len(conditions) < len(found) or len(found) > _MAX_CONDITIONS:
        return events
    try:
        return events.filter(pl.any_horizontal(conditions))
    except EVALUATION_ERRORS:  # the rule of the condition fails in the rules kernel
        return events
