"""Rules with lists in the kernel: changes and expiry in mid-stream, restarts, and rejections."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.documents.rule import Rule
from rulecore.documents.yaml_reader import Json
from rulecore.factory import RulesFactory
from rulecore.lists.records import ListHead, list_records
from rulecore.streams import RuleStream
from rulecore.testing.in_process import run_in_process
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record

T0 = 1_700_000_000_000 - 1_700_000_000_000 % 3_600_000
CLOCK = 1_800_000_000_000

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
    return App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=2, watermark=watermark)


def document(rule_id: str, **fields: object) -> dict[str, object]:
    base = {"id": rule_id, "version": 1, "owner": "o", "on": "pay", "then": {"severity": "high", "message": "m"}}
    return base | fields


def rule(rule_id: str, **fields: object) -> RawRecord:
    return control_record(1, rule_id, orjson.dumps(document(rule_id, **fields)))


def list_control_records(name: str, version: int, entries: Sequence[Json], **fields: object) -> list[RawRecord]:
    head = ListHead.model_validate({"list": name, "version": version, "owner": "o", "of": "string"} | fields)
    return [control_record(1, key, value) for key, value in list_records(head, list(entries))]


def pay(offset: int, user: str | None = "a", ip: str | None = "1", amount: str = "1.00", second: int = 0) -> RawRecord:
    event = {"ts": T0 + second * 1000, "user": user, "ip": ip, "amount": amount}
    return RawRecord(0, 0, offset, orjson.dumps(event))


def fired_alerts(records: Sequence[Record]) -> set[tuple[str, int]]:
    alerts = [orjson.loads(r.value or b"null") for r in records if r.lane == ALERTS]
    return {(a["rule"], a["source"]["offset"]) for a in alerts}


def statuses_by_name(records: Sequence[Record]) -> dict[str, str]:
    statuses = [orjson.loads(r.value or b"null") for r in records if r.lane == STATUS]
    names = [s["rule"] if s["subject"] == "rule" else f"{s['subject']}/{s['rule']}" for s in statuses]
    return {n: s["status"] + (f": {s['reason']}" if s["reason"] else "") for n, s in zip(names, statuses, strict=True)}


def test_a_rule_may_arrive_in_the_same_cut_as_its_list_and_before_it() -> None:
    app = InProcessApp(new_app())
    records = [
        rule("tor", where="ip in list('tor')"),
        *list_control_records("tor", 1, ["1"]),
        pay(0),
        pay(1, ip="2"),
        pay(2, ip=None),
    ]
    out = app.cut(records, CLOCK)
    assert statuses_by_name(out) == {"tor": "accepted", "list/tor": "accepted"}
    assert fired_alerts(out) == {("tor", 0)}


def test_a_rule_that_uses_a_missing_list_is_rejected() -> None:
    out = InProcessApp(new_app()).cut([rule("tor", where="ip in list('tor')")], CLOCK)
    assert "there is no list 'tor'" in statuses_by_name(out)["tor"]


def test_a_list_that_a_rule_uses_can_be_deleted_only_with_the_rule() -> None:
    app = InProcessApp(new_app())
    app.cut([*list_control_records("tor", 1, ["1"]), rule("tor", where="ip in list('tor')")], CLOCK)
    gone = control_record(2, "list/tor", None)
    assert "rules use this list (tor)" in statuses_by_name(app.cut([gone], CLOCK))["list/tor"]
    out = app.cut([gone, control_record(3, "tor", None)], CLOCK)
    assert statuses_by_name(out) == {"tor": "deleted", "list/tor": "deleted"}


def test_a_list_that_is_deleted_and_published_again_in_one_cut_exists() -> None:
    app = InProcessApp(new_app())
    app.cut(list_control_records("tor", 5, ["1"]), CLOCK)
    out = app.cut(
        [
            control_record(0, "list/tor", None),
            *list_control_records("tor", 1, ["2"]),
            rule("tor", where="ip in list('tor')"),
        ],
        CLOCK,
    )
    assert fired_alerts(app.cut([pay(0), pay(1, ip="2")], CLOCK)) == {("tor", 1)}
    assert statuses_by_name(out)["tor"] == "accepted"


def test_event_and_window_rules_look_up_a_limit_per_user() -> None:
    app = InProcessApp(new_app())
    limits = list_control_records("limits", 1, [["a", "10"], ["b", 3]], value="decimal(12,2)")
    window = {"group_by": ["user"], "within": {"tumbling": "1h"}, "having": "sum(amount) > max(lookup('limits', user))"}
    rules = [rule("one", where="amount > lookup('limits', user)"), rule("all", **window)]
    events = [
        pay(0, "a", amount="6"),
        pay(1, "b", amount="3"),
        pay(2, "a", amount="6"),
        pay(3, "b", amount="3.01"),
        pay(4, "c", amount="99"),
    ]
    out = app.cut([*limits, *rules, *events], CLOCK)
    assert fired_alerts(out) == {("one", 3), ("all", 2), ("all", 3)}


def test_a_windowed_rule_counts_only_events_of_the_list_and_keeps_its_state_when_the_list_changes() -> None:
    app = InProcessApp(new_app())
    window = {"group_by": ["user"], "within": {"tumbling": "1h"}, "having": "count(*) >= 3"}
    app.cut(
        [
            *list_control_records("tor", 1, ["1"]),
            rule("w", where="ip in list('tor')", **window),
            pay(0),
            pay(1, ip="2"),
        ],
        CLOCK,
    )
    assert fired_alerts(app.cut([*list_control_records("tor", 2, ["2"]), pay(2), pay(3, ip="2")], CLOCK)) == set()
    assert fired_alerts(app.cut([pay(4, ip="2")], CLOCK)) == {("w", 4)}


def test_the_tests_of_a_rule_can_use_lists() -> None:
    head = ListHead.model_validate({"list": "tor", "version": 1, "owner": "o", "of": "string"})
    records = list_records(head, ["1", ["2", None, "2026-01-05T00:00:00Z"], ["3", None, "2026-12-05T00:00:00Z"]])
    own = Rule.model_validate(document("r", where="ip in list('tor')"))
    events = {"pay": [{"ts": "2026-01-05T00:00:01Z", "ip": ip} for ip in "123"]}
    alerts = run_in_process([own], {"pay": SCHEMA}, events, records)
    assert [a["source"]["offset"] for a in alerts] == [0, 2]  # type: ignore[index, call-overload]


# --- anything in any order --------------------------------------------------------------------------------------------

RULES = {
    "in": "ip in list('bad')",
    "out": "ip not in list('bad')",
    "limit": "amount > lookup('limits', user)",
    "free": "lookup('limits', user) is null and user is not null",
}


@dataclass(frozen=True)
class Step:
    """A cut: changed lists (None: expires at once), events, and before it: seconds that pass, a restart."""

    bad: list[tuple[str, int]] | None
    limits: list[tuple[str, Decimal, int]] | None
    events: list[tuple[str | None, str | None, Decimal]]
    seconds: int
    restart: bool


_ips, _users = st.sampled_from(["1", "2", "", "é"]), st.sampled_from(["a", "b", ""])
_money = st.integers(0, 400).map(lambda cents: Decimal(cents) / 100)
_lasts = st.sampled_from([1, 2, 3, 10**6])
_steps = st.builds(
    Step,
    st.none() | st.lists(st.tuples(_ips, _lasts), max_size=4, unique_by=lambda e: e[0]),
    st.none() | st.lists(st.tuples(_users, _money, _lasts), max_size=3, unique_by=lambda e: e[0]),
    st.lists(st.tuples(st.none() | _users, st.none() | _ips, _money), max_size=4),
    st.integers(0, 2),
    st.booleans(),
)


def _time(seconds: int) -> str:
    time = datetime.datetime.fromtimestamp(CLOCK / 1000 + seconds, datetime.UTC)
    return time.isoformat().replace("+00:00", "Z")


@settings(max_examples=100, deadline=None)
@given(st.lists(_steps, min_size=1, max_size=6))
def test_lists_equal_plain_dictionaries_across_changes_expiry_and_restarts(steps: list[Step]) -> None:
    app = InProcessApp(new_app())
    first = [*list_control_records("bad", 1, []), *list_control_records("limits", 1, [], value="decimal(12,2)")]
    app.cut([*first, *(rule(name, where=where) for name, where in RULES.items())], CLOCK)
    bad: dict[str, int] = {}
    limits: dict[str, tuple[Decimal, int]] = {}
    now, offset = 0, 0
    for number, step in enumerate(steps, 2):
        now += step.seconds
        records: list[RawRecord] = []
        if step.bad is not None:
            bad = {ip: now + lasts for ip, lasts in step.bad}
            records += list_control_records("bad", number, [[ip, None, _time(end)] for ip, end in bad.items()])
        if step.limits is not None:
            limits = {user: (most, now + lasts) for user, most, lasts in step.limits}
            entries: list[Json] = [[user, str(most), _time(end)] for user, (most, end) in limits.items()]
            records += list_control_records("limits", number, entries, value="decimal(12,2)")
        wanted: set[tuple[str, int]] = set()
        for user, ip, amount in step.events:
            records.append(pay(offset, user, ip, str(amount)))
            hit = ip is not None and bad.get(ip, 0) > now
            most = limits[user][0] if user in limits and limits[user][1] > now else None
            wanted |= {("in", offset)} if hit else set()
            wanted |= {("out", offset)} if ip is not None and not hit else set()
            wanted |= {("limit", offset)} if most is not None and amount > most else set()
            wanted |= {("free", offset)} if most is None and user is not None else set()
            offset += 1
        if step.restart:
            app = InProcessApp(new_app(), app.blobs)
        assert fired_alerts(app.cut(records, CLOCK + now * 1000)) == wanted
