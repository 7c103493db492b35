"""Stateless steps as functions from rows to rows, checked when they are written and not when data comes.

Expressions are Polars expressions over one row; they are tried on no rows at once, so a wrong name or type is an error
of the program with the place in it. Columns that begin with two underscores are the engine's and always stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.topology.nodes import Schema, Transform, empty_rows

_ENGINE = "^__.*$"


@dataclass(frozen=True)
class MapColumns:
    """Adds or replaces columns."""

    columns: Mapping[str, pl.Expr]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(**self.columns)


@dataclass(frozen=True)
class SelectColumns:
    """Keeps these columns and no others."""

    columns: tuple[pl.Expr, ...]

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(*self.columns, pl.col(_ENGINE))


@dataclass(frozen=True)
class FilterRows:
    """Keeps the rows for which the condition is true; neither false nor null."""

    condition: pl.Expr

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.filter(self.condition)


def schema_after(what: str, function: Transform, schema: Schema) -> Schema:
    """Return the columns that a function gives for rows of this schema; raise ``ConfigError`` where it cannot."""
    nothing = empty_rows(schema).with_columns(pl.lit(0, pl.Int32).alias(PARTITION), pl.lit(0, pl.Int64).alias(OFFSET))
    try:
        after = function(nothing)
    except Exception as error:
        raise ConfigError(f"{what}: {_first_line(error)}; the columns are {_columns(schema)}") from error
    if not isinstance(after, pl.DataFrame):
        raise ConfigError(f"{what}: a data frame is needed, and the function gave {type(after).__name__}")
    if missing := {EVENT_MS, PARTITION} - set(after.columns):
        raise ConfigError(f"{what}: column {min(missing)} is the engine's and must stay: say which event a row is of")
    return {name: dtype for name, dtype in after.schema.items() if not name.startswith("__")}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _columns(schema: Schema) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in schema.items())
