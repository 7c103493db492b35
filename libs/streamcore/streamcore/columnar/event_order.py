"""The order of events: by source partition, then by offset."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from streamcore.schema import OFFSET, PARTITION


def position_codes(events: pl.DataFrame | pa.Table) -> npt.NDArray[np.int64]:
    """Return a number for the position of each event, in the order of positions."""
    codes: npt.NDArray[np.int64] = events[PARTITION].to_numpy().astype(np.int64) * (1 << 40) + events[OFFSET].to_numpy()
    return codes


def find_order(events: pl.DataFrame | pa.Table) -> npt.NDArray[np.intp] | None:
    """Return the rows in order of partition and offset; None if they are in it. The order is stable: rows that stem
    from one event keep theirs."""
    codes = position_codes(events)
    return None if (codes[1:] >= codes[:-1]).all() else np.argsort(codes, kind="stable")
