"""Finds the rows of a cut that repeat an earlier row of the cut.

In a cut almost every id occurs once, and the rows of an id that occurs again are almost always copies of one event.
Column operations decide both cases. The remaining rows (of ids that occur again further apart in event time) are
decided one by one, in order of arrival.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from streamcore.operators.deduplication.seen_ids import IdHashes, Ints

#: In place of the row that a row repeats: it repeats none.
NO_ROW = -1


def repeated_within_cut(ids: IdHashes, horizon_ms: int) -> Ints:
    """Return for each row the one that it repeats, or ``NO_ROW``: a row with its id that passed earlier in the cut,
    within the horizon of its event time."""
    result = np.full(len(ids), NO_ROW, dtype=np.int64)
    order = _rows_with_shared_hash(ids)
    if not order.size:
        return result
    hashes = ids.hashes[order]
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    first = np.minimum.reduceat(order, starts)[group]
    near = np.abs(ids.event_ms[order] - ids.event_ms[first]) <= horizon_ms
    copies = np.logical_and.reduceat(near & (ids.checks[order] == ids.checks[first]), starts)[group]
    repeats = copies & (order != first)
    result[order[repeats]] = first[repeats]
    remaining = np.sort(order[~copies])
    decided = np.array(_decide_in_order(ids.take(remaining), horizon_ms), dtype=np.int64)
    repeats = decided != NO_ROW
    result[remaining[repeats]] = remaining[decided[repeats]]
    return result


def _rows_with_shared_hash(ids: IdHashes) -> Ints:
    """Return the rows whose hash is not unique, ordered by hash."""
    order = np.argsort(ids.hashes)
    hashes = ids.hashes[order]
    same = hashes[1:] == hashes[:-1]
    return order[np.append(False, same) | np.append(same, False)] if len(ids) else order


def _decide_in_order(ids: IdHashes, horizon_ms: int) -> list[int]:
    """Return for each row the one that it repeats, or ``NO_ROW``, deciding row by row.

    Passed event times of an id are further apart than the horizon, so the first that is not too early decides.
    """
    passed: dict[tuple[int, int], list[tuple[int, int]]] = {}  # event time and row
    result = []
    rows = zip(ids.hashes.tolist(), ids.checks.tolist(), ids.event_ms.tolist(), strict=True)
    for row, (id_hash, check, at_ms) in enumerate(rows):
        times = passed.setdefault((id_hash, check), [])
        index = bisect_left(times, (at_ms - horizon_ms, NO_ROW))
        if index < len(times) and times[index][0] <= at_ms + horizon_ms:
            result.append(times[index][1])
        else:
            insort(times, (at_ms, row))
            result.append(NO_ROW)
    return result
