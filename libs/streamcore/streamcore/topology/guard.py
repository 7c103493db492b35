"""Runs a stateless function over rows so that a row on which it fails harms nobody: it becomes a dead letter.

A function works row by row, so where it fails on many rows it is run on each half of them, down to the rows at fault
(as many runs as the rows at fault times the logarithm of all).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from streamcore.lane_rows import LaneRows
from streamcore.lanes import DEAD_LETTERS, Record
from streamcore.topology.nodes import Transform

_REASON_CHARS = 500


@dataclass
class Guarded:
    """What came of some rows."""

    good: list[pl.DataFrame] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)


def guarded(name: str, function: Transform, rows: pl.DataFrame) -> Guarded:
    """The function's rows, and a dead letter for every row on which it failed. ``name``: what it is called there."""
    result = Guarded()
    _run(name, function, rows, result)
    return result


def _run(name: str, function: Transform, rows: pl.DataFrame, result: Guarded) -> None:
    try:
        result.good.append(function(rows))
    except Exception as error:
        if rows.height == 1:
            result.dead.append(_dead(name, rows, error))
            return
        half = rows.height // 2
        _run(name, function, rows[:half], result)
        _run(name, function, rows[half:], result)


def _dead(name: str, row: pl.DataFrame, error: Exception) -> Record:
    reason = f"{name}: {type(error).__name__}: {error}"[:_REASON_CHARS]
    (value,) = LaneRows(DEAD_LETTERS, (), row).values()
    return Record(DEAD_LETTERS, None, value, (("reason_code", b"failed"), ("reason", reason.encode())))
