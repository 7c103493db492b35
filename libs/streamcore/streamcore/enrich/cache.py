"""What a store answered, kept for a while: least recently used goes first, and time is a parameter."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from streamcore.enrich.values import Caching, Key

#: The added columns' values in order; None: not found.
Values = tuple[object, ...] | None


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer and when it ends, in monotonic milliseconds."""

    values: Values
    end_ms: int


class Cache:
    """Answers by key."""

    def __init__(self, settings: Caching) -> None:
        self.settings = settings
        self._kept: OrderedDict[Key, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key, now_ms: int) -> Kept | None:
        """The answer, unless its time is over."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now_ms >= kept.end_ms:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return kept

    def put(self, key: Key, values: Values, now_ms: int) -> int:
        """Keep an answer; how many others had to go."""
        ttl_ms = self.settings.missing_ttl_ms if values is None else self.settings.found_ttl_ms
        if not ttl_ms or not self.settings.max_entries:
            return 0
        self._kept[key] = Kept(values, now_ms + ttl_ms)
        self._kept.move_to_end(key)
        if len(self._kept) <= self.settings.max_entries:
            return 0
        self._kept.popitem(last=False)
        return 1
