"""An index of entries by deadline, in columns, by spans of time.

The owner holds the current deadlines in an array, and may change them. An entry is examined when a time is reached for
which it was put into the index, and is returned if its current deadline has passed.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from streamcore.columnar.grouping import distinct, run_starts
from streamcore.columnar.hash_table import Ints

_NONE = np.empty(0, dtype=np.int64)


class DeadlineIndex:
    """Entries by span of time. ``usual_delay_ms``: how far ahead deadlines usually are; a span is a fraction of it."""

    def __init__(self, usual_delay_ms: int) -> None:
        self._bits = max(0, (usual_delay_ms // 16).bit_length() - 1)
        self._due: dict[int, list[Ints]] = {}
        self._spans: list[int] = []  # a heap of the keys of ``_due``

    def put(self, time_ms: Ints, entries: Ints) -> None:
        """Add each entry under its time, in epoch milliseconds. An entry may be added several times."""
        if not entries.size:
            return
        span = time_ms >> self._bits
        order = np.argsort(span)
        starts = run_starts(span[order])
        for span_number, group_entries in zip(
            span[order[starts]].tolist(), np.split(entries[order], starts[1:]), strict=True
        ):
            self._add_to_span(span_number, group_entries)

    def take(self, until_ms: int, time_ms: Ints, size: int) -> Ints:
        """Remove and return the distinct entries that are due at ``until_ms``.

        ``time_ms``: the current deadline of each entry. ``size``: the exclusive upper bound of the entries.
        """
        last_span = until_ms >> self._bits
        parts = [_NONE]
        while self._spans and self._spans[0] <= last_span:
            parts += self._due.pop(heappop(self._spans))
        candidates = np.concatenate(parts)
        candidates = candidates[distinct(candidates, size)[1]]
        not_due = candidates[(time_ms[candidates] > until_ms) & (time_ms[candidates] >> self._bits == last_span)]
        if not_due.size:
            self._add_to_span(last_span, not_due)
        return candidates[time_ms[candidates] <= until_ms]

    def _add_to_span(self, span: int, entries: Ints) -> None:
        if span not in self._due:
            heappush(self._spans, span)
        self._due.setdefault(span, []).append(entries)
