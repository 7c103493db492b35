"""The elements of a cut, with just the fields that a spec looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS
from streamcore.windowing.assigners import Session
from streamcore.windowing.evictors import KeepNear
from streamcore.windowing.model import Element
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import OnPunctuation, walk


def fields_for(spec: WindowSpec, schema: Mapping[str, pl.DataType]) -> list[str]:
    """Return the columns that assigner and trigger read; ``ConfigError`` where they or the evictor's do not fit."""
    found: list[str] = []
    if isinstance(spec.assigner, Session) and spec.assigner.gap_field is not None:
        found.append(
            _check_column(
                schema, spec.assigner.gap_field, "gap_field", "whole numbers", lambda dtype: dtype.is_integer()
            )
        )
    for one in walk(spec.trigger):
        if isinstance(one, OnPunctuation):
            found.append(
                _check_column(schema, one.flag, "OnPunctuation", "booleans", lambda dtype: dtype == pl.Boolean)
            )
    if isinstance(spec.evictor, KeepNear):
        _check_column(schema, spec.evictor.field, "KeepNear", "numbers", lambda dtype: dtype.is_numeric())
    return list(dict.fromkeys(found))


def _check_column(
    schema: Mapping[str, pl.DataType], name: str, where: str, what: str, fits: Callable[[pl.DataType], bool]
) -> str:
    if name not in schema:
        raise ConfigError(f"{where}: there is no column {name!r}; there are {', '.join(schema)}")
    if not fits(schema[name]):
        raise ConfigError(f"{where}: column {name!r} is {schema[name]}; it needs {what}")
    return name


def elements(rows: pl.DataFrame, fields: list[str], slots: Ints, numbers: Ints) -> Iterator[Element]:
    """Return the rows as elements whose key is the key slot."""
    values = rows.select(fields).iter_rows(named=True) if fields else ({} for _ in range(rows.height))
    columns = (slots.tolist(), values, rows[EVENT_MS].to_list(), numbers.tolist())
    for slot, value, event_ms, number in zip(*columns, strict=True):
        yield Element(slot, value, event_ms, number)
