"""The sequences of one stream and key, evaluated together: conditions once, each key's events in order of event time.

A cut goes through four steps: all distinct conditions of all rules are matched with the events through one index, and
an event that satisfies any of them waits; an event that the watermark passes is sorted by key and time and given its
roles in sequences; the automaton of each sequence and key that has partials, or a beginning among those events, takes
them; and a partial that is pending until before the watermark matches. See the package for the exact meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence import SequenceCondition
from rulecore.compile.sequence_program import BEGINS, SequenceProgram
from rulecore.documents.rule import RuleMode
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.sequences.automaton import Event, Match, MatchSet
from rulecore.groups.sequences.event_buffer import CONDITIONS, EventBuffer, value_column
from rulecore.groups.sequences.event_roles import RoleTable
from rulecore.groups.sequences.firings import SequenceMatch, to_firing
from rulecore.groups.sequences.ids import SequenceIds, required_sequence
from rulecore.groups.sequences.partial_matches import PartialMatchTable, sequence_key_code
from rulecore.groups.windows.members import DTYPES
from rulecore.language.types import Value
from rulecore.matching.matcher import EventMatcher, EventMatches
from rulecore.settings import GroupSettings
from streamcore.hashing import hash_columns
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import HASH, KeyValueTable, StateTable

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _SequenceRules:
    """A sequence that is looked for.

    ``rules``: that fire; ``captured``: columns whose values its messages name.
    """

    program: SequenceProgram
    since_ms: int
    rules: tuple[CompiledRule, ...]
    captured: tuple[str, ...]


class SequenceGroup:
    """The waiting events and the partials of one group, and the rules over them."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.settings = settings
        self._dtypes = {f.name: DTYPES[f.type.kind] for f in schema.fields}
        keys = {name: self._dtypes[name] for name in group.group_by}
        self.buffer = EventBuffer(keys)
        self.partials = PartialMatchTable(keys)
        self._rules: tuple[CompiledRule, ...] = ()
        self._sequences: dict[int, _SequenceRules] = {}
        self._conditions: tuple[str, ...] = ()  # fingerprints, as the matcher numbers them
        self._numbers = np.empty(0, np.int32)  # of the conditions, in the same order
        self._matcher: EventMatcher[SequenceCondition] = EventMatcher(())
        self._roles = RoleTable.build(())
        self._captured: tuple[str, ...] = ()
        self._dropped = {"events_dropped": 0, "partials_dropped": 0}

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate these rules from now on. ``now_ms``: the latest event time so far, for state that starts empty."""
        del watermark_ms  # a sequence is complete from its first event on: there is no window that was half seen
        kept = SequenceIds.read(memory, str(self.group))
        kept.keep(map(required_sequence, rules), now_ms)
        kept.write(memory, str(self.group))
        self._rules = tuple(rules)
        self._sequences = _rules_by_sequence(rules, kept)
        self.partials.keep(self._sequences.keys())
        self._captured = tuple(sorted({c for one in self._sequences.values() for c in one.captured}))
        self.buffer.keep(kept.conditions.values(), {name: self._dtypes[name] for name in self._captured})
        conditions = {c.fingerprint: c for rule in rules for c in required_sequence(rule).conditions}
        self._conditions = tuple(conditions)
        self._numbers = np.array([kept.conditions[f] for f in conditions], np.int32)
        self._matcher = EventMatcher([*conditions.values()])
        distinct = {s.fingerprint: s for s in map(required_sequence, rules)}
        self._roles = RoleTable.build(
            (kept.conditions[c.fingerprint], kept.sequences[s.fingerprint], c.roles)
            for s in distinct.values()
            for c in s.conditions
        )

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, _context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Let the events that satisfy a condition wait. Nothing fires here."""
        matches = self._matcher.match(frame)
        if matches.failed:
            reasons = {self._conditions[number]: reason for number, reason in matches.failed}
            return [], list(self._failures(reasons))
        if len(matches.row):
            self.buffer.add(self._candidates(frame, matches))
        return [], []

    def _failures(self, reasons: Mapping[str, str]) -> Iterable[RuleFailure]:
        """Yield one failure for each rule that uses a condition that could not be evaluated."""
        for rule in self._rules:
            found = [reasons[c.fingerprint] for c in required_sequence(rule).conditions if c.fingerprint in reasons]
            if found:
                yield RuleFailure(rule, found[0])

    def _candidates(self, frame: pl.DataFrame, matches: EventMatches) -> pl.DataFrame:
        """Return the rows for the waiting table: matches come by row."""
        rows, first = np.unique(matches.row, return_index=True)
        some = frame[rows]
        offsets = pa.array(np.append(first, len(matches.row)), pa.int64())
        conditions = pa.LargeListArray.from_arrays(offsets, pa.array(self._numbers[matches.rule]))
        keys = some.select(self.buffer.keys)
        return keys.hstack(
            [
                pl.Series(HASH, hash_columns(keys.get_columns(), keys.height)),
                some[EVENT_MS],
                some[PARTITION].cast(pl.Int64),
                some[OFFSET],
                pl.Series(CONDITIONS, conditions),
                *(some[name].alias(value_column(name)) for name in self._captured),
            ]
        )

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Process the events that the watermark passes, then the partials that are over by then."""
        before_ms = context.next_watermark_ms
        self.buffer.forget(context.watermark_ms)
        found: list[SequenceMatch] = []
        passed = self.buffer.release(before_ms)
        if passed.height:
            found += self._take(passed, before_ms)
        for code, row in self.partials.due(before_ms):
            found += self._advance_without_event(code, row, before_ms)
        self._dropped["events_dropped"] += self.buffer.refuse(self.settings.events)
        return self._firings(found, context.topic), []

    def _take(self, passed: pl.DataFrame, before_ms: int) -> list[SequenceMatch]:
        """Give events to the automata of their sequences and keys."""
        events = _Events.of(passed, self.partials.keys.assign(passed), self._captured)
        roles = self._roles.roles_for_events(events.places, events.conditions)
        runs, some = roles.runs(events.slots)
        if not len(some):
            return []
        first = runs[:-1]
        codes = sequence_key_code(roles.sequences[first], events.slots[roles.events[first]])
        rows = self.partials.find(codes)
        active = np.flatnonzero((rows >= 0) | (some & BEGINS > 0))
        found: list[SequenceMatch] = []
        places, of = roles.events.tolist(), roles.roles.tolist()
        bounds = runs.tolist()
        sequences = roles.sequences[first].tolist()
        listed = codes.tolist(), rows.tolist()
        for run in active.tolist():
            sequence_rules = self._sequences[sequences[run]]
            code, row = listed[0][run], listed[1][run]
            partials = MatchSet(sequence_rules.program, self.settings.partials, self.partials.get(row))
            matches: list[Match] = []
            for i in range(bounds[run], bounds[run + 1]):
                matches += partials.take(events.event(places[i], of[i], sequence_rules.captured))
            found += self._put(code, partials, matches, before_ms)
        return found

    def _put(self, code: int, partials: MatchSet, matches: list[Match], before_ms: int) -> list[SequenceMatch]:
        matches += partials.advance_to(before_ms)
        self.partials.put(code, partials)
        self._dropped["partials_dropped"] += partials.dropped
        return [SequenceMatch(code >> 32, code & 0xFFFFFFFF, match) for match in matches]

    def _advance_without_event(self, code: int, row: int, before_ms: int) -> list[SequenceMatch]:
        """Advance without an event: pending partials match, expired ones are dropped."""
        program = self._sequences[code >> 32].program
        if program.quiet_ms is None:  # nothing is ever pending
            self.partials.drop(code)
            return []
        partials = MatchSet(program, self.settings.partials, self.partials.get(row))
        matches = partials.advance_to(before_ms)
        if not matches and not partials.partials:
            self.partials.drop(code)
            return []
        return self._put(code, partials, matches, before_ms)

    def _firings(self, found: Sequence[SequenceMatch], topic: str) -> list[RuleFiring]:
        """Return firings in order of time, key and rule. Slots are no order: another process numbers keys anew."""
        if not found:
            return []
        slots = np.array([one.slot for one in found])
        keys = self.partials.keys.frame(slots).to_dicts()
        hashes = self.partials.keys.hashes[slots].tolist()
        fired: list[tuple[tuple[object, ...], RuleFiring]] = []
        for one, key, hashed in zip(found, keys, hashes, strict=True):
            sequence_rules = self._sequences[one.sequence]
            for rule in sequence_rules.rules:
                rule_firing = to_firing(rule, key, one.match, topic, sequence_rules.since_ms)
                fired.append(((rule_firing.time_ms, hashed, rule.rule.id, rule_firing.mark), rule_firing))
        return [rule_firing for _, rule_firing in sorted(fired, key=lambda pair: pair[0])]

    # --- state --------------------------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, int]:
        """Return how much the limits dropped since the last call, and the number of ``events`` and ``partials``."""
        counts, self._dropped = self._dropped, dict.fromkeys(self._dropped, 0)
        return counts | {"events": len(self.buffer), "partials": len(self.partials)}

    def tables(self) -> dict[str, StateTable]:
        """Return the group's tables by name."""
        return {f"waiting:{self.group}": self.buffer, f"partials:{self.group}": self.partials}

    def table(self, name: str) -> StateTable:
        """Return the table of that name."""
        return self.buffer if name.startswith("waiting:") else self.partials


