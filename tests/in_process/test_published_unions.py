"""Rules over several streams of which one is published while the app runs: with records of JSON and of a registry, in a
cut that runs again, and in a fork."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import fastavro
import orjson
import pytest

from headgate.main import run
from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.offsets import StreamOffsets
from streamcore.savepoint.create import SavepointPosition
from streamcore.schema_registry.schemas import RegisteredSchema
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, Record
from tests.harness.apps.published_shop import (
    LOGINS,
    NOW_MS,
    ORDERS,
    Shop,
    changed,
    lane,
    order,
    rule,
    settings,
    statuses,
    stream,
    window,
)
from tests.harness.apps.versioned_shop import initial_of, save
from tests.harness.decode.registered_records import Schemas, prefix

BOTH = ["orders", "logins"]
ABROAD = [{"step": "login", "where": "country = 'CH'"}, {"step": "order", "where": "total > 1"}]
#: A sequence, a window, a score and a condition on single events, each over the published stream and an old one.
ACROSS = (
    rule("abroad", on=BOTH, group_by=["user"], within="1h", sequence=ABROAD),
    window("busy", "count(*) >= 3 and count(country) >= 1", on=BOTH),
    rule("any", on=BOTH, where="total > 1 or country = 'CH'", then={"severity": "low", "message": "m", "score": 10}),
    rule("from", on="logins", where="country = 'CH'", then={"severity": "low", "message": "m", "score": 20}),
    rule(
        "points",
        on=BOTH,
        group_by=["user"],
        score={"of": ["any", "from"], "within": "1h", "limit": 45, "count": "every"},
    ),
)


def login(number: int, **fields: object) -> dict[str, object]:
    return {"type": "login", "at": NOW_MS - 1000 + number, "user": "a", "country": "CH"} | fields


def fired(output: list[Record]) -> list[str]:
    return sorted(one["rule"] for one in lane(output, ALERTS))


LAST = order(9, at=NOW_MS + 60_000, user="z")  # moves the watermark


@pytest.mark.slow
def test_a_rule_behind_a_new_stream_reads_it_with_an_old_one_and_each_cut_can_run_again(tmp_path: Path) -> None:
    """The rules arrive in one cut with the document that they need."""
    app = build_app(settings(tmp_path))
    cuts: list[tuple[tuple[tuple[str, bytes], ...], list[dict[str, object]]]] = [
        ((window("alone", "count(*) >= 3"),), [order(1)]),
        ((ACROSS[0], stream(LOGINS, "events"), *ACROSS), [login(2), order(3)]),
        ((), [login(4), order(5), order(6)]),
        ((), [LAST, login(10, user="z")]),
        ((), []),
    ]
    shop, output = Shop(InProcessApp(app)), list[Record]()
    for control, events in cuts:
        blobs, offsets = copy.deepcopy(shop.app.blobs), dict(shop.app.next_offsets)
        again = InProcessApp(app, blobs, next_offsets=offsets, streams=shop.app.streams)
        before = Shop(again, shop.control, shop.events)
        written = shop.send(*control, events=events)
        assert before.send(*control, events=events) == written
        output += written
    answers = [(one["rule"], one["status"]) for one in statuses(output)]
    assert answers == [
        ("alone", "accepted"),
        ("abroad", "rejected"),
        ("logins", "accepted"),
        *((name, "accepted") for name, _ in ACROSS),
    ], "before the document there is no such stream"
    own = [one for one in lane(output, ALERTS) if one["key"]["user"] == "a"]
    # of "a" the rules see a login at 4 and orders at 5 and 6: 10 + 20, then 10 and 10
    assert sorted(one["rule"] for one in own) == ["abroad", "alone", "any", "any", "any", "busy", "from", "points"]
    (points,) = [one for one in own if one["rule"] == "points"]
    assert points["values"]["sum"] == 50
    assert {one["stream"] for one in own} == {"orders", "logins", "logins+orders"}


def test_a_published_field_comes_into_a_union(tmp_path: Path) -> None:
    """A new document of an old stream, after one of a new stream: the rule over both keeps its state."""
    shop = Shop(InProcessApp(build_app(settings(tmp_path))))
    assert shop.publish(LOGINS, "events")["status"] == "accepted"
    shop.send(ACROSS[1], events=[login(1), order(2)])
    assert shop.publish(changed(fields={"device": "string"}))["status"] == "accepted"
    later = {**LOGINS, "version": 2, "fields": {**LOGINS["fields"], "device": "string"}}
    assert shop.publish(later)["status"] == "accepted"
    output = shop.send(
        rule("device", on=BOTH, where="device = 'x'"), events=[login(3, device="x"), order(4, device="x")]
    )
    assert fired(output) == ["busy", "device", "device"]


def test_a_published_type_that_takes_a_field_out_of_a_union_is_rejected(tmp_path: Path) -> None:
    shop = Shop(InProcessApp(build_app(settings(tmp_path))))
    shop.publish({**LOGINS, "fields": {**LOGINS["fields"], "pieces": "long"}}, "events")
    shop.send(window("r", "sum(pieces) > 1", on=BOTH), ACROSS[4], ACROSS[3])
    answer = shop.publish(changed(fields={"pieces": "double"}))
    assert answer["status"] == "rejected"
    assert "rule r version 1 would not be valid any more" in answer["reason"]
    assert shop.publish(changed(fields={"coupon": "string"}))["status"] == "accepted", "no rule reads it"


# --- a schema registry ------------------------------------------------------------------------------------------------

_TIME = {"type": "long", "logicalType": "timestamp-millis"}
AVRO = {
    1: {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": _TIME},
            {"name": "user", "type": "string"},
            {"name": "total", "type": ["null", "string"], "default": None},
        ],
    },
    2: {
        "type": "record",
        "name": "shop.Login",
        "fields": [
            {"name": "at", "type": _TIME},
            {"name": "user", "type": "string"},
            {"name": "country", "type": ["null", "string"], "default": None},
        ],
    },
}


def written(event: dict[str, Any]) -> bytes:
    number = 1 if event["type"] == "order" else 2
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(AVRO[number]), {n: v for n, v in event.items() if n != "type"}
    )
    return prefix(number) + out.getvalue()


def test_streams_of_a_registry_are_published_and_read_together(tmp_path: Path) -> None:
    """Which stream a record is of follows from the name of the schema that it was written with."""
    fields = {name: kind for name, kind in ORDERS["fields"].items() if name in ("id", "at", "user", "total")}
    orders = {**ORDERS, "when": {"from": "_schema.name", "equals": "shop.Order"}, "fields": fields}
    logins = {**LOGINS, "when": {"from": "_schema.name", "equals": "shop.Login"}}
    entries = settings(tmp_path, orders).model_dump(mode="json", exclude_unset=True)
    entries["streams"][0]["format"] = {"kind": "registry"}
    app = build_app(RulesSettings.model_validate({**entries, "schema_registry": {"url": "http://nowhere:1"}}))
    schemas = Schemas(*(RegisteredSchema(n, "AVRO", json.dumps(text)) for n, text in AVRO.items()))
    local = InProcessApp(app, schemas=schemas)
    sent = [order(1), login(2), login(3), order(4), order(5), {**LAST, "total": "2.00"}]
    control = [stream(logins, "events"), *ACROSS]
    first = local.cut([RawRecord(0, 0, 0, written(sent[0])), RawRecord(0, 0, 1, written(sent[1]))], NOW_MS)
    assert not lane(first, DEAD_LETTERS)
    output = [*local.cut([control_record(n, *one) for n, one in enumerate(control)], NOW_MS + 1)]
    output += local.cut([RawRecord(0, 0, n, written(sent[n])) for n in range(2, len(sent))], NOW_MS + 2)
    output += [*local.cut([], NOW_MS + 3), *local.cut([], NOW_MS + 4)]
    assert {one["status"] for one in statuses(output)} == {"accepted"}
    own = [one["rule"] for one in lane(output, ALERTS) if one["key"]["user"] == "a"]
    assert sorted(own) == ["abroad", "any", "any", "any", "busy", "from", "points"]
    assert not lane(output, DEAD_LETTERS)


# --- a fork -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fork_goes_on_with_the_state_of_rules_over_published_streams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files know nothing of the stream, and it has more shards."""
    monkeypatch.setattr("headgate.savepoints.fork._create_topics", lambda _: None)  # there is no broker
    first = settings(tmp_path, savepoints=str(tmp_path / "savepoints"))
    file = tmp_path / "app.json"
    file.write_text(first.model_dump_json(exclude_unset=True))
    app = build_app(first)
    shop = Shop(InProcessApp(app))
    shop.publish(LOGINS, "events")
    shop.send(*ACROSS, events=[login(1), order(2, total="0.50")])
    shop.send(stream(changed(fields={"coupon": "string"})))  # waits for the next cut
    offsets = {("events", 0): shop.events, (app.control_topic, 0): shop.control}
    point = SavepointPosition(1, 7, StreamOffsets(CutClock.at(1), offsets), 0, streams=shop.app.streams)
    save(shop.app.app, shop.app.blobs, tmp_path / "savepoints", point, "one")
    words = ["--from", "one", "--as", "second", "--set", "shards=5", "--write", str(tmp_path / "b.json")]
    where = ["--service", "rules", "--settings", str(file), "--savepoints", str(tmp_path / "savepoints")]
    assert run(["fork", *words, *where]) == 0, capsys.readouterr()
    document = json.loads((tmp_path / "b.json").read_text())
    second: App = build_app(RulesSettings.model_validate(document))
    root = CheckpointRoot(Path(document["checkpoint"]))
    streams = root.streams.in_force(0)
    assert [one.name for one in streams] == [one.name for one in shop.app.streams] == ["logins", "orders"]
    blobs = initial_of(Path(document["checkpoint"]), second.with_streams(streams))
    fork = Shop(InProcessApp(second, blobs, streams=streams), 0, shop.events)
    twin = Shop(shop.app, shop.control, shop.events)
    sent = [order(3, coupon="X"), order(4)]
    used = rule("coupon", on=BOTH, where="coupon = 'X'")
    outputs = [
        [*one.send(used, events=sent), *one.send(events=[LAST, login(10, user="z")]), *one.send()]
        for one in (fork, twin)
    ]
    own, other = ([_plain(one) for one in lane(output, ALERTS)] for output in outputs)
    assert sorted(own) == sorted(other)
    names = [one["rule"] for one in lane(outputs[0], ALERTS) if one["key"]["user"] == "a"]
    assert sorted(names) == ["abroad", "any", "any", "busy", "coupon", "points"]


def _plain(alert: dict[str, Any]) -> bytes:
    return orjson.dumps(alert, option=orjson.OPT_SORT_KEYS)
