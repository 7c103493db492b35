"""Two streams with rules and decision policies, and the decisions by loops over the events."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from rulecore.alerts.decisions import DECISION_PARTS, merge_decisions
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import Record

CLOCK = 1_800_000_000_000
T0 = 1_767_571_200_000
HOUR = 3_600_000
PAYMENTS = StreamSchema.parse(
    {
        "name": "payments",
        "event_time": "at",
        "event_id": "id",
        "keys": [["user"], ["card"]],
        "fields": {
            "id": "string not null",
            "at": "timestamp not null",
            "user": "string not null",
            "card": "string not null",
            "amount": "long not null",
            "note": "long",
        },
    }
)
LOGINS = StreamSchema.parse(
    {
        "name": "logins",
        "event_time": "at",
        "keys": [["user"]],
        "fields": {"at": "timestamp not null", "user": "string not null", "ok": "boolean not null", "note": "string"},
    }
)


def app(shards: int = 3) -> App:
    streams = (RuleStream(PAYMENTS, "pay-topic"), RuleStream(LOGINS, "login-topic"))
    sources = (Source(PAYMENTS, "pay-topic"), Source(LOGINS, "login-topic"))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=60_000)
    return App(
        "t",
        sources,
        "control",
        {},
        (RulesFactory(streams),),
        shards=shards,
        watermark=watermark,
        merges={DECISION_PARTS: merge_decisions},
    )


def rule(name: str, then: Mapping[str, Any], **entries: Any) -> dict[str, Any]:
    then = {"severity": "low", "message": f"{name} fired", **then}
    return {"id": name, "version": 1, "owner": "o", "on": "payments", "then": then, **entries}


EARLY_WINDOW = {"within": {"tumbling": "1h"}, "emit": "early"}
RULES: Mapping[str, dict[str, Any]] = {
    each["id"]: each
    for each in [
        rule("large", {"outcome": "review", "score": 25}, where="amount > 800"),
        rule("huge", {"outcome": "block", "score": 30}, where="amount > 960"),
        rule("quiet", {"outcome": "allow", "score": 20, "alert": False}, where="amount % 3 = 0"),
        rule("unknown", {"outcome": "notify", "score": 5}, where="amount % 7 = 0"),
        rule(
            "once", {"outcome": "review", "score": 10}, where="amount % 2 = 0", suppress={"for": "1h", "by": ["user"]}
        ),
        rule("trial", {"outcome": "block", "score": 500}, where="amount > 500", mode="shadow"),
        rule("by-user", {"outcome": "allow", "score": 22}, group_by=["user"], having="count(*) >= 3", **EARLY_WINDOW),
        rule(
            "by-card",
            {"outcome": "review", "score": 18},
            group_by=["card"],
            having="sum(amount) > 1500",
            **EARLY_WINDOW,
        ),
        rule(
            "known",
            {"outcome": "allow", "score": 9},
            group_by=["user"],
            where="spent > 2000 and amount % 5 = 0",
            features=[{"name": "spent", "of": "sum(amount)", "within": {"tumbling": "1d"}}],
        ),
        rule(
            "both",
            {"outcome": "review", "score": 7},
            on=["logins", "payments"],
            where="_stream = 'logins' and not ok or _stream = 'payments' and amount < 30",
        ),
        rule(
            "in-order",
            {"outcome": "block", "score": 900},
            group_by=["user"],
            where="earlier > 0",
            order="in_order",
            features=[{"name": "earlier", "of": "count(*)", "within": {"tumbling": "1d"}}],
        ),
        rule(
            "late-window",
            {"outcome": "block", "score": 900},
            group_by=["user"],
            having="count(*) >= 1",
            within={"tumbling": "1h"},
            emit="final",
        ),
    ]
}
POLICY: dict[str, Any] = {
    "decision_policy": "pay",
    "version": 1,
    "owner": "risk",
    "on": "payments",
    "decide": {
        "order": ["block", "review", "allow"],
        "default": "allow",
        "score": "sum",
        "bands": {"review": 40, "block": 70},
    },
    "where": "amount between 100 and 160",
    "share": "30%",
}
#: The policy of the second half: other bands, the highest score.
LATER = {
    **POLICY,
    "version": 2,
    "decide": {**POLICY["decide"], "score": "max", "bands": {"review": 20}, "default": "review"},
    "where": None,
    "share": "0%",
}
LOGIN_POLICY = {
    "decision_policy": "login",
    "version": 1,
    "owner": "risk",
    "on": "logins",
    "decide": {"order": ["review", "allow"], "default": "allow"},
}


def events(chance: random.Random, count: int) -> list[tuple[int, dict[str, Any]]]:
    """Return events with the number of their source, in order of time."""
    history: list[tuple[int, dict[str, Any]]] = []
    for number in range(count):
        at, user = T0 + number * 40_000, f"u{chance.randrange(6)}"
        if chance.random() < 0.2:
            history.append((1, {"at": at, "user": user, "ok": chance.random() < 0.5, "note": "text"}))
        else:
            card = f"c{chance.randrange(5)}"
            event = {
                "id": f"e{number}",
                "at": at,
                "user": user,
                "card": card,
                "amount": chance.randrange(1000),
                "note": 7,
            }
            history.append((0, event))
    return history


def records(history: Sequence[tuple[int, dict[str, Any]]]) -> list[RawRecord]:
    offsets, found = Counter[int](), []
    for source, event in history:
        found.append(RawRecord(source, 0, offsets[source], orjson.dumps(event)))
        offsets[source] += 1
    return found


def publish(offset: int, document: Mapping[str, Any]) -> RawRecord:
    key = f"decision-policy/{document['decision_policy']}" if "decision_policy" in document else document["id"]
    return control_record(offset, key, orjson.dumps(document))


def run(history: Sequence[tuple[int, dict[str, Any]]], size: int, shards: int = 3) -> list[Record]:
    """Return the output. After half of the events, policy ``LATER`` comes, and the app starts again after each cut."""
    running = InProcessApp(app(shards))
    documents = [*RULES.values(), POLICY, LOGIN_POLICY]
    output = running.cut([publish(n, each) for n, each in enumerate(documents)], CLOCK)
    all_records, half = records(history), len(history) // 2
    for part in (all_records[:half], all_records[half:]):
        if part is not all_records[:half] and part[0] is all_records[half]:
            output += running.cut([publish(100, LATER)], CLOCK)
        for first in range(0, len(part), size):
            running = InProcessApp(running.app, running.blobs, next_offsets=running.next_offsets)
            output += running.cut(part[first : first + size], CLOCK)
    return output


def fired_rules(history: Sequence[tuple[int, dict[str, Any]]]) -> list[list[str]]:
    """Return the rules that fire at each event, by loops."""
    found: list[list[str]] = []
    counts, sums, spent = Counter[Any](), Counter[Any](), Counter[Any]()
    done = set[Any]()
    for source, event in history:
        if source == 1:
            found.append([] if event["ok"] else ["both"])
            continue
        amount, hour = event["amount"], event["at"] // HOUR
        names = {
            "large": amount > 800,
            "huge": amount > 960,
            "quiet": amount % 3 == 0,
            "unknown": amount % 7 == 0,
            "once": amount % 2 == 0,
            "trial": amount > 500,
            "known": spent[event["user"], hour // 24] > 2000 and amount % 5 == 0,
            "both": amount < 30,
        }
        spent[event["user"], hour // 24] += amount
        counts[event["user"], hour] += 1
        sums[event["card"], hour] += amount
        for name, key, true in (
            ("by-user", event["user"], counts[event["user"], hour] >= 3),
            ("by-card", event["card"], sums[event["card"], hour] > 1500),
        ):
            names[name] = true and (name, key, hour) not in done
            done |= {(name, key, hour)} if true else set()
        found.append([name for name, fires in names.items() if fires])
    return found


def judge(policy: Mapping[str, Any], names: Sequence[str]) -> tuple[str, int, str | None]:
    """Return outcome, score and band."""
    decide = policy["decide"]
    thens = [RULES[name]["then"] for name in names if name != "trial"]
    scores = [then["score"] for then in thens]
    score = max(scores, default=0) if decide.get("score") == "max" else sum(scores)
    band, outcome = None, None
    for candidate in decide["order"]:
        if band is None and score >= decide.get("bands", {}).get(candidate, 10**9):
            band = candidate
        if outcome is None and (band == candidate or candidate in [then["outcome"] for then in thens]):
            outcome = candidate
    return outcome or decide["default"], score, band


def on(output: Sequence[Record], lane: str) -> list[dict[str, Any]]:
    return [orjson.loads(record.value or b"") for record in output if record.lane == lane]
