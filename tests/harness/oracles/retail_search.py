"""The search documents that real invoice lines must end in: SQL in DuckDB over the file itself.

Written by hand and independently: no import of the product. Each line says what its product is called and costs at its
time: a line without a description says that it is gone, a price below zero says nothing. It is also a sale, or with a
quantity below zero a return. Lines arrive in an order of their own, at most 90 minutes after later ones. Prices are
whole cents; times are epoch milliseconds, UTC; the file's local minutes are London's.
"""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DISORDER_MS = 2 * HOUR_MS
#: Name, length and step of each span.
SPANS = (("day", DAY_MS, HOUR_MS), ("week", 7 * DAY_MS, DAY_MS))

Row = tuple[object, ...]


class Oracle:
    """``order``: the rows of the file as they arrive."""

    def __init__(self, lines: Path) -> None:
        self._db = duckdb.connect()
        self._db.execute(
            """
            create table lines as
            select file_row_number as row, StockCode as id, Description as name,
                   epoch_ms(timezone('Europe/London', InvoiceDate)) as ms,
                   cast(Quantity as bigint) as quantity,
                   cast(floor(UnitPrice * 100 + 0.5) as bigint) as cents
            from read_parquet($1, file_row_number = true)
            """,
            [str(lines)],
        )
        chance = random.Random(20101201)
        times = [ms for (ms,) in self._db.execute("select ms from lines order by row").fetchall()]
        arrival = [ms + chance.randrange(90 * 60_000) for ms in times]
        self.order = sorted(range(len(times)), key=lambda row: (arrival[row], row))
        self.watermark_ms = max(times) - DISORDER_MS
        self._db.register("arrival", pa.table({"row": self.order, "place": range(len(self.order))}))
        self._db.execute("create table arrived as select * from arrival")

    def documents(self) -> list[Row]:
        """Return (id, name, cents, ms, then views, units and revenue in cents of each span), by id."""
        sums = ", ".join(f"coalesce({what}_{name}, 0)" for name, *_ in SPANS for what in ("units", "cents"))
        figures = ", ".join(
            f"sum(quantity) filter (counts_{name}) as units_{name}, "
            f"sum(quantity * cents) filter (counts_{name}) as cents_{name}"
            for name, *_ in SPANS
        )
        counts = ", ".join(
            f"{self.watermark_ms} < ms // {step} * {step} + {span} as counts_{name}" for name, span, step in SPANS
        )
        return self._db.execute(
            f"""
            with changes as (select * from lines join arrived using (row) where name is null or cents >= 0),
                 last as (select id, arg_max(row, [ms, place]) as row from changes group by id),
                 figures as (select id, {figures} from (select *, {counts} from lines) group by id)
            select id, name, cents, ms, {sums}
            from last join lines using (row, id) left join figures using (id)
            where name is not null order by id
            """
        ).fetchall()

    def deleted_products(self) -> int:
        """Return the number of products that are deleted at the end."""
        found = self._db.execute(
            """
            with changes as (select * from lines join arrived using (row) where name is null or cents >= 0)
            select count(*)
            from (select id, arg_max(name is null, [ms, place]) as gone from changes group by id) where gone
            """
        ).fetchone()
        assert found is not None
        return int(found[0])
