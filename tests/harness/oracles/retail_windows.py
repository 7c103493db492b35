"""What windows over the real invoice lines must give: SQL in DuckDB over the file itself, and who comes late.

Written by hand and independently: no import of the product. Lines arrive in an order of their own: most at most 90
minutes after later ones, one in twenty so many days late that every window it could belong to has closed long before.
Those are in no result; everything else is in all. Money is in thousandths, whole numbers, times are epoch
milliseconds, UTC; the file's local minutes are London's.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
#: How far the watermark has to stay behind the latest line so that no line that is in order is late.
DISORDER_MS = 2 * HOUR_MS
LATE_SHARE = 0.05

Row = tuple[object, ...]


@dataclass(frozen=True)
class Arrivals:
    """``order``: the rows of the file as they arrive; ``late``: those that come too late."""

    order: list[int]
    late: frozenset[int]


class Oracle:
    """``lateness_ms``: how late the late ones are; more than the longest time without any line, and some days."""

    def __init__(self, lines: Path, lateness_ms: int) -> None:
        self._db = duckdb.connect()
        self._db.execute(
            """
            create table every as
            select file_row_number as row, StockCode as product, Country as country,
                   cast(CustomerID as bigint) as customer,
                   epoch_ms(timezone('Europe/London', InvoiceDate)) as ms,
                   cast(Quantity as bigint) * cast(round(UnitPrice * 1000) as bigint) as milli
            from read_parquet($1, file_row_number = true)
            """,
            [str(lines)],
        )
        self.arrivals = self._arrive(lateness_ms)
        self._db.register("too_late", pa.table({"row": pa.array(sorted(self.arrivals.late), pa.int64())}))
        self._db.execute("create table late as select * from too_late")
        self._db.execute("create table lines as select * from every where row not in (select row from late)")

    def _arrive(self, lateness_ms: int) -> Arrivals:
        chance = random.Random(20101201)
        times = [ms for (ms,) in self._db.execute("select ms from every order by row").fetchall()]
        last = max(times)
        arrival, late = [], set()
        for row, ms in enumerate(times):
            delay = chance.randrange(90 * MINUTE_MS)
            if chance.random() < LATE_SHARE and ms < last - lateness_ms - DAY_MS:
                late.add(row)
                delay = lateness_ms
            arrival.append((ms + delay, row))
        return Arrivals([row for _, row in sorted(arrival)], frozenset(late))

    def sessions(self, key: str) -> set[Row]:
        """Return (key, start, end, lines, milli): lines of a key with less than 30 minutes between neighbours."""
        return self._rows(
            f"""
            with gaps as (
                select *, ms - lag(ms) over (partition by {key} order by ms, row) as gap from lines
            ), numbered as (
                select *, sum(case when gap is null or gap >= {30 * MINUTE_MS} then 1 else 0 end)
                          over (partition by {key} order by ms, row rows unbounded preceding) as session
                from gaps
            )
            select {key}, min(ms), max(ms) + {30 * MINUTE_MS}, count(*), cast(sum(milli) as bigint)
            from numbered group by {key}, session
            """
        )

    def late_of_customers(self) -> int:
        """Return the number of late lines with a customer."""
        (count,) = self._db.execute("select count(customer) from every join late using (row)").fetchall()[0]
        return int(count)

    def revenue(self, size_ms: int, slide_ms: int) -> set[Row]:
        """Return (start, end, lines, milli) of windows over all lines."""
        return self._rows(
            f"""
            with windows as (
                select ms // {slide_ms} * {slide_ms} - step * {slide_ms} as start, milli
                from lines, range({size_ms // slide_ms}) as steps(step)
            )
            select start, start + {size_ms}, count(*), cast(sum(milli) as bigint) from windows group by start
            """
        )

    def products(self) -> dict[tuple[int, str], int]:
        """Return the milli of every product and hour."""
        rows = self._db.execute(
            f"select ms // {HOUR_MS} * {HOUR_MS} as hour, product, cast(sum(milli) as bigint) from lines group by all"
        ).fetchall()
        return {(hour, product): milli for hour, product, milli in rows}

    def _rows(self, query: str) -> set[Row]:
        rows = self._db.execute(query).fetchall()
        assert len(set(rows)) == len(rows)
        return set(rows)
