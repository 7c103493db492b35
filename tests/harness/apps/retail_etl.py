"""The retail lines as two inputs of the ETL app: their bytes, and the settings that make one model of both."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq

from headgate.records.file_rows import read_rows
from headgate_etl.settings import EtlSettings
from streamcore.engine.in_process import RawRecord
from streamcore.service.config.documents import load_schema
from tests.harness.oracles.retail_etl_sql import BROKEN, CURRENCIES

ROOT = Path(__file__).parents[3]

MODEL = {
    "id": "string not null",
    "invoice": "string not null",
    "stock": "string not null",
    "description": "string",
    "quantity": "long not null",
    "sold_at": "timestamp not null",
    "price": "decimal(12,3) not null",
    "customer": "string",
    "country": "string not null",
    "currency": "string not null",
    "rate": "decimal(12,6) not null",
    "amount": "decimal(18,2) not null",
}
_CURRENCY = "case " + " ".join(f"when country = '{c}' then '{m}'" for c, m in CURRENCIES.items()) + " else 'GBP' end"
_TYPED = {
    "id": "concat('r/', invoice_no, '/', stock_code, '/', to_text(quantity))",
    "invoice": "invoice_no",
    "stock": "upper(trim(stock_code))",
    "description": "nullif(trim(description), '')",
    "quantity": "quantity",
    "sold_at": "invoice_date",
    "price": "unit_price",
    "customer": "to_text(customer_id)",
    "country": "coalesce(country, 'Unspecified')",
    "currency": _CURRENCY,
}
_TEXT = {
    "id": "concat('t/', invoice, '/', stock, '/', count)",
    "invoice": "invoice",
    "stock": "upper(trim(stock))",
    "description": "nullif(trim(text), '')",
    "quantity": "to_long(count)",
    "sold_at": "to_timestamp(at, 'd/M/yyyy H:mm', 'Europe/London')",
    "price": "to_decimal(price, 12, 3)",
    "customer": "nullif(customer, '')",
    "country": "coalesce(nullif(country, ''), 'Unspecified')",
    "currency": _CURRENCY,
}


def settings(**more: object) -> EtlSettings:
    """Return settings of the whole app; ``more`` replaces entries."""
    document: dict[str, object] = {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "checkpoint": "unused",
        "jars": "unused",
        "inputs": [
            {"schema_file": str(ROOT / "streams" / "retail.yaml"), "topic": "retail", "map": _TYPED},
            {"schema_file": str(ROOT / "streams" / "retail_text.yaml"), "topic": "retail_text", "map": _TEXT},
        ],
        "model": MODEL,
        "id": ["id"],
        "rules": {"price-positive": "price > 0", "quantity-in-range": "quantity between -500 and 500"},
        "lists": {"rates": {"of": "string", "value": "decimal(12,6)", "missing": "dead_letter"}},
        "derive": {
            "rate": "if(currency = 'GBP', 1.000000, lookup('rates', currency))",
            "amount": "round(quantity * price * rate, 2)",
        },
        "deduplicate": {"horizon_ms": 400 * 86_400_000},
        "mask": {"customer": {"how": "keep_last", "characters": 2}},
        "routes": [
            {"name": "sales", "when": "quantity > 0", "key": ["invoice"]},
            {"name": "returns", "when": "quantity <= 0"},
        ],
    }
    return EtlSettings.model_validate(document | more)


def records(lines: Path, limit: int | None = None) -> Iterator[RawRecord]:
    """Yield the lines of the file in order: even ones for the typed input, odd ones for the input of texts."""
    stream = load_schema(ROOT / "streams" / "retail.yaml")
    table = itertools.chain.from_iterable(b.to_pylist() for b in pq.ParquetFile(lines).iter_batches(10_000))
    typed = read_rows(lines, stream)
    for number, (row, one) in enumerate(itertools.islice(zip(table, typed, strict=True), limit)):
        if number % 2 == 0:
            yield RawRecord(0, 0, number // 2, one.value, one.key)
        else:
            yield RawRecord(1, 0, number // 2, _text(number, row, one.time_ms), b"k%d" % number)


def _text(number: int, row: dict[str, object], time_ms: int | None) -> bytes:
    """Return a line in the format of another shop."""
    moment, customer = row["InvoiceDate"], row["CustomerID"]
    assert isinstance(moment, datetime)
    values = {
        "received": time_ms,
        "invoice": row["InvoiceNo"],
        "stock": f" {row['StockCode']} ".strip(),
        "line": number,
        "text": row["Description"],
        "count": str(int(str(row["Quantity"]).split(".", maxsplit=1)[0])),
        "at": f"{moment.day}/{moment.month}/{moment.year} {moment.hour}:{moment.minute:02}",
        "price": format(float(str(row["UnitPrice"])), ".3f"),
        "customer": "" if customer is None else str(int(float(str(customer)))),
        "country": row["Country"] or "",
    }
    for modulus, rest, column, broken in BROKEN:
        if number % modulus == rest:
            values[column] = broken
            break
    return json.dumps(values).encode()
