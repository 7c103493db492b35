"""The ``suppress`` of a rule: after an alert, no alert of the rule with equal values for a duration of event time.

Suppression depends only on event times and earlier alerts, so a replay suppresses the same firings. The next alert
shows the number of suppressed ones. An entry is dropped after the watermark has passed its end by the grace period. The
number of entries is limited: above the limit, the entries that end first are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rulecore.compile.rule import CompiledRule
from rulecore.language.types import Value
from streamcore.columnar.timer_queue import TimerQueue
from streamcore.state import KeyValueTable


class Suppression:
    """The suppression of one shard; ``table`` is its state. ``forgotten``: entries dropped because of the limit.

    An entry is a rule, its mode and the values of ``suppress.by``, with the end of the suppression.
    """

    def __init__(self, limit: int, grace_ms: int) -> None:
        self.table = KeyValueTable()
        self.grace_ms = grace_ms
        self.limit = limit
        self.forgotten = 0
        self._expiries: TimerQueue[tuple[int, str]] = TimerQueue()
        self._count = 0

    def on_state_loaded(self) -> None:
        """Rebuild the queue of expiries after the table's rows have been loaded."""
        self._expiries = TimerQueue((_read(value)[0], key) for key, value in self.table)
        self._count = len(self._expiries)

    def passes(self, rule: CompiledRule, by: Sequence[Value], time_ms: int) -> int | None:
        """Return None if the firing is suppressed, else the number of firings suppressed since the last alert."""
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
        """Drop the entries that ended ``grace_ms`` before the watermark, and those above the limit."""
        expired_ms = watermark_ms - self.grace_ms
        while (expiry := self._expiries.pop_due(None if self._count > self.limit else expired_ms)) is not None:
            end, key = expiry
            stored = self.table.get(key)
            if stored is not None and _read(stored)[0] == end:
                self.forgotten += end > expired_ms
                self.table.put(key, None)
                self._count -= 1


def _read(value: bytes) -> tuple[int, int]:
    end, count = orjson.loads(value)
    return end, count


def _write(end_ms: int, count: int) -> bytes:
    return orjson.dumps([end_ms, count])
