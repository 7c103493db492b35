"""Stateless steps as functions from rows to rows.

They are Polars expressions over one row. Each is evaluated on an empty frame when the step is written, so a wrong name
or type is reported there. Columns that begin with two underscores belong to the engine and are always kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.topology.checks.step_check import check_step
from streamcore.topology.nodes import Schema, Transform, empty_rows

_ENGINE_COLUMNS = "^__.*$"
_INDEX = "__index"


@dataclass(frozen=True)
class MapColumns:
    """Adds or replaces columns."""

    columns: Mapping[str, pl.Expr]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        values = _evaluate(rows, [expression.alias(name) for name, expression in self.columns.items()])
        return rows.with_columns(values.get_columns())


@dataclass(frozen=True)
class SelectColumns:
    """Keeps these columns and no others."""

    columns: tuple[pl.Expr, ...]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return _evaluate(rows, self.columns).hstack(rows.select(pl.col(_ENGINE_COLUMNS)))


@dataclass(frozen=True)
class FilterRows:
    """Keeps the rows for which the condition is true, so not those for which it is null."""

    condition: pl.Expr

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(_evaluate(rows, [self.condition]).to_series())


def _evaluate(rows: pl.DataFrame, expressions: Sequence[pl.Expr]) -> pl.DataFrame:
    """Return a row of values for each row. Selectors such as ``pl.all()`` do not select columns of the engine."""
    index = pl.int_range(rows.height).alias(_INDEX)  # constants are repeated to its length
    return rows.select(pl.exclude(_ENGINE_COLUMNS)).select(index, *expressions).drop(_INDEX)


def schema_after(step_kind: str, function: Transform, schema: Schema) -> Schema:
    """Return the columns of a function's output for this schema; ``ConfigError`` if it fails on an empty frame.

    Also if its result for a row depends on other rows (``streamcore.topology.checks.step_check``).
    """
    empty_input = empty_rows(schema).with_columns(
        pl.lit(0, pl.Int32).alias(PARTITION), pl.lit(0, pl.Int64).alias(OFFSET)
    )
    try:
        output = function(empty_input)
    except Exception as error:
        raise ConfigError(f"{step_kind}: {_first_line(error)}; the columns are {_columns(schema)}") from error
    if not isinstance(output, pl.DataFrame):
        raise ConfigError(f"{step_kind}: the function must return a data frame, not {type(output).__name__}")
    if missing := {EVENT_MS, PARTITION} - set(output.columns):
        raise ConfigError(
            f"{step_kind}: column {min(missing)} must be kept: by it, the engine finds the event of a row"
        )
    check_step(step_kind, function, schema)
    return {name: dtype for name, dtype in output.schema.items() if not name.startswith("__")}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _columns(schema: Schema) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items())
