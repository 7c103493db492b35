"""Only the fields that rules read become columns, and no output depends on that: alerts, late events, dead letters."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from rulecore.factory import LateEventWriter, RulesFactory
from rulecore.lists.records import ListHead, list_records
from rulecore.lists.routing import DATA_KEYS
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.deduplication.stage import add_deduplication
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.kernel import StreamReads
from streamcore.limits import MAX_BATCH_VALUES, Limits
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, STATUS, Record

T0 = 1_700_000_000_000
CLOCK = 1_800_000_000_000
MINUTE = 60_000
COMMON = {"ts": "timestamp not null", "user": "string not null", "device": "string"}
PAY = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {
            **COMMON,
            "kind": "string not null",
            "amount": "decimal(9,2)",
            "country": "string",
            "note": "string",
            "items": "array<struct<sku:string, price:long>>",
            "unread": "struct<a:long, b:array<string>>",
        },
    }
)
LOGIN = StreamSchema.parse(
    {"name": "login", "event_time": "ts", "keys": [["user"]], "fields": {**COMMON, "ok": "boolean", "unread": "long"}}
)
STREAMS = (PAY, LOGIN)
#: The first with an id, by which copies are removed.
PAY_ONCE = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "event_id": "note",
        "deduplicate": "9m",
        "keys": [["user"]],
        "fields": {field.name: f"{field.type}{'' if field.nullable else ' not null'}" for field in PAY.fields},
    }
)
#: For each rule the fields that it reads, of ``pay`` unless it names another stream.
RULES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "event": ({"where": "amount > 50"}, {"amount"}),
    "message": ({"where": "kind = 'buy'", "message": "{note} of {user}"}, {"kind", "note"}),
    "suppressed": (
        {"where": "kind = 'buy'", "suppress": {"for": "2m", "by": ["user", "country"]}},
        {"kind", "country"},
    ),
    "nested": ({"where": "any(items, i -> i.price > 5)"}, {"items"}),
    "list": ({"where": "concat(country, device) in list('places')"}, {"country", "device"}),
    "whole": ({"where": "kind = 'view'", "event": True}, set(PAY.names)),
    "window": (
        {
            "where": "kind = 'buy'",
            "group_by": ["user", "country"],
            "within": {"sliding": "4m", "every": "2m"},
            "having": "sum(amount) > 60 and count(distinct device) >= 1 and max(cardinality(items)) >= 1",
        },
        {"kind", "country", "amount", "device", "items"},
    ),
    "session": (
        {"group_by": ["user"], "within": {"session": "2m"}, "having": "count(note) >= 2", "emit": "final"},
        {"note"},
    ),
    "count": (
        {"group_by": ["user"], "within": {"count": 3, "every": 1}, "having": "max(amount) > 70"},
        {"amount"},
    ),
    "sequence": (
        {
            "group_by": ["user"],
            "sequence": [
                {"step": "first", "where": "country = 'DE'"},
                {"without": "device = 'd0'"},
                {"step": "later", "where": "kind <> 'view' and first.amount < 90"},
            ],
            "within": "5m",
            "message": "{first.note}",
        },
        {"country", "device", "amount", "note", "kind"},
    ),
    "absence": ({"group_by": ["user"], "expect": {"where": "country = 'FR'", "every": "3m"}}, {"country"}),
    "score": ({"group_by": ["user"], "score": {"of": {"event": 5}, "within": "5m", "limit": 10}}, set()),
    "union": ({"on": ["pay", "login"], "where": "device = 'd1' and (ok or amount > 20)"}, {"device", "amount"}),
}
PLACES = ListHead.model_validate({"list": "places", "version": 1, "owner": "o", "of": "string"})


def rule(name: str) -> RawRecord:
    document = dict(RULES[name][0])
    then = {"severity": "high", "message": document.pop("message", "m"), "score": 5}
    then |= {"event": True} if document.pop("event", False) else {}
    fixed = {"id": name, "version": 1, "owner": "o", "on": "pay", "then": then}
    return control_record(0, name, orjson.dumps(fixed | document))


def make_app(
    schemas: Sequence[StreamSchema] = STREAMS, max_event_ids: int = 1_000, max_batch_values: int = MAX_BATCH_VALUES
) -> App:
    sources = tuple(Source(schema, schema.name) for schema in schemas)
    streams = tuple(RuleStream(schema, schema.name) for schema in schemas)
    kernels, watermark = (RulesFactory(streams),), WatermarkStrategy(max_out_of_orderness_ms=MINUTE)
    limits = Limits(max_event_ids=max_event_ids, max_batch_values=max_batch_values)
    app = App("t", sources, "control", {}, kernels, shards=2, watermark=watermark, data_keys=DATA_KEYS, limits=limits)
    return add_deduplication(app, LateEventWriter(streams))


def events(draw: random.Random, offset: int, count: int, minute: int) -> list[RawRecord]:
    """Return events around a minute; some are late, and some have a wrong value in a field that no rule reads."""
    records = []
    for n in range(offset, offset + count):
        late = draw.choice([0, 0, 0, draw.randrange(12)])
        common = {
            "ts": T0 + (minute - late) * MINUTE + draw.randrange(MINUTE),
            "user": draw.choice(["ann", "bob", "cy"]),
            "device": draw.choice(["d0", "d1", None]),
        }
        if draw.random() < 0.2:
            unread: object = draw.choice([1, None, None, "text"])
            records.append(RawRecord(1, 0, n, orjson.dumps({**common, "ok": draw.random() < 0.5, "unread": unread})))
            continue
        items = [{"sku": f"s{i}", "price": draw.randrange(9)} for i in range(draw.randrange(3))]
        event = {
            **common,
            "kind": draw.choice(["buy", "view"]),
            "amount": draw.choice([None, draw.randrange(100)]),
            "country": draw.choice(["DE", "FR", None]),
            "note": draw.choice(["a", "b", None]),
            "items": items or None,
            "unread": draw.choice([None, {"a": 1, "b": ["x", None]}, {"a": "x"}, [], {"b": [1]}]),
        }
        records.append(RawRecord(0, 0, n, orjson.dumps(event)))
    return records


def read_without_unread(records: Sequence[Record]) -> list[tuple[str, Any]]:
    return [(record.lane, orjson.loads(record.value or b"{}")) for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("names", [*([name] for name in RULES), ["event", "score"]], ids="-".join)
def test_output_of_each_kind_of_rule_is_the_same_with_all_columns(names: list[str]) -> None:
    run_with_all_columns(names)


@pytest.mark.slow
def test_output_of_all_rules_is_the_same_with_all_columns() -> None:
    run_with_all_columns([*RULES])


def run_with_all_columns(names: list[str]) -> None:
    """Compare the output of an app that reads only what its rules need with that of one that reads all columns."""
    draw, later = random.Random("-".join(names)), "window" in names
    projected, whole = InProcessApp(make_app()), InProcessApp(make_app())
    places = [control_record(0, key, value) for key, value in list_records(PLACES, ["DEd1", "FRd0"])]
    controls = {0: [*places, *map(rule, names)], 3: [rule("nested")] if later else []}
    written = []
    for cut in range(8):
        records = [*controls.get(cut, []), *events(draw, cut * 40, 40, 3 * cut)]
        whole.projection = None
        output = projected.cut(records, CLOCK + cut)
        assert output == whole.cut(records, CLOCK + cut)
        written += output
        assert projected.projection is not None
        read = {name for one in [*names, *(["nested"] if later and cut >= 3 else [])] for name in RULES[one][1]}
        assert projected.projection.reads["pay"].fields == read | {"user"}
    statuses = [orjson.loads(record.value or b"") for record in written if record.lane == STATUS]
    assert {status["status"] for status in statuses} == {"accepted"}, statuses
    assert {ALERTS, LATE, DEAD_LETTERS} & {record.lane for record in written}, "there was something to compare"
    late = [orjson.loads(record.value or b"") for record in written if record.lane == LATE]
    assert all(event["event"].keys() == set({"pay": PAY, "login": LOGIN}[event["stream"]].names) for event in late)


@pytest.mark.slow
@pytest.mark.parametrize("max_event_ids", [1_000, 2])
@pytest.mark.parametrize("names", [["event"], ["message", "count"], [*RULES]], ids="-".join)
def test_output_of_a_stream_whose_copies_are_removed_is_the_same_with_all_columns(
    names: list[str], max_event_ids: int
) -> None:
    draw, app = random.Random("-".join(names)), make_app((PAY_ONCE, LOGIN), max_event_ids)
    projected, whole = InProcessApp(app), InProcessApp(app)
    places = [control_record(0, key, value) for key, value in list_records(PLACES, ["DEd1", "FRd0"])]
    written, fields = [], []
    for cut in range(10):
        sent = [with_new_id(draw, one) for one in events(draw, cut * 40, 40, 2 * cut)]
        controls = [] if cut else [*places, *map(rule, names)]
        whole.projection = None
        fields.append(None if projected.projection is None else projected.projection.reads["pay"].fields)
        output = projected.cut([*controls, *sent], CLOCK + cut)
        assert output == whole.cut([*controls, *sent], CLOCK + cut)
        written += output
    read = {name for one in names for name in RULES[one][1]}
    if max_event_ids == 2:
        assert None in fields[2:], "while ids of after the watermark are forgotten, all fields are sent"
    else:
        assert {*fields[2:]} == {frozenset({"user", *read})}
    late = [orjson.loads(record.value or b"") for record in written if record.lane == LATE]
    reasons = {event["reason"] for event in late if event["stream"] == "pay" and "reason" in event}
    assert any("limit of ids" in reason for reason in reasons) is (max_event_ids == 2), reasons
    assert all(event["event"].keys() == set(PAY.names) for event in late if event["stream"] == "pay")


def with_new_id(draw: random.Random, record: RawRecord) -> RawRecord:
    event = orjson.loads(record.value or b"")
    if record.source == 0:
        event["note"] = draw.choice([f"id{draw.randrange(60)}", f"new{record.offset}", None])
    return replace(record, value=orjson.dumps(event))


def test_a_rule_that_names_a_new_field_reads_it_in_the_same_cut() -> None:
    app = InProcessApp(make_app())
    draw = random.Random(1)
    app.cut([rule("event"), *events(draw, 0, 10, 0)], CLOCK)
    app.cut(events(draw, 10, 10, 1), CLOCK + 1)
    assert app.projection is not None
    assert "items" not in app.projection.reads["pay"].fields
    event = {"ts": T0 + 2 * MINUTE, "user": "ann", "kind": "buy", "items": [{"sku": "s", "price": 6}]}
    output = app.cut([rule("nested"), RawRecord(0, 0, 20, orjson.dumps(event))], CLOCK + 2)
    assert [orjson.loads(r.value or b"")["rule"] for r in output if r.lane == ALERTS] == ["nested"]


def test_a_scheduled_rule_reads_its_field_from_its_time_on() -> None:
    document = {"id": "soon", "version": 1, "owner": "o", "on": "pay", "where": "note = 'a'"}
    document |= {"then": {"severity": "high", "message": "m"}, "effective": {"from": "2027-01-15T08:00:10Z"}}
    event = {"ts": T0, "user": "ann", "kind": "buy", "note": "a"}
    app = InProcessApp(make_app())
    app.cut([control_record(0, "soon", orjson.dumps(document))], CLOCK)
    early = app.cut([RawRecord(0, 0, 0, orjson.dumps(event))], CLOCK + 9_000)
    output = app.cut([RawRecord(0, 0, 1, orjson.dumps(event))], CLOCK + 11_000)
    assert ALERTS not in {record.lane for record in early}
    assert ALERTS in {record.lane for record in output}


def test_a_change_of_a_list_leaves_the_fields_as_they_are() -> None:
    app, draw = InProcessApp(make_app()), random.Random(2)
    app.cut([*(control_record(0, *one) for one in list_records(PLACES, ["DEd1"])), rule("list")], CLOCK)
    changed = [control_record(0, *one) for one in list_records(PLACES.model_copy(update={"version": 2}), ["FRd0"])]
    whole = InProcessApp(make_app(), copy.deepcopy(app.blobs))
    sent = [*changed, *events(draw, 0, 60, 0)]
    output = app.cut(sent, CLOCK + 1)
    assert output == whole.cut(sent, CLOCK + 1)
    assert ALERTS in {record.lane for record in output}


def test_without_rules_nothing_is_read() -> None:
    app = InProcessApp(make_app())
    app.cut([], CLOCK)
    assert app.projection is not None
    assert app.projection.reads == dict.fromkeys(("pay", "login"), StreamReads(frozenset(), frozenset()))
