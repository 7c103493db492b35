"""Which rows of one cut repeat an earlier row of it.

Almost every id of a cut occurs once, and those that occur again are almost always copies of one event: both are decided
by columns. What is left (an id that comes again further away in event time) is decided one row at a time, in the order
of arrival, at a cost that follows the number of such rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from streamcore.operators.deduplication.seen_ids import IdHashes, Ints, Mask


def duplicates_within_cut(ids: IdHashes, horizon_ms: int) -> Mask:
    """Return, for each row, whether an earlier row of its id, itself no repeat, is within the horizon of its event
    time."""
    result = np.zeros(len(ids), dtype=bool)
    order = _of_shared_hashes(ids)
    if not order.size:
        return result
    hashes = ids.hashes[order]
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    group = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    first = np.minimum.reduceat(order, starts)[group]
    near = np.abs(ids.event_ms[order] - ids.event_ms[first]) <= horizon_ms
    copies = np.logical_and.reduceat(near & (ids.checks[order] == ids.checks[first]), starts)[group]
    result[order[copies & (order != first)]] = True
    rest = np.sort(order[~copies])
    result[rest] = _one_by_one(ids.take(rest), horizon_ms)
    return result


def _of_shared_hashes(ids: IdHashes) -> Ints:
    """Return the rows whose hash is not unique, ordered by hash."""
    order = np.argsort(ids.hashes)
    hashes = ids.hashes[order]
    same = hashes[1:] == hashes[:-1]
    return order[np.append(False, same) | np.append(same, False)] if len(ids) else order


def _one_by_one(ids: IdHashes, horizon_ms: int) -> list[bool]:
    """Decide row by row, as the definition says. At most one passed time of an id is within the horizon of a row."""
    firsts: dict[tuple[int, int], list[int]] = {}
    result = []
    for one, other, at_ms in zip(ids.hashes.tolist(), ids.checks.tolist(), ids.event_ms.tolist(), strict=True):
        times = firsts.setdefault((one, other), [])
        place = bisect_left(times, at_ms - horizon_ms)
        again = place < len(times) and times[place] <= at_ms + horizon_ms
        if not again:
            insort(times, at_ms)
        result.append(again)
    return result
