"""Moves the ids of a deduplication to disk and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamcore.hashing import UInt64Array
from streamcore.operators.deduplication.seen_ids import SeenIds
from streamcore.state.cold.paged_state import ColdTimes, Frames

_SEEN = "seen"


class PagedIds:
    """The paged state of a deduplication. Ids that expire while they are cold need no recall."""

    tables = (_SEEN,)

    def __init__(self, seen: SeenIds) -> None:
        self._seen = seen

    def memory_bytes(self) -> int:
        return self._seen.memory_bytes

    def hashes(self) -> UInt64Array:
        return self._seen.hashes()

    def start_paging(self) -> None:
        """Do nothing: the order of arrival is that of use."""

    def evict(self, share: float) -> Frames:
        rows = self._seen.evict(share)
        self._seen.count_cold(rows, 1)
        return {_SEEN: rows}

    def forget(self, hashes: UInt64Array) -> None:
        self._seen.forget_hashes(hashes)

    def recall(self, frames: Frames) -> None:
        self._seen.count_cold(frames[_SEEN], -1)
        self._seen.load(frames[_SEEN])

    def times(self, frames: Frames) -> ColdTimes:
        return ColdTimes(newest_ms=self._seen.newest_ms(frames[_SEEN]))

    def is_expired(self, newest_ms: int) -> bool:
        return self._seen.is_expired(newest_ms)

    def without_expired(self, frames: Frames) -> Frames:
        return {_SEEN: self._seen.live(frames[_SEEN])} if _SEEN in frames else {}

    def count_cold(self, frames: Frames) -> None:
        self._seen.count_cold(frames[_SEEN], 1)

    def cold_summary(self) -> Mapping[str, object]:
        return {"slices": sorted([number, count] for number, count in self._seen.cold_slices.items() if count)}

    def restore_summary(self, summary: Mapping[str, Any]) -> None:
        self._seen.cold_slices = dict(summary["slices"])
