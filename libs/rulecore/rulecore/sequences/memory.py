"""What a group of sequences remembers of its rules: numbers of conditions and structures, and since when it looks.

A number is given out once and never again, so a stored row that names one which is gone can be told from all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from rulecore.compiled import CompiledRule
from rulecore.sequences.compile import CompiledSequence


@dataclass(slots=True)
class SequenceMemory:
    """By fingerprint: numbers of ``conditions`` and ``sequences``, and ``since_ms``, the latest event time that was
    seen before a sequence began to be looked for. ``next``: the next number."""

    conditions: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, int] = field(default_factory=dict)
    since_ms: dict[str, int] = field(default_factory=dict)
    next: int = 0

    @classmethod
    def from_json(cls, blob: bytes | None) -> SequenceMemory:
        """As stored; nothing of nothing."""
        return cls() if blob is None else cls(**orjson.loads(blob))

    def to_json(self) -> bytes:
        """To be stored."""
        document = {
            "conditions": self.conditions,
            "sequences": self.sequences,
            "since_ms": self.since_ms,
            "next": self.next,
        }
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)

    def keep(self, sequences: Iterable[CompiledSequence], now_ms: int) -> None:
        """Number what is new, forget what is gone. ``now_ms``: the latest event time seen before."""
        wanted = {s.fingerprint: s for s in sequences}
        conditions = {c.fingerprint for s in wanted.values() for c in s.conditions}
        self.sequences = self._numbered(self.sequences, wanted)
        self.conditions = self._numbered(self.conditions, conditions)
        self.since_ms = {f: self.since_ms.get(f, now_ms) for f in wanted}

    def _numbered(self, known: dict[str, int], wanted: Iterable[str]) -> dict[str, int]:
        numbers = {}
        for fingerprint in sorted(wanted):
            if fingerprint in known:
                numbers[fingerprint] = known[fingerprint]
            else:
                numbers[fingerprint], self.next = self.next, self.next + 1
        return numbers


def sequence_of(rule: CompiledRule) -> CompiledSequence:
    """What the rule looks for; it is one of kind sequence."""
    assert rule.sequence is not None
    return rule.sequence
