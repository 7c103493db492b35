"""Rows of every type with groups, and what they are to an aggregate's reference."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf, isnan, nan

import numpy as np
import numpy.typing as npt
import polars as pl
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Partials
from streamcore.schema import EVENT_MS
from streamcore.windowing import Element

GROUPS = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decimals(dtype: pl.Decimal) -> st.SearchStrategy[Decimal]:
    most = 10**dtype.precision - 1
    unscaled = st.sampled_from([most, -most, 0]) | st.integers(-most, most)
    return unscaled.map(lambda number: Decimal(f"{number}e-{dtype.scale}"))


def few_or(strategy: st.SearchStrategy[object], *few: object) -> st.SearchStrategy[object]:
    """Generate values that are often equal."""
    return st.sampled_from(few) | strategy


COLUMNS: dict[str, tuple[pl.DataType, st.SearchStrategy[object]]] = {
    "flag": (pl.Boolean(), st.booleans()),
    "small": (pl.Int16(), few_or(st.integers(-(2**15), 2**15 - 1), 1, 2)),
    "whole": (pl.Int64(), few_or(st.integers(-(2**63), 2**63 - 1), -(2**63), 2**63 - 1, 0, -1)),
    "price": (pl.Decimal(12, 2), decimals(pl.Decimal(12, 2))),
    "short": (pl.Decimal(18, 18), decimals(pl.Decimal(18, 18))),
    "wide": (pl.Decimal(38, 4), decimals(pl.Decimal(38, 4))),
    "real": (pl.Float64(), few_or(st.floats(-1e100, 1e100), 0.1, 7.0)),
    "any_real": (pl.Float64(), few_or(st.floats(-1e100, 1e100), nan, inf, -inf, -0.0, 0.0, 1.0)),
    "half": (pl.Float32(), st.floats(-(2.0**100), 2.0**100, width=32)),
    "text": (pl.String(), few_or(st.text(max_size=3), "", "a", "é", "𝄞", "\uffff")),
    "at": (pl.Datetime("ms", "UTC"), st.integers(-(2**40), 2**40).map(lambda ms: _EPOCH + timedelta(milliseconds=ms))),
}
SCHEMA = {name: dtype for name, (dtype, _) in COLUMNS.items()}
NUMBERS = ("small", "whole", "price", "short", "wide", "real", "any_real", "half")


def frames(columns: Sequence[str], max_size: int = 12) -> st.SearchStrategy[pl.DataFrame]:
    """Generate rows with a ``group`` each, null values, and few different event times."""
    values = [st.none() | COLUMNS[column][1] for column in columns]
    row = st.tuples(st.integers(0, GROUPS - 1), st.integers(-3, 3), *values)
    dtypes = {"group": pl.Int64(), EVENT_MS: pl.Int64()} | {column: SCHEMA[column] for column in columns}
    return st.lists(row, max_size=max_size).map(lambda rows: pl.DataFrame(rows, schema=dtypes, orient="row"))


def elements(rows: pl.DataFrame, group: int) -> list[Element]:
    """Return the rows of a group in the form of the reference."""
    numbered = list(enumerate(rows.drop("group").to_dicts()))
    mine = [one for one, of in zip(numbered, rows["group"], strict=True) if of == group]
    return [Element(group, row, row[EVENT_MS], number) for number, row in mine]


def group_partials(aggregate: Aggregate, rows: pl.DataFrame, numbers: npt.NDArray[np.int64] | None = None) -> Partials:
    """Return the partials of all groups. ``numbers``: of the rows, by default 0, 1, 2 and so on."""
    numbers = np.arange(rows.height) if numbers is None else numbers
    return aggregate.aggregate_groups(rows.drop("group"), numbers, rows["group"].to_numpy(), GROUPS)


def store_and_load(aggregate: Aggregate, partials: Partials) -> Partials:
    """Stored, written as Arrow IPC, read and loaded under other names."""
    frame = pl.DataFrame(aggregate.store(partials, SCHEMA))
    assert dict(frame.schema) == dict(aggregate.partial_types(SCHEMA))
    read = pl.read_ipc_stream(frame.write_ipc_stream(None).getvalue())
    return aggregate.load([column.alias(f"x.{column.name}") for column in read.get_columns()], SCHEMA)


def same(seen: object, wanted: object, rounding: float) -> bool:
    """Return whether two results have equal values and types; floats to 1e-9 or within rounding; lists as tuples."""
    if isinstance(seen, float) and isinstance(wanted, float):
        if isnan(seen) or isnan(wanted):
            return isnan(seen) and isnan(wanted)
        return seen == wanted or abs(seen - wanted) <= max(rounding, 1e-9 * abs(wanted))
    if isinstance(seen, list) and isinstance(wanted, tuple):
        return len(seen) == len(wanted) and all(same(s, w, rounding) for s, w in zip(seen, wanted, strict=True))
    if isinstance(seen, dict) and isinstance(wanted, dict):
        return list(seen) == list(wanted) and all(same(seen[name], wanted[name], rounding) for name in seen)
    return type(seen) is type(wanted) and seen == wanted
