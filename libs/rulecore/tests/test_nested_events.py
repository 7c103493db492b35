"""Rules over events whose fields have names in both cases and stand inside of objects."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rulecore.factory import RulesFactory
from rulecore.sigma import FieldMap, import_rules
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS
from tests.harness.apps.sigma_import import documents

T0 = 1_700_000_000_000
TRAIL = StreamSchema.parse(
    {
        "name": "trail",
        "event_time": "eventTime",
        "keys": [["userName"]],
        "fields": {
            "eventTime": "timestamp not null",
            "eventName": "string not null",
            "userName": {"type": "string", "from": "userIdentity.userName"},
            "mfa": {"type": "boolean", "from": "userIdentity.sessionContext.attributes.mfaAuthenticated"},
            "bytes": {"type": "long", "from": "additionalEventData.bytesTransferredOut"},
        },
    }
)


def record(offset: int, name: str, user: object, mfa: object = None, size: object = None) -> RawRecord:
    attributes = {"mfaAuthenticated": mfa}
    identity = {"userName": user, "sessionContext": {"attributes": attributes}}
    event: dict[str, Any] = {"eventTime": T0 + offset * 1000, "eventName": name, "userIdentity": identity}
    return RawRecord(0, 0, offset, orjson.dumps(event | {"additionalEventData": {"bytesTransferredOut": size}}))


EVENTS = [
    record(0, "ConsoleLogin", "alice", mfa=False),
    record(1, "ConsoleLogin", "bob", mfa=True),
    record(2, "GetObject", "alice", size=700),
    record(3, "GetObject", "alice", size=400),
    record(4, "GetObject", 5),
    record(5, "ConsoleLogin", None),
]
RULES: dict[str, dict[str, object]] = {
    "no-mfa": {"where": "eventname = 'ConsoleLogin' and not MFA", "then": {"message": "{userName} without MFA"}},
    "much": {
        "within": {"tumbling": "1m"},
        "group_by": ["userName"],
        "having": "sum(bytes) > 1000",
        "then": {"message": "{userName}: {sum}"},
    },
    "login-read": {
        "group_by": ["userName"],
        "sequence": [
            {"step": "login", "where": "eventName = 'ConsoleLogin'"},
            {"step": "read", "where": "eventName = 'GetObject' and coalesce(login.bytes, 0) < BYTES"},
        ],
        "within": "1m",
        "then": {"message": "{userName}"},
    },
}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.slow
def test_rules_name_fields_inside_of_objects(*, restart: bool) -> None:
    kernel = RulesFactory((RuleStream(TRAIL, "trail"),))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=0)
    app = App("t", (Source(TRAIL, "trail"),), "control", {}, (kernel,), shards=2, watermark=watermark)
    running = InProcessApp(app)
    cut: list[Any] = []
    for number, (name, rule) in enumerate(RULES.items()):
        then = {"severity": "high", **rule["then"]}  # type: ignore[dict-item]
        document = {"id": name, "version": 1, "owner": "o", "on": "trail", **rule, "then": then}
        cut.append(control_record(number, name, orjson.dumps(document)))
    output = [*running.cut([*cut, *EVENTS[:3]], T0 + 600_000)]
    if restart:
        running = InProcessApp(app, running.blobs, next_offsets=running.next_offsets)
    output += running.cut([*EVENTS[3:], record(90, "Other", "zoe")], T0 + 600_000)
    output += running.cut([], T0 + 600_000)
    alerts = [orjson.loads(one.value or b"") for one in output if one.lane == ALERTS]
    assert sorted((alert["rule"], alert["message"]) for alert in alerts) == [
        ("login-read", "alice"),
        ("much", "alice: 1100"),
        ("no-mfa", "alice without MFA"),
    ]
    assert {alert["rule"]: alert["key"] for alert in alerts}["much"] == {"userName": "alice"}
    letters = [dict(one.headers) for one in output if one.lane == DEAD_LETTERS]
    assert [letter["reason"] for letter in letters] == [
        b"field userName (from userIdentity.userName): found the number 5; accepted is text"
    ]


SIGMA = """title: Console login without MFA
level: high
logsource: {product: aws, service: cloudtrail}
detection:
  s:
    eventName: ConsoleLogin
    userIdentity.sessionContext.attributes.mfaAuthenticated: false
  condition: s
"""


def test_a_sigma_rule_finds_a_field_by_its_path() -> None:
    report = import_rules(documents(SIGMA), FieldMap(TRAIL))
    assert not report.rejected
    assert report.imported[0].rule.where is not None
    assert "mfa = false" in report.imported[0].rule.where or "not mfa" in report.imported[0].rule.where


def test_an_alert_carries_the_original_event_and_its_unknown_fields_where_the_rule_asks_for_them() -> None:
    document = {
        "name": "trail",
        "event_time": "eventTime",
        "keys": [["eventName"]],
        "fields": {
            "eventTime": "timestamp not null",
            "eventName": "string not null",
            "original": {"type": "string", "from": "_kafka.value"},
            "rest": {"type": "string", "from": "_extra_fields"},
        },
    }
    schema = StreamSchema.parse(document)
    kernel = RulesFactory((RuleStream(schema, "trail"),))
    app = App("t", (Source(schema, "trail"),), "control", {}, (kernel,), shards=2)
    rule = {"id": "r", "version": 1, "owner": "o", "on": "trail", "where": "rest like '%mfaAuth%'"}
    then = {"severity": "low", "message": "{original}", "event": True}
    output = InProcessApp(app).cut([control_record(0, "r", orjson.dumps(rule | {"then": then})), *EVENTS], T0 + 600_000)
    alerts = [orjson.loads(one.value or b"") for one in output if one.lane == ALERTS]
    written = [(event.value or b"").decode() for event in EVENTS]
    assert sorted(alert["message"] for alert in alerts) == sorted(alert["event"]["original"] for alert in alerts)
    assert sorted(alert["message"] for alert in alerts) == sorted(written)
    one = next(alert["event"] for alert in alerts if alert["event"]["original"] == written[0])
    assert orjson.loads(one["rest"]) == {
        name: value for name, value in orjson.loads(written[0]).items() if name not in ("eventTime", "eventName")
    }
