"""Score rules of one stream that group alike: signals of other rules are added for a key over the last ``within``.

A signal is a match of a rule per event, or a firing of a rule with state. It has an event time ``t`` and a weight. The
sum of a rule and key stands at ``T``, the latest time of its signals (never before the watermark), and holds those in
``(T - within, T]``. The rule fires at the signal that takes the sum from below its limit to the limit or above; then
not again until signals have left the window, the sum is below, and another signal takes it there.

- Within a cut, signals are taken by time, then rule, then identity; across cuts in the order of the cuts. A signal that
  is older than ``T`` does not take the sum back in time: it counts at ``T`` if it is in the window there, and the alert
  is said at that signal, with its time. One that is not in the window (older than the watermark less ``within``, at the
  latest) counts nowhere. So where the signals of a key come in the order of their times, alerts do not depend on how
  the input is cut; where they do not, which signal an alert is said at may. The shards never matter, and the same cuts
  give the same alerts.
- The same signal (rule and identity) counts once. NULL is a key like any other.
- Signals are kept for the group, for every rule that some score rule names, with the score that their rule had then:
  so a new limit, weight or way of counting goes on with what was there, and says nothing of a sum that stands at its
  limit already. What came before a rule was first named is not there: until a window began after that, alerts are
  marked as warming. A paused score rule goes on collecting.
- At most ``GroupSettings.events`` signals a key (the oldest go) and ``GroupSettings.population`` keys (the last to come
  have no score); what is left out is counted (``signals_dropped``, ``keys_dropped``).

Refuses to know how signals are found: ``scores_feed`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypedDict

import orjson
import polars as pl

from rulecore.compiled import CompiledRule
from rulecore.firing import Failure, Firing, Origin, Timing
from rulecore.groups import GroupId, Moment
from rulecore.members import DTYPES
from rulecore.model import Mode
from rulecore.scores_spec import Scoring
from rulecore.scores_table import Key, SignalTable
from rulecore.scores_tally import Held, Tally
from rulecore.settings import GroupSettings
from streamcore.schema import StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK

MAX_ORIGINS: Final = 100  # events that an alert names: the latest


class _Kept(TypedDict):
    """What a group remembers: since when the signals of a rule are complete, and how long signals are kept."""

    since_ms: dict[str, int]
    keep_ms: int


class Signal(NamedTuple):
    """``key``: values of the group's columns, in order. ``identity`` tells the signals of a rule and key apart, and is
    the same whenever the signal is computed. ``weight``: the rule's own score. ``place``: partition and offset of the
    event, None for what is no event's."""

    rule: str
    key: Key
    time_ms: int
    identity: str
    weight: int
    place: tuple[int, int] | None


