"""``suppress``: after an alert none for so long of event time, for the same rule and values.

Promises: suppression depends only on the alerts before it and event time, so a run that is repeated suppresses the
same; the next alert holds their number. An entry ends when the watermark has passed it, and their number is bounded:
beyond the limit the oldest are forgotten, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rulecore.compile.rule import CompiledRule
from rulecore.language.types import Value
from streamcore.columnar.timer_queue import TimerQueue
from streamcore.state import KeyValueTable


class Suppression:
    """Of one shard; its state is ``table``. ``forgotten`` counts the entries dropped because of the limit."""

    def __init__(self, limit: int, grace_ms: int) -> None:
        self.table = KeyValueTable()
        self.grace_ms = grace_ms
        self.limit = limit
        self.forgotten = 0
        self._expiries: TimerQueue[tuple[int, str]] = TimerQueue()
        self._count = 0

    def on_state_loaded(self) -> None:
        """After the table's rows have been loaded."""
        self._expiries = TimerQueue((_read(value)[0], key) for key, value in self.table)
        self._count = len(self._expiries)

    def passes(self, rule: CompiledRule, by: Sequence[Value], time_ms: int) -> int | None:
        """Return None when this firing is suppressed, else the number suppressed since the last alert."""
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
        self._expiries.put((end, key))
        return count

    def expire(self, watermark_ms: int) -> None:
        """Drop the entries that no event within the grace period can still reach, and those beyond the limit."""
        over = watermark_ms - self.grace_ms
        while (expiry := self._expiries.pop_due(None if self._count > self.limit else over)) is not None:
            end, key = expiry
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
