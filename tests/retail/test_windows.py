"""Sessions, revenue and best sellers of real invoice lines, out of order and one in twenty late, against an oracle.

The lines are those of `tests/data`, or of the file that `HEADGATE_RETAIL` names.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from streamcore.topology.simulation import SimulationResult, simulate
from tests.harness.apps.retail_topology import BEST, ROOT, read_lines, retail
from tests.harness.oracles.retail_windows import DAY_MS, HOUR_MS, Oracle, Row

pytestmark = pytest.mark.slow

WHOLE = os.environ.get("HEADGATE_RETAIL")
LINES = Path(WHOLE or ROOT / "tests" / "data" / "retail_sample.parquet")
#: Longer than a cut and the longest time without a line: the shop closed for twelve days at the turn of the year.
LATENESS_MS = (60 if WHOLE else 4) * DAY_MS
CUT_ROWS = 20_000 if WHOLE else 1_500


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(LINES, LATENESS_MS)


@pytest.fixture(scope="module", params=[(CUT_ROWS, 1), (CUT_ROWS // 2, 4)], ids=["one shard", "small cuts, 4 shards"])
def result(request: pytest.FixtureRequest, oracle: Oracle) -> SimulationResult:
    cut_rows, shards = request.param
    lines = read_lines(LINES, oracle.arrivals.order)
    return simulate(retail(), {"retail": lines}, cut_rows=cut_rows, shards=shards)


def figures(rows: pl.DataFrame, *key: str) -> list[Row]:
    """Return (key, start, end, lines, milli) of panes; each window has one pane."""
    assert set(rows["pane"]) == {0}
    assert rows["is_final"].all()
    bounds = pl.col("window_start", "window_end").dt.epoch("ms")
    return rows.select(*key, bounds, "lines", (pl.col("amount") * 1000).cast(pl.Int64)).rows()


def same(found: list[Row], wanted: set[Row]) -> None:
    assert len(found) == len(set(found)), "no window twice"
    assert set(found) == wanted


def test_one_line_in_twenty_is_late_and_in_the_late_lane(oracle: Oracle, result: SimulationResult) -> None:
    lines, late = len(oracle.arrivals.order), len(oracle.arrivals.late)
    assert 0.03 * lines < late < 0.06 * lines
    assert result["late"].height == late
    assert set(result["late"]["late_reason"]) == {"expired"}
    assert result["late"]["lateness_ms"].min() >= DAY_MS  # type: ignore[operator]


def test_every_line_is_counted_exactly_once(oracle: Oracle, result: SimulationResult) -> None:
    lines, late = len(oracle.arrivals.order), len(oracle.arrivals.late)
    assert result["customers"]["lines"].sum() == result["hours"]["lines"].sum() == lines - late
    assert result["sliding"]["lines"].sum() == 3 * (lines - late)
    assert not result.dead


def test_sessions_by_customer_equal_the_oracles(oracle: Oracle, result: SimulationResult) -> None:
    same(figures(result["customers"], "customer_id"), oracle.sessions("customer"))


def test_sessions_by_country_equal_the_oracles(oracle: Oracle, result: SimulationResult) -> None:
    same(figures(result["countries"], "country"), oracle.sessions("country"))


def test_revenue_by_the_hour_equals_the_oracles(oracle: Oracle, result: SimulationResult) -> None:
    same(figures(result["hours"]), oracle.revenue(HOUR_MS, HOUR_MS))


def test_revenue_of_three_hours_every_hour_equals_the_oracles(oracle: Oracle, result: SimulationResult) -> None:
    same(figures(result["sliding"]), oracle.revenue(3 * HOUR_MS, HOUR_MS))


def test_the_best_products_of_every_hour_equal_the_oracles(oracle: Oracle, result: SimulationResult) -> None:
    products = oracle.products()
    hours: dict[int, list[int]] = {}
    for (hour, _), milli in products.items():
        hours.setdefault(hour, []).append(milli)
    best = result["best"].with_columns(pl.col("hour").dt.epoch("ms"))
    assert len(set(best["hour"])) == best.height == len(hours)
    for row in best.iter_rows(named=True):
        found = [(one["stock_code"], int(one["amount"] * 1000)) for one in row["best"]]
        assert all(products[row["hour"], product] == milli for product, milli in found)
        assert [milli for _, milli in found] == sorted(hours[row["hour"]], reverse=True)[:BEST]
