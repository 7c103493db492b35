"""The group of sequence rules of one stream and ``group_by``: evaluates their conditions once for all rules.

A cut has four steps. One index matches the events with all distinct conditions; an event that satisfies one of them is
buffered. The events that the watermark passes are sorted by key and time, and get their roles in the sequences. The
engine of patterns (``streamcore.patterns``) takes these events and extends the partial matches of each sequence and
key. What waits for a time that the watermark passes matches or ends. The package docstring has the exact semantics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence import SequenceCondition
from rulecore.documents.rule import RuleMode
from rulecore.documents.rule_kinds import TimedOut
from rulecore.documents.slots import version_key
from rulecore.firing import RuleFailure, RuleFiring
from rulecore.groups.base import CutContext, GroupId
from rulecore.groups.sequences.event_buffer import CONDITIONS, EventBuffer, value_column
from rulecore.groups.sequences.event_roles import RoleTable, family_roles
from rulecore.groups.sequences.firings import MatchedEvent, SequenceMatch, to_firing
from rulecore.groups.sequences.ids import SequenceIds, required_sequence
from rulecore.language import Expr
from rulecore.language.columnar.compiler import to_polars
from rulecore.matching.matcher import EventMatcher, EventMatches
from rulecore.settings import GroupSettings
from rulecore.state_size import StateSize, StateUse, key_bytes_at_most, size_by_group
from streamcore.columnar.polars_types import polars_type
from streamcore.hashing import hash_columns
from streamcore.limits import PatternLimits
from streamcore.patterns.automaton import Automaton
from streamcore.patterns.engine import Match, MatchEngine, PatternEvents
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import HASH, KeyValueTable, StateTable

#: A partial match, and an event that it has taken, without their text.
PARTIAL_BYTES: Final = 300
NODE_BYTES: Final = 220


#: The events of a partial match: of each partition, offset and the number of the step that took it.
Chain = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ReplayedMoment:
    """What there is after time has advanced to ``ms``, or after an event (``place``: partition and offset) was taken.

    ``partials``: each with the number of its state. ``matches``: those that have become certain.
    """

    ms: int
    place: tuple[int, int] | None
    partials: Mapping[Chain, int]
    matches: Sequence[Chain]


@dataclass(frozen=True, slots=True)
class _SequenceRules:
    """A distinct sequence, and the rules that have it.

    ``since_ms``: the latest event time before the sequence was known. ``values``: the columns of events to keep.
    """

    automaton: Automaton
    since_ms: int
    all_rules: tuple[CompiledRule, ...]
    values: tuple[str, ...]

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        """The rules that are not paused."""
        return tuple(rule for rule in self.all_rules if rule.rule.status is not RuleMode.PAUSED)

    @property
    def emits_timed_out(self) -> bool:
        """Whether a rule fires when the time of a partial match is over."""
        return any(rule.rule.timed_out is TimedOut.EMIT for rule in self.rules)


class SequenceGroup:
    """The ``RuleGroup`` of sequence rules: its buffered events, its partials and its rules."""

    def __init__(self, group: GroupId, schema: StreamSchema, settings: GroupSettings) -> None:
        self.group = group
        self.settings = settings
        self._dtypes = {f.name: polars_type(f.type) for f in schema.fields}
        keys = {name: self._dtypes[name] for name in group.group_by}
        self.buffer = EventBuffer(keys)
        self._origin = {PARTITION: pl.Int64(), OFFSET: pl.Int64()}
        self.engine = MatchEngine(keys, self._origin, PatternLimits(partials_per_key=settings.partials))
        self.store = self.engine.store
        self._rules: tuple[CompiledRule, ...] = ()
        self._sequences: dict[int, _SequenceRules] = {}
        self._sequence_numbers: dict[str, int] = {}  # by version of a rule
        self._conditions: tuple[str, ...] = ()  # fingerprints, in the order of the matcher
        self._condition_numbers = np.empty(0, np.int32)  # of ``_conditions``, from ``SequenceIds``
        self._matcher: EventMatcher[SequenceCondition] = EventMatcher(())
        self._roles = RoleTable.build(())
        self._computed: Mapping[str, Expr] = {}  # columns of events that are no field
        self._values: tuple[str, ...] = ()  # the columns that are kept of events in partial matches
        self._buffered: tuple[str, ...] = ()  # and those that are kept of waiting events
        self._dropped = {"events_dropped": 0}
        self._held: list[RuleFiring] = []  # of other rules, while failed ones go into quarantine

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate exactly these rules from now on (see ``RuleGroup``)."""
        del watermark_ms  # a sequence has no window that may have begun before the rule
        ids = SequenceIds.read(memory, str(self.group))
        ids.keep(map(required_sequence, rules), now_ms)
        self._rules = tuple(rules)
        self._sequences = _rules_by_sequence(rules, ids)
        self._sequence_numbers = {
            version_key(rule.rule): ids.sequences[required_sequence(rule).fingerprint] for rule in rules
        }
        automata = {number: sequence.automaton for number, sequence in self._sequences.items()}
        timed_out = frozenset(number for number, one in self._sequences.items() if one.emits_timed_out)
        seen = {n: (required_sequence(one.all_rules[0]).seen, n in timed_out) for n, one in self._sequences.items()}
        removed = ids.keep_families(automata, seen)
        ids.write(memory, str(self.group))
        self._values = tuple(sorted({c for sequence in self._sequences.values() for c in sequence.values}))
        self._computed = {n: expr for rule in rules for n, expr in required_sequence(rule).computed.items()}
        dtypes = self._dtypes | {name: polars_type(expr.type) for name, expr in self._computed.items()}
        values = {name: dtypes[name] for name in self._values}
        self.engine.set_patterns(automata, timed_out, ids.families)  # first: deadlines of loaded partials are theirs
        self.store.keep_values(self._origin | values)  # before others are dropped: it takes the values of loaded events
        self.engine.divide(removed)
        self.store.keep(automata.keys() | ids.families.keys())
        iterative = {c for one in self._sequences.values() for i in one.automaton.iterative.values() for c in i.columns}
        self._buffered = tuple(sorted(iterative | {*self._values}))
        self.buffer.keep(ids.conditions.values(), {name: dtypes[name] for name in self._buffered})
        conditions = {c.fingerprint: c for rule in rules for c in required_sequence(rule).conditions}
        self._conditions = tuple(conditions)
        self._condition_numbers = np.array([ids.conditions[f] for f in conditions], np.int32)
        self._matcher = EventMatcher([*conditions.values()])
        in_family = {member for family in ids.families.values() for member in family.members}
        alone = {n: required_sequence(one.all_rules[0]) for n, one in self._sequences.items() if n not in in_family}
        roles = [(c.fingerprint, number, c.roles) for number, s in alone.items() for c in s.conditions]
        for number, family in ids.families.items():
            members = [required_sequence(self._sequences[member].all_rules[0]) for member in family.members]
            roles += [(f, number, bits) for f, bits in family_roles(family.leaves, members).items()]
        self._roles = RoleTable.build((ids.conditions[f], number, bits) for f, number, bits in roles)

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
        events = with_computed(frame[rows], self._computed)
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
                *(events[name].alias(value_column(name)) for name in self._buffered),
            ]
        )

    def close(self, context: CutContext) -> tuple[list[RuleFiring], list[RuleFailure]]:
        """Process the events that the watermark passes, then the partial matches whose time ends before it.

        A rule fails here if a condition over earlier events does. The events have had their effect then, so the
        repeated call returns the firings of the other rules.
        """
        firings = self._held + self._firings(self.find_matches(context), context)
        reasons: dict[int, str] = {}
        for (pattern, _), reason in self.engine.failed.items():  # neither rows nor key slots decide which reason
            reasons[pattern] = min(reason, reasons.get(pattern, reason))
        failures = [RuleFailure(rule, reasons[p]) for p in sorted(reasons) for rule in self._sequences[p].all_rules]
        failed = {version_key(failure.rule.rule) for failure in failures}
        self._held = [f for f in firings if version_key(f.rule.rule) not in failed] if failures else []
        return ([], failures) if failures else (firings, [])

    def find_matches(self, context: CutContext) -> list[Match]:
        """Return the matches of a cut, valid until the next one (see ``close``)."""
        before_ms = context.next_watermark_ms
        self.store.resolve()
        self.buffer.drop_before(context.watermark_ms)
        passed = self.buffer.release(before_ms)
        matches = self.engine.run(self._batch(passed) if passed.height else None, before_ms)
        self._dropped["events_dropped"] += self.buffer.limit_fresh(self.settings.events)
        return matches

    def replay(self, context: CutContext, latest_ms: int) -> Iterator[ReplayedMoment]:
        """Process the events of a cut one by one, until ``latest_ms`` and then until the watermark; for explanations of
        one rule and key."""
        before_ms = context.next_watermark_ms
        self.store.resolve()
        passed = self.buffer.release(before_ms)
        batch = self._batch(passed) if passed.height else None
        for n, ms in enumerate([] if batch is None else batch.event_ms.tolist()):
            assert batch is not None
            yield self._moment(ms, None, self.engine.run(None, ms))
            own, here = batch.events == n, slice(n, n + 1)
            event = PatternEvents(
                batch.key_slots[here],
                batch.event_ms[here],
                batch.values[here],
                batch.patterns[own],
                batch.events[own] - n,
                batch.bits[own],
            )
            place = (int(batch.values[PARTITION][n]), int(batch.values[OFFSET][n]))
            yield self._moment(ms, place, self.engine.run(event, ms))
        for ms in (latest_ms, before_ms):
            yield self._moment(ms, None, self.engine.run(None, ms))

    def _moment(self, ms: int, place: tuple[int, int] | None, matches: Sequence[Match]) -> ReplayedMoment:
        found = [tuple((e.partition, e.offset, e.step) for e in self.matched(match).events) for match in matches]
        partials = [partial for run in self.store.read(self.store.find(self.store.codes())) for partial in run]
        nodes = self.store.nodes
        places = {
            tuple((nodes.value(PARTITION, n), nodes.value(OFFSET, n), int(nodes.step[n])) for n in chain): state
            for chain, state in ((nodes.chain(partial.node), partial.state) for partial in partials)
        }
        return ReplayedMoment(ms, place, places, found)

    def _batch(self, passed: pl.DataFrame) -> PatternEvents:
        """Return events in order of (key slot, time, partition, offset), with their roles in the sequences."""
        key_slots = self.store.keys.assign(passed)
        times, partitions, offsets = (passed[n].to_numpy() for n in (EVENT_MS, PARTITION, OFFSET))
        order = np.lexsort((offsets, partitions, times, key_slots))
        conditions = passed[CONDITIONS].gather(order)
        event_indexes = np.repeat(np.arange(len(order)), conditions.list.len().to_numpy())
        roles = self._roles.roles_for_events(event_indexes, conditions.explode().to_numpy().astype(np.int64))
        values = passed.select(PARTITION, OFFSET, *(pl.col(value_column(n)).alias(n) for n in self._buffered))
        return PatternEvents(key_slots[order], times[order], values[order], roles.sequences, roles.events, roles.roles)

    def _firings(self, matches: Sequence[Match], context: CutContext) -> list[RuleFiring]:
        """Return the firings in order of time, key hash and rule.

        Key slots must not decide: another process that replays the cut assigns other key slots.
        """
        if not matches:
            return []
        key_slots = np.array([match.key_slot for match in matches])
        keys = self.store.keys.frame(key_slots).to_dicts()
        hashes = self.store.keys.hashes[key_slots].tolist()
        fired: list[tuple[tuple[object, ...], RuleFiring]] = []
        for match, key, key_hash in zip(matches, keys, hashes, strict=True):
            sequence_rules = self._sequences[match.pattern]
            matched = self.matched(match)
            for rule in sequence_rules.rules:
                if match.timed_out and rule.rule.timed_out is not TimedOut.EMIT:
                    continue
                rule_firing = to_firing(rule, key, matched, context.find_topic, sequence_rules.since_ms)
                fired.append(((rule_firing.time_ms, key_hash, rule.rule.id, rule_firing.mark), rule_firing))
        return [rule_firing for _, rule_firing in sorted(fired, key=lambda pair: pair[0])]

    def matched(self, match: Match) -> SequenceMatch:
        """Return a match with the values of its events. What becomes certain at a deadline was so 1 ms before it."""
        nodes = self.store.nodes
        events = tuple(
            MatchedEvent(
                int(nodes.event_ms[n]),
                nodes.value(PARTITION, n),
                nodes.value(OFFSET, n),
                int(nodes.step[n]),
                {name: nodes.value(name, n) for name in self._values},
            )
            for n in match.nodes
        )
        waited = match.timed_out or match.time_ms > events[-1].event_ms
        return SequenceMatch(events, match.time_ms - waited, match.timed_out)

    # --- state --------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all partial matches and buffered events, or more (see ``StateHolder``)."""
        store, nodes = self.store, self.store.nodes
        count = len(store)
        size = count * PARTIAL_BYTES + nodes.size * NODE_BYTES + nodes.text_bytes + key_bytes_at_most(store.keys)
        return StateSize(count, size) + self.buffer.state_size

    def state_use(self, _watermark_ms: int) -> StateUse:
        """Return the size of the partial matches of each rule's sequence, and of the events of its conditions.

        The events of a partial match count for each partial match that has them, and what sequences share for each.
        """
        numbers = dict(zip(self._conditions, self._condition_numbers.tolist(), strict=True))
        conditions = {
            version_key(rule.rule): {numbers[c.fingerprint] for c in required_sequence(rule).conditions}
            for rule in self._rules
        }
        events = self.buffer.state_sizes({"": set(numbers.values()), **conditions})
        keys, (patterns, key_slots, lengths, members) = self.store.keys, self.store.lengths()
        entry_bytes = PARTIAL_BYTES + lengths * NODE_BYTES
        total, sizes = size_by_group(patterns, entry_bytes, keys, key_slots)
        partials = dict(sizes)
        for number, family in self.engine.tables.families.items():
            own = np.flatnonzero(patterns == number)
            for index, member in enumerate(family.members if len(own) else ()):
                its = own[members[own] >> index & 1 > 0]
                size, _ = size_by_group(patterns[its], entry_bytes[its], keys, key_slots[its])
                partials[member] = partials.get(member, StateSize()) + size
        by_rule = {
            name: events[name] + partials.get(sequence, StateSize())
            for name, sequence in self._sequence_numbers.items()
        }
        return StateUse(total + events[""], by_rule)

    def metrics(self) -> Mapping[str, int]:
        """Return the events and partial matches that limits dropped since the last call."""
        counts, self._dropped = self._dropped, dict.fromkeys(self._dropped, 0)
        dropped, self.engine.dropped = self.engine.dropped, 0
        return counts | {"partials_dropped": dropped}

    def tables(self) -> dict[str, StateTable]:
        """Return the group's tables by name."""
        return {
            f"waiting:{self.group}": self.buffer,
            f"partials:{self.group}": self.store.partials,
            f"taken:{self.group}": self.store.events,
        }

    def table(self, name: str) -> StateTable:
        """Return the table of that name."""
        if name.startswith("waiting:"):
            return self.buffer
        return self.store.events if name.startswith("taken:") else self.store.partials


def with_computed(events: pl.DataFrame, computed: Mapping[str, Expr]) -> pl.DataFrame:
    """Return events with columns that are computed of each, by name."""
    if not computed:
        return events
    return events.with_columns(to_polars(expr).alias(name) for name, expr in computed.items())


def _rules_by_sequence(rules: Sequence[CompiledRule], ids: SequenceIds) -> dict[int, _SequenceRules]:
    """Return the rules by the number of their sequence, which rules of equal structure share."""
    by_fingerprint: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        by_fingerprint.setdefault(required_sequence(rule).fingerprint, []).append(rule)
    return {
        ids.sequences[fingerprint]: _SequenceRules(
            automaton=required_sequence(alike[0]).automaton,
            since_ms=ids.since_ms[fingerprint],
            all_rules=tuple(alike),
            values=_values(alike),
        )
        for fingerprint, alike in by_fingerprint.items()
    }


def _values(rules: Sequence[CompiledRule]) -> tuple[str, ...]:
    """Return the columns that messages and later conditions read."""
    sequences = [required_sequence(rule) for rule in rules]
    return tuple(sorted({name for sequence in sequences for name in sequence.values}))
