"""The record that a group of sequences keeps of its rules: numbers of conditions and structures, and its start time.

A number is given out once and never again, so a stored row that names one which is gone differs from all others.
That holds even when the group itself was gone for a while: the state log may hold its rows for many cuts after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import orjson

from rulecore.compile.rule import CompiledRule
from rulecore.compile.sequence import CompiledSequence
from streamcore.state import KeyValueTable

#: Ends the key of the next number.
_NEXT: Final = "#next"


@dataclass(slots=True)
class SequenceIds:
    """By fingerprint: numbers of ``conditions`` and ``sequences``, and ``since_ms``, the latest event time that was
    seen before a sequence began to be looked for. ``next``: the next number."""

    conditions: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    since_ms: dict[str, int] = field(default_factory=dict)
    next: int = 0

    @classmethod
    def read(cls, memory: KeyValueTable, group: str) -> SequenceIds:
        """Read the ids stored under the group's name, or an empty registry with the next number."""
        stored, following = memory.get(group), memory.get(f"{group}{_NEXT}")
        kept = cls() if stored is None else cls(**orjson.loads(stored))
        kept.next = 0 if following is None else int(following)
        return kept

    def write(self, memory: KeyValueTable, group: str) -> None:
        """Write the record under the group's name, and beside it the next number, which outlives the group."""
        document = {"conditions": self.conditions, "sequences": self.sequences, "since_ms": self.since_ms}
        memory.put(group, orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
        memory.put(f"{group}{_NEXT}", str(self.next).encode())

    def keep(self, sequences: Iterable[CompiledSequence], now_ms: int) -> None:
        """Assign numbers to new sequences, drop removed ones. ``now_ms``: the latest event time so far."""
        wanted = {s.fingerprint: s for s in sequences}
        conditions = {c.fingerprint for s in wanted.values() for c in s.conditions}
        self.sequences = self._assign_numbers(self.sequences, wanted)
        self.conditions = self._assign_numbers(self.conditions, conditions)
        self.since_ms = {f: self.since_ms.get(f, now_ms) for f in wanted}

    def _assign_numbers(self, known: dict[str, int], wanted: Iterable[str]) -> dict[str, int]:
        numbers = {}
        for fingerprint in sorted(wanted):
            if fingerprint in known:
                numbers[fingerprint] = known[fingerprint]
            else:
                numbers[fingerprint], self.next = self.next, self.next + 1
        return numbers


def required_sequence(rule: CompiledRule) -> CompiledSequence:
    """Return the sequence of a rule of that kind."""
    assert rule.sequence is not None
    return rule.sequence
