"""Runs a stateless function over rows so that a row on which it fails harms nobody: it becomes a dead letter.

A function works row by row, so where it fails on many rows it is run on each half of them, down to the rows at fault
(as many runs as the rows at fault times the logarithm of all).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from streamcore.enrich.values import REASON
from streamcore.lanes import Record
from streamcore.operators.operator import LATE_REASON
from streamcore.operators.process import FAILED_REASON
from streamcore.topology.letters import Letters
from streamcore.topology.nodes import Transform

_PLAIN = Letters()
#: The columns in which operators and look-ups say why a row is not among the others.
_REASONS = (FAILED_REASON, LATE_REASON, REASON)


@dataclass
class Guarded:
    """What came of some rows."""

    good: list[pl.DataFrame] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)


def guarded(name: str, function: Transform, rows: pl.DataFrame, letters: Letters = _PLAIN) -> Guarded:
    """The function's rows, and a dead letter for every row on which it failed. ``name``: what it is called there."""
    result = Guarded()
    _run(name, function, rows, result, letters)
    return result


def _run(name: str, function: Transform, rows: pl.DataFrame, result: Guarded, letters: Letters) -> None:
    try:
        result.good.append(function(rows))
    except Exception as error:
        if rows.height == 1:
            result.dead += letters.of(rows, ["failed"], [f"{name}: {type(error).__name__}: {error}"])
            return
        half = rows.height // 2
        _run(name, function, rows[:half], result, letters)
        _run(name, function, rows[half:], result, letters)


def dead_letters(name: str, port: str, rows: pl.DataFrame, letters: Letters = _PLAIN) -> list[Record]:
    """Rows of a side output as dead letters, as all are: the port is the code of the reason, its text is not in the
    value. ``name``: the step that they come from."""
    reasons = [column for column in _REASONS if column in rows.columns]
    texts = rows[reasons[0]].to_list() if reasons else [port] * rows.height
    return letters.of(rows.drop(reasons), [port] * rows.height, [f"{name}: {text}" for text in texts])
