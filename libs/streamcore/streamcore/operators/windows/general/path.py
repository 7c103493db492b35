"""Evaluates windows by the general path: takes the rows of a cut, and returns panes and late rows as frames."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.base import CutTime
from streamcore.operators.failures import FAILED_REASON
from streamcore.operators.windows.element_fields import elements
from streamcore.operators.windows.general.element_table import ArrivalTable, ProgressTable, number_rows, take_loaded
from streamcore.operators.windows.general.plan import WindowPlan
from streamcore.operators.windows.general.windows import TriggeredWindowStore, to_dropped_rows
from streamcore.operators.windows.journal import JournaledTable
from streamcore.operators.windows.metrics import WindowMetrics


class TriggeredWindows:
    """The windows of a shard, evaluated one by one, with their state tables."""

    def __init__(self, plan: WindowPlan, metrics: WindowMetrics) -> None:
        self.plan = plan
        self.metrics = metrics
        self.progress = ProgressTable()
        self._output = plan.output
        self._reset()

    def _reset(self) -> None:
        self.keys = KeySlots(self.plan.keys)
        self.windows = TriggeredWindowStore(self.plan, self.metrics, self.keys)
        self.arrivals = None if self.plan.spec.assigner.in_event_time else ArrivalTable(self.keys)

    def step(self, rows: pl.DataFrame, time: CutTime) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Process a cut; return its panes and its dropped elements."""
        self.apply_loaded()
        for table in self._journals().values():
            table.record_changes()
        self.keys.sweep()
        key_slots = self.keys.assign(rows)
        numbers = number_rows(self.progress, self.arrivals, key_slots)
        engine = self.windows.engine
        engine.begin(time.clock_ms, time.watermark_ms)
        for row, element in enumerate(elements(rows, self.windows.fields, key_slots, numbers)):
            engine.element(element, row)
        engine.watermark(time.next_watermark_ms)
        panes, values = self.windows.finish(rows, numbers)
        late = self._output.late(rows, to_dropped_rows(engine.dropped), time.watermark_ms)
        return self._output.panes(self.keys, panes, values), late

    def failed_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of this cut for which an assigner or a trigger of the user failed, with the reason."""
        failed = dict(sorted(self.windows.engine.failed.items()))
        return rows[[*failed]].with_columns(pl.Series(FAILED_REASON, [*failed.values()], dtype=pl.String))

    def tables(self) -> Mapping[str, JournaledTable]:
        """Return all state tables by name."""
        return {**self._journals(), "progress": self.progress}

    def apply_loaded(self) -> None:
        """Apply the state rows loaded since the last step."""
        stored = take_loaded(self.progress, self._journals())
        if stored is None:
            return
        self._reset()
        if self.arrivals is not None:
            self.arrivals.restore(stored["arrivals"])
        self.windows.restore(stored)

    def _journals(self) -> dict[str, JournaledTable]:
        return self.windows.journals() | ({} if self.arrivals is None else {"arrivals": self.arrivals})
