"""The numbers of populations and rules in the stored rows of a group of absence rules.

A number is never assigned twice, so that a stored row of a removed rule cannot be mistaken for a row of another rule.
"""

from __future__ import annotations

from typing import Final, TypedDict

import orjson


class _Stored(TypedDict):
    populations: dict[str, list[int]]
    rules: dict[str, int]
    next: int


_NEW: Final[_Stored] = {"populations": {}, "rules": {}, "next": 0}


class IdRegistry:
    """Assigns numbers to populations and rules, and knows since when each population exists."""

    def __init__(self, blob: bytes | None, now_ms: int) -> None:
        stored: _Stored = _NEW if blob is None else orjson.loads(blob)
        self.populations: dict[str, tuple[int, int]] = {n: (p[0], p[1]) for n, p in stored["populations"].items()}
        self.rules = dict(stored["rules"])
        self.size = stored["next"]
        self._now_ms = now_ms

    def population(self, fingerprint: str) -> int:
        """Return the number of a population, assigned if it is new."""
        if fingerprint not in self.populations:
            self.populations[fingerprint] = (self._new(), self._now_ms)
        return self.populations[fingerprint][0]

    def rule(self, rule_id: str) -> int:
        """Return the number of a rule in any version, assigned if it is new."""
        if rule_id not in self.rules:
            self.rules[rule_id] = self._new()
        return self.rules[rule_id]

    def since_ms(self, number: int) -> int:
        """Return the latest event time before the population existed."""
        return next(since for known, since in self.populations.values() if known == number)

    def keep(self, populations: set[str], rules: set[str]) -> None:
        """Drop all other populations and rules."""
        self.populations = {n: p for n, p in self.populations.items() if n in populations}
        self.rules = {n: p for n, p in self.rules.items() if n in rules}

    def to_json(self) -> bytes:
        """Return the JSON to store."""
        document = {"populations": self.populations, "rules": self.rules, "next": self.size}
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)

    def _new(self) -> int:
        self.size += 1
        return self.size - 1
