"""The group of sequence rules of one stream and ``group_by``: evaluates their conditions once for all rules.

A cut has four steps. One index matches the events with all distinct conditions; an event that satisfies one of them is
buffered. The events that the watermark passes are sorted by key and time, and get their roles in the sequences. For
each sequence and key, an automaton (``MatchSet``) takes these events and extends its partial matches (partials). A
pending partial whose quiet time ends before the watermark matches. The package docstring has the exact semantics.
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
from rulecore.documents.slots import version_key
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
from rulecore.state_size import StateSize, StateUse
from streamcore.hashing import hash_columns
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import HASH, KeyValueTable, StateTable

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _SequenceRules:
    """A distinct sequence, and the rules that fire when it matches.

    ``since_ms``: the latest event time before the sequence was known. ``captured``: the columns that messages show.
    """

    program: SequenceProgram
    since_ms: int
    rules: tuple[CompiledRule, ...]
    captured: tuple[str, ...]


class SequenceGroup:
    """The ``RuleGroup`` of sequence rules: its buffered events, its partials and its rules."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.settings = settings
        self._dtypes = {f.name: DTYPES[f.type.kind] for f in schema.fields}
        keys = {name: self._dtypes[name] for name in group.group_by}
        self.buffer = EventBuffer(keys)
        self.partials = PartialMatchTable(keys)
        self._rules: tuple[CompiledRule, ...] = ()
        self._sequences: dict[int, _SequenceRules] = {}
        self._sequence_numbers: dict[str, int] = {}  # by version of a rule
        self._conditions: tuple[str, ...] = ()  # fingerprints, in the order of the matcher
        self._condition_numbers = np.empty(0, np.int32)  # of ``_conditions``, from ``SequenceIds``
        self._matcher: EventMatcher[SequenceCondition] = EventMatcher(())
        self._roles = RoleTable.build(())
        self._captured: tuple[str, ...] = ()
        self._dropped = {"events_dropped": 0, "partials_dropped": 0}

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``)."""
        del watermark_ms  # a sequence has no window that may have begun before the rule
        ids = SequenceIds.read(memory, str(self.group))
        ids.keep(map(required_sequence, rules), now_ms)
        ids.write(memory, str(self.group))
        self._rules = tuple(rules)
        self._sequences = _rules_by_sequence(rules, ids)
        self._sequence_numbers = {
            version_key(rule.rule): ids.sequences[required_sequence(rule).fingerprint] for rule in rules
        }
        self.partials.keep(self._sequences.keys())
        self._captured = tuple(sorted({c for sequence in self._sequences.values() for c in sequence.captured}))
        self.buffer.keep(ids.conditions.values(), {name: self._dtypes[name] for name in self._captured})
        conditions = {c.fingerprint: c for rule in rules for c in required_sequence(rule).conditions}
        self._conditions = tuple(conditions)
        self._condition_numbers = np.array([ids.conditions[f] for f in conditions], np.int32)
        self._matcher = EventMatcher([*conditions.values()])
        distinct = {s.fingerprint: s for s in map(required_sequence, rules)}
        self._roles = RoleTable.build(
            (ids.conditions[c.fingerprint], ids.sequences[s.fingerprint], c.roles)
            for s in distinct.values()
            for c in s.conditions
        )

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, _context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Buffer the events that satisfy a condition. Nothing fires before ``close``."""
        matches = self._matcher.match(frame)
        if matches.failed:
            reasons = {self._conditions[number]: reason for number, reason in matches.failed}
            return [], list(self._failures(reasons))
        if len(matches.row):
            self.buffer.add(self._buffer_rows(frame, matches))
        return [], []

    def _failures(self, reasons: Mapping[str, str]) -> Iterable[RuleFailure]:
        """Yield a failure for each rule that uses a failed condition. ``reasons``: by the condition's fingerprint."""
        for rule in self._rules:
            own_reasons = [
                reasons[c.fingerprint] for c in required_sequence(rule).conditions if c.fingerprint in reasons
            ]
            if own_reasons:
                yield RuleFailure(rule, own_reasons[0])

    def _buffer_rows(self, frame: pl.DataFrame, matches: EventMatches) -> pl.DataFrame:
        """Return the rows for the buffer, one per matching event. The matches are ordered by row."""
        rows, first = np.unique(matches.row, return_index=True)
        events = frame[rows]
        offsets = pa.array(np.append(first, len(matches.row)), pa.int64())
        conditions = pa.LargeListArray.from_arrays(offsets, pa.array(self._condition_numbers[matches.rule]))
        keys = events.select(self.buffer.keys)
        return keys.hstack(
            [
                pl.Series(HASH, hash_columns(keys.get_columns(), keys.height)),
                events[EVENT_MS],
                events[PARTITION].cast(pl.Int64),
                events[OFFSET],
                pl.Series(CONDITIONS, conditions),
                *(events[name].alias(value_column(name)) for name in self._captured),
            ]
        )

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Process the events that the watermark passes, then the partials whose time ends before it."""
        before_ms = context.next_watermark_ms
        self.buffer.drop_before(context.watermark_ms)
        matches: list[SequenceMatch] = []
        passed = self.buffer.release(before_ms)
        if passed.height:
            matches += self._process(passed, before_ms)
        for code, row in self.partials.due(before_ms):
            matches += self._advance_without_event(code, row, before_ms)
        self._dropped["events_dropped"] += self.buffer.limit_fresh(self.settings.events)
        return self._firings(matches, context.topic), []

    def _process(self, passed: pl.DataFrame, before_ms: int) -> list[SequenceMatch]:
        """Pass events to the automata of their sequences and keys, and return the matches."""
        events = _Events.of(passed, self.partials.keys.assign(passed), self._captured)
        roles = self._roles.roles_for_events(events.event_indexes, events.conditions)
        runs, run_roles = roles.runs(events.key_slots)
        if not len(run_roles):
            return []
        first = runs[:-1]
        codes = sequence_key_code(roles.sequences[first], events.key_slots[roles.events[first]])
        rows = self.partials.find(codes)
        active = np.flatnonzero((rows >= 0) | (run_roles & BEGINS > 0))
        all_matches: list[SequenceMatch] = []
        event_indexes, event_roles = roles.events.tolist(), roles.roles.tolist()
        bounds = runs.tolist()
        sequences = roles.sequences[first].tolist()
        code_list, row_list = codes.tolist(), rows.tolist()
        for run in active.tolist():
            sequence_rules = self._sequences[sequences[run]]
            code, row = code_list[run], row_list[run]
            partials = MatchSet(sequence_rules.program, self.settings.partials, self.partials.get(row))
            matches: list[Match] = []
            for i in range(bounds[run], bounds[run + 1]):
                matches += partials.take(events.event(event_indexes[i], event_roles[i], sequence_rules.captured))
            all_matches += self._store(code, partials, matches, before_ms)
        return all_matches

    def _store(self, code: int, partials: MatchSet, matches: list[Match], before_ms: int) -> list[SequenceMatch]:
        """Advance the partials to the watermark, store them, and return all matches with their sequence and key."""
        matches += partials.advance_to(before_ms)
        self.partials.put(code, partials)
        self._dropped["partials_dropped"] += partials.dropped
        return [SequenceMatch(code >> 32, code & 0xFFFFFFFF, match) for match in matches]

    def _advance_without_event(self, code: int, row: int, before_ms: int) -> list[SequenceMatch]:
        """Advance the partials of a row to the watermark: pending ones match, expired ones are dropped."""
        program = self._sequences[code >> 32].program
        if program.quiet_ms is None:  # no partial is ever pending
            self.partials.drop(code)
            return []
        partials = MatchSet(program, self.settings.partials, self.partials.get(row))
        matches = partials.advance_to(before_ms)
        if not matches and not partials.partials:
            self.partials.drop(code)
            return []
        return self._store(code, partials, matches, before_ms)

    def _firings(self, matches: Sequence[SequenceMatch], topic: str) -> list[RuleFiring]:
        """Return the firings in order of time, key hash and rule.

        Key slots must not decide: another process that replays the cut assigns other key slots.
        """
        if not matches:
            return []
        key_slots = np.array([match.key_slot for match in matches])
        keys = self.partials.keys.frame(key_slots).to_dicts()
        hashes = self.partials.keys.hashes[key_slots].tolist()
        fired: list[tuple[tuple[object, ...], RuleFiring]] = []
        for match, key, key_hash in zip(matches, keys, hashes, strict=True):
            sequence_rules = self._sequences[match.sequence]
            for rule in sequence_rules.rules:
                rule_firing = to_firing(rule, key, match.match, topic, sequence_rules.since_ms)
                fired.append(((rule_firing.time_ms, key_hash, rule.rule.id, rule_firing.mark), rule_firing))
        return [rule_firing for _, rule_firing in sorted(fired, key=lambda pair: pair[0])]

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all partials and buffered events (see ``StateHolder``)."""
        return self.partials.state_size + self.buffer.state_size

    def state_use(self, _watermark_ms: int) -> StateUse:
        """Return the size of the partials of each rule's sequence, and of the events that satisfied its conditions."""
        numbers = dict(zip(self._conditions, self._condition_numbers.tolist(), strict=True))
        conditions = {
            version_key(rule.rule): {numbers[c.fingerprint] for c in required_sequence(rule).conditions}
            for rule in self._rules
        }
        events = self.buffer.state_sizes({"": set(numbers.values()), **conditions})
        total, partials = self.partials.state_use()
        by_rule = {
            name: events[name] + partials.get(sequence, StateSize())
            for name, sequence in self._sequence_numbers.items()
        }
        return StateUse(total + events[""], by_rule)

    def metrics(self) -> Mapping[str, int]:
        """Return the events and partials that limits dropped since the last call."""
        counts, self._dropped = self._dropped, dict.fromkeys(self._dropped, 0)
        return counts

    def tables(self) -> dict[str, StateTable]:
        """Return the group's tables by name."""
        return {f"waiting:{self.group}": self.buffer, f"partials:{self.group}": self.partials}

    def table(self, name: str) -> StateTable:
        """Return the table of that name."""
        return self.buffer if name.startswith("waiting:") else self.partials


