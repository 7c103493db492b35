"""The answers of a store, cached for a while: least recently used goes first, and time is a parameter."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from streamcore.enrich.spec import Caching, Key

#: The added columns' values in order; None: not found.
Values = tuple[object, ...] | None


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer and when it ends, in monotonic milliseconds."""

    values: Values
    end_ms: int


class AnswerCache:
    """Answers by key."""

    def __init__(self, settings: Caching) -> None:
        self.settings = settings
        self._answers: OrderedDict[Key, CachedAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: Key, now_ms: int) -> CachedAnswer | None:
        """Return the answer, unless its time is over."""
        cached = self._answers.get(key)
        if cached is None:
            return None
        if now_ms >= cached.end_ms:
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return cached

    def put(self, key: Key, values: Values, now_ms: int) -> int:
        """Keep an answer; how many others had to go."""
        ttl_ms = self.settings.missing_ttl_ms if values is None else self.settings.found_ttl_ms
        if not ttl_ms or not self.settings.max_entries:
            return 0
        self._answers[key] = CachedAnswer(values, now_ms + ttl_ms)
        self._answers.move_to_end(key)
        if len(self._answers) <= self.settings.max_entries:
            return 0
        self._answers.popitem(last=False)
        return 1
