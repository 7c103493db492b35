"""Custom aggregates of an app: over rows, over frames, stored by their type."""

from __future__ import annotations

import pickle
from functools import reduce
from itertools import pairwise
from typing import Any, ClassVar

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Accumulator, Custom, RowAccumulator
from streamcore.errors import ConfigError
from tests.harness.oracles.aggregates import GROUPS, SCHEMA, elements, frames, group_partials, store_and_load


class Words(RowAccumulator):
    """Counts each text, most frequent first. It changes its arguments in place, as the code of an app may."""

    columns: ClassVar = {"text": pl.String()}
    state: ClassVar = pl.List(pl.Struct({"word": pl.String(), "times": pl.Int64()}))
    returns: ClassVar = pl.List(pl.String())

    def create(self) -> Any:
        return []

    def add_row(self, state: Any, *values: Any) -> Any:
        return self.merge(state, [{"word": values[0], "times": 1}]) if values[0] is not None else state

    def merge(self, left: Any, right: Any) -> Any:
        for other in right:
            mine = next((one for one in left if one["word"] == other["word"]), None)
            if mine is None:
                left.append(other)
            else:
                mine["times"] += other["times"]
        return left

    def result(self, state: Any) -> Any:
        return [one["word"] for one in sorted(state, key=lambda one: (-one["times"], one["word"]))]


class Weighted(Accumulator):
    """A sum of products over frames, which can subtract."""

    columns: ClassVar = {"small": pl.Int16(), "price": pl.Decimal(12, 2)}
    state: ClassVar = pl.Int64()
    returns: ClassVar = pl.Float64()

    def create(self) -> Any:
        return 0

    def add(self, state: Any, rows: pl.DataFrame) -> Any:
        product = pl.col("small").cast(pl.Int64) * (pl.col("price") * 100).cast(pl.Int64)
        return state + rows.select(product).to_series().sum()

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def subtract(self, total: Any, part: Any) -> Any:
        return total - part

    def result(self, state: Any) -> Any:
        return state / 100


@pytest.mark.parametrize("aggregate", [Custom(Words()), Custom(Weighted())], ids=str)
@settings(max_examples=100)
@given(data=st.data())
def test_merged_partials_of_a_custom_aggregate_give_the_value_of_the_whole(
    aggregate: Custom, data: st.DataObject
) -> None:
    rows = data.draw(frames(aggregate.inputs))
    cuts = sorted(data.draw(st.lists(st.integers(0, rows.height), max_size=3)))
    edges = [0, *cuts, rows.height]
    parts = [group_partials(aggregate, rows[a:b]) for a, b in pairwise(edges)]
    before = [part["state"].tolist() for part in parts]
    wanted = [aggregate.reference(elements(rows, group)) for group in range(GROUPS)]
    for merged in (
        reduce(aggregate.merge, parts),
        reduce(aggregate.merge, [store_and_load(aggregate, part) for part in parts]),
    ):
        seen = aggregate.result(merged, SCHEMA)
        assert seen.dtype == aggregate.check(SCHEMA)
        assert [tuple(value) if isinstance(value, list) else value for value in seen.to_list()] == wanted
    assert [part["state"].tolist() for part in parts] == before


@given(frames(["small", "price"]), frames(["small", "price"]))
def test_a_custom_aggregate_may_subtract(part: pl.DataFrame, rest: pl.DataFrame) -> None:
    aggregate = Custom(Weighted())
    total = aggregate.merge(group_partials(aggregate, part), group_partials(aggregate, rest))
    seen = aggregate.subtract(total, group_partials(aggregate, part))
    assert seen["state"].tolist() == group_partials(aggregate, rest)["state"].tolist()
    assert aggregate.can_subtract(SCHEMA)
    assert not Custom(Words()).can_subtract(SCHEMA)


def test_columns_of_another_type_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"Custom\(Words\): column 'text' is Int64; supported are String"):
        Custom(Words()).check({"text": pl.Int64()})


def test_a_state_that_does_not_fit_its_declaration_fails_and_is_not_converted() -> None:
    class Wrong(Weighted):
        def merge(self, left: Any, right: Any) -> Any:
            return f"{left}{right}"

    part = group_partials(
        Custom(Weighted()), pl.DataFrame(schema={"group": pl.Int64(), "__event_ms": pl.Int64(), **SCHEMA})
    )
    merged = Custom(Wrong()).merge(part, part)
    values, reasons = Custom(Wrong()).try_result(merged, SCHEMA)
    assert values.null_count() == len(values)
    assert all(reason.startswith("Wrong.merge: TypeError: ") for reason in reasons.values())
    assert len(reasons) == len(values)


def test_a_custom_aggregate_can_be_sent_to_workers() -> None:
    assert pickle.dumps(Custom(Weighted()))
