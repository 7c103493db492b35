"""The order of panes of a cut: that of the reference within a key, and fixed between keys."""

from __future__ import annotations

import numpy as np
import polars as pl

from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.output_columns import PaneFirings


def in_order(
    keys: KeySlots, triggered: PaneFirings, others: pl.DataFrame, early: int, ended: tuple[PaneFirings, pl.DataFrame]
) -> pl.DataFrame:
    """Return all panes of a cut in order.

    The first ``early`` of the ``triggered`` fired before the watermark moved and stay first. The others and the
    ``ended`` ones are ordered by the ends of their windows, then by the hashes of their keys.
    """
    panes, frame = ended
    if not len(triggered):
        return frame
    if not len(panes):
        return others
    key_slots = np.concatenate([triggered.key_slots[early:], panes.key_slots])
    first = np.concatenate([triggered.first[early:], panes.first])
    end = np.concatenate([triggered.end[early:], panes.end])
    order = np.lexsort((keys.hashes[key_slots], first, end))
    return pl.concat([others[:early], pl.concat([others[early:], frame])[order]])
