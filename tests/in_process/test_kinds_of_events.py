"""Rules over two kinds of event in one topic: from the stream files and settings to the alerts."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import yaml

from headgate.main import run
from headgate.records.stream_files import load_stream
from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from rulecore.documents.loading import load_text
from rulecore.documents.rule import Rule, canonical_json
from rulecore.testing.in_process import run_in_process
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.errors import ConfigError
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, STATUS

NOW_MS = 1_800_000_000_000
STREAMS = {
    "orders": """
name: orders
when: {from: type, equals: order}
event_time: at
keys: [[user]]
fields:
  at: timestamp not null
  user: {type: string not null, from: _kafka.key}
  total: long
""",
    "logins": """
name: logins
when: {from: type, equals: login}
event_time: at
keys: [[user]]
fields:
  at: {type: timestamp not null, from: _kafka.timestamp}
  user: {type: string not null, from: _kafka.key}
  proxy: {type: boolean, from: _kafka.headers.via-proxy}
""",
}
RULES = """
id: large
version: 1
owner: shop
on: orders
where: total > 100
group_by: [user]
within: {tumbling: 1h}
having: count(*) >= 1
emit: early
then: {severity: low, message: "{user} ordered"}
---
id: by-proxy
version: 1
owner: shop
on: logins
where: proxy
group_by: [user]
within: {tumbling: 1h}
having: count(*) >= 1
emit: early
then: {severity: low, message: "{user} came by a proxy"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in STREAMS.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def rules() -> list[Rule]:
    loaded, problems = load_text(RULES)
    assert not problems
    return [one.rule for one in loaded if one.rule is not None]


def record(offset: int, user: str, at_ms: int, value: dict[str, object], **headers: bytes) -> RawRecord:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return RawRecord(0, 0, offset, orjson.dumps(value), user.encode(), at_ms, named)


def test_each_stream_of_a_topic_has_its_rules_under_a_key_that_they_share(folder: Path) -> None:
    settings = {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "checkpoint": "unused",
        "jars": "unused",
        "streams": [{"schema_file": str(folder / f"{name}.yaml"), "topic": "events"} for name in STREAMS],
        "shards": 2,
    }
    local = InProcessApp(build_app(RulesSettings.model_validate(settings)))
    at_ms = NOW_MS - 1_000_000
    events = [
        record(0, "a", at_ms, {"type": "order", "at": at_ms, "total": 500}),
        record(1, "a", at_ms, {"type": "login"}, via_proxy=b"true"),
        record(2, "b", at_ms, {"type": "order", "at": at_ms, "total": 500}),
        record(3, "b", at_ms, {"type": "login"}, via_proxy=b"false"),
        record(4, "b", at_ms, {"type": "logout"}),
        record(5, "b", at_ms, {"type": "login"}, via_proxy=b"maybe"),
    ]
    control = [control_record(n, rule.id, canonical_json(rule)) for n, rule in enumerate(rules())]
    output = [*local.cut([*control, *events], NOW_MS), *local.cut([], NOW_MS + 5_000)]
    alerts = [orjson.loads(one.value or b"") for one in output if one.lane == ALERTS]
    assert sorted(one["message"] for one in alerts) == ["a came by a proxy", "a ordered", "b ordered"]
    assert {one["source"]["topic"] for one in alerts} == {"events"}
    (dead,) = [dict(one.headers) for one in output if one.lane == DEAD_LETTERS]
    assert (dead["source_offset"], dead["reason_code"]) == (b"5", b"wrong_type")
    later = rules()[1].model_copy(update={"id": "later", "where": None})
    output = local.cut([control_record(2, later.id, canonical_json(later))], NOW_MS + 6_000)
    (status,) = [orjson.loads(one.value or b"") for one in output if one.lane == STATUS]
    assert status["incomplete"]["counts_from"] == {"events": {"0": 6}}, (
        "a backfill knows where the rule began in the topic"
    )


def test_events_of_a_rules_test_have_the_fields_beside_the_value(folder: Path) -> None:
    streams = {"logins": load_stream("logins", folder)}
    (rule,) = [one for one in rules() if one.id == "by-proxy"]
    events = [{"at": "2026-01-01T00:00:00Z", "user": "a", "proxy": proxy} for proxy in (True, False)]
    alerts = run_in_process([rule], streams, {"logins": events})
    assert [one["message"] for one in alerts] == ["a came by a proxy"]


def test_check_says_what_belongs_to_other_streams_and_what_a_file_does_not_have(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = folder / "sample.jsonl"
    sample.write_text('{"type": "order", "at": 5, "total": 3}\n{"type": "login"}\n')
    assert run(["streams", "check", str(sample), "--stream", str(folder / "orders.yaml")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "orders takes 0 of 2 records",
        "  1 ignored: events of other streams (when), or tombstones",
        "  1 rejected: missing_field: field user (from _kafka.key) is null; a string is needed",
        f"      {sample}:1: field user (from _kafka.key) is null; a string is needed",
        "  a file has values of records alone: user are null here, and headers are absent",
    ]


def test_a_document_that_cannot_be_is_an_error_with_its_place(folder: Path) -> None:
    document = yaml.safe_load(STREAMS["orders"])
    (folder / "orders.yaml").write_text(yaml.safe_dump(document | {"when": {"field": "type", "equals": "x"}}))
    with pytest.raises(ConfigError, match=r"when: write \{from: PATH, equals: VALUE\}"):
        load_stream("orders", folder)
