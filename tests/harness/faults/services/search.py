"""The search service with the retail lines as product changes and as sales, out of order: to OpenSearch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from tests.harness.apps.search_app import shop_streams
from tests.harness.faults.services.servers import OpenSearch
from tests.harness.faults.services.trial import LINES, Input, ServicePlan, ServiceScene, with_garbage
from tests.harness.oracles.retail_search import DISORDER_MS, SPANS, Oracle, Row

_ALIAS = "retail-products"
_LONDON = ZoneInfo("Europe/London")


@dataclass(frozen=True, slots=True)
class SearchOutput:
    """``oracle``: of the lines as they arrive."""

    node: OpenSearch
    oracle: Oracle

    def check(self, scene: ServiceScene) -> None:
        """Compare the documents with SQL; records with a price below zero and invalid ones must be dead letters."""
        assert self.documents() == self.oracle.documents()
        values = [record[2] for record in scene.plan.records if record[0] == "products" and record[1] != b"bad"]
        rejected = sum(json.loads(value or b"")["price"].startswith("-") for value in values)
        bad = sum(record[1] == b"bad" for record in scene.plan.records)
        assert len(scene.read("deadletters")) == rejected + bad
        assert scene.read("late") == []

    def documents(self) -> list[Row]:
        """Return the documents in the form of the oracle, read over plain HTTP."""
        return sorted(_row(hit["_id"], hit["_source"]) for hit in self.node.hits(_ALIAS))


def plan_search(name: str, server: EmbeddedOpenSearch) -> ServicePlan:
    """Start the server, and return the plan of the service."""
    node = OpenSearch(server)
    server.start()
    output = SearchOutput(node, Oracle(LINES))
    index = {"alias": _ALIAS, "id": ["id"], "deleted": "deleted", "settings": {"number_of_replicas": 0}}
    settings: dict[str, object] = {
        **shop_streams(f"{name}.products", f"{name}.shop"),
        "max_out_of_orderness_ms": DISORDER_MS,
        "spans": [{"name": span, "span_ms": length, "step_ms": step} for span, length, step in SPANS],
        "refresh_ms": 700,
        "opensearch": node.login | {"indexes": {"documents": index}},
    }
    records = with_garbage([*_records(output.oracle.order)])
    return ServicePlan(("headgate_search",), settings, records, server, output.check)


def _records(order: list[int]) -> Iterator[Input]:
    """Yield the product change and the sale or return of each line."""
    lines = pq.read_table(LINES).to_pylist()
    for row in order:
        line = lines[row]
        at_ms = round(line["InvoiceDate"].replace(tzinfo=_LONDON).timestamp() * 1000)
        price, quantity = _cents(line["UnitPrice"]), int(line["Quantity"])
        change = {
            "product_id": line["StockCode"],
            "op": "delete" if line["Description"] is None else "upsert",
            "name": line["Description"],
            "category": "gifts",
            "price": str(price),
            "currency": "GBP",
            "in_stock": True,
            "updated_at": at_ms,
        }
        sale = {
            "event_id": f"e{row}",
            "ts": at_ms,
            "type": "refund" if quantity < 0 else "payment",
            "product_id": line["StockCode"],
            "quantity": abs(quantity),
            "amount": str(abs(quantity) * price),
            "currency": "GBP",
            "status": "ok",
        }
        key = str(line["StockCode"]).encode()
        yield "products", key, json.dumps(change).encode()
        yield "shop", key, json.dumps(sale).encode()


def _cents(price: float) -> Decimal:
    """Round to the nearest cent, upwards from the middle, as SQL's ``floor(price * 100 + 0.5)``."""
    from math import floor

    return Decimal(floor(price * 100 + 0.5)).scaleb(-2)


def _row(name: str, source: dict[str, object]) -> Row:
    at_ms = round(datetime.fromisoformat(str(source["updated_at"])).timestamp() * 1000)
    figures = [source[f"{what}_{span}"] for span, *_ in SPANS for what in ("units", "revenue")]
    sums = [int(Decimal(str(v)) * 100) if n % 2 else int(str(v)) for n, v in enumerate(figures)]
    return (name, source["name"], int(Decimal(str(source["price"])) * 100), at_ms, *sums)
