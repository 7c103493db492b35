"""Absence and score rules in the kernel: routing, state, and combination with rules of the other kinds."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
CLOCK = T0 + 1000 * 60 * MINUTE
SHARDS = 3

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"], ["ip"]],
        "fields": {"ts": "timestamp not null", "user": "string", "ip": "string", "amount": "decimal(12,2)"},
    }
)


def new_app() -> App:
    kernel = RulesFactory((RuleStream(SCHEMA, "pay"),))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=0)
    return App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=SHARDS, watermark=watermark)


def rule(rule_id: str, version: int = 1, score: int = 10, **fields: object) -> RawRecord:
    then = {"severity": "high", "message": "m", "score": score}
    document = {"id": rule_id, "version": version, "owner": "o", "on": "pay", "then": then} | fields
    if isinstance(adds := document.pop("adds", None), dict):
        document |= {"score": adds}
    return control_record(version, rule_id, orjson.dumps(document))


def pay(offset: int, minute: float, user: str | None = "a", ip: str = "1", amount: int = 1) -> RawRecord:
    event = {"ts": T0 + int(minute * MINUTE), "user": user, "ip": ip, "amount": amount}
    return RawRecord(0, 0, offset, orjson.dumps(event))


def lane(records: Sequence[Record], name: str) -> list[dict[str, object]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def alerts(records: Sequence[Record], rule_id: str) -> list[dict[str, object]]:
    return [a for a in lane(records, ALERTS) if a["rule"] == rule_id]


QUIET = rule("quiet", group_by=["user"], expect={"where": "amount > 0", "every": "5m"})
ADDS = {"of": ["big", "often", "quiet"], "within": "1h", "limit": 20}


def test_an_absence_alert_has_the_time_at_which_the_key_was_last_seen() -> None:
    app = InProcessApp(new_app())
    app.cut([QUIET, pay(0, 0), pay(1, 1, "b")], CLOCK)
    again = InProcessApp(new_app(), app.blobs)
    (alert,) = lane(again.cut([pay(2, 5.5, "b")], CLOCK), ALERTS)
    assert (alert["kind"], alert["key"], alert["timing"]) == ("absence", {"user": "a"}, "final")
    assert alert["values"] == {"last_seen": T0, "missing_for_ms": 5 * MINUTE, "times": 1}
    assert alert["window"] == {"start_ms": T0, "end_ms": T0 + 5 * MINUTE}
    assert lane(InProcessApp(new_app(), app.blobs).cut([pay(3, 7, "b")], CLOCK), ALERTS) == []


def test_scores_of_events_are_added_under_a_key_of_another_route() -> None:
    app = InProcessApp(new_app())
    score = rule("sum", group_by=["ip"], adds={"of": ["big"], "within": "1h", "limit": 30, "count": "every"})
    events = [pay(n, n, user=f"u{n}", ip=str(n % 2), amount=100) for n in range(6)]
    out = app.cut([rule("big", where="amount >= 100"), score, *events], CLOCK)
    found = alerts(out, "sum")
    assert sorted(str(a["key"]) for a in found) == ["{'ip': '0'}", "{'ip': '1'}"]
    assert all(a["values"] == {"sum": 30, "rules": "big", "count": 3} for a in found)
    (first,) = [a for a in found if a["key"] == {"ip": "0"}]
    assert [e["offset"] for e in first["events"]] == [0, 2, 4]  # type: ignore[attr-defined]
    assert len(alerts(out, "big")) == 6


def test_scores_of_rules_of_all_kinds_are_added_over_cuts_and_restarts() -> None:
    app = InProcessApp(new_app())
    often = rule("often", group_by=["user"], within={"tumbling": "1h"}, having="count(*) >= 3")
    score = rule("sum", group_by=["user"], adds=ADDS | {"limit": 30})
    app.cut([rule("big", where="amount >= 100"), often, QUIET, score, pay(0, 0, amount=100)], CLOCK)
    app = InProcessApp(new_app(), app.blobs)
    assert alerts(app.cut([pay(1, 1), pay(2, 2)], CLOCK), "sum") == []
    app = InProcessApp(new_app(), app.blobs)
    (alert,) = alerts(app.cut([pay(3, 8, "b")], CLOCK), "sum")
    assert (alert["kind"], alert["key"]) == ("score", {"user": "a"})
    assert alert["values"] == {"sum": 30, "rules": "big, often, quiet", "count": 3}
    assert alert["event_time_ms"] == T0 + 7 * MINUTE


def test_shadow_rules_add_no_scores() -> None:
    app = InProcessApp(new_app())
    score = rule("sum", group_by=["user"], adds=ADDS | {"limit": 10})
    out = app.cut([rule("big", where="amount >= 100", mode="shadow"), score, pay(0, 0, amount=100)], CLOCK)
    assert alerts(out, "sum") == []


def test_publishing_a_score_rule_that_names_an_unusable_rule_is_rejected() -> None:
    app = InProcessApp(new_app())
    per_ip = rule("often", group_by=["ip"], within={"tumbling": "1h"}, having="count(*) >= 3")
    out = app.cut([per_ip, rule("sum", group_by=["user"], adds=ADDS)], CLOCK)
    statuses = {s["rule"]: s for s in lane(out, STATUS)}
    assert statuses["sum"]["status"] == "rejected"
    assert "it needs [user] in group_by" in str(statuses["sum"]["reason"])


def test_a_new_version_of_a_score_rule_keeps_the_signals() -> None:
    app = InProcessApp(new_app())
    big = rule("big", where="amount >= 100")
    every = {"of": ["big"], "within": "1h", "count": "every"}
    app.cut([big, rule("sum", group_by=["user"], adds=every | {"limit": 100}), pay(0, 0, amount=100)], CLOCK)
    new = rule("sum", 2, group_by=["user"], adds=every | {"limit": 20})
    (alert,) = alerts(app.cut([new, pay(1, 1, amount=100)], CLOCK), "sum")
    assert (alert["version"], alert["values"]) == (2, {"sum": 20, "rules": "big", "count": 2})
