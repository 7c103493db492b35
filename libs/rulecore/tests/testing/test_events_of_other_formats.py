"""The tests of a rule give the values of a stream whose records are Avro or Protobuf as JSON has them."""

from __future__ import annotations

import pytest

from rulecore.documents.rule import Rule
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import run_tests
from streamcore.schema import StreamSchema

STREAM = StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "paid",
        "event_id": "id",
        "keys": [["customer"]],
        "when": {"from": "_schema.name", "equals": "acme.Order"},
        "fields": {
            "id": "string",
            "paid": {"type": "timestamp not null", "from": "meta.paid"},
            "sent_us": {"type": "timestamp", "unit": "us", "from": "meta.sent_us"},
            "due": "timestamp",
            "opened": {"type": "timestamp", "pattern": "MM/dd/yyyy hh:mm:ss a"},
            "customer": "string not null",
            "kind": "string",
            "price": "decimal(18,4)",
            "lines": "array<struct<sku:string, quantity:long>>",
            "counts": "map<string,long>",
        },
    }
)
ENTIRE = {
    "paid": "+10s",
    "sent_us": 1_767_571_200_000_999,
    "due": "2026-01-05T00:00:00Z",
    "opened": "2026-01-05T00:00:00Z",  # in a test, the times of patterns are written as all others
    "customer": "ann",
    "kind": "CARD",
    "price": "12345678901234.5678",
    "lines": [{"sku": "a", "quantity": 3}, None],
    "counts": {"x": 2},
}


def outcome(where: str, **event: object) -> tuple[bool, str]:
    """Return whether an event fires the rule, and the error of the run."""
    rule = Rule.model_validate(
        {
            "id": "r",
            "version": 1,
            "owner": "me",
            "on": "orders",
            "where": where,
            "then": {"severity": "low", "message": "{customer}"},
            "tests": [{"name": "t", "events": [ENTIRE | event], "expect": [{"message": "ann"}]}],
        }
    )
    (found,) = run_tests(rule, {"orders": STREAM}, run_in_process)
    failed = " ".join(found.diff)
    return found.passed, failed if "the run failed" in failed else ""


@pytest.mark.parametrize(
    "where",
    [
        "price = 12345678901234.5678",
        "kind = 'CARD'",
        "sent_us = due",
        "opened = due",
        "lines[0].quantity = 3",
        "counts['x'] = 2",
    ],
)
def test_each_value_is_one_of_the_streams_type(where: str) -> None:
    assert outcome(where) == (True, "")


def test_what_is_left_out_or_null_is_null_and_a_wrong_value_is_named() -> None:
    assert outcome("price is null", price=None) == (True, "")
    assert outcome("price = 12.5", price=12.5) == (True, "")
    passed, error = outcome("price = 1", price=True)
    assert not passed
    assert "events[0] is not an event of orders: field price" in error
    assert outcome("kind = 'CASH'") == (False, "")
