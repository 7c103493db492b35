"""Finds the rows of a cut that repeat an earlier row of the cut.

In a cut almost every id occurs once, and the rows of an id that occurs again are almost always copies of one event.
Column operations decide both cases. The remaining rows (of ids that occur again further apart in event time) are
decided one by one, in order of arrival.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from streamcore.operators.deduplication.seen_ids import IdHashes, Ints, Mask


def duplicates_within_cut(ids: IdHashes, horizon_ms: int) -> Mask:
    """Return a mask of the duplicates: rows whose id has passed earlier in the cut, within the horizon of their event
    time."""
    result = np.zeros(len(ids), dtype=bool)
    order = _rows_with_shared_hash(ids)
    if not order.size:
        return result
    hashes = ids.hashes[order]
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    first = np.minimum.reduceat(order, starts)[group]
    near = np.abs(ids.event_ms[order] - ids.event_ms[first]) <= horizon_ms
    copies = np.logical_and.reduceat(near & (ids.checks[order] == ids.checks[first]), starts)[group]
    result[order[copies & (order != first)]] = True
    remaining = np.sort(order[~copies])
    result[remaining] = _decide_in_order(ids.take(remaining), horizon_ms)
    return result


def _rows_with_shared_hash(ids: IdHashes) -> Ints:
    """Return the rows whose hash is not unique, ordered by hash."""
    order = np.argsort(ids.hashes)
    hashes = ids.hashes[order]
    same = hashes[1:] == hashes[:-1]
    return order[np.append(False, same) | np.append(same, False)] if len(ids) else order


def _decide_in_order(ids: IdHashes, horizon_ms: int) -> list[bool]:
    """Return for each row whether it is a duplicate, deciding row by row.

    Passed event times of an id are further apart than the horizon, so the first that is not too early decides.
    """
    passed_times: dict[tuple[int, int], list[int]] = {}
    result = []
    for id_hash, check, at_ms in zip(ids.hashes.tolist(), ids.checks.tolist(), ids.event_ms.tolist(), strict=True):
        times = passed_times.setdefault((id_hash, check), [])
        index = bisect_left(times, at_ms - horizon_ms)
        is_duplicate = index < len(times) and times[index] <= at_ms + horizon_ms
        if not is_duplicate:
            insort(times, at_ms)
        result.append(is_duplicate)
    return result
