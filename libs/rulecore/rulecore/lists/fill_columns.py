"""Adds to a frame of events the columns that rules read beside its fields: list columns (``ListColumn``), with values
from the contents of the lists, and columns of keys (``KeyColumn``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from rulecore.key_columns import KeyColumn
from rulecore.language import ColumnRef, Expr, ListType
from rulecore.language.columnar.compiler import to_polars
from rulecore.lists.content import ListContent
from rulecore.lists.list_columns import ListColumn, ListColumnKind, distinct
from streamcore.columnar.polars_types import polars_type


def with_list_columns(
    frame: pl.DataFrame, columns: Iterable[KeyColumn | ListColumn], contents: Mapping[str, ListContent]
) -> pl.DataFrame:
    """Return the frame with these columns. A column is NULL if its list does not exist or has other types.

    A column whose operand cannot be evaluated is omitted, so that the rules that use it fail, and no others.
    """
    for column in distinct(columns):
        if column.name in frame.columns:
            continue
        if isinstance(column, KeyColumn):
            frame = frame.with_columns(key_values(frame, column))
            continue
        content = contents.get(column.list.name)
        if content is None or not _has_types(content.type, column):
            frame = frame.with_columns(pl.lit(None, polars_type(column.type)).alias(column.name))
        elif (keys := _keys(frame, column.operand)) is not None:
            frame = frame.with_columns(_look_up(content, column, keys).alias(column.name))
    return frame


def key_values(frame: pl.DataFrame, column: KeyColumn) -> pl.Series:
    """Return the physical values of a column of a key: equal for equal events, whatever the frame they are in.

    An event of which the expression cannot be computed has NULL; it is looked for by halves.
    """
    kind, found = polars_type(column.type), _keys(frame, column.operand)
    if found is not None:
        return found.cast(kind).alias(column.name)
    if frame.height <= 1:
        return pl.repeat(None, frame.height, dtype=kind, eager=True).alias(column.name)
    half = frame.height // 2
    return pl.concat([key_values(frame[:half], column), key_values(frame[half:], column)])


def _has_types(kind: ListType, column: ListColumn) -> bool:
    """Return whether the list has the types that the column was compiled for."""
    if column.kind is ListColumnKind.IN:
        return kind.of == column.list.of
    return kind == column.list


def _keys(frame: pl.DataFrame, operand: Expr) -> pl.Series | None:
    """Return the physical values of the operand, None if evaluating it raises."""
    try:
        if isinstance(operand, ColumnRef):
            return frame[operand.name]
        keys = frame.select(to_polars(operand).alias("key"))["key"]
        return keys if len(keys) == frame.height else keys.new_from_index(0, frame.height)
    except (Exception, pl.exceptions.PanicException):  # a panic inside Polars is no ``Exception``
        return None


def _look_up(content: ListContent, column: ListColumn, keys: pl.Series) -> pl.Series:
    kind = column.operand.type
    return content.holds(keys, kind) if column.kind is ListColumnKind.IN else content.look_up(keys, kind)