def _rules_by_sequence(rules: Sequence[CompiledRule], kept: SequenceIds) -> dict[int, _SequenceRules]:
    """Return the rules by the number of the sequence: rules of one structure are looked for together."""
    alike: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        alike.setdefault(required_sequence(rule).fingerprint, []).append(rule)
    return {
        kept.sequences[fingerprint]: _SequenceRules(
            program=required_sequence(mine[0]).program,
            since_ms=kept.since_ms[fingerprint],
            rules=tuple(rule for rule in mine if rule.rule.status is not RuleMode.PAUSED),
            captured=tuple(sorted({c.column for rule in mine for c in required_sequence(rule).captures})),
        )
        for fingerprint, mine in alike.items()
    }


@dataclass(frozen=True, slots=True)
class _Events:
    """Events by (slot, time, partition, offset). ``conditions``: pairs with ``places``, the places of their events."""

    slots: Ints
    places: Ints
    conditions: Ints
    origins: Sequence[tuple[int, int, int]]
    values: Mapping[str, Sequence[Value]]

    @classmethod
    def of(cls, frame: pl.DataFrame, slots: Ints, captured: Sequence[str]) -> _Events:
        times, partitions, offsets = (frame[n].to_numpy() for n in (EVENT_MS, PARTITION, OFFSET))
        order = np.lexsort((offsets, partitions, times, slots))
        conditions = frame[CONDITIONS].gather(order)
        counts = conditions.list.len().to_numpy()
        return cls(
            slots=slots[order],
            places=np.repeat(np.arange(len(order)), counts),
            conditions=conditions.explode().to_numpy().astype(np.int64),
            origins=list(zip(*(v[order].tolist() for v in (times, partitions, offsets)), strict=True)),
            values={name: frame[value_column(name)].gather(order).to_list() for name in captured},
        )

    def event(self, place: int, roles: int, captured: Sequence[str]) -> Event:
        """Return the event in the form that an automaton takes."""
        return (*self.origins[place], roles, {name: self.values[name][place] for name in captured})
