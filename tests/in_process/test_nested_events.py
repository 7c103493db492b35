"""Rules of every kind over arrays, structs, maps and names that are no identifiers, with cuts and restarts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from rulecore.documents.loading import load_text
from rulecore.documents.rule import canonical_json
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record
from tests.harness.apps.versioned_shop import moment, restore, save

NOW_MS = 1_800_000_000_000
STREAM = StreamSchema.parse(
    yaml.safe_load("""
name: orders
event_time: "@timestamp"
event_id: order-id
keys: [["customer.id"]]
fields:
  order-id: string not null
  "@timestamp": timestamp not null
  customer.id: {type: string, from: customer.id}
  address: {type: "struct<city:string, `zip code`:string>", from: customer.address}
  items: array<struct<sku:string, price:decimal(12,2), tags:array<string>>>
  labels: map<string,long>
""")
)
RULES = """
id: large-item
version: 1
owner: shop
on: orders
where: any(items, i -> i.price > 100 and not contains(i.tags, 'gift')) and labels['risk'] >= 5
then: {severity: high, message: "{order-id} of {customer.id} with {labels}", event: true}
---
id: much
version: 1
owner: shop
on: orders
where: items[0].sku is not null
group_by: [customer.id]
within: {tumbling: 1h}
having: sum(sum(items.price)) >= 300 and count(distinct address.city) >= 2 and max(cardinality(items)) = 2
then: {severity: high, message: "{customer.id} buys in two towns"}
---
id: moved
version: 1
owner: shop
on: orders
group_by: [customer.id]
sequence:
  - {step: first, where: "address.`zip code` = '1'"}
  - step: second
    where: address.`zip code` <> first.address.`zip code` and any(items, i -> i.sku = first.items[0].sku)
within: 1h
then: {severity: low, message: "{customer.id} moved"}
---
id: silent
version: 1
owner: shop
on: orders
group_by: [customer.id]
expect: {where: "exists(items, i -> contains(i.tags, 'gift'))", every: 2h}
then: {severity: low, message: "no gift of {customer.id}"}
"""


def order(number: int, minute: int, customer: str, city: str, code: str, *prices: float, **more: Any) -> RawRecord:
    items = [{"sku": f"s{i}", "price": price, "tags": more.get("tags", [])} for i, price in enumerate(prices)]
    record: dict[str, Any] = {
        "order-id": f"o{number}",
        "@timestamp": NOW_MS - 86_400_000 + minute * 60_000,
        "customer": {"id": customer, "address": {"city": city, "zip code": code}},
        "items": items or None,
        "labels": more.get("labels"),
        "ignored": [{}],
    }
    return RawRecord(0, 0, number, json.dumps(record).encode())


ORDERS = [
    order(0, 0, "ann", "Rome", "1", 120, labels={"risk": 7, "": None}),
    order(1, 1, "ann", "Oslo", "2", 150, 40, tags=["gift", None]),
    order(2, 2, "bob", "Rome", "1", 500, tags=["gift"], labels={"risk": 9}),
    order(3, 3, "bob", "Rome", "1", labels={}),
    order(4, 300, "eve", "Bonn", "3", 1),
]
EXPECTED = [
    ("large-item", 'o0 of ann with {"risk": 7, "": null}'),
    ("moved", "ann moved"),
    ("much", "ann buys in two towns"),
    ("silent", "no gift of ann"),
    ("silent", "no gift of bob"),
]


def make_app(shards: int = 2) -> App:
    return App(
        "t",
        (Source(STREAM, "orders"),),
        "control",
        {},
        (RulesFactory((RuleStream(STREAM, "orders"),)),),
        shards=shards,
        watermark=WatermarkStrategy(max_out_of_orderness_ms=0),
    )


def new_app(running: InProcessApp | None = None) -> InProcessApp:
    app = make_app()
    if running is None:
        return InProcessApp(app)
    return InProcessApp(app, running.blobs, next_offsets=running.next_offsets)


def rules() -> Sequence[RawRecord]:
    loaded, problems = load_text(RULES)
    assert not problems
    found = [rule for document in loaded if (rule := document.rule) is not None]
    return [control_record(n, rule.id, canonical_json(rule)) for n, rule in enumerate(found)]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("size", "restarts"), [(5, False), (1, False), (1, True), (2, True)])
def test_every_kind_of_rule_reads_inside_of_values(size: int, restarts: bool) -> None:
    app = new_app()
    output = app.cut(rules(), NOW_MS)
    assert [orjson.loads(r.value or b"")["status"] for r in output if r.lane == STATUS] == ["accepted"] * 4
    output = []
    for start in range(0, len(ORDERS), size):
        app = new_app(app) if restarts else app
        output += app.cut(ORDERS[start : start + size], NOW_MS)
    output += app.cut([], NOW_MS)
    check(output)


@pytest.mark.slow
def test_a_savepoint_keeps_them_for_another_number_of_shards(tmp_path: Path) -> None:
    app = new_app()
    output = app.cut([*rules(), *ORDERS[:3]], NOW_MS)
    saved = save(app.app, app.blobs, tmp_path / "savepoints", moment())
    other = make_app(shards=3)
    restored = InProcessApp(other, restore(saved, other, tmp_path / "checkpoint"), next_offsets=app.next_offsets)
    check([*output, *restored.cut(ORDERS[3:], NOW_MS), *restored.cut([], NOW_MS)])


def check(output: Sequence[Record]) -> None:
    alerts = [orjson.loads(record.value or b"") for record in output if record.lane == ALERTS]
    assert sorted((alert["rule"], alert["message"]) for alert in alerts) == EXPECTED
    [event] = [alert["event"] for alert in alerts if "event" in alert]
    assert event == {
        "order-id": "o0",
        "@timestamp": NOW_MS - 86_400_000,
        "customer.id": "ann",
        "address": {"city": "Rome", "zip code": "1"},
        "items": [{"sku": "s0", "price": "120.00", "tags": []}],
        "labels": {"risk": 7, "": None},
    }
    assert {json.dumps(alert["key"]) for alert in alerts} == {'{"customer.id": "ann"}', '{"customer.id": "bob"}'}
