"""How the sinks of Parquet files, Delta and Iceberg tables part rows and choose dictionaries."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamcore.sinks.lake.columns import choose_dictionary_columns
from streamcore.sinks.lake.rows import split_by_partition

_DAYS = ["b", None, "a", "b", "", "a", None, "b"]
_OK = [True, True, None, True, False, None, True, None]


def test_each_partition_has_its_rows_in_their_order_and_nothing_is_lost() -> None:
    rows = pa.table({"n": range(8), "day": pa.chunked_array([_DAYS[:3], _DAYS[3:]]), "ok": _OK})
    parts = {
        (values["day"], values["ok"]): part["n"].to_pylist() for values, part in split_by_partition(rows, ["day", "ok"])
    }
    expected: dict[tuple[object, object], list[int]] = {}
    for n, key in enumerate(zip(_DAYS, _OK, strict=True)):
        expected.setdefault(key, []).append(n)
    assert parts == expected


@pytest.mark.slow
def test_a_hundred_thousand_partitions_are_told_apart() -> None:
    count = 100_000  # beyond the numbers of 16 bits
    rows = pa.table({"a": [n % 400 for n in range(count)], "b": [n // 400 for n in range(count)]})
    parts = list(split_by_partition(rows, ["a", "b"]))
    assert all(part.num_rows == 1 for _, part in parts)
    assert len({(values["a"], values["b"]) for values, _ in parts}) == count


def test_columns_that_repeat_values_get_a_dictionary_and_ids_do_not() -> None:
    count = 50_000
    rows = pa.table(
        {
            "id": range(count),
            "sorted": [n // 100 for n in range(count)],
            "few": [f"kind-{n % 7}" for n in range(count)],
            "nothing": pa.nulls(count, pa.int64()),
            "nested": [[n % 2] for n in range(count)],
        }
    )
    assert choose_dictionary_columns(rows) == ["sorted", "few", "nothing"]
    assert choose_dictionary_columns(rows.slice(0, 0)) == [*rows.column_names[:4]]
