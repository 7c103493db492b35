"""Runs an operator cut by cut, with its state committed after each, and restarts it from what was committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from streamcore.keyed import ProcessFunction
from streamcore.keyed.call_records import Schema
from streamcore.operators.base import CutTime
from streamcore.operators.process import ProcessOperator
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.state.state_log import HEAD
from streamcore.watermark import NO_WATERMARK

EVENTS: Schema = {"key": pl.String, "n": pl.Int64}
CONTROL: Schema = {"name": pl.String, "value": pl.Int64}

#: Key, number, event time.
Event = tuple[str | None, int | None, int]


def frame(events: Sequence[Event], names: Sequence[str] = ("key", "n")) -> pl.DataFrame:
    """Return rows of ``EVENTS``, or of ``CONTROL``."""
    keys, numbers, times = zip(*events, strict=True) if events else ((), (), ())
    return pl.DataFrame(
        [
            pl.Series(names[0], keys, dtype=pl.String),
            pl.Series(names[1], numbers, dtype=pl.Int64),
            pl.Series(EVENT_MS, times, dtype=pl.Int64),
        ]
    )


@dataclass
class Runner:
    """``make`` builds a fresh operator. Time stands still unless a cut says otherwise."""

    make: Callable[[], ProcessOperator]
    buckets: int = 3
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    clock_ms: int = 0
    watermark_ms: int = NO_WATERMARK

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Restart from the committed state, as a new process does."""
        self.operator = self.make()
        self.log = StateLog(StateSettings(buckets=self.buckets))
        tables = self.operator.tables()
        self.log.load(self.blobs.get(HEAD), self.blobs, lambda name: tables[name])
        self.operator.on_state_loaded()

    def cut(
        self,
        events: Sequence[Event] = (),
        *,
        watermark_ms: int | None = None,
        clock_ms: int | None = None,
        control: Sequence[Event] | None = None,
    ) -> dict[str, list[tuple[object, ...]]]:
        """Run a cut; return the rows by port. The times are those after the cut."""
        self.clock_ms = self.clock_ms if clock_ms is None else clock_ms
        after = self.watermark_ms if watermark_ms is None else watermark_ms
        inputs = [frame(events)] + ([] if control is None else [frame(control, ("name", "value"))])
        ports = self.operator.step(inputs, CutTime(self.watermark_ms, after, self.clock_ms))
        self.watermark_ms = after
        self.log.commit(self.blobs, self.operator.tables(), {"watermark": after, "clock": self.clock_ms})
        return {name: rows.rows() for name, rows in ports.items()}

    def stored_rows(self, table: str) -> pl.DataFrame:
        """Return all rows of a table in their stored form."""
        frames = [self.operator.tables()[table].rows(n, 4) for n in range(4)]
        return pl.concat([f for f in frames if f.height], how="vertical") if any(map(len, frames)) else pl.DataFrame()


def runner(function: ProcessFunction, **options: object) -> Runner:
    """Return a runner of a function over ``EVENTS``."""
    return Runner(lambda: ProcessOperator(function, key=["key"], events=EVENTS, **options))  # type: ignore[arg-type]
