"""A cache of a store's answers: bounded in size (least recently used first out) and in time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from streamcore.enrich.spec import Caching, Key

#: The values of the added columns, in order; None: the store has no answer for the key.
Values = tuple[object, ...] | None


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer and the time when it expires, in monotonic milliseconds."""

    values: Values
    expires_ms: int


class AnswerCache:
    """Cached answers by key. Times are monotonic milliseconds, passed by the caller."""

    def __init__(self, settings: Caching) -> None:
        self.settings = settings
        self._answers: OrderedDict[Key, CachedAnswer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: Key, now_ms: int) -> CachedAnswer | None:
        """Return the cached answer, or None if there is none or it has expired."""
        cached = self._answers.get(key)
        if cached is None:
            return None
        if now_ms >= cached.expires_ms:
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return cached

    def put(self, key: Key, values: Values, now_ms: int) -> int:
        """Cache an answer; return how many others were evicted (0 or 1)."""
        ttl_ms = self.settings.missing_ttl_ms if values is None else self.settings.found_ttl_ms
        if not ttl_ms or not self.settings.max_entries:
            return 0
        self._answers[key] = CachedAnswer(values, now_ms + ttl_ms)
        self._answers.move_to_end(key)
        if len(self._answers) <= self.settings.max_entries:
            return 0
        self._answers.popitem(last=False)
        return 1
