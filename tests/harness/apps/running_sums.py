"""A small operator for tests of what carries operators: for every row the sum of its key's values so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.operators.base import LATE, MAIN, CutTime, Ports
from streamcore.schema import EVENT_MS
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.table import StateTable


@dataclass(frozen=True)
class MakeRunningSums:
    """Makes one. ``value``: a column of whole numbers."""

    key: str
    value: str

    def __call__(self) -> RunningSums:
        return RunningSums(self.key, self.value)


class RunningSums:
    """MAIN: key, ``total``, and the watermark that the row met. LATE: rows before that watermark, as they were."""

    def __init__(self, key: str, value: str) -> None:
        self.key = key
        self.value = value
        self.sums = KeyValueTable()
        self.rows = 0

    @property
    def output_delay_ms(self) -> int:
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        (rows,) = inputs
        late = rows.filter(pl.col(EVENT_MS) < time.watermark_ms)
        totals = []
        for key, value in rows.select(self.key, self.value).iter_rows():
            total = int(self.sums.get(key) or b"0") + value
            self.sums.put(key, b"%d" % total)
            totals.append(total)
        self.rows += rows.height
        mark = pl.lit(time.watermark_ms, pl.Int64).alias("watermark_ms")
        out = rows.select(self.key, pl.Series("total", totals, dtype=pl.Int64), mark, EVENT_MS)
        return {MAIN: out, LATE: late.select(self.key, self.value, EVENT_MS)}

    def tables(self) -> Mapping[str, StateTable]:
        return {"sums": self.sums}

    def on_state_loaded(self) -> None:
        """Do nothing."""

    def metrics(self) -> Mapping[str, int]:
        rows, self.rows = self.rows, 0
        return {"rows": rows}
