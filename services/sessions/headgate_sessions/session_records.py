"""The columns of a session's record, computed from the results of its aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from headgate_sessions.plan import FUNNEL_STEP, READABLE, USER, OwnColumn, SessionPlan
from rulecore.language import ColumnRef, columns
from rulecore.language.columnar.compiler import to_polars
from rulecore.mapping.physical_rows import ROW
from streamcore.schema import DOUBLE, Kind, Type
from streamcore.topology.logical_types import to_logical_column, to_physical_column
from streamcore.topology.stream import Stream


def session_rows(sessions: Stream, plan: SessionPlan) -> Stream:
    """Convert the revisions of sessions to records. ``session_id`` is the user and the start of the session's first
    revision."""
    every = sessions.select(
        _session_id("window_anchor").alias("session_id"),
        USER,
        pl.col("window_start").alias("started_at"),
        "ended_at",
        (pl.col("ended_at") - pl.col("window_start")).dt.total_milliseconds().alias("duration_ms"),
        "events",
        *plan.results,
        *([FUNNEL_STEP] if plan.steps else []),
        "is_final",
        "is_deleted",
        _session_id("merged_into").alias("merged_into"),
        "revision",
    )
    return every.flat_map(OwnColumns(plan.results, plan.columns))


def _session_id(anchor: str) -> pl.Expr:
    """Return the id of the session with this anchor: ``<user>.<milliseconds since 1970>``; null without an anchor."""
    return pl.format("{}.{}", USER, pl.col(anchor).dt.epoch("ms"))


@dataclass(frozen=True)
class OwnColumns:
    """Replaces the results of aggregates by the columns that the settings declare.

    A column that is an aggregate has its result. In other expressions a sum of more than 18 digits is null. The columns
    of a deleted session are null. ``results``: the types of the aggregates, by name.
    """

    results: Mapping[str, Type]
    columns: tuple[OwnColumn, ...]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with these columns after ``events``."""
        names = rows.columns
        place = names.index("events") + 1
        own = [series.alias(column.name) for column, series in zip(self.columns, self._compute(rows), strict=True)]
        exists = pl.when(~pl.col("is_deleted"))
        frame = pl.DataFrame(own).hstack(rows.select("is_deleted")) if own else rows.select("is_deleted")
        values = frame.select(exists.then(pl.col(column.name)).alias(column.name) for column in self.columns)
        rest = [name for name in names[place:] if name not in self.results]
        return rows.select(names[:place]).hstack(values).hstack(rows.select(rest))

    def _compute(self, rows: pl.DataFrame) -> list[pl.Series]:
        computed = [column for column in self.columns if not isinstance(column.expr, ColumnRef)]
        types = {**READABLE, **self.results}
        used = frozenset().union(*(columns(column.expr) for column in computed))
        physical = rows.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(ROW)).with_columns(
            _to_physical(rows[name], type_) for name, type_ in types.items() if name in used
        )
        results = physical.with_columns(to_polars(column.expr).alias(f"={column.name}") for column in computed)
        return [
            rows[column.expr.name]
            if isinstance(column.expr, ColumnRef)
            else _to_logical(results[f"={column.name}"], column.expr.type)
            for column in self.columns
        ]


def _to_physical(series: pl.Series, type_: Type) -> pl.Series:
    """Return a result of an aggregate for expressions: null where a sum does not fit."""
    if type_.kind is Kind.DECIMAL:
        return series.to_physical().cast(pl.Int64, strict=False)
    return to_physical_column(series, type_)


def _to_logical(series: pl.Series, type_: Type) -> pl.Series:
    """Return a computed column: null where a double is not finite, which JSON cannot hold."""
    if type_ == DOUBLE:
        return series.to_frame().select(pl.when(pl.first().is_finite()).then(pl.first())).to_series()
    return to_logical_column(series, type_)
