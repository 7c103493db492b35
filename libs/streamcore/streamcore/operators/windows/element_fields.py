"""Makes the elements of a cut, with only the fields that a window's assigner and trigger read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS
from streamcore.windowing.assigners import MAX_GAP_MS, Session
from streamcore.windowing.evictors import KeepNear
from streamcore.windowing.model import Element
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import OnPunctuation, walk


def fields_for(spec: WindowSpec, schema: Mapping[str, pl.DataType]) -> list[str]:
    """Return the columns that the assigner and the trigger read: all, if one of them is of the user.

    ``ConfigError`` if one of them, or the evictor's column, does not exist or has the wrong type.
    """
    columns: list[str] = []
    if isinstance(spec.assigner, Session) and spec.assigner.gap_field is not None:
        columns.append(
            _check_column(
                schema, spec.assigner.gap_field, "gap_field", "whole numbers", lambda dtype: dtype.is_integer()
            )
        )
    for trigger in walk(spec.trigger):
        if isinstance(trigger, OnPunctuation):
            columns.append(
                _check_column(schema, trigger.flag, "OnPunctuation", "booleans", lambda dtype: dtype == pl.Boolean)
            )
    if isinstance(spec.evictor, KeepNear):
        _check_column(schema, spec.evictor.field, "KeepNear", "numbers", lambda dtype: dtype.is_numeric())
    return list(schema) if spec.calls_user_code else list(dict.fromkeys(columns))


def session_gaps(rows: pl.DataFrame, assigner: Session) -> Ints:
    """Return the gap after each row, in milliseconds: its ``gap_field`` if the assigner accepts it, or ``gap_ms``."""
    if assigner.gap_field is None:
        return np.full(rows.height, assigner.gap_ms)
    gap_ms = pl.col(assigner.gap_field).cast(pl.Int64, strict=False)
    accepted = gap_ms.is_between(1, MAX_GAP_MS)
    return rows.select(pl.when(accepted).then(gap_ms).otherwise(assigner.gap_ms)).to_series().to_numpy()


def _check_column(
    schema: Mapping[str, pl.DataType], name: str, setting: str, types: str, fits: Callable[[pl.DataType], bool]
) -> str:
    if name not in schema:
        raise ConfigError(f"{setting}: there is no column {name!r}; the columns are {', '.join(schema)}")
    if not fits(schema[name]):
        raise ConfigError(f"{setting}: column {name!r} is {schema[name]}; {types} are needed")
    return name


def elements(rows: pl.DataFrame, fields: list[str], key_slots: Ints, numbers: Ints) -> Iterator[Element]:
    """Yield the rows as elements, in order.

    ``key_slots``, of shape (rows,): the key slot of each row, which is the key of its element. ``numbers``, of shape
    (rows,): the arrival number of each row.
    """
    values = rows.select(fields).iter_rows(named=True) if fields else ({} for _ in range(rows.height))
    columns = (key_slots.tolist(), values, rows[EVENT_MS].to_list(), numbers.tolist())
    for key_slot, value, event_ms, number in zip(*columns, strict=True):
        yield Element(key_slot, value, event_ms, number)
