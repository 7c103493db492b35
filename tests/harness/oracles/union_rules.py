"""Rules of every kind over two streams, random events of these, and what the rules find in them, by loops over sorted
events: the independent calculation for tests of unions."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamcore.schema import StreamSchema

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
USERS = ("ann", "bob", "cy")


def stream_document(name: str, time: str, **fields: str) -> dict[str, object]:
    return {
        "name": name,
        "event_time": time,
        "keys": [["user"], []],
        "fields": {time: "timestamp not null", "user": "string not null", **fields},
    }


def stream(name: str, time: str, **fields: str) -> StreamSchema:
    return StreamSchema.parse(stream_document(name, time, **fields))


STREAM_DOCUMENTS = {
    "logins": stream_document("logins", "at", ok="boolean not null", device="string", code="long"),
    "payments": stream_document("payments", "paid_at", amount="decimal(9,2)", device="string", code="string"),
}
LOGINS, PAYMENTS = (StreamSchema.parse(one) for one in STREAM_DOCUMENTS.values())
STREAMS = {"logins": LOGINS, "payments": PAYMENTS}
BOTH = ["payments", "logins"]

RULES: dict[str, dict[str, object]] = {
    "stolen": {
        "group_by": ["user"],
        "sequence": [
            {"step": "failed", "where": "_stream = 'logins' and not ok"},
            {"step": "paid", "where": "amount > 50"},
        ],
        "within": "10m",
        "skip": "none",
    },
    "busy": {
        "group_by": ["user"],
        "within": {"tumbling": "5m"},
        "having": "count(*) >= 3 and sum(amount) > 60 and count(ok) >= 1",
        "emit": "final",
    },
    "odd": {"where": "device = 'd3' and (amount > 90 or not ok)", "then": {"event": True, "score": 5}},
    "visit": {
        "group_by": ["user"],
        "within": {"session": "1m"},
        "having": "count(*) >= 4 and count(ok) >= 1 and sum(amount) > 30",
        "emit": "final",
    },
    "quiet": {
        "group_by": ["user"],
        "expect": {"where": "ok or amount > 20", "every": "2m", "of": "seen", "again": "once"},
    },
    "failed": {"on": "logins", "where": "not ok and code > 0", "then": {"score": 10}},
    "dear": {"on": "payments", "where": "amount > 70 and code <> 'x'", "then": {"score": 20}},
    "risk": {
        "group_by": ["user"],
        "score": {"of": {"odd": None, "failed": None, "dear": 25}, "within": "4m", "limit": 60, "count": "every"},
    },
}


def rule(name: str, **more: object) -> dict[str, Any]:
    document: dict[str, Any] = {"id": name, "version": 1, "owner": "o", "on": BOTH, **RULES[name], **more}
    then = {"severity": "high", "message": "{user}", **document.get("then", {})}
    return {**document, "then": then}


def events(draw: random.Random, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Return events in order of time, each with its stream."""
    found: list[tuple[str, dict[str, Any]]] = []
    for n in range(count):
        common = {"user": draw.choice(USERS), "device": draw.choice(["d1", "d2", "d3", None])}
        at = T0 + n * 20_000
        if draw.random() < 0.5:
            found.append(("logins", {"at": at, **common, "ok": draw.random() < 0.6, "code": n}))
        else:
            amount = None if draw.random() < 0.1 else draw.randrange(10_000) / 100
            found.append(("payments", {"paid_at": at, **common, "amount": amount, "code": str(n)}))
    return found


def time_of(name: str, event: Mapping[str, Any]) -> int:
    return int(event["at" if name == "logins" else "paid_at"])


def expected(history: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, list[Any]]:
    """Return what each rule finds, by loops over sorted events."""
    stolen, busy, odd, visit, quiet = [], [], [], [], []
    for user in USERS:
        own = [(time_of(name, event), name, event) for name, event in history if event["user"] == user]
        for number, (began, name, event) in enumerate(own):
            later = [t for t, other, e in own[number + 1 :] if other == "payments" and (e["amount"] or 0) > 50]
            if name == "logins" and not event["ok"] and later and later[0] - began <= 10 * MINUTE:
                stolen.append((user, began, later[0]))
        visit += [(user, *bounds) for bounds in _visits(own)]
        seen = [t for t, name, e in own if (e["ok"] if name == "logins" else (e["amount"] or 0) > 20)]
        nexts = [*seen[1:], T0 + 90 * MINUTE]
        quiet += [(user, t, t + 2 * MINUTE) for t, after in zip(seen, nexts, strict=True) if after > t + 2 * MINUTE]
        for start in {t - t % (5 * MINUTE) for t, _, _ in own}:
            inside = [(name, e) for t, name, e in own if start <= t < start + 5 * MINUTE]
            paid = sum(e["amount"] or 0 for name, e in inside if name == "payments")
            if len(inside) >= 3 and paid > 60 and any(name == "logins" for name, _ in inside):
                busy.append((user, start, start + 5 * MINUTE))
    for name, e in history:
        if e["device"] == "d3" and ((e.get("amount") or 0) > 90 if name == "payments" else not e["ok"]):
            odd.append((e["user"], time_of(name, e), name))
    alone = {
        "failed": [(e["user"], e["at"], n) for n, e in history if n == "logins" and not e["ok"] and e["code"] > 0],
        "dear": [(e["user"], e["paid_at"], n) for n, e in history if n == "payments" and (e["amount"] or 0) > 70],
    }
    found: dict[str, list[Any]] = {"stolen": stolen, "busy": busy, "odd": odd, "visit": visit, "quiet": quiet, **alone}
    return {name: sorted(rows) for name, rows in {**found, "risk": _risk(found)}.items()}


def _visits(own: Sequence[tuple[int, str, dict[str, Any]]]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the sessions of a user that fulfil the rule ``visit``."""
    sessions: list[list[tuple[int, str, dict[str, Any]]]] = []
    for one in own:
        if sessions and one[0] - sessions[-1][-1][0] < MINUTE:
            sessions[-1].append(one)
        else:
            sessions.append([one])
    for session in sessions:
        paid = sum(e["amount"] or 0 for _, name, e in session if name == "payments")
        if len(session) >= 4 and paid > 30 and any(name == "logins" for _, name, _ in session):
            yield session[0][0], session[-1][0] + MINUTE


def _risk(found: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[tuple[str, int, int]]:
    """Return user, time and sum of each alert of the rule ``risk``, which adds the points of three rules."""
    points = {"odd": 5, "failed": 10, "dear": 25}
    signals = sorted((t, rule, user) for rule in points for user, t, _ in found[rule])
    alerts = []
    for user in USERS:
        own = [(t, points[rule]) for t, rule, name in signals if name == user]
        for number, (now, weight) in enumerate(own):
            kept = sum(p for t, p in own[:number] if t > now - 4 * MINUTE)
            if kept < 60 <= kept + weight:
                alerts.append((user, now, kept + weight))
    return alerts


def found(alerts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return alerts in the form of ``expected``."""
    by_rule: dict[str, list[Any]] = {name: [] for name in RULES}
    for one in alerts:
        user, window = one["key"]["user"], one["window"]
        if one["kind"] == "event":
            row = (user, one["event_time_ms"], "logins" if "login" in one["source"]["topic"] else "payments")
        elif one["kind"] == "score":
            row = (user, one["event_time_ms"], one["values"]["sum"])
        else:
            row = (user, window["start_ms"], window["end_ms"])
        by_rule[one["rule"]].append(row)
    return {name: sorted(rows) for name, rows in by_rule.items()}
