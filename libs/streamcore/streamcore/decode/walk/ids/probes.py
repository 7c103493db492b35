"""Goes along the probe paths of an index whose slots have numbers of entries, or less than 0 if they are free.

The path of an id has a first slot and a step, which is odd, so that it comes to every slot of an index whose size is a
power of two. Words of 64 bits are int64 here, hashes too (``words``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamcore.decode.walk.compiler import entry

Ints = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int32]

#: In place of the number of an entry: there is none.
NO_ENTRY = -1
_READ = "Array(int64, 1, 'C', readonly=True)"


@entry(f"void(int32[::1], {_READ}, {_READ}, int64)")
def insert_entries(index: Slots, starts: Ints, steps: Ints, first: int) -> None:
    """Write the entries from ``first`` on, in order, each to the first free slot of its path. There must be one."""
    mask = len(index) - 1
    for n in range(len(starts)):
        slot = starts[n]
        while index[slot] >= 0:
            slot = (slot + steps[n]) & mask
        index[slot] = first + n


@entry(f"void(int32[::1], {', '.join([_READ] * 8)}, int64, int64, int64[::1])")
def find_entries(
    index: Slots,
    hashes: Ints,
    checks: Ints,
    event_ms: Ints,
    starts: Ints,
    steps: Ints,
    wanted_hashes: Ints,
    wanted_checks: Ints,
    wanted_ms: Ints,
    since_ms: int,
    horizon_ms: int,
    found: Ints,
) -> None:
    """Write of each id the first entry on its path with its hashes, whose time is at or after ``since_ms`` and within
    the horizon of its own; ``NO_ENTRY`` if there is none before a free slot. ``hashes``, ``checks`` and ``event_ms``
    are of the entries."""
    mask = len(index) - 1
    for row in range(len(found)):
        slot, at_ms = starts[row], wanted_ms[row]
        found[row] = NO_ENTRY
        while index[slot] >= 0:
            n = index[slot]
            is_same = hashes[n] == wanted_hashes[row] and checks[n] == wanted_checks[row]
            if is_same and event_ms[n] >= since_ms and abs(event_ms[n] - at_ms) <= horizon_ms:
                found[row] = n
                break
            slot = (slot + steps[row]) & mask
