"""Runs a stateless function over rows so that a row on which it fails becomes a rejected record; other rows go on.

A function works row by row, so where it fails on many rows it is run on each half of them, down to the rows at fault
(as many runs as the rows at fault times the logarithm of all).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from streamcore.enrich.spec import REASON
from streamcore.operators.base import LATE_REASON
from streamcore.operators.process import FAILED_REASON
from streamcore.topology.dead_letters import DeadLetterWriter
from streamcore.topology.nodes import Transform
from streamcore.wire.lanes import DeadLetterCode, Record

_PLAIN = DeadLetterWriter()
#: The columns in which operators and look-ups say why a row is not among the others.
_REASONS = (FAILED_REASON, LATE_REASON, REASON)


@dataclass
class IsolatedResult:
    """The outcome of some rows."""

    good: list[pl.DataFrame] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)


def run_isolated(
    name: str, function: Transform, rows: pl.DataFrame, letters: DeadLetterWriter = _PLAIN
) -> IsolatedResult:
    """Run the function; each row on which it fails becomes a rejected record. ``name``: its name there."""
    result = IsolatedResult()
    _run(name, function, rows, result, letters)
    return result


def _run(name: str, function: Transform, rows: pl.DataFrame, result: IsolatedResult, letters: DeadLetterWriter) -> None:
    try:
        result.good.append(function(rows))
    except Exception as error:
        if rows.height == 1:
            result.dead += letters.to_records(
                rows, [DeadLetterCode.FAILED], [f"{name}: {type(error).__name__}: {error}"]
            )
            return
        half = rows.height // 2
        _run(name, function, rows[:half], result, letters)
        _run(name, function, rows[half:], result, letters)


def dead_letters(name: str, port: str, rows: pl.DataFrame, letters: DeadLetterWriter = _PLAIN) -> list[Record]:
    """Rows of a side output as rejected records, in the common form: the port is the code of the reason, its text is
    not in the value. ``name``: the step that they come from."""
    reasons = [column for column in _REASONS if column in rows.columns]
    texts = rows[reasons[0]].to_list() if reasons else [port] * rows.height
    return letters.to_records(rows.drop(reasons), [port] * rows.height, [f"{name}: {text}" for text in texts])
