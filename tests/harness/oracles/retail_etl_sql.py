"""What the ETL app must make of the retail lines, as `tests/harness/apps/retail_etl.py` sends and maps them: DuckDB's
SQL.

Written by hand and independently: no import of the product. Even lines of the file come through one input, typed; odd
ones through another, as text, some of them broken on purpose (``BROKEN`` says how, and both sides read it). A line's
offset is its number among the lines of its input.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

#: Which odd lines are broken (``line % modulus = rest``), in which column, and by which text.
BROKEN = (
    (97, 5, "price", "twelve"),
    (101, 7, "count", "1e5"),
    (103, 9, "at", "30/2/2011 10:00"),
    (107, 11, "price", "0.00001"),
    (109, 13, "count", ""),
)
RATES = {"EUR": "0.861234", "AUD": "0.553300"}
CURRENCIES = {"EIRE": "EUR", "Germany": "EUR", "France": "EUR", "Australia": "AUD", "Japan": "JPY"}

_LINES = """
create table lines as
select file_row_number as line, InvoiceNo as invoice, StockCode as stock, Description as description,
       Quantity::bigint as quantity, InvoiceDate as local, UnitPrice as unit_price,
       CustomerID::bigint as customer, Country as country,
       (file_row_number // 2) as "offset",
       case when file_row_number % 2 = 0 then 'retail' else 'retail_text' end as topic
from read_parquet('{path}', file_row_number = true)
"""

_MODEL = """
create table model as
with named as (
  select *, case when topic = 'retail' then 'r' else 't' end || '/' || invoice || '/' || stock || '/' || quantity as id,
         {broken} as broken,
         coalesce(map {currencies}[country], 'GBP') as currency
  from lines
),
priced as (
  select *, case currency when 'GBP' then 1.000000::decimal(12,6) else map {rates}[currency]::decimal(12,6) end as rate,
         unit_price::decimal(12,3) as price
  from named
),
-- a broken line is no row, so it repeats nothing and is repeated by nothing; so is one that violates a rule
judged as (
  select *, case when broken is not null then 'bad_value'
                 when price <= 0 then 'rule:price-positive'
                 when quantity not between -500 and 500 then 'rule:quantity-in-range' end as early
  from priced
),
counted as (
  select *, case when early is null then row_number() over (partition by id, early is null order by line) end as copy
  from judged
)
select *, case when early is not null then early when copy > 1 then 'duplicate'
               when rate is null then 'not_in_list' else 'clean' end as fate
from counted
"""

_ROWS = """
select id, invoice, upper(trim(stock)) as stock, nullif(trim(description), '') as description, quantity,
       strftime(timezone('UTC', timezone('Europe/London', local)), '%Y-%m-%dT%H:%M:%S+00:00') as sold_at,
       price::varchar as price,
       case when length(customer::varchar) > 2
            then repeat('*', length(customer::varchar) - 2) || right(customer::varchar, 2)
            else repeat('*', length(customer::varchar)) end as customer,
       coalesce(country, 'Unspecified') as country, currency, rate::varchar as rate,
       round(quantity * price::decimal(38,3) * rate::decimal(38,6), 2)::decimal(18,2)::varchar as amount
from model where fate = 'clean' and quantity {sign} 0
order by line
"""

Rows = list[tuple[object, ...]]


class Expected:
    """``path``: the Parquet file."""

    def __init__(self, path: Path) -> None:
        self._database = duckdb.connect(":memory:")
        broken = " ".join(
            f"when topic = 'retail_text' and line % {modulus} = {rest} then '{column}'"
            for modulus, rest, column, _ in BROKEN
        )
        self._database.execute(_LINES.format(path=path))
        self._database.execute(
            _MODEL.format(broken=f"case {broken} end", currencies=_map(CURRENCIES), rates=_map(RATES))
        )

    def lane(self, *, sales: bool) -> Rows:
        """Return the rows of a lane, in the file's order, every value as JSON shows it."""
        return self._database.execute(_ROWS.format(sign=">" if sales else "<=")).fetchall()

    def letters(self) -> Rows:
        """Return topic, offset and code of every dead letter."""
        query = """select topic, "offset", fate from model where fate not in ('clean', 'duplicate') order by line"""
        return self._database.execute(query).fetchall()

    def duplicates(self) -> int:
        """Return the number of rows that repeat an earlier one."""
        (count,) = self._database.execute("select count(*) from model where fate = 'duplicate'").fetchall()[0]
        return int(count)


def _map(known: dict[str, str]) -> str:
    return "{" + ", ".join(f"'{key}': '{value}'" for key, value in known.items()) + "}"
