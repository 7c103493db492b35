"""Collects the signals of score rules: matches of event rules, and firings of rules with state.

For scores, an event is matched a second time, on the shard that owns the key of the score, and only with the event
rules that a score rule names. That shard sees all events of the key, by whatever key alerts are routed. A firing is on
the shard that owns its own key; therefore a rule with state gives signals only to scores with an equal route whose
``group_by`` is part of its key. A score over several streams gets signals from rules on any of them, and from rules on
several of them. The module knows no sums.
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
from rulecore.streams import is_union
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

SignalSource = tuple[RuleFiring, Origin | None]


class SignalCollector:
    """Collects the signals for each group of score rules.

    ``rules``: the live rules, by id. ``streams``: the schemas of the app's streams. ``topics``: of each of its sources.
    """

    def __init__(
        self,
        scores: Iterable[CompiledRule],
        rules: Mapping[str, CompiledRule],
        streams: Mapping[str, StreamSchema],
        topics: Sequence[str],
    ) -> None:
        self._topics = topics
        named: dict[GroupId, dict[str, CompiledRule]] = {}
        for score in scores:
            assert score.score is not None, "a score rule"
            group = GroupId.for_rule(score)
            assert group is not None, "a score rule has state"
            known = [name for name in score.score.weights if name in rules]
            fit = {name: rules[name] for name in known if incompatibility(score, rules[name], streams) is None}
            named.setdefault(group, {}).update(fit)
        self._matchers = {
            group: {
                on: EventMatcher([r for _, r in sorted(fit.items()) if r.kind is RuleKind.EVENT and r.rule.on == on])
                for on in sorted({r.rule.on for r in fit.values() if r.kind is RuleKind.EVENT})
            }
            for group, fit in named.items()
        }
        self._named = {group: frozenset(fit) for group, fit in named.items()}

    def event_streams(self, group: GroupId) -> Iterable[str]:
        """Return the streams, and unions of them, of the event rules that give signals to a group."""
        return self._matchers[group]

    def from_events(self, group: GroupId, on: str, frame: pl.DataFrame) -> list[Signal]:
        """Return the signals of events of one of the ``event_streams``, routed by the group's key. A rule whose
        evaluation raises gives none."""
        matcher = self._matchers[group][on]
        matches = matcher.match(frame)
        if not len(matches.row):
            return []
        rows = frame.select(*group.group_by, PARTITION, OFFSET, EVENT_MS)[matches.row]
        keys = zip(*(rows[name].to_list() for name in group.group_by), strict=True)
        places = zip(rows[PARTITION].to_list(), rows[OFFSET].to_list(), rows[EVENT_MS].to_list(), strict=True)
        return [
            self._event_signal(matcher.rules[number], key, place)
            for number, key, place in zip(matches.rule.tolist(), keys, places, strict=True)
        ]

    def from_firings(self, group: GroupId, fired: Sequence[SignalSource]) -> list[Signal]:
        """Return the signals of the firings of rules of the group's streams, each with the event at which it fired."""
        named = self._named[group]
        return [self._firing_signal(group, firing, origin) for firing, origin in fired if firing.rule.rule.id in named]

    def _event_signal(
        self, rule: CompiledRule, key: tuple[str | int | None, ...], place: tuple[int, int, int]
    ) -> Signal:
        source, offset, event_ms = place
        partition = source % PARTITIONS_PER_TOPIC
        identity = f"{partition}:{offset}"
        if is_union(rule.rule.on):  # two topics have equal offsets
            identity = f"{self._topics[source // PARTITIONS_PER_TOPIC]}:{identity}"
        return Signal(rule.rule.id, key, event_ms, identity, rule.rule.then.score, (source, offset))

    def _firing_signal(self, group: GroupId, firing: RuleFiring, origin: Origin | None) -> Signal:
        rule = firing.rule.rule
        key = tuple(firing.key[name] for name in group.group_by)
        identity = orjson.dumps([*firing.key.values(), *firing.mark]).decode()
        place = None
        if origin is not None:
            source = self._topics.index(origin.topic) * PARTITIONS_PER_TOPIC + origin.partition
            place = (source, origin.offset)
        return Signal(rule.id, key, firing.time_ms, identity, rule.then.score, place)
