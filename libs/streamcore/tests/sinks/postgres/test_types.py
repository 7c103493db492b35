"""Values in the table equal those in the lane."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.harness.cut_ids import cut_id
from tests.harness.servers.postgres_table import SinkDatabase, orders, spec

if TYPE_CHECKING:
    from conftest import NewDatabase
    from streamcore.sinks.postgres.sink import PostgresSink

pytestmark = pytest.mark.postgres
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.large_string()),
        ("money", pa.decimal128(38, 9)),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("at", pa.timestamp("ms", "UTC")),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def billionths(number: int) -> Decimal:
    """Exact, whatever the context's precision."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -9))


longs = st.integers(-(2**63), 2**63 - 1)
money = st.integers(-(10**38) + 1, 10**38 - 1).map(billionths)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
nasty = st.sampled_from(
    ["", " ", "\\.", "\\N", "NULL", '"', "'", ",", "\n", "\r\n", "\r", "\t", "\u2028", "a\\", '","', "🜁"]
)
times = st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda ms: EPOCH + timedelta(milliseconds=ms))
rows = st.tuples(
    longs,
    st.none() | texts | nasty,
    st.none() | money,
    st.none() | st.floats(),
    st.none() | st.booleans(),
    st.none() | times,
)


@pytest.fixture(scope="module")
def module_database(new_database: NewDatabase) -> Iterator[SinkDatabase]:
    sink_database = SinkDatabase(new_database())
    sink_database.run(
        "CREATE TABLE orders (place bigserial, n bigint, text text, money numeric(38,9), ratio double precision,"
        " flag boolean, at timestamptz)"
    )
    yield sink_database
    for sink in sink_database.opened:
        sink.close()


@pytest.fixture(scope="module")
def sink(module_database: SinkDatabase) -> PostgresSink:
    return module_database.sink(spec(), {"orders": SCHEMA})


class Batches:
    number = 0


def comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return NaN as a text, and floats by their sign and bits."""
    return tuple("nan" if isinstance(v, float) and math.isnan(v) else repr(v) for v in row)


@given(st.lists(rows, min_size=1, max_size=20))
@example([(0, "", billionths(0), float("nan"), None, None), (1, None, None, float("-inf"), True, EPOCH)])
def test_every_value_of_every_type_reads_back_unchanged(
    module_database: SinkDatabase, sink: PostgresSink, given_rows: list[tuple[Any, ...]]
) -> None:
    module_database.run("TRUNCATE orders")
    Batches.number += 1
    written = sink.write(cut_id(Batches.number), {"orders": orders(*given_rows, schema=SCHEMA)})
    assert not written.rejected
    found = module_database.rows("SELECT n, text, money, ratio, flag, at AT TIME ZONE 'UTC' FROM orders ORDER BY place")
    expected = [(*row[:5], row[5] and row[5].replace(tzinfo=None)) for row in given_rows]
    assert list(map(comparable, found)) == list(map(comparable, expected))


def test_the_sink_rejects_zero_bytes_and_times_that_iso_8601_cannot_express(
    module_database: SinkDatabase, sink: PostgresSink
) -> None:
    Batches.number += 1
    far = pa.array([253_402_300_800_000, -62_135_596_800_001, 0], pa.int64()).cast(pa.timestamp("ms", "UTC"))
    table = orders(*[(n, "x\0" if n == 2 else "", None, None, None, None) for n in range(3)], schema=SCHEMA)
    table = table.set_column(5, SCHEMA.field("at"), far)
    written = sink.write(cut_id(Batches.number), {"orders": table})
    assert [(one.row, one.code) for one in written.rejected] == [(0, "22008"), (1, "22008"), (2, "22021")]


def test_the_last_state_of_a_row_does_not_depend_on_how_rows_are_cut(module_database: SinkDatabase) -> None:
    """One cut, or one cut for each row, ends in the same table, including rejected rows and versions."""
    schema = pa.schema([("id", pa.large_string()), ("amount", pa.decimal128(9, 2)), ("v", pa.int64())])
    keyed, versioned = spec("keyed", "id"), spec("versioned", "id", version="v")
    numbers = iter(range(10_000))

    @settings(max_examples=30)
    @given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 2, 500]), st.integers(0, 3)), max_size=12))
    def check(drawn: list[tuple[str, int, int]]) -> None:
        cut = [(key, Decimal(amount), v) for key, amount, v in drawn]
        ends = []
        for parts in ([cut], [[row] for row in cut]):
            module_database.run("TRUNCATE keyed, versioned")
            for part in parts:
                table = orders(*part, schema=schema)
                one.write(cut_id(next(numbers)), {"k": table, "v": table})
            ends.append([module_database.rows(f"SELECT * FROM {t} ORDER BY id") for t in ("keyed", "versioned")])
        assert ends[0] == ends[1]

    for table in ("keyed", "versioned"):
        module_database.run(f"CREATE TABLE {table} (id text PRIMARY KEY, amount numeric(4,2), v bigint NOT NULL)")
    one = module_database.sink({"k": keyed, "v": versioned}, {"k": schema, "v": schema}, epoch=2)
    check()
