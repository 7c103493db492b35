"""The bits of events for families of patterns that are alike (``column_tables``).

The conditions of such a family are those of all of its members, one bit each. To its automaton an event has the bits
that a member gives it. Most events have the same for all members. Others have *parts*: members with equal bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from streamcore.columnar.grouping import run_starts
from streamcore.patterns.column_tables import project
from streamcore.patterns.match_store import Ints


class Parts(NamedTuple):
    """The parts of several events: the first one and the number of them by event, members and bits by part."""

    first: Ints
    counts: Ints
    members: Ints
    bits: Ints

    def join(self, other: Parts) -> Parts:
        """Return these events, and then the others."""
        first = np.concatenate([self.first, other.first + len(self.bits)])
        rest = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        return Parts(first, *rest)


def divide_bits(bits: Ints, leaves: Sequence[Any], members: Sequence[Sequence[Any]]) -> tuple[Ints, Ints, Parts]:
    """Return the bits of events for the automaton of a family, and the parts of the events without such bits.

    ``bits``: by the family's ``leaves``. ``members``: the leaves of each member. The second array is the index in
    ``Parts`` of each event; -1 if it has the same bits for all members.
    """
    ordered = np.sort(bits)
    distinct = ordered[run_starts(ordered)]
    event = np.searchsorted(distinct, bits)
    width, count = (1 << len(members[0])) - 1, len(members)
    seen = np.stack([project(distinct, leaves, own) & width for own in members], axis=1)
    differing = np.flatnonzero((seen != seen[:, :1]).any(axis=1))
    index = np.full(len(distinct), -1)
    index[differing] = np.arange(len(differing))
    order = np.argsort(seen[differing], axis=1, kind="stable")
    sorted_bits = np.take_along_axis(seen[differing], order, axis=1)
    is_first = np.ones(sorted_bits.shape, bool)
    is_first[:, 1:] = sorted_bits[:, 1:] != sorted_bits[:, :-1]
    starts = np.flatnonzero(is_first)
    parts = np.bincount(starts // count, minlength=len(differing))
    own_members = np.bitwise_or.reduceat((1 << order).ravel(), starts) if len(starts) else starts
    return (
        seen[event, 0],
        index[event],
        Parts(np.cumsum(parts) - parts, parts, own_members, sorted_bits.ravel()[starts]),
    )


NO_PARTS: Final = Parts(*(np.empty(0, np.int64),) * 4)

__all__ = ["NO_PARTS", "Parts", "divide_bits"]
