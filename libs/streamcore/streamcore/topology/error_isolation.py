"""Runs a stateless function so that only the rows on which it fails become dead letters.

A function works row by row, so if it fails on several rows, it is run on each half of them, and so on down to the rows
that fail. F failing rows of N take about F * log(N) runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import polars as pl

from streamcore.calls import CALL_ERRORS, check_times, failure_reason
from streamcore.enrich.spec import REASON
from streamcore.operators.base import LATE_REASON, LATENESS_MS
from streamcore.operators.failures import FAILED_REASON
from streamcore.operators.process import FAILED_SECOND
from streamcore.topology.dead_letters import DeadLetterWriter
from streamcore.topology.nodes import Schema, Transform
from streamcore.wire.lanes import DeadLetterCode, Record

_WITHOUT_TOPICS = DeadLetterWriter()
#: The columns in which operators and enrichments write why a row failed or is late.
_REASON_COLUMNS = (FAILED_REASON, LATE_REASON, REASON)


@dataclass
class IsolatedResult:
    """The frames of rows that succeeded, and the dead letters of the others."""

    succeeded: list[pl.DataFrame] = field(default_factory=list)
    dead: list[Record] = field(default_factory=list)


def run_isolated(
    step: str, function: Transform, schema: Schema, rows: pl.DataFrame, writer: DeadLetterWriter = _WITHOUT_TOPICS
) -> IsolatedResult:
    """Run the function. Each row on which it fails becomes a dead letter, with ``step`` in its reason.

    ``schema``: the columns that it returned for no rows; it fails if it returns other ones.
    """
    result = IsolatedResult()
    expected = {**schema, **{name: dtype for name, dtype in rows.schema.items() if name.startswith("__")}}

    def call(some_rows: pl.DataFrame) -> pl.DataFrame:
        return _with_columns(function(some_rows), expected)

    _run_halves(step, call, rows, result, writer)
    return result


def _with_columns(output: object, expected: Schema) -> pl.DataFrame:
    """Return the output with the expected columns, whose values are converted if they are of another type."""
    if not isinstance(output, pl.DataFrame):
        raise TypeError(f"it returns {type(output).__name__}; return a data frame")
    if dict(output.schema) == expected:
        return check_times(output)
    if missing := expected.keys() - set(output.columns):
        raise ValueError(f"it returns no column {min(missing)!r}")
    return check_times(output.select(pl.col(n) if t == pl.Null else pl.col(n).cast(t) for n, t in expected.items()))


def _run_halves(
    step: str, function: Transform, rows: pl.DataFrame, result: IsolatedResult, writer: DeadLetterWriter
) -> None:
    try:
        result.succeeded.append(function(rows))
    except CALL_ERRORS as error:
        reason = failure_reason(step, error)
        if rows.height == 1:
            result.dead += writer.to_records(rows, [DeadLetterCode.FAILED], [reason])
            return
        half = rows.height // 2
        _run_halves(step, function, rows[:half], result, writer)
        _run_halves(step, function, rows[half:], result, writer)


def dead_letters(step: str, port: str, rows: pl.DataFrame, writer: DeadLetterWriter = _WITHOUT_TOPICS) -> list[Record]:
    """Return the rows of a side output as dead letters. The port is their code, ``failed`` also for a second input."""
    code = DeadLetterCode.FAILED.value if port == FAILED_SECOND else port
    reasons = [column for column in _REASON_COLUMNS if column in rows.columns]
    texts = rows[reasons[0]].to_list() if reasons else [port] * rows.height
    return writer.to_records(rows.drop(reasons), [code] * rows.height, [f"{step}: {text}" for text in texts])


def late_records(step: str, lane: str, rows: pl.DataFrame, writer: DeadLetterWriter) -> list[Record]:
    """Return late rows that carry their records as these records, in the form of dead letters, for another lane."""
    late = zip(rows[LATE_REASON].to_list(), rows[LATENESS_MS].to_list(), strict=True)
    reasons = [f"{step}: {reason}; {lateness_ms} ms behind it" for reason, lateness_ms in late]
    return replace(writer, lane=lane).to_records(rows, [DeadLetterCode.LATE] * rows.height, reasons)
