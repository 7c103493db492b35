"""The general path as a whole: cuts in, frames out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from streamcore.operators.operator import StepTime
from streamcore.operators.windows.assigning import elements
from streamcore.operators.windows.elements import ArrivalTable, ProgressTable
from streamcore.operators.windows.journal import Journal
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.plan import Plan
from streamcore.operators.windows.singles import Singles, drops_of
from streamcore.operators.windows.table import Ints
from streamcore.operators.windows.tally import Tally


class OneByOne:
    """All windows by the general path."""

    def __init__(self, plan: Plan, tally: Tally) -> None:
        self.plan = plan
        self.tally = tally
        self.progress = ProgressTable()
        self._shape = plan.shape
        self._empty()

    def _empty(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        self.windows = Singles(self.plan, self.tally, self.keys)
        self.arrivals = None if self.plan.spec.assigner.in_event_time else ArrivalTable(self.keys)

    def step(self, rows: pl.DataFrame, time: StepTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The panes and the dropped of a cut."""
        self.settle()
        for table in self._journals().values():
            table.note()
        self.keys.sweep()
        slots = self.keys.assign(rows)
        numbers = self._numbers(slots)
        general = self.windows.general
        general.begin(time.clock_ms, time.watermark_ms)
        for row, element in enumerate(elements(rows, self.windows.fields, slots, numbers)):
            general.element(element, row)
        general.watermark(time.next_watermark_ms)
        panes, values = self.windows.finish(rows, numbers)
        late = self._shape.late(rows, drops_of(general.dropped), time.watermark_ms)
        return self._shape.panes(self.keys, panes, values), late

    def _numbers(self, slots: Ints) -> Ints:
        """Numbers that rise with arrival within each key; only count windows need to know the key's own."""
        first = self.progress.take(len(slots))
        return np.arange(first, first + len(slots)) if self.arrivals is None else self.arrivals.number(slots)

    def tables(self) -> Mapping[str, Journal]:
        """All state."""
        return {**self._journals(), "progress": self.progress}

    def settle(self) -> None:
        """Take what was loaded since the last step."""
        journals = self._journals()
        if not (self.progress.settle() or any(table.loaded for table in journals.values())):
            return
        stored = {name: table.taken() for name, table in journals.items()}
        self._empty()
        if self.arrivals is not None:
            self.arrivals.restore(stored["arrivals"])
        self.windows.restore(stored)

    def _journals(self) -> dict[str, Journal]:
        return self.windows.journals() | ({} if self.arrivals is None else {"arrivals": self.arrivals})
