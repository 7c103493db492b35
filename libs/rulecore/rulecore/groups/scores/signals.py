"""Collects the signals of score rules: matches of event rules, and firings of rules with state.

For scores, an event is matched a second time, on the shard that owns the key of the score, and only with the event
rules that a score rule names. That shard sees all events of the key, by whatever key alerts are routed. A firing is on
the shard that owns its own key; therefore a rule with state gives signals only to scores with an equal route whose
``group_by`` is part of its key. The module knows no sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson
import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.compile.score_compatibility import incompatibility
from rulecore.documents.rule import RuleKind
from rulecore.firing import Origin, RuleFiring
from rulecore.groups.base import GroupId
from rulecore.groups.scores.group import Signal
from rulecore.matching.matcher import EventMatcher
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION

SignalSource = tuple[RuleFiring, Origin | None]


class SignalCollector:
    """Collects the signals for each group of score rules. ``rules``: the live rules, by id."""

    def __init__(self, scores: Iterable[CompiledRule], rules: Mapping[str, CompiledRule]) -> None:
        named: dict[GroupId, dict[str, CompiledRule]] = {}
        for score in scores:
            assert score.score is not None, "a score rule"
            group = GroupId.for_rule(score)
            assert group is not None, "a score rule has state"
            fit = {n: rules[n] for n in score.score.weights if n in rules and incompatibility(score, rules[n]) is None}
            named.setdefault(group, {}).update(fit)
        self._matchers = {
            group: EventMatcher([r for _, r in sorted(fit.items()) if r.kind is RuleKind.EVENT])
            for group, fit in named.items()
        }
        self._named = {group: frozenset(fit) for group, fit in named.items()}

    def from_events(self, group: GroupId, frame: pl.DataFrame) -> list[Signal]:
        """Return the signals of events routed by the group's key. A rule whose evaluation raises gives none."""
        matcher = self._matchers[group]
        matches = matcher.match(frame)
        if not len(matches.row):
            return []
        rows = frame.select(*group.group_by, PARTITION, OFFSET, EVENT_MS)[matches.row]
        keys = zip(*(rows[name].to_list() for name in group.group_by), strict=True)
        places = zip(rows[PARTITION].to_list(), rows[OFFSET].to_list(), rows[EVENT_MS].to_list(), strict=True)
        return [
            _event_signal(matcher.rules[number], key, place)
            for number, key, place in zip(matches.rule.tolist(), keys, places, strict=True)
        ]

    def from_firings(self, group: GroupId, fired: Sequence[SignalSource]) -> list[Signal]:
        """Return the signals of the firings of rules of the group's stream, each with the event at which it fired."""
        named = self._named[group]
        return [_firing_signal(group, firing, origin) for firing, origin in fired if firing.rule.rule.id in named]


def _event_signal(rule: CompiledRule, key: tuple[str | int | None, ...], place: tuple[int, int, int]) -> Signal:
    partition, offset, event_ms = place[0] % PARTITIONS_PER_TOPIC, place[1], place[2]
    return Signal(rule.rule.id, key, event_ms, f"{partition}:{offset}", rule.rule.then.score, (partition, offset))


def _firing_signal(group: GroupId, firing: RuleFiring, origin: Origin | None) -> Signal:
    rule = firing.rule.rule
    key = tuple(firing.key[name] for name in group.group_by)
    identity = orjson.dumps([*firing.key.values(), *firing.mark]).decode()
    place = None if origin is None else (origin.partition, origin.offset)
    return Signal(rule.id, key, firing.time_ms, identity, rule.then.score, place)
