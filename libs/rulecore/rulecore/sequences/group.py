"""The sequences of one stream and key, evaluated together: conditions once, each key's events in order of event time.

A cut goes through four steps: all distinct conditions of all rules are matched with the events through one index, what
satisfies any of them waits; what the watermark passes is sorted by key and time and given its roles in sequences; the
automaton of each sequence and key that has partials, or a beginning among those events, takes them; and what is pending
until before the watermark matches. See the package for what all of this means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from rulecore.compiled import CompiledRule
from rulecore.firing import Failure, Firing
from rulecore.groups import GroupId, Moment
from rulecore.lang.types import Value
from rulecore.matcher import EventMatcher, Matches
from rulecore.members import DTYPES
from rulecore.model import Mode
from rulecore.sequences.automaton import Event, Match, Partials
from rulecore.sequences.compile import Condition
from rulecore.sequences.firings import Found, firing
from rulecore.sequences.memory import SequenceMemory, sequence_of
from rulecore.sequences.partials import PartialTable, code_of
from rulecore.sequences.program import BEGINS, Program
from rulecore.sequences.roles import RoleTable
from rulecore.sequences.waiting import CONDITIONS, WaitingTable, value_column
from rulecore.settings import GroupSettings
from streamcore.hashing import hash_columns
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.state import HASH, KeyValueTable, StateTable

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Looked:
    """A sequence that is looked for. ``rules``: that fire; ``captured``: columns whose values its messages name."""

    program: Program
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
        self.waiting = WaitingTable(keys)
        self.partials = PartialTable(keys)
        self._rules: tuple[CompiledRule, ...] = ()
        self._looked: dict[int, _Looked] = {}
        self._conditions: tuple[str, ...] = ()  # fingerprints, as the matcher numbers them
        self._numbers = np.empty(0, np.int32)  # of the conditions, in the same order
        self._matcher: EventMatcher[Condition] = EventMatcher(())
        self._roles = RoleTable.of(())
        self._captured: tuple[str, ...] = ()
        self._dropped = {"events_dropped": 0, "partials_dropped": 0}

    # --- rules --------------------------------------------------------------------------------------------------

    def set_rules(self, rules: Sequence[CompiledRule], memory: KeyValueTable, now_ms: int, watermark_ms: int) -> None:
        """Evaluate these rules from now on. ``now_ms``: the latest event time seen before, for what starts empty."""
        del watermark_ms  # a sequence is complete from its first event on: there is no window that was half seen
        kept = SequenceMemory.read(memory, str(self.group))
        kept.keep(map(sequence_of, rules), now_ms)
        kept.write(memory, str(self.group))
        self._rules = tuple(rules)
        self._looked = _looked(rules, kept)
        self.partials.keep(self._looked.keys())
        self._captured = tuple(sorted({c for one in self._looked.values() for c in one.captured}))
        self.waiting.keep(kept.conditions.values(), {name: self._dtypes[name] for name in self._captured})
        conditions = {c.fingerprint: c for rule in rules for c in sequence_of(rule).conditions}
        self._conditions = tuple(conditions)
        self._numbers = np.array([kept.conditions[f] for f in conditions], np.int32)
        self._matcher = EventMatcher([*conditions.values()])
        distinct = {s.fingerprint: s for s in map(sequence_of, rules)}
        self._roles = RoleTable.of(
            (kept.conditions[c.fingerprint], kept.sequences[s.fingerprint], c.roles)
            for s in distinct.values()
            for c in s.conditions
        )

    # --- a cut --------------------------------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame, _moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Events that satisfy a condition begin to wait. Nothing fires here."""
        matches = self._matcher.match(frame)
        if matches.failed:
            reasons = {self._conditions[number]: reason for number, reason in matches.failed}
            return [], list(self._failures(reasons))
        if len(matches.row):
            self.waiting.add(self._candidates(frame, matches))
        return [], []

    def _failures(self, reasons: Mapping[str, str]) -> Iterable[Failure]:
        """One for each rule that uses a condition which could not be evaluated."""
        for rule in self._rules:
            found = [reasons[c.fingerprint] for c in sequence_of(rule).conditions if c.fingerprint in reasons]
            if found:
                yield Failure(rule, found[0])

    def _candidates(self, frame: pl.DataFrame, matches: Matches) -> pl.DataFrame:
        """Rows for the waiting table: matches come by row."""
        rows, first = np.unique(matches.row, return_index=True)
        some = frame[rows]
        offsets = pa.array(np.append(first, len(matches.row)), pa.int64())
        conditions = pa.LargeListArray.from_arrays(offsets, pa.array(self._numbers[matches.rule]))
        keys = some.select(self.waiting.keys)
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

    def close(self, moment: Moment) -> tuple[list[Firing], list[Failure]]:
        """Look at the events that the watermark passes, then at what is over by then."""
        before_ms = moment.next_watermark_ms
        self.waiting.forget(moment.watermark_ms)
        found: list[Found] = []
        passed = self.waiting.release(before_ms)
        if passed.height:
            found += self._take(passed, before_ms)
        for code, row in self.partials.due(before_ms):
            found += self._settle(code, row, before_ms)
        self._dropped["events_dropped"] += self.waiting.refuse(self.settings.events)
        return self._firings(found, moment.topic), []

    def _take(self, passed: pl.DataFrame, before_ms: int) -> list[Found]:
        """Events to the automata of their sequences and keys."""
        events = _Events.of(passed, self.partials.keys.assign(passed), self._captured)
        roles = self._roles.of_events(events.places, events.conditions)
        runs, some = roles.runs(events.slots)
        if not len(some):
            return []
        first = runs[:-1]
        codes = code_of(roles.sequences[first], events.slots[roles.events[first]])
        rows = self.partials.find(codes)
        active = np.flatnonzero((rows >= 0) | (some & BEGINS > 0))
        found: list[Found] = []
        places, of = roles.events.tolist(), roles.roles.tolist()
        bounds = runs.tolist()
        sequences = roles.sequences[first].tolist()
        listed = codes.tolist(), rows.tolist()
        for run in active.tolist():
            looked = self._looked[sequences[run]]
            code, row = listed[0][run], listed[1][run]
            partials = Partials(looked.program, self.settings.partials, self.partials.get(row))
            matches: list[Match] = []
            for i in range(bounds[run], bounds[run + 1]):
                matches += partials.take(events.event(places[i], of[i], looked.captured))
            found += self._put(code, partials, matches, before_ms)
        return found

    def _put(self, code: int, partials: Partials, matches: list[Match], before_ms: int) -> list[Found]:
        matches += partials.settle(before_ms)
        self.partials.put(code, partials)
        self._dropped["partials_dropped"] += partials.dropped
        return [Found(code >> 32, code & 0xFFFFFFFF, match) for match in matches]

    def _settle(self, code: int, row: int, before_ms: int) -> list[Found]:
        """Without an event: what was pending matches, what is over is forgotten."""
        program = self._looked[code >> 32].program
        if program.quiet_ms is None:  # nothing is ever pending
            self.partials.drop(code)
            return []
        partials = Partials(program, self.settings.partials, self.partials.get(row))
        matches = partials.settle(before_ms)
        if not matches and not partials.partials:
            self.partials.drop(code)
            return []
        return self._put(code, partials, matches, before_ms)

    def _firings(self, found: Sequence[Found], topic: str) -> list[Firing]:
        """In order of time, then of key and rule. Slots are no order: another process numbers keys anew."""
        if not found:
            return []
        slots = np.array([one.slot for one in found])
        keys = self.partials.keys.frame(slots).to_dicts()
        hashes = self.partials.keys.hashes[slots].tolist()
        fired: list[tuple[tuple[object, ...], Firing]] = []
        for one, key, hashed in zip(found, keys, hashes, strict=True):
            looked = self._looked[one.sequence]
            for rule in looked.rules:
                said = firing(rule, key, one.match, topic, looked.since_ms)
                fired.append(((said.time_ms, hashed, rule.rule.id, said.mark), said))
        return [said for _, said in sorted(fired, key=lambda pair: pair[0])]

    # --- state --------------------------------------------------------------------------------------------------

    def metrics(self) -> Mapping[str, int]:
        """What limits dropped since the last call, and how much is kept now: ``events`` waiting and ``partials``."""
        counts, self._dropped = self._dropped, dict.fromkeys(self._dropped, 0)
        return counts | {"events": len(self.waiting), "partials": len(self.partials)}

    def tables(self) -> dict[str, StateTable]:
        """The group's tables by name."""
        return {f"waiting:{self.group}": self.waiting, f"partials:{self.group}": self.partials}

    def table(self, name: str) -> StateTable:
        """The table of that name."""
        return self.waiting if name.startswith("waiting:") else self.partials


def _looked(rules: Sequence[CompiledRule], kept: SequenceMemory) -> dict[int, _Looked]:
    """By the number of the sequence: rules of one structure are looked for together."""
    alike: dict[str, list[CompiledRule]] = {}
    for rule in rules:
        alike.setdefault(sequence_of(rule).fingerprint, []).append(rule)
    return {
        kept.sequences[fingerprint]: _Looked(
            program=sequence_of(mine[0]).program,
            since_ms=kept.since_ms[fingerprint],
            rules=tuple(rule for rule in mine if rule.rule.status is not Mode.PAUSED),
            captured=tuple(sorted({c.column for rule in mine for c in sequence_of(rule).captures})),
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
        """As an automaton takes it."""
        return (*self.origins[place], roles, {name: self.values[name][place] for name in captured})