def _rules_by_sequence(rules: Sequence[CompiledRule], ids: SequenceIds) -> dict[int, _SequenceRules]:
    """Return the rules by the number of their sequence, which rules of equal structure share."""
    by_fingerprint: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        by_fingerprint.setdefault(required_sequence(rule).fingerprint, []).append(rule)
    return {
        ids.sequences[fingerprint]: _SequenceRules(
            program=required_sequence(alike[0]).program,
            since_ms=ids.since_ms[fingerprint],
            rules=tuple(rule for rule in alike if rule.rule.status is not RuleMode.PAUSED),
            captured=tuple(sorted({c.column for rule in alike for c in required_sequence(rule).captures})),
        )
        for fingerprint, alike in by_fingerprint.items()
    }


@dataclass(frozen=True, slots=True)
class _Events:
    """Events in order of (key slot, time, partition, offset).

    ``conditions[i]`` is the number of a condition that the event at index ``event_indexes[i]`` satisfies.
    ``origins``: event time, partition and offset of each event. ``values``: by captured column.
    """

    key_slots: Ints
    event_indexes: Ints
    conditions: Ints
    origins: Sequence[tuple[int, int, int]]
    values: Mapping[str, Sequence[Value]]

    @classmethod
    def of(cls, frame: pl.DataFrame, key_slots: Ints, captured: Sequence[str]) -> _Events:
        """Return the events of rows of the buffer. ``key_slots``: the key slot of each."""
        times, partitions, offsets = (frame[n].to_numpy() for n in (EVENT_MS, PARTITION, OFFSET))
        order = np.lexsort((offsets, partitions, times, key_slots))
        conditions = frame[CONDITIONS].gather(order)
        counts = conditions.list.len().to_numpy()
        return cls(
            key_slots=key_slots[order],
            event_indexes=np.repeat(np.arange(len(order)), counts),
            conditions=conditions.explode().to_numpy().astype(np.int64),
            origins=list(zip(*(v[order].tolist() for v in (times, partitions, offsets)), strict=True)),
            values={name: frame[value_column(name)].gather(order).to_list() for name in captured},
        )

    def event(self, index: int, roles: int, captured: Sequence[str]) -> Event:
        """Return the event at an index as the input of an automaton."""
        return (*self.origins[index], roles, {name: self.values[name][index] for name in captured})
