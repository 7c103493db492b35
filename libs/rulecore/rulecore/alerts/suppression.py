"""The ``suppress`` of a rule: after an alert, no alert of the rule with equal values for a duration of event time.

Suppression depends only on event times and earlier alerts, so a replay suppresses the same firings. The next alert
shows the number of suppressed ones. An entry is dropped after the watermark has passed its end by the grace period.
Entries count for the budgets of their rule (``state_budgets``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import orjson

from rulecore.compile.rule import CompiledRule
from rulecore.documents.rule import Rule
from rulecore.documents.slots import version_key
from rulecore.language.types import Value
from rulecore.state_size import StateSize, StateUse
from streamcore.columnar.timer_queue import TimerQueue
from streamcore.state import KeyValueTable

#: An entry without its text: the rule, its mode and the values of ``suppress.by``.
ENTRY_BYTES: Final = 350
_EMPTY: Final = StateSize()


class Suppression:
    """The suppression of one shard; ``table`` is its state.

    An entry is a rule, its mode and the values of ``suppress.by``, with the end of the suppression.
    """

    def __init__(self, grace_ms: int) -> None:
        self.table = KeyValueTable()
        self.grace_ms = grace_ms
        self._sizes: dict[str, StateSize] = {}  # by rule and mode, as ``_suppressor`` names them
        self._total = StateSize()
        self._versions: dict[str, str] = {}  # by rule and mode, too
        self._expiries: TimerQueue[tuple[int, str]] = TimerQueue()

    def on_state_loaded(self) -> None:
        """Rebuild the queue of expiries and the sizes after the table's rows have been loaded."""
        entries = [*self.table]
        self._expiries = TimerQueue((_read(value)[0], key) for key, value in entries)
        self._sizes, self._total = {}, StateSize()
        for key, _ in entries:
            self._count(key, 1)

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
        if stored is None:
            self._count(key, 1)
        self.table.put(key, _write(end, 0))
        self._expiries.put((end, key))
        return count

    def expire(self, watermark_ms: int) -> None:
        """Drop the entries that ended ``grace_ms`` before the watermark."""
        while (expiry := self._expiries.pop_due(watermark_ms - self.grace_ms)) is not None:
            end, key = expiry
            stored = self.table.get(key)
            if stored is not None and _read(stored)[0] == end:
                self._drop(key)

    def set_rules(self, rules: Iterable[CompiledRule]) -> None:
        """Count the entries for these versions."""
        self._versions = {_suppressor(c.rule): version_key(c.rule) for c in rules if c.rule.suppress is not None}

    def state_size(self) -> StateSize:
        """Return the size of all entries (see ``StateHolder``)."""
        return self._total

    def state_use(self, _watermark_ms: int) -> StateUse:
        """Return the size of the entries of each rule."""
        sizes = self._sizes
        return StateUse(self._total, {v: sizes[name] for name, v in self._versions.items() if name in sizes})

    def release(self, rule: Rule) -> None:
        """Drop the entries of a rule in its mode."""
        if (name := _suppressor(rule)) in self._sizes:
            for key in [key for key, _ in self.table if _get_suppressor(key) == name]:
                self._drop(key)

    def _drop(self, key: str) -> None:
        self.table.put(key, None)
        self._count(key, -1)

    def _count(self, key: str, by: int) -> None:
        name = _get_suppressor(key)
        change = StateSize(by, by * (ENTRY_BYTES + len(key)))
        self._total += change
        self._sizes[name] = self._sizes.get(name, _EMPTY) + change
        if not self._sizes[name].entries:
            del self._sizes[name]


def _suppressor(rule: Rule) -> str:
    """Return the name under which the entries of a rule in its mode count: the beginning of their keys."""
    return orjson.dumps([rule.id, rule.status.value])[:-1].decode()


def _get_suppressor(key: str) -> str:
    return key[: key.index(",[")]


def _read(value: bytes) -> tuple[int, int]:
    end, count = orjson.loads(value)
    return end, count


def _write(end_ms: int, count: int) -> bytes:
    return orjson.dumps([end_ms, count])
