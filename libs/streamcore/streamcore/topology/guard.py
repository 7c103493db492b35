"""Runs a stateless function over rows so that a row on which it fails harms nobody: it becomes a dead letter.

A function works row by row, so where it fails on many rows it is run on each half of them, down to the rows at fault
(as many runs as the rows at fault times the logarithm of all).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from streamcore.enrich.values import REASON
from streamcore.lane_rows import LaneRows
from streamcore.lanes import DEAD_LETTERS, Record
from streamcore.operators.operator import LATE_REASON
from streamcore.operators.process import FAILED_REASON
from streamcore.topology.nodes import Transform

_REASON_CHARS = 500
#: The columns in which operators and look-ups say why a row is not among the others.
_REASONS = (FAILED_REASON, LATE_REASON, REASON)


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
    (value,) = LaneRows(DEAD_LETTERS, (), row).values()
    return _letter(value, "failed", f"{name}: {type(error).__name__}: {error}")


def dead_letters(name: str, port: str, rows: pl.DataFrame) -> list[Record]:
    """Rows of a side output as dead letters, as all are: the port is the code of the reason, its text is not in the
    value. ``name``: the step that they come from."""
    reasons = [column for column in _REASONS if column in rows.columns]
    values = LaneRows(DEAD_LETTERS, (), rows.drop(reasons)).values()
    texts = rows[reasons[0]].to_list() if reasons else [port] * rows.height
    return [_letter(value, port, f"{name}: {text}") for value, text in zip(values, texts, strict=True)]


def _letter(value: bytes, code: str, reason: str) -> Record:
    headers = (("reason_code", code.encode()), ("reason", reason[:_REASON_CHARS].encode()))
    return Record(DEAD_LETTERS, None, value, headers)
