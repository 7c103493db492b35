"""The eight rules of the laboratory as documents; ``upd`` gets a new version all the time."""

from __future__ import annotations

import json

from tests.lab.events import BAD_IPS

UPD = "upd"
SUM_ABOVE = 1500
FAILS = 3
CLICKS = 3
#: What a version of ``upd`` changes: its score and its severity.
SEVERITIES = ("low", "medium", "high")

#: A control record: its key and value.
Control = tuple[str, bytes | None]


def documents() -> list[dict[str, object]]:
    """Return the seven rules that stay as they are."""
    abc = [{"step": "a", "where": "kind = 'a'"}]
    abc += [{"step": step, "where": f"kind = '{step}'", "within": "30s"} for step in ("b", "c")]
    return [
        _rule("big-pay", where="kind = 'pay' and amount > 900"),
        _rule("bad-ip", where="ip in list('bad_ips')"),
        _user_rule("fail-slide", "fail", {"sliding": "60s", "every": "10s"}, f"count(*) >= {FAILS}"),
        _user_rule("pay-sum", "pay", {"tumbling": "1m"}, f"sum(amount) > {SUM_ABOVE}", emit="final"),
        _rule("abc", group_by=["user"], sequence=abc, within="50s"),
        _rule("no-beat", group_by=["user"], expect={"where": "kind = 'beat'", "every": "90s"}),
        _user_rule("clicks", "click", {"session": "20s"}, f"count(*) >= {CLICKS}", emit="final"),
    ]


def first_records() -> list[Control]:
    """Return what an app gets before its first event: the list, and all rules."""
    rules = [(str(document["id"]), json.dumps(document).encode()) for document in documents()]
    return [bad_ips(1), *rules, upd(1)]


def upd(version: int) -> Control:
    """Return a version of the rule that changes all the time."""
    then = {"severity": SEVERITIES[version % 3], "message": "{user}", "score": version % 100}
    document = _rule(UPD, version=version, where="kind = 'note'") | {"then": then}
    return UPD, json.dumps(document).encode()


def bad_ips(version: int) -> Control:
    """Return a version of the list; all of them name the same addresses of the events."""
    entries = [[ip] for ip in (*BAD_IPS, f"192.168.0.{version % 250}")]
    document = {"list": "bad_ips", "version": version, "owner": "lab", "of": "string", "entries": entries}
    return "list/bad_ips", json.dumps(document).encode()


def bad_records() -> list[Control]:
    """Return records that are rejected, or change nothing."""
    return [("broken", b"{"), ("broken", b'{"id": "broken"}'), ("nobody", None), upd(1)]


def _rule(rule_id: str, /, **fields: object) -> dict[str, object]:
    then = {"severity": "high", "message": "{user}"}
    return {"id": rule_id, "version": 1, "owner": "lab", "on": "lab", "then": then} | fields


def _user_rule(rule_id: str, kind: str, within: object, having: str, **more: object) -> dict[str, object]:
    return _rule(rule_id, where=f"kind = '{kind}'", group_by=["user"], within=within, having=having, **more)
