"""Sessions of real invoice lines, out of order and one in twenty days late, against SQL over the file.

The lines are those of `tests/data`, or of the file that `HEADGATE_RETAIL` names.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from tests.harness.apps.retail_topology import read_lines
from tests.harness.apps.sessions_app import ROOT, retail_settings, run_cuts, select_final
from tests.harness.oracles.retail_windows import DAY_MS, Oracle

pytestmark = pytest.mark.slow

WHOLE = os.environ.get("HEADGATE_RETAIL")
LINES = Path(WHOLE or ROOT / "tests" / "data" / "retail_sample.parquet")
CUT_ROWS = 20_000 if WHOLE else 1_500


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(LINES, (60 if WHOLE else 4) * DAY_MS)


def rows_of(table: pl.DataFrame) -> list[tuple[object, ...]]:
    ends = pl.col("ended_at").dt.epoch("ms") + 1_800_000
    starts, milli = pl.col("started_at").dt.epoch("ms"), (pl.col("revenue") * 1000).cast(pl.Int64)
    return table.select(pl.col("user_id").cast(pl.Int64), starts, ends, "events", milli).rows()


@pytest.mark.parametrize(("cut_rows", "shards", "early_ms"), [(CUT_ROWS, 1, 0), (CUT_ROWS // 3, 3, 1_500)])
def test_sessions_of_customers_equal_the_oracles(oracle: Oracle, cut_rows: int, shards: int, early_ms: int) -> None:
    lines = read_lines(LINES, oracle.arrivals.order)
    settings = retail_settings(early_ms=early_ms, lateness_ms=3_600_000)
    result = run_cuts(settings, lines, range(cut_rows, lines.height, cut_rows), shards=shards)
    found = rows_of(select_final(result["sessions"]))
    assert len(found) == len(set(found))
    assert set(found) == {row for row in oracle.sessions("customer") if row[0] is not None}
    assert early_ms or result["sessions"].height == len(found)
    late = lines.with_row_index("row").filter(pl.col("customer_id").is_not_null())
    assert len(result.late) == sum(row in oracle.arrivals.late for row in _rows(oracle, late))


def _rows(oracle: Oracle, lines: pl.DataFrame) -> list[int]:
    """Return the rows of the file that these lines are."""
    return [oracle.arrivals.order[place] for place in lines["row"]]
