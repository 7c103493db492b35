"""The order of panes of a cut: that of the reference within a key, and fixed between keys."""

from __future__ import annotations

import numpy as np
import polars as pl

from streamcore.operators.windows.columns import Panes
from streamcore.operators.windows.keys import KeySlots


def in_order(
    keys: KeySlots, singles: Panes, others: pl.DataFrame, early: int, ended: tuple[Panes, pl.DataFrame]
) -> pl.DataFrame:
    """All panes of a cut. ``early``: how many of the ``singles`` fired before the watermark moved; the rest and those
    ``ended`` go by the ends of their windows, then by the hashes of their keys, which no process changes."""
    panes, frame = ended
    if not len(singles):
        return frame
    if not len(panes):
        return others
    slots = np.concatenate([singles.slots[early:], panes.slots])
    first = np.concatenate([singles.first[early:], panes.first])
    end = np.concatenate([singles.end[early:], panes.end])
    order = np.lexsort((keys.hashes[slots], first, end))
    return pl.concat([others[:early], pl.concat([others[early:], frame])[order]])