class ScoreGroup:
    """A ``RuleGroup`` that is given signals instead of events. ``counts``: what limits dropped since it was told."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.settings = settings
        fields = [schema.get(name) for name in group.group_by]
        self.table_of_signals = SignalTable({f.name: DTYPES[f.type.kind] for f in fields if f is not None})
        self.counts: Counter[str] = Counter()
        self.wanted: frozenset[str] = frozenset()
        self._rules: tuple[CompiledRule, ...] = ()
        self._since: dict[str, int] = {}
        self._keep_ms = 0
        self._tallies: dict[Key, dict[str, Tally]] = {}

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate these rules from now on. Signals of rules that none of them names are forgotten."""
        blob = memory.get(str(self.group))
        kept: _Kept = {"since_ms": {}, "keep_ms": 0} if blob is None else orjson.loads(blob)
        scorings = [_scoring(rule) for rule in rules]
        self.wanted = frozenset(name for scoring in scorings for name in scoring.weights)
        self._keep_ms = max(scoring.within_ms for scoring in scorings)
        forgotten = watermark_ms - kept["keep_ms"] if self._keep_ms > kept["keep_ms"] > 0 else NO_WATERMARK
        self._since = {n: max(kept["since_ms"].get(n, now_ms), forgotten) for n in sorted(self.wanted)}
        document = {"since_ms": self._since, "keep_ms": self._keep_ms}
        memory.put(str(self.group), orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
        self._rules = tuple(sorted((r for r in rules if r.rule.status is not Mode.PAUSED), key=lambda r: r.rule.id))
        self._tallies.clear()
        if set(kept["since_ms"]) - self.wanted:
            self._forget_unwanted()

    def _forget_unwanted(self) -> None:
        for key, held in self.table_of_signals.held.items():
            self.table_of_signals.remove(key, [signal for signal in held if signal.rule not in self.wanted])
        self.table_of_signals.release([*self.table_of_signals.held])

    # --- a cut --------------------------------------------------------------------------------------------------

    def signals(self, batch: Sequence[Signal], moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Signals of one cut, in any order, before ``close``."""
        oldest_ms = moment.watermark_ms - self._keep_ms
        batch = sorted((s for s in batch if s.rule in self.wanted and s.time_ms > oldest_ms), key=_order)
        self.counts["keys_dropped"] += self.table_of_signals.admit([s.key for s in batch], self.settings.population)
        firings: list[Firing] = []
        for signal in batch:
            if signal.key in self.table_of_signals.held:
                firings += self._take(signal, moment)
        return firings, []

    def _take(self, signal: Signal, moment: Moment) -> list[Firing]:
        key, held = signal.key, _held(signal)
        tallies = self._tallies_of(key, moment)
        if not self.table_of_signals.add(key, held):
            return []
        firings = []
        for rule in self._rules:
            if signal.rule in tallies[rule.rule.id].scoring.weights and tallies[rule.rule.id].take(
                held, moment.watermark_ms
            ):
                firings.append(self._firing(rule, key, held, tallies[rule.rule.id], moment))
        while len(self.table_of_signals.held[key]) > self.settings.events:
            self.counts["signals_dropped"] += 1
            oldest = self.table_of_signals.remove_first(key)
            for tally in tallies.values():
                tally.remove(oldest)
        return firings

    def _tallies_of(self, key: Key, moment: Moment) -> dict[str, Tally]:
        if key not in self._tallies:
            held = self.table_of_signals.held[key]
            self._tallies[key] = {r.rule.id: Tally(_scoring(r), held, moment.watermark_ms) for r in self._rules}
        return self._tallies[key]

    def _firing(self, rule: CompiledRule, key: Key, signal: Held, tally: Tally, moment: Moment) -> Firing:
        start_ms = tally.latest_ms - tally.scoring.within_ms
        events = [s for s in tally.window if s.offset >= 0][-MAX_ORIGINS:]
        return Firing(
            rule=rule,
            key=dict(zip(self.group.group_by, key, strict=True)),
            mark=(signal.time_ms, signal.rule, signal.identity),
            time_ms=signal.time_ms,
            start_ms=start_ms,
            end_ms=tally.latest_ms,
            timing=Timing.EARLY,
            row=None,
            values={"__sum": tally.total, "__rules": ", ".join(tally.rules), "__count": len(tally.window)},
            warming=start_ms < max(self._since[name] for name in tally.scoring.weights),
            events=tuple(Origin(moment.topic, s.partition, s.offset, s.time_ms) for s in events),
        )

    def add(self, _frame: pl.DataFrame, _moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Events are nothing to a score: it is given signals."""
        return [], []

    def close(self, moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Forget the signals that no window can hold any more."""
        if moment.next_watermark_ms > moment.watermark_ms:
            touched = self.table_of_signals.expire(moment.next_watermark_ms - self._keep_ms)
            self.table_of_signals.release(touched)
            for key in touched:
                if key not in self.table_of_signals.held:
                    self._tallies.pop(key, None)
        return [], []

    # --- state --------------------------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, int]:
        """What limits dropped since the last call."""
        counts = dict(self.counts)
        self.counts.clear()
        return counts

    def tables(self) -> Mapping[str, StateTable]:
        """One."""
        return {f"signals:{self.group}": self.table_of_signals}

    def table(self, name: str) -> StateTable:
        """The only one. What is loaded into it counts anew."""
        assert name == f"signals:{self.group}", name
        self._tallies.clear()
        return self.table_of_signals


def _scoring(rule: CompiledRule) -> Scoring:
    assert rule.score is not None, "a score rule"
    return rule.score


def _order(signal: Signal) -> tuple[int, str, str]:
    return signal.time_ms, signal.rule, signal.identity


def _held(signal: Signal) -> Held:
    partition, offset = signal.place or (-1, -1)
    return Held(signal.time_ms, signal.rule, signal.identity, signal.weight, partition, offset)
