"""The group of absence rules of one stream and ``group_by``: each key must have an event at least once per ``every``.

The meaning of an alert, for a key and a rule. All times are event times, inclusive at the deadline::

    event            deadline      watermark passes it: alert
      |----- every -----|                                         nothing came in (event, deadline]
      |----- every -----|-- again --|-- again --|                 and one more for each `again`, if it is no `once`
      |------------------ forget ----------------|                none after that

- The deadlines of an event at ``t`` are ``t + every + n * again``. One that is before the next event of the key, and
  that the watermark has passed, is an alert: ``time_ms`` and the mark are the deadline, ``start_ms`` the last event.
  So alerts follow from the events that were on time and the watermark alone; neither their order of arrival nor the
  borders of cuts matter. An event that comes out of order fills a gap or changes nothing.
- A key that was ``seen`` is armed by its first event. A key of a list is armed when the rule comes, at the latest event
  time of the stream before it, or at the watermark when it comes to the list later (whichever is later), or, where
  neither is known, at the first watermark. Its alerts then count from the arming, and ``last_seen`` is NULL until an
  event came. A key taken off the list is disarmed. A shard arms the keys that it owns. NULL is a key, and on no list.
- Several deadlines that the watermark passes at once are all alerts, ``GroupSettings.repeats`` at most for a rule, key
  and cut: the earliest; any more are counted (``repeats_dropped``) and dropped.
- Keys beyond ``GroupSettings.population`` in one population of a shard are not armed: those that come last, of a list
  those with the largest hashes. They are counted (``keys_dropped``: once a cut with their event; those of a list once).

Edits. Who was last seen when is kept for a population (``absence_spec``), so a version with another ``every``,
``again`` or ``forget`` goes on with it; how many alerts a rule gave of a silence is kept for the rule's id. So a longer
``every`` repeats no alert, a shorter one alerts at once for a deadline that has passed, and a rule that comes to a
population that another one keeps finds it as it is. A paused rule keeps its state and alerts, when it is back, for
the events missed then, once (or, with ``again``, each deadline that passed). Of events that the watermark had not
reached when ``every`` became shorter, gaps between the two lengths are not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from rulecore.compile.absence import CompiledAbsence
from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import RuleMode
from rulecore.documents.slots import version_key
from rulecore.firing import FiringTime, RuleFailure, RuleFiring
from rulecore.groups.absence.deadlines import DeadlineScan, MissedDeadline
from rulecore.groups.absence.ids import IdRegistry
from rulecore.groups.absence.list_populations import ListPopulations
from rulecore.groups.absence.out_of_order import Intervals, join, merge_within_reach
from rulecore.groups.absence.rule_matrix import NO_EVENT, Ints, Mask, RuleMatrix, RuleWatch
from rulecore.groups.absence.state import ExpectedKeys
from rulecore.groups.base import CutContext, GroupId
from rulecore.matching.matcher import EventMatcher
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize, StateUse
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import EVENT_MS, StreamSchema
from streamcore.state import KeyValueTable, StateTable
from streamcore.watermark import NO_WATERMARK

_SWEEPS: Final = 16  # scans for keys to forget, per ``forget`` duration


class AbsenceGroup:
    """The ``RuleGroup`` of absence rules. ``counts``: entries dropped by limits since the last ``metrics``."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.settings = settings
        fields = [schema.get(name) for name in group.group_by]
        self.entries = ExpectedKeys({f.name: polars_type(f.type) for f in fields if f is not None})
        self.listed = ListPopulations(schema, group.group_by, settings.population)
        self.counts: Counter[str] = Counter()
        self.deadlines = DeadlineScan(self.entries, settings.repeats, self.counts)
        self._rules: dict[int, CompiledRule] = {}
        self._populations: dict[int, list[CompiledRule]] = {}  # by number
        self._matcher: EventMatcher[CompiledRule] = EventMatcher(())
        self._numbers = np.empty(0, np.int64)  # the population number of each rule of the matcher

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, _watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``)."""
        ids = IdRegistry(memory.get(str(self.group)), now_ms)
        watches = [_watch(rule, ids) for rule in rules]
        self._rules = {w.rule: rule for w, rule in zip(watches, rules, strict=True)}
        self._populations = {}
        for watch, rule in zip(watches, rules, strict=True):
            self._populations.setdefault(watch.population, []).append(rule)
        ids.keep({_absence(r).population for r in rules}, {r.rule.id for r in rules})
        memory.put(str(self.group), ids.to_json())
        self._matcher = EventMatcher([members[0] for members in self._populations.values()])
        self._numbers = np.fromiter(self._populations, np.int64, len(self._populations))
        listed = {number: _absence(members[0]).listed for number, members in self._populations.items()}
        self.listed.expect({n: (name, ids.since_ms(n)) for n, name in listed.items() if name is not None})
        live = self.entries.live()
        self.entries.drop(live[~np.isin(self.entries.population[live], self._numbers)])
        self.entries.set_matrix(RuleMatrix.build(watches, ids.size))

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Record the events. Nothing fires before ``close``: an absence is known when the watermark passes."""
        matches = self._matcher.match(frame)
        if matches.failed:
            return [], [
                RuleFailure(r, reason) for n, reason in matches.failed for r in self._populations[int(self._numbers[n])]
            ]
        self._begin(context)
        rows, inverse = np.unique(matches.row, return_inverse=True)
        if len(rows):
            events = frame if len(rows) == frame.height else frame[rows]
            key_slots = self.entries.keys.assign(events)[inverse]
            self._record_events(key_slots, self._numbers[matches.rule], events[EVENT_MS].to_numpy()[inverse])
        return [], []

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Fire the deadlines that the watermark passes without an event, by time, key and rule; drop forgotten keys."""
        self._begin(context)
        if context.next_watermark_ms <= context.watermark_ms:
            return [], []
        missed: list[MissedDeadline] = []
        while len((first := self.entries.ahead.pull_first(context.next_watermark_ms)).entry):
            missed += self.deadlines.before_events(first.entry, first.start)
            self.entries.set_last_seen(first.entry, first.end, seen=True)
        if context.watermark_ms == NO_WATERMARK:
            self.entries.set_last_seen(self.listed.unarmed_entries(self.entries), context.next_watermark_ms, seen=False)
        missed += self.deadlines.before_watermark(context.next_watermark_ms)
        firings = self._firings(missed)
        self._forget(context)
        return firings, []

    def _begin(self, context: CutContext) -> None:
        """Apply loaded rows and changed lists."""
        self.entries.keys.sweep()
        self.entries.apply_loaded()
        self.counts["keys_dropped"] += self.listed.sync(self.entries, context)

    def _record_events(self, key_slots: Ints, population: Ints, event_ms: Ints) -> None:
        """Record events. ``key_slots`` and ``population``: the key and the population of each."""
        entries = self.entries
        entry = self._admit(key_slots, population)
        known = entry >= 0
        if not known.all():
            entry, population, event_ms = entry[known], population[known], event_ms[known]
        last = entries.last[entry]
        near = (last > NO_EVENT) & (event_ms <= last + entries.matrix.reach[population])
        apart = entries.ahead.mark(entries.size)
        apart[entry[~near]] = True
        simple = ~apart[entry]
        self._extend(entry[simple], event_ms[simple])
        if not simple.all():
            self._merge_events(Intervals(entry[~simple], event_ms[~simple], event_ms[~simple]))

    def _extend(self, entry: Ints, event_ms: Ints) -> None:
        """Record events within ``reach`` of the last one of an entry without intervals ahead."""
        last = self.entries.last
        came = event_ms >= last[entry]
        moved = np.flatnonzero(self.entries.as_mask(entry[came]))
        np.maximum.at(last, entry[came], event_ms[came])
        self.entries.seen[moved] = True
        self.entries.renew(moved)

    def _merge_events(self, events: Intervals) -> None:
        """Record events of other entries: merge them with the last event and the intervals ahead."""
        entries = self.entries
        marked = entries.as_mask(events.entry)
        mine = np.flatnonzero(marked)
        rest = mine[entries.last[mine] > NO_EVENT]
        before = entries.last[rest]
        parts = join(Intervals(rest, np.full(len(rest), NO_EVENT), before), entries.ahead.pull(marked), events)
        chains = merge_within_reach(parts, entries.matrix.reach[entries.population[parts.entry]])
        resting = chains.start == NO_EVENT
        entries.ahead.put(chains.take(~resting))
        entries.touch(mine)
        after = chains.take(resting)
        came = entries.as_mask(events.entry[events.end == entries.last[events.entry]])
        moved = (after.end > before) | (came[after.entry] & (after.end == before))
        moved &= ~(entries.seen[after.entry] & (after.end == before))
        entries.set_last_seen(after.entry[moved], after.end[moved], seen=True)

    def _admit(self, key_slots: Ints, population: Ints) -> Ints:
        """Return the entry of each event's key; add entries for new keys, in order of arrival, up to the limit.

        -1 for a key above the limit, and for a key that is not on the list of a listed population.
        """
        entry = self.entries.find(key_slots, population)
        new = np.flatnonzero((entry < 0) & ~np.isin(population, self.listed.numbers))
        if not new.size:
            return entry
        pairs = key_slots[new] * (int(population.max()) + 1) + population[new]
        _, first = np.unique(pairs, return_index=True)
        first = new[np.sort(first)]
        fits = self._room(population[first])
        self.counts["keys_dropped"] += int(np.count_nonzero(~fits))
        self.entries.add(key_slots[first[fits]], population[first[fits]])
        entry[new] = self.entries.find(key_slots[new], population[new])
        return entry

    def _room(self, population: Ints) -> Mask:
        """Return which of these new keys, in order, are within the limit of their population."""
        order = np.argsort(population, kind="stable")
        _, start, count = np.unique(population[order], return_index=True, return_counts=True)
        position = np.empty(len(population), np.int64)
        position[order] = np.arange(len(population)) - np.repeat(start, count)
        held = np.array([self.entries.population_sizes.get(n, 0) for n in population.tolist()], np.int64)
        fits: Mask = position + held < self.settings.population
        return fits

    # --- alerts -------------------------------------------------------------------------------------------------

    def _firings(self, missed: Sequence[MissedDeadline]) -> list[RuleFiring]:
        """Return a firing for each missed deadline, by deadline, key hash and rule id."""
        key_slots = self.entries.key_slot[[m.entry for m in missed]] if missed else np.empty(0, np.int64)
        hashes = self.entries.keys.hashes[key_slots].tolist()
        keys = self.entries.keys.frame(key_slots).to_dicts()
        ordered = [
            (deadline, key_hash, self._rules[m.rule].rule.id, self._firing(m, key, number, deadline))
            for m, key, key_hash in zip(missed, keys, hashes, strict=True)
            for number, deadline in enumerate(m.first_ms + n * m.step_ms for n in range(m.new_alerts))
        ]
        return [firing for *_, firing in sorted(ordered, key=lambda item: item[:3])]

    def _firing(
        self, missed: MissedDeadline, key: Mapping[str, str | int | None], number: int, deadline_ms: int
    ) -> RuleFiring:
        return RuleFiring(
            rule=self._rules[missed.rule],
            key=key,
            mark=(deadline_ms,),
            time_ms=deadline_ms,
            start_ms=missed.last_ms,
            end_ms=deadline_ms,
            timing=FiringTime.FINAL,
            row=None,
            values={
                "__last_seen": missed.last_ms if missed.seen else None,
                "__missing_for_ms": deadline_ms - missed.last_ms,
                "__times": missed.previous_alerts + number + 1,
            },
            incomplete=False,
        )

    def _forget(self, context: CutContext) -> None:
        """Drop keys without an event for ``forget``. They may be dropped later than that: no alert depends on it."""
        forget = self.entries.matrix.forget[self._numbers]
        every = max(1, int(forget.min(initial=2**62)) // _SWEEPS)
        if context.watermark_ms // every < context.next_watermark_ms // every:
            live = self.entries.live()
            live = live[self.entries.last[live] > NO_EVENT]
            horizon = self.entries.matrix.forget[self.entries.population[live]]
            gone = live[self.entries.last[live] < context.next_watermark_ms - horizon]
            self.entries.drop(gone[~self.entries.ahead.mark(self.entries.size)[gone]])

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all entries (see ``StateHolder``)."""
        return self.entries.state_size

    def state_use(self, _watermark_ms: int) -> StateUse:
        """Return the size of the population of each rule, which rules share."""
        total, sizes = self.entries.state_use()
        by_rule = {
            version_key(rule.rule): sizes.get(population, StateSize())
            for population, rules in self._populations.items()
            for rule in rules
        }
        return StateUse(total, by_rule)

    def metrics(self) -> Mapping[str, int]:
        """Return the numbers of entries that limits dropped since the last call."""
        counts = dict(self.counts)
        self.counts.clear()
        return counts

    def tables(self) -> Mapping[str, StateTable]:
        """Return the only table."""
        return {f"expected:{self.group}": self.entries}

    def table(self, name: str) -> StateTable:
        """Return the only table."""
        assert name == f"expected:{self.group}", name
        return self.entries


def _absence(rule: CompiledRule) -> CompiledAbsence:
    assert rule.absence is not None, "an absence rule"
    return rule.absence


def _watch(rule: CompiledRule, numbers: IdRegistry) -> RuleWatch:
    absence = _absence(rule)
    muted = rule.rule.status is RuleMode.PAUSED
    return RuleWatch(numbers.population(absence.population), numbers.rule(rule.rule.id), absence, muted)
