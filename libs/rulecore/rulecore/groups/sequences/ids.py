"""The numbers that a group of sequence rules assigns to conditions, sequences and families of sequences, and since when
it knows a sequence.

A number is never assigned twice, so that a stored row with a removed number cannot be mistaken for a row of a later
sequence. This holds even if the group was deleted and created again, while the state log still has its old rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence import CompiledSequence
from streamcore.patterns.automaton import Automaton
from streamcore.patterns.column_tables import Family, build_families
from streamcore.state import KeyValueTable

#: The suffix of the key under which the next number is stored.
_NEXT: Final = "#next"


@dataclass(slots=True)
class SequenceIds:
    """By fingerprint: the numbers of ``conditions`` and ``sequences``, and ``since_ms``, the latest event time before
    a sequence was known. ``families``: by number, members and states. ``next``: the next number to assign."""

    conditions: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    since_ms: dict[str, int] = field(default_factory=dict)
    families: dict[int, Family] = field(default_factory=dict)
    next: int = 0

    @classmethod
    def read(cls, memory: KeyValueTable, group: str) -> SequenceIds:
        """Read the numbers stored under the group's name; none if there is nothing but the next number."""
        stored, next_number = memory.get(group), memory.get(f"{group}{_NEXT}")
        ids = cls()
        if stored is not None:
            document = orjson.loads(stored)
            families = {
                int(number): Family(tuple(members), (), tuple(map(tuple, states)))
                for number, (members, states) in document.pop("families").items()
            }
            ids = cls(**document, families=families)
        ids.next = 0 if next_number is None else int(next_number)
        return ids

    def write(self, memory: KeyValueTable, group: str) -> None:
        """Write the numbers under the group's name, and under another key the next number, which outlives the group."""
        document = {
            "conditions": self.conditions,
            "sequences": self.sequences,
            "since_ms": self.since_ms,
            "families": {str(number): (family.members, family.states) for number, family in self.families.items()},
        }
        memory.put(group, orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
        memory.put(f"{group}{_NEXT}", str(self.next).encode())

    def keep(self, sequences: Iterable[CompiledSequence], now_ms: int) -> None:
        """Assign numbers to new sequences and drop the removed ones. ``now_ms``: the latest event time so far."""
        wanted = {s.fingerprint: s for s in sequences}
        conditions = {c.fingerprint for s in wanted.values() for c in s.conditions}
        self.sequences = self._assign_numbers(self.sequences, wanted)
        self.conditions = self._assign_numbers(self.conditions, conditions)
        self.since_ms = {f: self.since_ms.get(f, now_ms) for f in wanted}

    def keep_families(self, automata: Mapping[int, Automaton], seen: Mapping[int, Hashable]) -> Mapping[int, Family]:
        """Assign numbers to the families of these sequences, by number; return the removed families.

        ``seen``: see ``build_families``.
        """
        known, self.families = self.families, {}
        for family in build_families(automata, [family.members for family in known.values()], seen):
            same = [n for n, old in known.items() if (old.members, old.states) == (family.members, family.states)]
            number = same[0] if same else self.next
            self.next += not same
            self.families[number] = family
        return {number: family for number, family in known.items() if number not in self.families}

    def _assign_numbers(self, known: dict[str, int], wanted: Iterable[str]) -> dict[str, int]:
        """Return the numbers of the wanted fingerprints: the known ones, and next numbers for the others."""
        numbers = {}
        for fingerprint in sorted(wanted):
            if fingerprint in known:
                numbers[fingerprint] = known[fingerprint]
            else:
                numbers[fingerprint], self.next = self.next, self.next + 1
        return numbers


def required_sequence(rule: CompiledRule) -> CompiledSequence:
    """Return the sequence of a sequence rule."""
    assert rule.sequence is not None
    return rule.sequence
