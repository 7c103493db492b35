"""What every aggregate promises: any way of cutting rows into pieces and putting them together gives one value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from math import inf, isnan, nan

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Aggregate, Collect, Count, Max, Mean, Min, Partials, Sum, concat, take
from streamcore.windowing import Element

EVENT_MS = "__event_ms"
INT64 = st.sampled_from([-(2**63), 2**63 - 1, 0, -1, 1]) | st.integers(-(2**63), 2**63 - 1)
DECIMAL = pl.Decimal(12, 2)
LONG = pl.Decimal(38, 4)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decimals(dtype: pl.Decimal) -> st.SearchStrategy[Decimal]:
    most = 10**dtype.precision - 1
    unscaled = st.sampled_from([most, -most, 0]) | st.integers(-most, most)
    return unscaled.map(lambda number: Decimal(f"{number}e-{dtype.scale}"))


COLUMNS: dict[str, tuple[pl.DataType, st.SearchStrategy[object]]] = {
    "flag": (pl.Boolean(), st.booleans()),
    "small": (pl.Int16(), st.integers(-(2**15), 2**15 - 1)),
    "whole": (pl.Int64(), INT64),
    "price": (DECIMAL, decimals(DECIMAL)),
    "wide": (LONG, decimals(LONG)),
    "real": (pl.Float64(), st.floats(-1e100, 1e100)),
    "any_real": (pl.Float64(), st.floats(-1e100, 1e100) | st.sampled_from([nan, inf, -inf, -0.0])),
    "half": (pl.Float32(), st.floats(-(2.0**100), 2.0**100, width=32)),
    "text": (pl.String(), st.sampled_from(["", "a", "é", "𝄞", "\uffff"]) | st.text(max_size=3)),
    "at": (pl.Datetime("ms", "UTC"), st.integers(-(2**40), 2**40).map(lambda ms: EPOCH + timedelta(milliseconds=ms))),
}
SCHEMA = {name: dtype for name, (dtype, _) in COLUMNS.items()}
NUMBERS = ("small", "whole", "price", "wide", "real", "any_real", "half")
ALL: list[Aggregate] = [
    Count(),
    *(kind(column) for kind in (Count, Min, Max) for column in COLUMNS),
    *(kind(column) for kind in (Sum, Mean) for column in NUMBERS),
    *(Collect(column, limit) for column in COLUMNS for limit in (2, 100)),
]
GROUPS = 3


def frames(columns: Sequence[str]) -> st.SearchStrategy[pl.DataFrame]:
    """Rows with a group each, null values, and few different event times."""
    row = st.tuples(
        st.integers(0, GROUPS - 1), st.integers(-3, 3), *(st.none() | COLUMNS[column][1] for column in columns)
    )
    dtypes = {"group": pl.Int64(), EVENT_MS: pl.Int64()} | {column: SCHEMA[column] for column in columns}
    return st.lists(row, max_size=12).map(lambda rows: pl.DataFrame(rows, schema=dtypes, orient="row"))


def elements(rows: pl.DataFrame, group: int) -> list[Element]:
    """What the rows of a group are to the reference."""
    numbered = enumerate(rows.drop("group").to_dicts())
    kept = [(number, row) for (number, row), of in zip(numbered, rows["group"], strict=True) if of == group]
    return [Element(group, row, row[EVENT_MS], number) for number, row in kept]


def grouped(aggregate: Aggregate, rows: pl.DataFrame, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Partials:
    return aggregate.group(rows.drop("group"), numbers, rows["group"].to_numpy(), GROUPS)


def kept(aggregate: Aggregate, partials: Partials) -> Partials:
    """Stored, written as Arrow IPC, read and loaded."""
    frame = pl.DataFrame(aggregate.store(partials, SCHEMA))
    assert dict(frame.schema) == dict(aggregate.dtypes(SCHEMA))
    written = frame.write_ipc_stream(None).getvalue()
    return aggregate.load(pl.read_ipc_stream(written).get_columns(), SCHEMA)


def same(seen: object, wanted: object, size: float) -> bool:
    """Equal; floats within 1e-9 of the size of what was added up."""
    if isinstance(seen, float) and isinstance(wanted, float | int):
        if isnan(seen) or isnan(wanted):
            return isnan(seen) and isnan(wanted)
        return seen == wanted or abs(seen - wanted) <= 1e-9 * max(size, abs(wanted))
    if isinstance(seen, list) and isinstance(wanted, tuple):
        return len(seen) == len(wanted) and all(same(s, w, 0.0) for s, w in zip(seen, wanted, strict=True))
    return type(seen) is type(wanted) and seen == wanted


def size(aggregate: Aggregate, rows: pl.DataFrame) -> float:
    """The sum of the absolute values that went in: what rounding is measured by."""
    floats = [rows[column] for column in aggregate.inputs if rows[column].dtype.is_float()]
    return sum(float(column.fill_nan(0.0).replace([inf, -inf], 0.0).abs().sum()) for column in floats)


def assert_values(aggregate: Aggregate, partials: Partials, rows: pl.DataFrame) -> None:
    result = aggregate.result(partials, SCHEMA)
    assert result.dtype == aggregate.check(SCHEMA)
    for group, seen in enumerate(result.to_list()):
        of_group = rows.filter(pl.col("group") == group)
        wanted = aggregate.reference(elements(rows, group))
        assert same(seen, wanted, size(aggregate, of_group)), f"{aggregate} gave {seen!r}, not {wanted!r}"


def pieces(data: st.DataObject, rows: pl.DataFrame) -> list[Partials]:
    """The rows, dealt out to some pieces; inside a piece they keep their order."""
    count = data.draw(st.integers(1, 4), label="pieces")
    which = np.array([data.draw(st.integers(0, count - 1)) for _ in range(rows.height)], dtype=np.int64)
    places = [np.flatnonzero(which == i) for i in range(count)]
    aggregate = data.aggregate  # type: ignore[attr-defined]
    return [kept(aggregate, grouped(aggregate, rows[place], place)) for place in places]


@pytest.mark.parametrize("aggregate", ALL, ids=str)
@settings(max_examples=40)
@given(data=st.data())
def test_pieces_put_together_in_any_order_give_the_value_of_the_whole(
    aggregate: Aggregate, data: st.DataObject
) -> None:
    rows = data.draw(frames(aggregate.inputs))
    data.aggregate = aggregate  # type: ignore[attr-defined]
    parts = pieces(data, rows)
    whole = grouped(aggregate, rows, np.arange(rows.height))
    assert_values(aggregate, whole, rows)
    shuffled = data.draw(st.permutations(parts))
    assert_values(aggregate, reduce(aggregate.merge, shuffled), rows)
    assert_values(aggregate, reduce(lambda right, left: aggregate.merge(left, right), shuffled), rows)
    runs = take(concat(shuffled), np.arange(len(parts) * GROUPS).reshape(-1, GROUPS).T.ravel())
    assert_values(aggregate, aggregate.reduce(runs, np.arange(GROUPS) * len(parts)), rows)
