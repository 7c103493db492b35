"""What the rules of `rules/retail` must find in the real invoice lines: SQL in DuckDB over the file itself.

Written by hand and independently: no import of the product, no reading of the rules' files. Lines are taken in the
file's order, which is the order of arrival when all of them are in one partition; by then the result is exact to the
event that fires. Over several partitions of the default key (``customer_id``) only ``product-rush`` and
``daily-country-sales`` mix partitions: of ``product-rush`` the (rule, key, window) stay exact, the firing line and the
count at it do not.

The file's local minutes are London's; DuckDB (ICU) brings them to UTC. Money is in thousandths, whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
#: How far the watermark stays behind the latest line, by default.
DISORDER_MS = 10_000

Scalar = str | int | None


@dataclass(frozen=True, slots=True)
class OracleAlert:
    """``row``: index of the line in the file that fired it, None for the end of a window. ``values``: aggregates as the
    rule writes them, decimals as text with three places."""

    rule: str
    version: int
    key: tuple[tuple[str, Scalar], ...]
    window: tuple[int, int] | None
    timing: str | None
    event_time_ms: int
    values: tuple[tuple[str, Scalar], ...]
    row: int | None


@dataclass(frozen=True, slots=True)
class Windowed:
    """A windowed rule as SQL. ``value`` is summed (thousandths), ``distinct`` is counted once."""

    version: int
    key: str
    where: str
    size_ms: int
    slide_ms: int
    having: str
    names: Mapping[str, str]
    value: str = "0"
    distinct: str = "NULL"

    @property
    def panes(self) -> int:
        return self.size_ms // self.slide_ms


_SOLD = "quantity * milli"
#: The version of each rule per event, and its condition as SQL.
PER_EVENT: Mapping[str, tuple[int, str]] = {
    "bulk-line": (1, "quantity >= 1000"),
    "free-item": (2, "milli = 0 and quantity > 10"),
    "large-cancellation": (1, f"invoice_no like 'C%' and quantity < 0 and {_SOLD} <= -500000"),
    "line-without-customer": (2, f"customer_id is null and {_SOLD} >= 100000"),
}
EARLY: Mapping[str, Windowed] = {
    "cancellation-burst": Windowed(
        version=2,
        key="customer_id",
        where="quantity < 0 and milli > 0 and customer_id is not null",
        size_ms=DAY_MS,
        slide_ms=HOUR_MS,
        value=_SOLD,
        having="n >= 5 and total < -100000",
        names={"count(*)": "n", "sum(quantity * unit_price)": "total"},
    ),
    "hourly-customer-sales": Windowed(
        version=2,
        key="customer_id",
        where="quantity > 0 and milli > 0 and customer_id is not null",
        size_ms=HOUR_MS,
        slide_ms=HOUR_MS,
        value=_SOLD,
        having="total >= 1000000",
        names={"sum(quantity * unit_price)": "total"},
    ),
    "product-rush": Windowed(
        version=1,
        key="stock_code",
        where="quantity > 0 and customer_id is not null",
        size_ms=6 * HOUR_MS,
        slide_ms=HOUR_MS,
        distinct="customer_id",
        having="different >= 12",
        names={"count_distinct(customer_id)": "different"},
    ),
}
FINAL: Mapping[str, Windowed] = {
    "daily-country-sales": Windowed(
        version=2,
        key="country",
        where="quantity > 0 and country is not null and country <> 'United Kingdom'",
        size_ms=DAY_MS,
        slide_ms=DAY_MS,
        value=_SOLD,
        having="n >= 50 or total >= 10000000",
        names={"count(*)": "n", "sum(quantity * unit_price)": "total"},
    ),
    "weekly-cancelled-value": Windowed(
        version=2,
        key="customer_id",
        where="invoice_no like 'C%' and quantity < 0 and customer_id is not null",
        size_ms=7 * DAY_MS,
        slide_ms=DAY_MS,
        value=_SOLD,
        having="total <= -1000000",
        names={"sum(quantity * unit_price)": "total"},
    ),
}
#: Every rule that this oracle answers for.
RULES = frozenset(PER_EVENT) | frozenset(EARLY) | frozenset(FINAL)


def alerts(path: Path, *, watermark_ms: int | None = None) -> list[OracleAlert]:
    """Return all alerts of all rules, in the order of ``by_identity``.

    ``watermark_ms``: how far event time has come; windows that end later have not closed. By default that of one
    partition: ``DISORDER_MS`` behind the latest line.
    """
    with duckdb.connect() as db:
        _load(db, path)
        if watermark_ms is None:
            ((latest_ms,),) = db.sql("select max(ms) from line").fetchall()
            watermark_ms = latest_ms - DISORDER_MS
        found = [a for rule, (version, where) in PER_EVENT.items() for a in _per_event(db, rule, version, where)]
        found += [a for rule, what in EARLY.items() for a in _early(db, rule, what)]
        found += [a for rule, what in FINAL.items() for a in _final(db, rule, what, watermark_ms)]
    return sorted(found, key=by_identity)


def by_identity(alert: OracleAlert) -> tuple[str, str, tuple[int, int], int]:
    """Return the sort key with which alerts are compared."""
    return alert.rule, str(alert.key), alert.window or (0, 0), -1 if alert.row is None else alert.row


def lines(path: Path) -> int:
    """Return how many lines the file has."""
    with duckdb.connect() as db:
        ((count,),) = db.sql(f"select count(*) from read_parquet('{path}')").fetchall()
        return int(count)


def _load(db: duckdb.DuckDBPyConnection, path: Path) -> None:
    db.execute(
        f"""
        create table line as
        select file_row_number as row,
               InvoiceNo as invoice_no,
               StockCode as stock_code,
               Country as country,
               cast(CustomerID as bigint) as customer_id,
               cast(Quantity as bigint) as quantity,
               cast(round(UnitPrice * 1000) as bigint) as milli,
               epoch_ms(timezone('Europe/London', InvoiceDate)) as ms
        from read_parquet('{path}', file_row_number = true)
        """
    )


def _per_event(db: duckdb.DuckDBPyConnection, rule: str, version: int, where: str) -> list[OracleAlert]:
    rows = db.sql(f"select row, ms, customer_id from line where {where}").fetchall()
    return [OracleAlert(rule, version, (("customer_id", key),), None, None, ms, (), row) for row, ms, key in rows]


def _early(db: duckdb.DuckDBPyConnection, rule: str, what: Windowed) -> list[OracleAlert]:
    """Return the alerts of an early rule, from the window that ends with the pane of each line, as of that line."""
    rows = db.sql(
        f"""
        with own as (
            select row, ms, {what.key} as key, ms // {what.slide_ms} as pane, {what.value} as value,
                   {what.distinct} as one
            from line where {what.where}
        ), state as (
            select later.row, any_value(later.ms) as ms, any_value(later.key) as key, any_value(later.pane) as pane,
                   count(*) as n, cast(sum(own.value) as bigint) as total, count(distinct own.one) as different
            from own as later join own
              on own.key = later.key and own.row <= later.row
             and own.pane between later.pane - {what.panes - 1} and later.pane
            group by later.row
        )
        select key, pane, row, ms, n, total, different from state where {what.having}
        qualify row_number() over (partition by key, pane order by row) = 1
        """
    ).fetchall()
    return [
        OracleAlert(
            rule,
            what.version,
            ((what.key, key),),
            _window(what, pane),
            "early",
            ms,
            _values(what, n, total, different),
            row,
        )
        for key, pane, row, ms, n, total, different in rows
    ]


def _final(db: duckdb.DuckDBPyConnection, rule: str, what: Windowed, watermark_ms: int) -> list[OracleAlert]:
    """Return the alerts of a final rule, from the closed windows that contain a line of the rule."""
    rows = db.sql(
        f"""
        with own as (
            select {what.key} as key, {what.value} as value, {what.distinct} as one,
                   ms // {what.slide_ms} + unnest(range({what.panes})) as pane
            from line where {what.where}
        ), state as (
            select key, pane, count(*) as n, cast(sum(value) as bigint) as total, count(distinct one) as different
            from own group by key, pane
        )
        select key, pane, n, total, different from state
        where ({what.having}) and (pane + 1) * {what.slide_ms} <= {watermark_ms}
        """
    ).fetchall()
    return [
        OracleAlert(
            rule,
            what.version,
            ((what.key, key),),
            _window(what, pane),
            "final",
            (pane + 1) * what.slide_ms,
            _values(what, n, total, different),
            None,
        )
        for key, pane, n, total, different in rows
    ]


def _window(what: Windowed, last_pane: int) -> tuple[int, int]:
    end_ms = (last_pane + 1) * what.slide_ms
    return end_ms - what.size_ms, end_ms


def _values(what: Windowed, n: int, total: int, different: int) -> tuple[tuple[str, Scalar], ...]:
    found: dict[str, Scalar] = {"n": n, "total": _decimal(total), "different": different}
    return tuple(sorted((name, found[column]) for name, column in what.names.items()))


def _decimal(milli: int) -> str:
    return f"{'-' if milli < 0 else ''}{abs(milli) // 1000}.{abs(milli) % 1000:03d}"
