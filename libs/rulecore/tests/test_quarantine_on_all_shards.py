"""A version that fails on one shard goes into quarantine on all of them, by a control record of the app itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from rulecore.alerts.dispatch import SUPPRESSED
from rulecore.factory import RulesFactory
from rulecore.kernel import RulesKernel
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.errors import ConfigError
from streamcore.savepoint.division import divide_state
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, CONTROL, STATUS, Record
from tests.harness.apps.versioned_shop import moment, save

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "amount": "long not null"},
    }
)
CLOCK = 1_800_000_000_000
T0 = 1_700_000_000_000
SHARDS = 3
KERNEL = RulesFactory((RuleStream(SCHEMA, "pay"),), max_matches=3)


def new_app(shards: int = SHARDS) -> App:
    lanes, watermark = {CONTROL: "control"}, WatermarkStrategy(max_out_of_orderness_ms=60_000)
    return App("t", (Source(SCHEMA, "pay"),), "control", lanes, (KERNEL,), shards=shards, watermark=watermark)


def rule(offset: int, rule_id: str, version: int = 1, **fields: object) -> RawRecord:
    document = {"id": rule_id, "version": version, "owner": "o", "on": "pay"}
    then = {"severity": "high", "message": "m", "score": 10}
    return control_record(offset, rule_id, orjson.dumps(document | {"then": then} | fields))


def payments(offset: int, user: str, count: int) -> list[RawRecord]:
    events = [{"ts": T0 + 1_000 * (offset + n), "user": user, "amount": 5} for n in range(count)]
    return [RawRecord(0, 0, offset + n, orjson.dumps(event)) for n, event in enumerate(events)]


COUNTED: dict[str, Any] = {
    "where": "amount > 1",
    "group_by": ["user"],
    "within": {"tumbling": "1h"},
    "having": "count(*) >= 1",
    "emit": "early",
}
SILENT: dict[str, Any] = {"where": "amount > 1", "suppress": {"by": ["user"], "for": "1h"}}


def on(records: list[Record], lane: str) -> list[dict[str, object]]:
    return [orjson.loads(record.value or b"null") for record in records if record.lane == lane]


def alerts(records: list[Record], rule_id: str) -> int:
    return sum(alert["rule"] == rule_id for alert in on(records, ALERTS))


def flood(app: InProcessApp) -> tuple[list[Record], list[RawRecord]]:
    """Publish rules, and let one user exceed the matches of ``any`` on one shard. Return the output and the control
    records that the app writes, as it reads them again."""
    app.cut([rule(0, "any", **SILENT), rule(1, "counted", **COUNTED)], CLOCK)
    out = app.cut(payments(0, "a", 5), CLOCK)
    written = [record for record in out if record.lane == CONTROL]
    again = [control_record(2 + n, (r.key or b"").decode(), r.value) for n, r in enumerate(written)]
    return out, again


def test_the_shard_that_fails_writes_one_control_record_and_the_others_go_on_until_they_read_it() -> None:
    app = InProcessApp(new_app())
    out, again = flood(app)
    (status,) = (s for s in on(out, STATUS) if s["status"] == "quarantined")
    assert [record.key for record in again] == [b"quarantine/any@1"]
    assert orjson.loads(again[0].value or b"") == {"reason": status["reason"]}
    others = [*payments(5, "b", 1), *payments(6, "c", 1), *payments(7, "d", 1)]
    assert alerts(app.cut(others, CLOCK), "any") > 0
    replies = on(app.cut(again, CLOCK), STATUS)
    assert [(r["rule"], r["status"], r["control"]) for r in replies] == [
        ("any", "quarantined", {"partition": 0, "offset": 2})
    ]
    later = [*payments(8, "b", 1), *payments(9, "e", 1), *payments(10, "f", 1)]
    out = app.cut(later, CLOCK)
    assert alerts(out, "any") == 0
    assert alerts(out, "counted") == 2


@pytest.mark.slow
def test_all_shards_have_the_same_rules_afterwards_so_that_another_number_of_shards_takes_them(tmp_path: Path) -> None:
    app = InProcessApp(new_app())
    _, again = flood(app)
    between = save(app.app, app.blobs, tmp_path / "between", moment())
    assert [copies.table for copies in between.manifest.unequal_copies] == ["rules"]
    app.cut(again, CLOCK)
    after = save(app.app, app.blobs, tmp_path / "after", moment())
    assert after.manifest.unequal_copies == ()
    more = InProcessApp(new_app(5), divide_state(app.blobs, app.app, new_app(5)))
    more.next_offsets = app.next_offsets
    assert alerts(more.cut(payments(5, "b", 1), CLOCK), "any") == 0
    kernels = [shard.kernel for shard in more.shards.values()]
    assert all(isinstance(kernel, RulesKernel) and "any@1" in kernel.rules.quarantined for kernel in kernels)


def test_a_trial_that_comes_before_the_control_record_takes_the_same_slot_on_all_shards() -> None:
    app = InProcessApp(new_app())
    _, again = flood(app)
    trial = rule(2, "any", 2, mode="shadow", **SILENT)
    app.cut([trial, control_record(3, "quarantine/any@1", again[0].value)], CLOCK)
    kernels = [shard.kernel for shard in app.shards.values()]
    slots = [sorted(map(str, kernel.rules.stored)) for kernel in kernels if isinstance(kernel, RulesKernel)]
    assert len(slots) == SHARDS
    assert all(one == slots[0] for one in slots)


def test_a_new_version_ends_the_quarantine_and_an_older_record_does_not_begin_it_again() -> None:
    app = InProcessApp(new_app())
    _, again = flood(app)
    app.cut([*again, rule(3, "any", 2, **SILENT), control_record(4, "quarantine/any@1", b'{"reason": "old"}')], CLOCK)
    assert alerts(app.cut(payments(5, "b", 1), CLOCK), "any") == 1


@pytest.mark.parametrize(
    ("key", "value", "status", "reason"),
    [
        ("quarantine/any@1", None, "quarantined", "nothing changed"),
        ("quarantine/other@1", b'{"reason": "r"}', "quarantined", "there is no such version"),
        ("quarantine/any", b'{"reason": "r"}', "rejected", "must be quarantine/<rule>@<version>"),
        ("quarantine/any@1", b"[1]", "rejected", "the value must be JSON with the reason"),
    ],
)
def test_other_records_change_nothing_and_are_answered(key: str, value: bytes | None, status: str, reason: str) -> None:
    app = InProcessApp(new_app())
    app.cut([rule(0, "any", **SILENT)], CLOCK)
    (reply,) = on(app.cut([control_record(1, key, value)], CLOCK), STATUS)
    assert reply["status"] == status
    assert str(reply["rule"]).partition("@")[0] == key.removeprefix("quarantine/").partition("@")[0]
    assert reason in str(reply["reason"])
    assert alerts(app.cut(payments(0, "a", 1), CLOCK), "any") == 1


def test_a_quarantine_on_all_shards_drops_what_suppression_holds() -> None:
    app = InProcessApp(new_app())
    _, again = flood(app)
    app.cut([*payments(5, "b", 1), *payments(6, "c", 1)], CLOCK)
    app.cut(again, CLOCK)
    for shard in app.shards.values():
        assert isinstance(shard.kernel, RulesKernel)
        assert [*shard.kernel.dispatcher.tables()[SUPPRESSED].rows(0, 1)["key"]] == []


def test_only_the_lane_of_control_records_may_end_in_the_control_topic() -> None:
    with pytest.raises(ConfigError, match="would write lane alerts to it, an endless loop"):
        App("t", (Source(SCHEMA, "pay"),), "control", {ALERTS: "control"}, (KERNEL,))
