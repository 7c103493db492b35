"""Runs operators with two inputs cut by cut, with generated rows, watermarks and restarts.

Every cut is committed through the state log; another worker loads the blobs, or the newer ones of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl
from hypothesis import strategies as st

from streamcore.operators.base import CutTime, Operator
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.state.state_log import HEAD
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.model import END_OF_TIME_MS

Row = tuple[object, ...]


@dataclass(frozen=True)
class Arrival:
    """A row of one input: ``values`` in the order of the input's columns, without the event time."""

    side: int
    event_ms: int
    values: Row


@dataclass(frozen=True)
class CutPlan:
    """A cut: its rows, the watermark after them, whether another worker runs it than the one before, and the clock."""

    arrivals: tuple[Arrival, ...]
    next_watermark_ms: int
    restart: bool
    clock_ms: int = 0


Plan = Sequence[CutPlan]


class Driver:
    """Feeds cuts and gathers the rows of every port, each as a tuple by the port's columns."""

    def __init__(self, make: Callable[[], Operator], schemas: Sequence[pl.Schema]) -> None:
        self.make = make
        self.schemas = schemas
        self.blobs = MemoryBlobs()
        self.watermark_ms = NO_WATERMARK
        self.ports: dict[str, list[Row]] = {}
        self.columns: dict[str, list[str]] = {}
        self.counts: dict[str, int] = {}
        self.operator: Operator
        self.log: StateLog
        self.away: tuple[Operator, StateLog] | None = None
        self.restart()

    def change(self) -> None:
        """Change to a new worker or to the previous one, which catches up with the stored state, by turns."""
        here = (self.operator, self.log)
        if self.away is None:
            self.away = here
            self.restart()
            return
        (self.operator, self.log), self.away = self.away, None
        head = self.blobs.get(HEAD)
        if self.log.holds(head):
            return
        tables = self.operator.tables()
        if head is None or not self.log.catch_up(head, self.blobs, lambda name: tables[name]):
            self.restart()
            return
        self.operator.on_state_loaded()

    def restart(self) -> None:
        self.operator = self.make()
        self.log = StateLog(StateSettings(buckets=5))
        tables = self.operator.tables()
        self.log.load(self.blobs.get(HEAD), self.blobs, lambda name: tables[name])
        self.operator.on_state_loaded()

    def cut(self, plan: CutPlan) -> None:
        if plan.restart:
            self.change()
        inputs = [self._frame(side, plan.arrivals) for side in range(len(self.schemas))]
        ports = self.operator.step(inputs, CutTime(self.watermark_ms, plan.next_watermark_ms, plan.clock_ms))
        self.log.commit(self.blobs, self.operator.tables(), {"watermark": plan.next_watermark_ms})
        self.watermark_ms = plan.next_watermark_ms
        for port, frame in ports.items():
            self.columns[port] = frame.columns
            self.ports.setdefault(port, []).extend(frame.rows())
        for name, count in self.operator.metrics().items():
            self.counts[name] = count if name.endswith("_kept") else self.counts.get(name, 0) + count

    def run(self, plan: Plan) -> Driver:
        for cut in plan:
            self.cut(cut)
        return self

    def _frame(self, side: int, arrivals: Sequence[Arrival]) -> pl.DataFrame:
        rows = [(*a.values, a.event_ms) for a in arrivals if a.side == side]
        return pl.DataFrame(rows, schema={**self.schemas[side], EVENT_MS: pl.Int64()}, orient="row")


@st.composite
def plans(
    draw: st.DrawFn,
    values: st.SearchStrategy[tuple[int, Row]],
    *,
    late: bool = False,
    max_size: int = 30,
) -> Plan:
    """Return any rows in any order, cut anywhere, restarted anywhere, ended by the end of time.

    The watermark goes as far as the rows to come allow, or less far; with ``late`` it goes anywhere.
    """
    rows = draw(st.lists(st.tuples(values, st.integers(-3, 20)), max_size=max_size))
    arrivals = tuple(Arrival(side, at, row) for (side, row), at in rows)
    edges = sorted(draw(st.lists(st.integers(0, len(arrivals)), max_size=8)))
    cuts, watermark, start = [], NO_WATERMARK, 0
    for end in [*edges, len(arrivals)]:
        to_come = min((a.event_ms for a in arrivals[end:]), default=200)
        goes_to = draw(st.integers(-30, 80)) if late else to_come - draw(st.sampled_from([0, 0, 0, 1, 7, 1000]))
        watermark = max(watermark, goes_to)
        cuts.append(CutPlan(arrivals[start:end], watermark, draw(st.booleans())))
        start = end
    return [*cuts, CutPlan((), END_OF_TIME_MS, draw(st.booleans()))]


def split_late(plan: Plan) -> tuple[list[Arrival], list[Arrival]]:
    """Return the rows that are not behind the watermark of their cut, and those that are."""
    good: list[Arrival] = []
    late: list[Arrival] = []
    before = NO_WATERMARK
    for cut in plan:
        for arrival in cut.arrivals:
            (late if arrival.event_ms < before else good).append(arrival)
        before = cut.next_watermark_ms
    return good, late


def by_value(rows: Sequence[Row]) -> list[Row]:
    """Return rows in an order that does not depend on their arrival."""
    return sorted(rows, key=repr)
