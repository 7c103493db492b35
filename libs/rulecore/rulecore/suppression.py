"""``suppress``: after an alert none for so long of event time, for the same rule and values.

Promises: what is suppressed follows from the alerts before it and from event time alone, so a run that is repeated
suppresses the same; the next alert says how many were. What is kept is over when the watermark has passed it, and is
bounded: beyond the limit the oldest are forgotten, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rulecore.compiled import CompiledRule
from rulecore.ends import Ends
from rulecore.lang.types import Value
from streamcore.state import KeyValueTable


class Suppression:
    """Of one shard; its state is ``table``. ``forgotten`` counts what the limit made it forget."""

    def __init__(self, limit: int, grace_ms: int) -> None:
        self.table = KeyValueTable()
        self.grace_ms = grace_ms
        self.limit = limit
        self.forgotten = 0
        self._ends = Ends()
        self._count = 0

    def loaded(self) -> None:
        """After the table's rows have been loaded."""
        self._ends = Ends((_read(value)[0], key) for key, value in self.table)
        self._count = len(self._ends)

    def passes(self, rule: CompiledRule, by: Sequence[Value], time_ms: int) -> int | None:
        """None when this firing is suppressed; else how many were since the last one that was not."""
        assert rule.rule.suppress is not None
        key = orjson.dumps([rule.rule.id, rule.rule.status.value, list(by)], default=str).decode()
        stored = self.table.get(key)
        end, count = (None, 0) if stored is None else _read(stored)
        if end is not None and time_ms < end:
            self.table.put(key, _write(end, count + 1))
            return None
        end = time_ms + rule.rule.suppress.duration
        self._count += stored is None
        self.table.put(key, _write(end, 0))
        self._ends.add(end, key)
        return count

    def expire(self, watermark_ms: int) -> None:
        """Forget what no event that is late by less than the grace can fall into, and what is over the limit."""
        over = watermark_ms - self.grace_ms
        for end, key in self._ends.take(over + 1, lambda: self._count > self.limit):
            stored = self.table.get(key)
            if stored is not None and _read(stored)[0] == end:
                self.forgotten += end > over
                self.table.put(key, None)
                self._count -= 1


def _read(value: bytes) -> tuple[int, int]:
    end, count = orjson.loads(value)
    return end, count


def _write(end_ms: int, count: int) -> bytes:
    return orjson.dumps([end_ms, count])
