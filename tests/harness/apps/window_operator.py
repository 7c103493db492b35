"""The windowed operator behind the inputs of the reference, so that transcripts and properties run on both."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import polars as pl

from streamcore.aggregates import Aggregate, Collect
from streamcore.operators.base import LATE, LATE_REASON, LATENESS_MS, MAIN, CutTime
from streamcore.operators.windows.operator import WindowOperator
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.state.state_log import HEAD
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing import (
    CountWindow,
    DroppedElement,
    DropReason,
    Element,
    FiredPane,
    GlobalWindow,
    Timing,
    Window,
    WindowCounts,
    WindowOutput,
    WindowSpec,
)
from streamcore.windowing.model import END_OF_TIME_MS, AnyWindow, Fields, Result

#: The fields of elements in transcripts and properties. A value of another type is null.
FIELDS: Mapping[str, pl.DataType] = {"v": pl.Int64(), "gap": pl.Int64(), "hold_ms": pl.Int64(), "done": pl.Boolean()}
SCHEMA: Mapping[str, pl.DataType] = {"key": pl.String(), **FIELDS, "at": pl.Int64()}
#: An element of a cut: key, fields, event time.
Row = tuple[Hashable, Fields, int]
SETTINGS = StateSettings(buckets=3)


class OperatorRunner:
    """Feeds an operator cut by cut. ``restarts``: each cut begins with an operator that has only the stored state.

    ``turns``: there are two workers, and whose turn a cut is; a worker catches up with what the other has stored.
    """

    def __init__(
        self, spec: WindowSpec, function: Aggregate, *, restarts: bool = False, turns: Sequence[bool] = ()
    ) -> None:
        self.spec = spec
        self.function = function
        self.restarts = restarts
        self.counts = WindowCounts()
        self.seen: list[Fields] = []
        self.blobs, self.log = MemoryBlobs(), StateLog(SETTINGS)
        self.operator = self._operator()
        self.turns = [*turns]
        self.mine, self.other = False, (self._operator(), StateLog(SETTINGS))
        self.watermark_ms, self.clock_ms = NO_WATERMARK, 0

    def element(self, key: Hashable, value: Fields, event_ms: int) -> WindowOutput:
        return self.cut([(key, value, event_ms)], self.clock_ms, self.watermark_ms)

    def watermark(self, watermark_ms: int) -> WindowOutput:
        return self.cut([], self.clock_ms, watermark_ms)

    def clock(self, clock_ms: int) -> WindowOutput:
        return self.cut([], clock_ms, self.watermark_ms)

    def end_of_stream(self) -> WindowOutput:
        return self.cut([], self.clock_ms, END_OF_TIME_MS)

    def cut(self, rows: Sequence[Row], clock_ms: int, next_watermark_ms: int) -> WindowOutput:
        """Run a cut: the clock, then the rows, then the watermark."""
        if self.turns and self.turns.pop(0) != self.mine:
            self._take_turns()
        time = CutTime(self.watermark_ms, next_watermark_ms, clock_ms)
        ports = self.operator.step([frame(rows, len(self.seen))], time)
        self.seen += [fields for _, fields, _ in rows]
        self.watermark_ms, self.clock_ms = next_watermark_ms, clock_ms
        self._count()
        self.log.commit(self.blobs, self.operator.tables(), {})
        if self.restarts:
            self._restart()
        firings = tuple(self._firing(row) for row in ports[MAIN].iter_rows(named=True))
        return WindowOutput(firings, tuple(self._to_dropped_element(row) for row in ports[LATE].iter_rows(named=True)))

    @property
    def is_empty(self) -> bool:
        """Return whether only positions and the arrivals of count windows are stored."""
        stored = {name: table.rows(0, 1).height for name, table in self.operator.tables().items()}
        return not any(rows for name, rows in stored.items() if name not in ("progress", "arrivals"))

    def _operator(self) -> WindowOperator:
        return WindowOperator(self.spec, ("key",), SCHEMA, {"value": self.function, "seen": Collect("at")})

    def _restart(self) -> None:
        self.operator, self.log = self._operator(), StateLog(SETTINGS)
        tables = self.operator.tables()
        self.log.load(self.blobs.get(HEAD), self.blobs, tables.__getitem__)
        self.operator.on_state_loaded()

    def _take_turns(self) -> None:
        """Let the other worker continue, as a shard does (``streamcore.engine.shard``)."""
        self.mine = not self.mine
        (self.operator, self.log), self.other = self.other, (self.operator, self.log)
        head = self.blobs.get(HEAD)
        if self.log.holds(head):
            return
        if head is None or not self.log.catch_up(head, self.blobs, self.operator.tables().__getitem__):
            self._restart()
            return
        self.operator.on_state_loaded()

    def _count(self) -> None:
        metrics = dict(self.operator.metrics())
        assert metrics.pop("rejected") == metrics.pop("truncated") == metrics.pop("failed") == 0
        self.counts = WindowCounts(**{name: getattr(self.counts, name) + more for name, more in metrics.items()})

    def _firing(self, row: Mapping[str, object]) -> FiredPane:
        seen = row["seen"]
        assert isinstance(seen, list)
        value = row["value"]
        elements = tuple(Element(row["key"], self.seen[at], 0, 0) for at in seen)
        return FiredPane(
            row["key"],
            self._window(row),
            _int(row["pane"]),
            Timing(str(row["timing"])),
            row["pane"] == 0,
            bool(row["is_final"]),
            bool(row["is_retraction"]),
            plain(value),
            elements,
        )

    def _to_dropped_element(self, row: Mapping[str, object]) -> DroppedElement:
        element = Element(row["key"], {name: row[name] for name in FIELDS}, _int(row[EVENT_MS]), 0)  # type: ignore[misc]
        return DroppedElement(element, self._window(row), DropReason(str(row[LATE_REASON])), _int(row[LATENESS_MS]))

    def _window(self, row: Mapping[str, object]) -> AnyWindow:
        if isinstance(self.spec.assigner, GlobalWindow):
            assert row["window_start"] is None
            return Window(-END_OF_TIME_MS, END_OF_TIME_MS)
        if not self.spec.assigner.in_event_time:
            return CountWindow(_int(row["window_first"]), _int(row["window_stop"]))
        return Window(_ms(row["window_start"]), _ms(row["window_end"]))


def without_elements(firings: Sequence[FiredPane]) -> list[FiredPane]:
    """Return firings without elements, which the operator does not return."""
    return [replace(firing, elements=(), value=plain(firing.value)) for firing in firings]


def plain(value: object) -> Result:
    """Return a value in the form of the reference."""
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def frame(rows: Sequence[Row], first: int) -> pl.DataFrame:
    """Return elements as rows of ``SCHEMA``. ``first``: the number of earlier ones."""
    columns = {"key": [key for key, _, _ in rows]}
    fields = {
        name: [_none_if_mistyped(value.get(name), dtype) for _, value, _ in rows] for name, dtype in FIELDS.items()
    }
    times = {"at": range(first, first + len(rows)), EVENT_MS: [event_ms for _, _, event_ms in rows]}
    return pl.DataFrame({**columns, **fields, **times}, schema={**SCHEMA, EVENT_MS: pl.Int64()})


def _none_if_mistyped(value: object, dtype: pl.DataType) -> object:
    return value if isinstance(value, bool) == (dtype == pl.Boolean) and isinstance(value, int) else None


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _ms(value: object) -> int:
    assert isinstance(value, datetime)
    return round(value.timestamp() * 1000)
