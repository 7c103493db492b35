"""A row table equals a list in what it finds, keeps, writes and loads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.schema import EVENT_MS
from streamcore.state.row_table import NUMBER, STATE, RowTable
from streamcore.state.sorted_run import DELETED, MARKED

SCHEMA = {"k": pl.String(), "id": pl.Int64(), EVENT_MS: pl.Int64()}


@dataclass
class Model:
    """Rows as ``(key, id, event time)``, and the ids that are marked."""

    rows: list[tuple[str, int, int]] = field(default_factory=list)
    marked: set[int] = field(default_factory=set)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30)), max_size=8)),
        st.tuples(st.just("expire"), st.integers(0, 30)),
        st.tuples(st.just("mark"), st.integers(0, 30)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
    ),
    max_size=15,
)


def new_table() -> RowTable:
    return RowTable(SCHEMA, ("k",))


def apply(table: RowTable, model: Model, what: str, value: object, next_id: int) -> int:
    """Apply one step to both; a mark or a deletion applies to the rows within five milliseconds of a time."""
    if what == "add":
        assert isinstance(value, list)
        rows = [(key, next_id + i, at) for i, (key, at) in enumerate(value)]
        table.add(table.to_run(pl.DataFrame(rows, schema=SCHEMA, orient="row")))
        model.rows += rows
        return next_id + len(rows)
    assert isinstance(value, int)
    near = [row for row in model.rows if value <= row[2] < value + 5]
    if what == "expire":
        table.expire(value)
        model.rows = [row for row in model.rows if row[2] >= value]
    elif what == "mark":
        table.mark(table.between(value, value + 5))
        model.marked |= {row[1] for row in near}
    else:
        table.delete(table.between(value, value + 5))
        model.rows = [row for row in model.rows if row not in near]
    return next_id


def stored_rows(table: RowTable) -> list[tuple[str, int, int, bool]]:
    stored = table.rows(0, 1)
    flags = (stored[STATE] & MARKED).cast(pl.Boolean).to_list()
    return sorted((*row, flag) for row, flag in zip(stored.select(list(SCHEMA)).rows(), flags, strict=True))


def expected_rows(model: Model) -> list[tuple[str, int, int, bool]]:
    return sorted((*row, row[1] in model.marked) for row in model.rows)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_a_table_and_its_copy_loaded_from_changes_equal_a_list(
    sequence: list[tuple[str, object]],
) -> None:
    table, copy, model, next_id = new_table(), new_table(), Model(), 0
    expired = 0
    for what, value in sequence:
        next_id = apply(table, model, what, value, next_id)
        copy.load(table.changes())
        if what == "expire":
            assert isinstance(value, int)
            expired = max(expired, value)
        assert stored_rows(table) == expected_rows(model)
        assert len(table) == len(model.rows)
        assert table.rows_in_memory <= 2 * len(table)
    again = [row for row in model.rows if row[2] < expired]  # arrived after rows of their time had been dropped
    copy.expire(expired)
    assert stored_rows(copy) == expected_rows(Model([row for row in model.rows if row not in again], model.marked))


@settings(max_examples=100, deadline=None)
@given(steps, st.integers(-5, 5), st.integers(0, 8))
def test_a_look_up_finds_what_a_list_holds(sequence: list[tuple[str, object]], low: int, length: int) -> None:
    table, model, next_id = new_table(), Model(), 0
    for n, (what, value) in enumerate(sequence):
        next_id = apply(table, model, what, value, next_id)
        if n % 3 == 0:
            table.changes()
    probes = [(key, 0, at) for key in "abcd" for at in range(0, 30, 4)]
    of = new_table().to_run(pl.DataFrame(probes, schema=SCHEMA, orient="row"))
    found = table.find(of, low, low + length)
    pairs = zip(of.numbers[found.rows].tolist(), table.frame(found.places)["id"].to_list(), strict=True)
    assert sorted(pairs) == sorted(
        (n, row_id)
        for n, (key, _, at) in enumerate(probes)
        for k, row_id, t in model.rows
        if k == key and low <= t - at <= low + length
    )


def test_changes_hold_only_the_rows_of_a_cut_and_deleted_rows_without_columns() -> None:
    table = new_table()
    many = pl.DataFrame([("a", i, i) for i in range(1000)], schema=SCHEMA, orient="row")
    table.add(table.to_run(many))
    assert table.changes().height == 1000
    assert table.changes().height == 0
    table.mark(table.between(5, 7))
    table.delete(table.between(7, 8))
    table.expire(3)
    changes = table.changes().sort(NUMBER)
    assert changes[STATE].to_list() == [MARKED, MARKED, DELETED]
    assert changes["k"].to_list() == ["a", "a", None]


def test_a_row_that_was_added_and_deleted_between_two_commits_is_never_written() -> None:
    table = new_table()
    table.add(table.to_run(pl.DataFrame([("a", 1, 1), ("a", 2, 9)], schema=SCHEMA, orient="row")))
    table.delete(table.between(1, 2))
    table.expire(10)
    assert table.changes().height == 0


@pytest.mark.slow
def test_the_number_of_runs_grows_with_the_logarithm_of_the_rows() -> None:
    table = new_table()
    for at in range(300):
        table.add(table.to_run(pl.DataFrame([("a", at, at)] * 3, schema=SCHEMA, orient="row")))
        table.changes()
    assert len(table._runs) <= np.log2(900) + 1
    table.expire(1000)
    table.changes()
    assert table.rows_in_memory == 0
