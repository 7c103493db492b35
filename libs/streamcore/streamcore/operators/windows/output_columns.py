"""The output columns of a windowed operator and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.base import LATE_REASON, LATENESS_MS
from streamcore.schema import EVENT_MS
from streamcore.windowing.assigners import Assigner
from streamcore.windowing.model import DropReason, Timing

#: Bounds of a window in event time; null for the global window.
WINDOW_START = "window_start"
WINDOW_END = "window_end"
#: Bounds of a count window: the number of its first element, and of the first one after it.
WINDOW_FIRST = "window_first"
WINDOW_STOP = "window_stop"
PANE = "pane"
TIMING = "timing"
IS_FINAL = "is_final"
IS_RETRACTION = "is_retraction"

DATETIME = pl.Datetime("ms", "UTC")
TIMINGS = (Timing.EARLY, Timing.ON_TIME, Timing.LATE)
REASONS = (DropReason.EXPIRED, DropReason.CLOSED)
_TIMINGS = pl.Series(TIMING, [str(timing) for timing in TIMINGS], dtype=pl.String)
_REASONS = pl.Series(LATE_REASON, [str(reason) for reason in REASONS], dtype=pl.String)


@dataclass(frozen=True, slots=True)
class PaneFirings:
    """Panes that fired, in order. ``timing``: the place in ``TIMINGS``; ``latest_ms``: the latest event time."""

    key_slots: Ints
    first: Ints
    end: Ints
    pane: Ints
    timing: Ints
    final: npt.NDArray[np.bool_]
    retraction: npt.NDArray[np.bool_]
    latest_ms: Ints

    def __len__(self) -> int:
        return len(self.key_slots)

    def at(self, rows: npt.NDArray[Any]) -> PaneFirings:
        """Return those at these places."""
        return PaneFirings(*(getattr(self, name)[rows] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """Elements that a window did not take. ``row``: of the cut's input; ``reason``: the place in ``REASONS``."""

    row: Ints
    first: Ints
    end: Ints
    reason: Ints

    def merged_by_row(self, others: DroppedRows) -> DroppedRows:
        """Return these and others, in the order of rows."""
        columns = [np.concatenate([getattr(self, name), getattr(others, name)]) for name in self.__slots__]
        order = np.argsort(columns[0], kind="stable")
        return DroppedRows(*(column[order] for column in columns))


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The columns of an operator's outputs."""

    assigner: Assigner
    keys: Mapping[str, pl.DataType]
    values: Mapping[str, pl.DataType]

    @property
    def window(self) -> tuple[str, str]:
        """Return the names of a window's bounds."""
        return (WINDOW_START, WINDOW_END) if self.assigner.in_event_time else (WINDOW_FIRST, WINDOW_STOP)

    @property
    def main(self) -> Mapping[str, pl.DataType]:
        """Return the columns of a pane."""
        bound = DATETIME if self.assigner.in_event_time else pl.Int64()
        return {
            **self.keys,
            **dict.fromkeys(self.window, bound),
            PANE: pl.Int64(),
            TIMING: pl.String(),
            IS_FINAL: pl.Boolean(),
            IS_RETRACTION: pl.Boolean(),
            **self.values,
            EVENT_MS: pl.Int64(),
        }

    def panes(self, keys: KeySlots, panes: PaneFirings, values: Sequence[pl.Series]) -> pl.DataFrame:
        """Return one row per pane."""
        bounded = self.assigner.in_event_time and self.assigner.ends
        return pl.DataFrame(
            [
                *keys.frame(panes.key_slots).get_columns(),
                *self.bounds(panes.first, panes.end),
                pl.Series(PANE, panes.pane),
                _TIMINGS.gather(panes.timing),
                pl.Series(IS_FINAL, panes.final),
                pl.Series(IS_RETRACTION, panes.retraction),
                *values,
                pl.Series(EVENT_MS, panes.end - 1 if bounded else panes.latest_ms),
            ]
        )

    def late(self, rows: pl.DataFrame, drops: DroppedRows, watermark_ms: int) -> pl.DataFrame:
        """Return one row per dropped element and window."""
        if not len(drops.row):
            bound = DATETIME if self.assigner.in_event_time else pl.Int64()
            added = {LATE_REASON: pl.String(), LATENESS_MS: pl.Int64(), **dict.fromkeys(self.window, bound)}
            return pl.DataFrame(schema={**rows.schema, **added})
        taken = rows[drops.row]
        lateness_ms = np.maximum(0, watermark_ms - taken[EVENT_MS].to_numpy())
        return taken.with_columns(
            _REASONS.gather(drops.reason),
            pl.Series(LATENESS_MS, lateness_ms, dtype=pl.Int64),
            *self.bounds(drops.first, drops.end),
        )

    def bounds(self, first: Ints, end: Ints) -> list[pl.Series]:
        """Return the two columns of windows."""
        if not self.assigner.in_event_time:
            return [
                pl.Series(name, bound, dtype=pl.Int64) for name, bound in zip(self.window, (first, end), strict=True)
            ]
        if not self.assigner.ends:
            return [pl.repeat(None, len(first), dtype=DATETIME, eager=True).alias(name) for name in self.window]
        pairs = zip(self.window, (first, end), strict=True)
        return [pl.Series(name, bound, dtype=pl.Int64).cast(DATETIME) for name, bound in pairs]
