"""The group of score rules of one stream or union of streams, and ``group_by``: adds up signals of other rules per key
over ``within``.

A signal is a match of an event rule, or a firing of a rule with state. It has an event time ``t`` and a weight. The
sum of a rule and key stands at ``T``, the latest time of its signals (never before the watermark), and holds those in
``(T - within, T]``. The rule fires at the signal that takes the sum from below its limit to the limit or above; then
not again until signals have left the window, the sum is below, and another signal takes it there.

- Within a cut, signals are taken by time, then rule, then identity; across cuts in the order of the cuts. A signal that
  is older than ``T`` does not take the sum back in time: it counts at ``T`` if it is in the window there, and the alert
  is raised at that signal, with its time. One that is not in the window (older than the watermark less ``within``,
  at the latest) counts nowhere. So where the signals of a key come in the order of their times, alerts do not depend
  on how the input is cut; where they do not, which signal raises an alert may. The shards never matter, and the same
  cuts give the same alerts.
- The same signal (rule and identity) counts once. NULL is a key like any other.
- Signals are kept for the group, for every rule that some score rule names, with the score that their rule had then:
  so a new limit, weight or way of counting goes on with the signals present, and raises no alert for a sum that has
  reached its limit already. Signals from before a rule was first named are missing: until a window began after that,
  alerts are marked as incomplete. A paused score rule goes on collecting.
- At most ``GroupSettings.events`` signals a key (the oldest go) and ``GroupSettings.population`` keys (the last to come
  have no score); the rest is counted (``signals_dropped``, ``keys_dropped``).

``groups.scores.signals`` collects the signals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

import orjson
import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.compile.score import CompiledScore
from rulecore.documents.rule import RuleMode
from rulecore.documents.slots import version_key
from rulecore.firing import FiringTime, Origin, RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.scores.running_sum import ActiveSignal, RunningScore
from rulecore.groups.scores.signal_table import Key, SignalTable
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize, StateUse
from streamcore.columnar.polars_types import polars_type
from streamcore.offsets import PARTITIONS_PER_TOPIC
from streamcore.schema import StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK

MAX_ORIGINS: Final = 100  # most events that an alert names; the latest ones


class _Metadata(TypedDict):
    """The stored facts of a group: since when the signals of each rule are complete, how long signals are kept."""

    since_ms: dict[str, int]
    keep_ms: int


class Signal(NamedTuple):
    """A match or firing of a rule that a score adds up.

    ``key``: the values of the group's columns. ``identity`` distinguishes the signals of a rule and key, and does not
    change when the signal is computed again. ``weight``: the rule's own score. ``place``: source partition and offset
    of the event, None for a firing without an event.
    """

    rule: str
    key: Key
    time_ms: int
    identity: str
    weight: int
    place: tuple[int, int] | None


class ScoreGroup:
    """The ``RuleGroup`` of score rules. Its input are signals instead of events.

    ``counts``: entries dropped by limits since the last ``metrics``. ``wanted``: the rules whose signals are kept.
    """

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.settings = settings
        fields = [schema.get(name) for name in group.group_by]
        self.signal_table = SignalTable({f.name: polars_type(f.type) for f in fields if f is not None})
        self.counts: Counter[str] = Counter()
        self.wanted: frozenset[str] = frozenset()
        self._rules: tuple[CompiledRule, ...] = ()
        self._weights: dict[str, frozenset[str]] = {}  # by version of a rule, paused ones too: whose signals it adds up
        self._since: dict[str, int] = {}
        self._keep_ms = 0
        self._scores: dict[Key, dict[str, RunningScore]] = {}

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``); drop signals that none of them adds up."""
        blob = memory.get(str(self.group))
        kept: _Metadata = {"since_ms": {}, "keep_ms": 0} if blob is None else orjson.loads(blob)
        scorings = [_scoring(rule) for rule in rules]
        self.wanted = frozenset(name for scoring in scorings for name in scoring.weights)
        self._keep_ms = max(scoring.within_ms for scoring in scorings)
        forgotten = watermark_ms - kept["keep_ms"] if self._keep_ms > kept["keep_ms"] > 0 else NO_WATERMARK
        self._since = {n: max(kept["since_ms"].get(n, now_ms), forgotten) for n in sorted(self.wanted)}
        document = {"since_ms": self._since, "keep_ms": self._keep_ms}
        memory.put(str(self.group), orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
        self._rules = tuple(sorted((r for r in rules if r.rule.status is not RuleMode.PAUSED), key=lambda r: r.rule.id))
        self._weights = {version_key(rule.rule): frozenset(_scoring(rule).weights) for rule in rules}
        self._scores.clear()
        if set(kept["since_ms"]) - self.wanted:
            self._forget_unwanted()

    def _forget_unwanted(self) -> None:
        for key, held in self.signal_table.held.items():
            self.signal_table.remove(key, [signal for signal in held if signal.rule not in self.wanted])
        self.signal_table.release([*self.signal_table.held])

    # --- a cut --------------------------------------------------------------------------------------------------

    def signals(self, batch: Sequence[Signal], context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Add the signals of one cut, in any order, and return the firings. Called before ``close``."""
        oldest_ms = context.watermark_ms - self._keep_ms
        batch = sorted((s for s in batch if s.rule in self.wanted and s.time_ms > oldest_ms), key=_order)
        self.counts["keys_dropped"] += self.signal_table.admit([s.key for s in batch], self.settings.population)
        firings: list[RuleFiring] = []
        for signal in batch:
            if signal.key in self.signal_table.held:
                firings += self._take(signal, context)
        return firings, []

    def _take(self, signal: Signal, context: CutContext) -> list[RuleFiring]:
        """Add a signal to the scores of its key, and return the firings of the scores that reach their limit."""
        key, held = signal.key, _to_active(signal)
        scores = self._running_scores(key, context)
        if not self.signal_table.add(key, held):
            return []
        firings = []
        for rule in self._rules:
            if signal.rule in scores[rule.rule.id].scoring.weights and scores[rule.rule.id].take(
                held, context.watermark_ms
            ):
                firings.append(self._firing(rule, key, held, scores[rule.rule.id], context))
        while len(self.signal_table.held[key]) > self.settings.events:
            self.counts["signals_dropped"] += 1
            oldest = self.signal_table.remove_first(key)
            for score in scores.values():
                score.remove(oldest)
        return firings

    def _running_scores(self, key: Key, context: CutContext) -> dict[str, RunningScore]:
        if key not in self._scores:
            held = self.signal_table.held[key]
            self._scores[key] = {r.rule.id: RunningScore(_scoring(r), held, context.watermark_ms) for r in self._rules}
        return self._scores[key]

    def _firing(
        self, rule: CompiledRule, key: Key, signal: ActiveSignal, score: RunningScore, context: CutContext
    ) -> RuleFiring:
        start_ms = score.latest_ms - score.scoring.within_ms
        events = [s for s in score.window if s.offset >= 0][-MAX_ORIGINS:]
        return RuleFiring(
            rule=rule,
            key=dict(zip(self.group.group_by, key, strict=True)),
            mark=(signal.time_ms, signal.rule, signal.identity),
            time_ms=signal.time_ms,
            start_ms=start_ms,
            end_ms=score.latest_ms,
            timing=FiringTime.EARLY,
            row=None,
            values={"__sum": score.total, "__rules": ", ".join(score.rules), "__count": len(score.window)},
            incomplete=start_ms < max(self._since[name] for name in score.scoring.weights),
            events=tuple(_origin(s, context) for s in events),
        )

    def add(self, _frame: pl.DataFrame, _context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Ignore the events: the kernel passes signals instead."""
        return [], []

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Drop the signals that are older than every score's window."""
        if context.next_watermark_ms > context.watermark_ms:
            touched = self.signal_table.expire(context.next_watermark_ms - self._keep_ms)
            self.signal_table.release(touched)
            for key in touched:
                if key not in self.signal_table.held:
                    self._scores.pop(key, None)
        return [], []

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all signals (see ``StateHolder``)."""
        return self.signal_table.state_size

    def state_use(self, _watermark_ms: int) -> StateUse:
        """Return the size of the signals that each rule adds up, which rules share."""
        sizes = self.signal_table.state_sizes({"": self.wanted, **self._weights})
        return StateUse(sizes[""], {name: sizes[name] for name in self._weights})

    def metrics(self) -> Mapping[str, int]:
        """Return the numbers of entries that limits dropped since the last call."""
        counts = dict(self.counts)
        self.counts.clear()
        return counts

    def tables(self) -> Mapping[str, StateTable]:
        """Return the only table."""
        return {f"signals:{self.group}": self.signal_table}

    def table(self, name: str) -> StateTable:
        """Return the only table, and discard the sums, since loading rows changes them."""
        assert name == f"signals:{self.group}", name
        self._scores.clear()
        return self.signal_table


def _scoring(rule: CompiledRule) -> CompiledScore:
    assert rule.score is not None, "a score rule"
    return rule.score


def _origin(signal: ActiveSignal, context: CutContext) -> Origin:
    topic = context.find_topic(signal.partition)
    return Origin(topic, signal.partition % PARTITIONS_PER_TOPIC, signal.offset, signal.time_ms)


def _order(signal: Signal) -> tuple[int, str, str]:
    return signal.time_ms, signal.rule, signal.identity


def _to_active(signal: Signal) -> ActiveSignal:
    partition, offset = signal.place or (-1, -1)
    return ActiveSignal(signal.time_ms, signal.rule, signal.identity, signal.weight, partition, offset)
