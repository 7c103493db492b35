"""Invalid rules are rejected with a reason, and the version before stays live."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import pytest

from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Order, send_raw
from tests.harness.apps.published_rules import document
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import as_object
from tests.harness.oracles.rule_alerts import Alert, RuleUnderTest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
RULE = "bad-large-order"
GARBAGE = 60


def second_version(where: str, **more: object) -> bytes:
    """Return a second version of the rule that is live."""
    return json.dumps(document(RULE, version=2, where=where) | more).encode()


#: What is wrong -> a control record of the rule's key, and words of the reason.
BAD: dict[str, tuple[bytes, str]] = {
    "syntax": (second_version("amount > > 1"), "where:1:10"),
    "type": (second_version("amount > 'a lot'"), "where:1:"),
    "unknown field": (second_version("colour = 'red'"), "colour"),
    "too deep": (second_version("not (" * 100 + "amount > 1" + ")" * 100), "deep"),
    "too long": (second_version(" or ".join(["amount > 1"] * 500)), "4096"),
    "too large": (second_version("amount > 1", description="x" * 70_000), "bytes"),
    "regular expression": (second_version("regexp_like(kind, '(a{1,1000}){1,1000}')"), "repetition"),
    "look-around": (second_version("regexp_like(kind, '(?=a)b')"), "look-around"),
    "code": (second_version("reflect('java.lang.System', 'exit', 1)"), "reflect"),
    "java": (second_version("java_method('java.lang.Runtime', 'getRuntime') = 'x'"), "java_method"),
    "subquery": (second_version("amount > (select max(amount) from orders)"), "where:1:"),
    "file": (second_version("kind in (select value from text.`/etc/passwd`)"), "where:1:"),
    "unknown stream": (second_version("amount > 1", on="payments"), "payments"),
    "unknown entry": (second_version("amount > 1", run="rm -rf /"), "run"),
    "unknown name in the message": (
        second_version("amount > 1", then={"severity": "high", "message": "{user.__class__}"}),
        "message",
    ),
    "old version": (second_version("amount > 1", version=1), "version 1"),
    "another rule's id": (second_version("amount > 1", id="other"), "other"),
    "no JSON": (b"{", "not JSON"),
    "no UTF-8": (b'{"id": "\xff"}', "not JSON"),
    "no object": (b"[]", "object"),
    "nothing": (b"", "not JSON"),
    "deep JSON": (b"[" * 60_000, "not JSON"),
}


def test_every_kind_of_invalid_rule_is_rejected_with_a_reason_and_the_live_version_stays(live: Scene) -> None:
    rule, user = rules.large_order(prefix="bad-"), "bad-rules"
    with live.live_rules(rule):
        positions = live.control(*((RULE, value) for value, _ in BAD.values()))
        live.settle()
        answers = statuses(live)
        for (what, (_, words)), position in zip(BAD.items(), positions, strict=True):
            answer = answers[position.offset]
            assert (answer["rule"], answer["status"]) == (RULE, "rejected"), what
            assert words in str(answer["reason"]), f"{what}: {answer['reason']}"
        live.send([Order(1, live.next_day(), user, "pay", Decimal(1000))])
        live.settle()
    assert [(a["version"], a["key"]) for a in live.alerts_of([rule])] == [(1, {"user": user})]


def test_a_costly_regular_expression_that_is_accepted_costs_little(live: Scene) -> None:
    evil = document("bad-regex", where="regexp_like(user, '^(a+)+$') or regexp_like(user, '(a|aa)+$')")
    rule = RuleUnderTest(evil, lambda _: True)
    with live.live_rules(rule):
        user = "a" * 50_000 + "!"
        events = [Order(n, live.next_day(), user, "pay") for n in range(5)]
        live.send([*events, Order(9, live.next_day(), "aaa", "pay")])
        live.settle()
    assert [a["key"] for a in live.alerts_of([rule])] == [{"user": "aaa"}]


def test_random_bytes_in_the_control_topic_are_answered_and_do_not_stop_the_app(live: Scene) -> None:
    chance = random.Random(7)
    rule = rules.large_order(prefix="noise-")
    template = rules.many_payments(prefix="noise-").value
    with live.live_rules(rule):
        values = [_damage(chance, template) for _ in range(GARBAGE)]
        records: list[tuple[bytes | None, bytes | None]] = [(b"noise-%d\xff" % n, v) for n, v in enumerate(values)]
        offsets = send_raw(live.kafka, f"{live.app.name}.control", records)
        live.published += GARBAGE
        live.send([Order(1, live.next_day(), "noise", "pay", Decimal(1000))])
        live.settle()
    answers = statuses(live)
    assert {answers[offset]["status"] for offset in offsets} == {"rejected"}
    assert len(live.alerts_of([rule])) == 1


def statuses(live: Scene) -> dict[int, Alert]:
    """Return the answers by the offset of their control record."""
    answers = {}
    for answer in map(as_object, live.outputs.read("status")):
        control = answer["control"]
        assert isinstance(control, dict)
        answers[int(control["offset"])] = answer
    return answers


def _damage(chance: random.Random, template: bytes) -> bytes:
    value = bytearray(template if chance.random() < 0.8 else chance.randbytes(50))
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(value))
        value[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        value = value or bytearray(b"{")
    return bytes(value)
