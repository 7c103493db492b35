"""Stream documents that are published while the rules app runs: what is taken, what is not, and that a cut that runs
again has the documents that it had."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate_rules.app import build_app
from rulecore.ruleset import stream_changes
from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.errors import ConfigError
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.manifest import FORMAT, FORMAT_WITH_STREAMS
from streamcore.savepoint.restore import restore_checkpoint
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
from tests.harness.apps.versioned_shop import initial_of, moment, save

SEQUENCE = [{"step": "a", "where": "pieces > 1"}, {"step": "b", "where": "pieces > a.pieces"}]


@pytest.fixture
def app(tmp_path: Path) -> App:
    return build_app(settings(tmp_path))


@pytest.fixture
def shop(app: App) -> Shop:
    return Shop(InProcessApp(app))


# --- what is taken ---------------------------------------------------------------------------------------------------


def test_a_new_field_is_read_from_the_next_cut_on_and_rules_may_name_it(shop: Shop) -> None:
    """Until then a rule that names the field is rejected; after it, no restart is needed."""
    coupon = rule("coupon", where="coupon = 'X'")
    assert [one["status"] for one in statuses(shop.send(coupon))] == ["rejected"]
    accepted = shop.send(stream(changed(fields={"coupon": "string"})), events=[order(1, coupon="X")])
    assert statuses(accepted) == []
    output = shop.send(coupon, events=[order(2, coupon="X"), order(3, coupon="Y"), order(4)])
    assert [(one["rule"], one["subject"], one["version"], one["status"]) for one in statuses(output)] == [
        ("orders", "stream", 2, "accepted"),
        ("coupon", "rule", 1, "accepted"),
    ]
    assert [one["source"]["offset"] for one in lane(output, ALERTS)] == [1]


def test_a_rule_behind_the_document_in_one_cut_sees_it_and_one_before_it_does_not(shop: Shop) -> None:
    where = "coupon = 'X'"
    document = stream(changed(fields={"coupon": "string"}))
    first = shop.send(rule("early", where=where), document, rule("late", where=where), rule("more", where="total > 1"))
    second = shop.send(rule("last", where=where), events=[order(1, coupon="X")])
    assert [(one["rule"], one["status"]) for one in statuses(first)] == [("early", "rejected")]
    assert [(one["rule"], one["status"]) for one in statuses(second)] == [
        ("orders", "accepted"),
        ("late", "accepted"),
        ("more", "accepted"),
        ("last", "accepted"),
    ]
    assert [one["control"]["offset"] for one in statuses(second)] == [1, 2, 3, 4]
    assert sorted(one["rule"] for one in lane(second, ALERTS)) == ["last", "late", "more"]


def test_each_document_is_met_by_what_is_published_between_it_and_the_next(shop: Shop) -> None:
    """Records behind a document wait for the next cut, a second document among them for the one after that."""
    one, two = changed(fields={"a": "string"}), changed(3, fields={"a": "string", "b": "string"})
    shop.send(
        stream(one), rule("a", where="a = 'x'"), rule("b", where="b = 'x'"), stream(two), rule("b2", where="b='x'")
    )
    second, third = shop.send(), shop.send()
    assert [(s["rule"], s["status"]) for s in statuses(second)] == [
        ("orders", "accepted"),
        ("a", "accepted"),
        ("b", "rejected"),
    ]
    assert [(s["rule"], s["status"]) for s in statuses(third)] == [("orders", "accepted"), ("b2", "accepted")]


def test_state_is_kept(shop: Shop) -> None:
    shop.send(window("three", "count(*) >= 3"), events=[order(1), order(2)])
    answer = shop.publish(changed(fields={"coupon": "string"}))
    assert answer["status"] == "accepted"
    (alert,) = lane(shop.send(events=[order(3)]), ALERTS)
    assert alert["values"] == {"count(*)": 3}


@pytest.mark.slow
def test_state_of_every_kind_of_rule_is_kept(shop: Shop) -> None:
    """None of them reads the field that gets a wider type."""
    steps = [{"step": "a", "where": "total > 1"}, {"step": "b", "where": "total > a.total"}]
    rules = [
        rule("each", where="total > 1", then={"severity": "low", "score": 20, "message": "m"}),
        window("tumbling", "sum(total) > 4"),
        window("counted", "sum(total) > 4", within={"count": 3}),
        window("session", "sum(total) > 4", within={"session": "1h"}, emit="early"),
        rule("steps", group_by=["user"], within="1h", sequence=steps),
        rule("silent", group_by=["user"], expect={"where": "total > 0", "every": "30s"}),
        rule("points", group_by=["user"], score={"of": ["each"], "within": "1h", "limit": 50, "count": "every"}),
    ]
    first = shop.send(*rules, events=[order(1), order(2)])
    assert [(one["status"], one["reason"]) for one in statuses(first)] == [("accepted", None)] * len(rules)
    twin = Shop(InProcessApp(shop.app.app, copy.deepcopy(shop.app.blobs)), shop.control, shop.events)
    answer = shop.publish(changed(fields={"coupon": "string", "pieces": "double"}))
    assert answer["status"] == "accepted", answer["reason"]
    last = [order(3, total="2.50"), order(4, at=NOW_MS + 90_000, user="b")]
    expected = {one["rule"] for one in lane([*twin.send(events=last), *twin.send()], ALERTS)}
    assert {"tumbling", "counted", "session", "silent", "steps", "points"} <= expected
    assert {one["rule"] for one in lane([*shop.send(events=last), *shop.send()], ALERTS)} == expected


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("fields", "value", "condition"),
    [
        ({"pieces": "double"}, {"pieces": 2.5}, "pieces > 2.4"),
        ({"total": "decimal(12,2)"}, {"total": "12345678.90"}, "total > 12345678"),
        ({"total": "decimal(12,4)"}, {"total": "1.2345"}, "total = 1.2345"),
        ({"item": "struct<sku: string, price: long, size: string>"}, {"item": {"size": "L"}}, "item.size = 'L'"),
        ({"user": "string"}, {"user": None}, "user is null"),
    ],
)
def test_a_wider_type_takes_what_was_a_dead_letter(
    shop: Shop, fields: dict[str, object], value: dict[str, object], condition: str
) -> None:
    shop.send(window("spent", "count(*) >= 2"), rule("any", where="id = '1' or pieces = 7"), events=[order(1)])
    assert shop.publish(changed(fields=fields))["status"] == "accepted"
    output = shop.send(rule("wide", where=condition), events=[order(2, **value)])
    assert lane(output, DEAD_LETTERS) == []
    assert "wide" in [one["rule"] for one in lane(output, ALERTS)]


def test_a_long_that_becomes_a_double_is_answered_with_what_is_rounded(shop: Shop) -> None:
    assert shop.publish(changed(fields={"pieces": "double"}))["reason"] == (
        "whole numbers of pieces above 2**53 are rounded from now on"
    )


def test_a_new_stream_on_a_topic_that_is_read(shop: Shop) -> None:
    login = {"type": "login", "at": NOW_MS, "user": "a", "country": "CH"}
    abroad = rule("abroad", where="country = 'CH'", on="logins")
    shop.send(window("two", "count(*) >= 2"), events=[order(1), login])
    answer = shop.publish(LOGINS, "events")
    assert (answer["status"], answer["reason"]) == ("accepted", None)
    output = shop.send(abroad, events=[login, order(2)])
    assert sorted(one["rule"] for one in lane(output, ALERTS)) == ["abroad", "two"]
    assert [one["source"]["offset"] for one in lane(output, ALERTS) if one["rule"] == "abroad"] == [2]


def test_a_new_stream_that_takes_records_of_another_says_so(tmp_path: Path) -> None:
    rest = {**ORDERS, "when": None}
    shop = Shop(InProcessApp(build_app(settings(tmp_path, {n: v for n, v in rest.items() if v}))))
    answer = shop.publish(LOGINS, "events")
    assert answer["status"] == "accepted"
    assert answer["reason"] == "records with type = 'login' are no events of orders any more"


def test_a_new_field_may_be_beside_the_value(shop: Shop) -> None:
    """Headers and timestamps are read from the next cut on, too."""
    channel, sent = (
        {"type": "string", "from": "_kafka.headers.channel"},
        {"type": "timestamp", "from": "_kafka.timestamp"},
    )
    assert shop.publish(changed(fields={"channel": channel, "sent": sent}))["reason"] is None
    record = RawRecord(0, 0, 9, orjson.dumps(order(9)), None, NOW_MS, {"channel": b"app"})
    publish = control_record(shop.control, *rule("r", where="channel = 'app' and sent is not null"))
    assert len(lane(shop.app.cut([publish, record], NOW_MS), ALERTS)) == 1


def test_extra_fields_that_are_declared_are_none_any_more(tmp_path: Path) -> None:
    rest = {**ORDERS, "fields": {**ORDERS["fields"], "rest": {"type": "string", "from": "_extra_fields"}}}
    shop = Shop(InProcessApp(build_app(settings(tmp_path, rest))))
    later = {**rest, "version": 2, "fields": {**rest["fields"], "coupon": "string"}}
    assert shop.publish(later)["reason"] == "rest has the members of coupon no more"


def test_the_same_document_again_changes_nothing(shop: Shop) -> None:
    document = changed(fields={"coupon": "string"})
    assert shop.publish(document)["reason"] is None
    again = statuses(shop.send(stream(document), rule("r", where="coupon = 'X'")))
    assert [(one["status"], one["reason"]) for one in again] == [("accepted", "no change"), ("accepted", None)]


# --- what is not taken -----------------------------------------------------------------------------------------------

REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "removed": (changed(fields={"pieces": None}), "field pieces is gone: keep it in the document"),
    "narrower": (changed(fields={"total": "decimal(6,2)"}), "not every decimal(8,2) is a decimal(6,2)"),
    "another type": (changed(fields={"pieces": "string"}), "not every long is a string: add a field of another name"),
    "not null": (changed(fields={"pieces": "long not null"}), "events without it would be dead letters"),
    "new and not null": (changed(fields={"x": "long not null"}), "the new field x is not null"),
    "another place": (
        changed(fields={"pieces": {"type": "long", "from": "n.pieces"}}),
        "read from n.pieces, not pieces",
    ),
    "another unit": (
        changed(fields={"at": {"type": "timestamp not null", "unit": "s"}}),
        "its numbers would be seconds, not milliseconds",
    ),
    "another order": (
        {**changed(), "fields": dict(reversed(ORDERS["fields"].items()))},
        "the fields are in another order",
    ),
    "event time": (
        changed(fields={"sent": "timestamp not null"}, event_time="sent"),
        "event_time does not change while the app runs: take a savepoint",
    ),
    "event id": (changed(event_id="user"), "event_id does not change while the app runs"),
    "keys": (changed(keys=[["user"], ["id"]]), "keys does not change while the app runs"),
    "zone": (changed(zone="Europe/Zurich"), "zone does not change while the app runs"),
    "envelope": (changed(envelope="debezium"), "envelope does not change while the app runs"),
    "when": (changed(when={"from": "type", "equals": ["order", "offer"]}), "when does not change while the app runs"),
    "deduplicate": (changed(deduplicate="1h"), "deduplicate does not change while the app runs"),
    "version": (changed(1, fields={"x": "long"}), "version 1 is not above version 1, which is in force; raise it"),
    "no document": ({"name": "orders", "version": 2}, "stream: needs name (text) and fields"),
    "too many fields": (changed(fields={f"f{n}": "long" for n in range(1_000)}), "between 1 and 1000 fields"),
    "too large": (changed(fields={f"f{n}": "string" for n in range(5_000)}), "bytes, at most 65536"),
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("case", REJECTED)
def test_what_a_running_app_cannot_take_is_rejected_with_what_to_do(shop: Shop, case: str) -> None:
    document, reason = REJECTED[case]
    output = shop.send(rule("early", where="total > 1"), stream(document), rule("late", where="total > 1"))
    assert [(one["rule"], one["status"]) for one in statuses(output)] == [
        ("early", "accepted"),
        ("orders", "rejected"),
        ("late", "accepted"),
    ]
    assert reason in statuses(output)[1]["reason"]
    assert shop.app.streams == ()
    assert len(lane(shop.send(events=[order(1)]), ALERTS)) == 2


@pytest.mark.parametrize(
    ("document", "topic", "reason"),
    [
        (LOGINS, "elsewhere", "the app does not read topic elsewhere, only events: take a savepoint"),
        (LOGINS, None, "it is new, so name the topic of its records; there are events"),
        ({n: v for n, v in LOGINS.items() if n != "when"}, "events", "it needs a condition (when)"),
        ({**LOGINS, "when": ORDERS["when"]}, "events", "two streams take records with 'order'"),
        ({**LOGINS, "event_id": "user", "deduplicate": "1h"}, "events", "no other stream of the app has deduplicate"),
        (changed(), "elsewhere", "its records are in topic events, not elsewhere"),
    ],
)
def test_a_stream_that_does_not_fit_its_topic_is_rejected(
    shop: Shop, document: dict[str, Any], topic: str | None, reason: str
) -> None:
    answer = shop.publish(document, topic)
    assert answer["status"] == "rejected"
    assert reason in answer["reason"]


def test_a_field_that_would_leave_a_union_is_rejected_with_the_rule(tmp_path: Path) -> None:
    """A rule on two streams reads the fields that both have with one type."""
    shop = Shop(InProcessApp(build_app(settings(tmp_path, ORDERS, LOGINS))))
    used = window("both", "count(*) >= 2", on=["orders", "logins"], where="country = 'CH' or country is null")
    assert [one["reason"] for one in statuses(shop.send(used))] == [None]
    answer = shop.publish(changed(fields={"country": "long"}))
    assert answer["status"] == "rejected"
    assert "rule both version 1 would not be valid any more" in answer["reason"]
    assert shop.publish(changed(fields={"country": "string"}))["status"] == "accepted"
    login = {"type": "login", "at": NOW_MS - 500, "user": "a", "country": "CH"}
    assert len(lane(shop.send(events=[login, order(2, country="CH")]), ALERTS)) == 1


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "used",
    [
        window("r", "sum(pieces) > 5"),
        window("r", "count(*) > 5", where="pieces > 1"),
        window("r", "count(*) > 5", group_by=["user", "pieces"]),
        rule("r", where="total > 0", suppress={"by": ["user", "pieces"], "for": "1h"}),
        rule("r", where="pieces % 2 = 0"),
        window("r", "max(pieces) > 5", within={"count": 3}),
        window("r", "max(pieces) > 5", within={"session": "1h"}, emit="final"),
        rule("r", group_by=["user"], within="1h", sequence=SEQUENCE),
        rule("r", group_by=["user"], expect={"where": "pieces > 1", "every": "1h"}),
    ],
)
def test_a_wider_type_is_rejected_with_the_rule_that_it_would_harm(shop: Shop, used: tuple[str, bytes]) -> None:
    """State has values of the narrower type, and the language has no ``%`` of doubles."""
    assert [one["status"] for one in statuses(shop.send(used))] == ["accepted"]
    answer = shop.publish(changed(fields={"pieces": "double"}))
    assert answer["status"] == "rejected"
    assert "rule r version 1" in answer["reason"]
    shop.send(("r", None))
    assert shop.publish(changed(fields={"pieces": "double"}))["status"] == "accepted"


def test_bytes_that_are_no_document_are_answered(shop: Shop) -> None:
    output = shop.send(
        ("stream/orders", b"{"), ("stream/orders", None), ("stream/x", b"[]"), ("stream/other", stream(changed())[1])
    )
    assert [one["status"] for one in statuses(output)] == ["rejected"] * 4
    assert [one["subject"] for one in statuses(output)] == ["stream"] * 4


def test_a_document_is_rejected_if_too_much_would_wait_behind_it(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_changes, "MAX_WAITING_BYTES", 100)
    output = shop.send(stream(changed(fields={"x": "long"})), rule("r", where="total > 1"))
    assert [(one["rule"], one["status"]) for one in statuses(output)] == [("orders", "rejected"), ("r", "accepted")]
    assert "publish it again" in statuses(output)[0]["reason"]


# --- again -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cut_that_runs_again_in_a_new_process_has_the_documents_that_it_had(app: App) -> None:
    cuts = [
        ((window("two", "count(*) >= 2"), rule("all", where="true")), [order(1)]),
        ((stream(changed(fields={"coupon": "string"})), rule("c", where="coupon = 'X'")), [order(2, coupon="X")]),
        ((stream(LOGINS, "events"),), [order(3, coupon="X")]),
        ((rule("l", on="logins", where="true"),), [order(4, coupon="X"), {"type": "login", "at": NOW_MS, "user": "b"}]),
        ((), [order(5), {"type": "login", "at": NOW_MS, "user": "b"}]),
    ]
    shop, output = Shop(InProcessApp(app)), list[Record]()
    for control, events in cuts:
        before = Shop(
            InProcessApp(app, copy.deepcopy(shop.app.blobs), streams=shop.app.streams), shop.control, shop.events
        )
        output = shop.send(*control, events=events)
        assert before.send(*control, events=events) == output
        assert before.app.streams == shop.app.streams
    assert [one.name for one in shop.app.streams] == ["orders", "logins"]
    assert {one["rule"] for one in lane(output, ALERTS)} == {"all", "l"}


def test_without_its_documents_a_cut_that_runs_again_would_be_another(app: App) -> None:
    """The protection is off: the documents are not kept with the state."""
    shop = Shop(InProcessApp(app))
    shop.send(stream(changed(fields={"coupon": "string"})), rule("c", where="coupon = 'X'"))
    lost = Shop(InProcessApp(app, copy.deepcopy(shop.app.blobs)), shop.control)
    kept = Shop(InProcessApp(app, copy.deepcopy(shop.app.blobs), streams=shop.app.streams), shop.control)
    assert [one["status"] for one in statuses(kept.send(events=[order(1, coupon="X")]))] == ["accepted", "accepted"]
    assert [one["status"] for one in statuses(lost.send(events=[order(1, coupon="X")]))] == ["rejected", "rejected"]


def test_deduplication_goes_on(tmp_path: Path) -> None:
    once = {**ORDERS, "deduplicate": "1h"}
    shop = Shop(InProcessApp(build_app(settings(tmp_path, once))))
    shop.send(rule("all", where="true"), events=[order(1)])
    document = {**once, "version": 2, "fields": {**once["fields"], "coupon": "string"}}
    assert shop.publish(document)["status"] == "accepted"
    output = shop.send(rule("c", where="coupon = 'X'"), events=[order(1), order(2, coupon="X"), order(2, coupon="X")])
    assert sorted(one["rule"] for one in lane(output, ALERTS)) == ["all", "c"]


# --- files and published documents -----------------------------------------------------------------------------------


def test_the_higher_version_of_file_and_published_document_is_used_at_a_start(tmp_path: Path) -> None:
    shop = Shop(InProcessApp(build_app(settings(tmp_path))))
    shop.publish(changed(2, fields={"coupon": "string"}))
    published = shop.app.streams

    def fields(*documents: dict[str, Any]) -> list[str]:
        return list(build_app(settings(tmp_path, *documents)).with_streams(published).schemas[0].names)

    assert "coupon" in fields(ORDERS)
    assert "coupon" in fields(changed(2, fields={"coupon": "string"}))
    assert "other" in fields(changed(3, fields={"other": "string"}))
    with pytest.raises(ConfigError, match="version 2 of the stream file is not the version 2 that was published"):
        fields(changed(2, fields={"coupon": "long"}))


def test_a_published_stream_stays_as_long_as_its_topic_is_read(tmp_path: Path) -> None:
    shop = Shop(InProcessApp(build_app(settings(tmp_path))))
    shop.publish(LOGINS, "events")
    published = shop.app.streams
    assert [one.name for one in build_app(settings(tmp_path)).with_streams(published).schemas] == ["orders", "logins"]
    both = build_app(settings(tmp_path, ORDERS, LOGINS)).with_streams(published)
    assert [one.name for one in both.schemas] == ["orders", "logins"]
    file = settings(tmp_path).streams[0].schema_file
    moved = settings(tmp_path, streams=[{"schema_file": str(file), "topic": "moved"}])
    assert [one.name for one in build_app(moved).with_streams(published).schemas] == ["orders"]


def test_a_start_with_a_higher_version_before_the_document_was_taken_is_answered(tmp_path: Path) -> None:
    shop = Shop(InProcessApp(build_app(settings(tmp_path))))
    shop.send(stream(changed(2, fields={"coupon": "string"})))
    newer = build_app(settings(tmp_path, changed(3, fields={"coupon": "string"})))
    again = Shop(InProcessApp(newer, shop.app.blobs, streams=shop.app.streams), shop.control)
    (answer,) = statuses(again.send())
    assert (answer["status"], answer["reason"]) == (
        "rejected",
        "the app was started with version 3 before it took this one",
    )


# --- savepoints ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_savepoint_has_the_documents_also_those_that_wait_for_the_next_cut(app: App, tmp_path: Path) -> None:
    """It is restored to another number of shards, by an app whose files know nothing of them."""
    shop = Shop(InProcessApp(app))
    shop.publish(LOGINS, "events")
    login = {"type": "login", "at": NOW_MS, "user": "a", "country": "CH"}
    shop.send(window("twice", "count(*) >= 2", within={"session": "1h"}, emit="early", on="logins"), events=[login])
    shop.send(stream(changed(fields={"coupon": "string"})), rule("c", where="coupon = 'X'"))
    point = dataclasses.replace(moment(), streams=shop.app.streams)
    saved = save(shop.app.app, shop.app.blobs, tmp_path / "savepoints", point)
    assert saved.manifest.format == FORMAT_WITH_STREAMS
    more = build_app(settings(tmp_path, shards=4))
    root = CheckpointRoot(tmp_path / "checkpoint")
    restore_checkpoint(saved, more, check_app_compatibility(saved.manifest, more), root, saved.manifest.epoch + 1)
    restored = root.streams.in_force(0)
    assert restored == shop.app.streams
    blobs = initial_of(tmp_path / "checkpoint", more.with_streams(restored))
    again = Shop(InProcessApp(more, blobs, streams=restored), shop.control, shop.events)
    output = again.send(events=[login, order(1, coupon="X")])
    assert [(one["rule"], one["status"]) for one in statuses(output)] == [("orders", "accepted"), ("c", "accepted")]
    assert sorted(one["rule"] for one in lane(output, ALERTS)) == ["c", "twice"]
    with pytest.raises(ConfigError, match="is not the version 2 that was published"):
        check_app_compatibility(saved.manifest, build_app(settings(tmp_path, changed(2, fields={"x": "long"}))))


def test_a_savepoint_without_published_documents_is_readable_by_earlier_programs(app: App, tmp_path: Path) -> None:
    shop = Shop(InProcessApp(app))
    shop.send(rule("all", where="true"))
    assert save(app, shop.app.blobs, tmp_path / "savepoints", moment()).manifest.format == FORMAT


# --- several streams of one rule --------------------------------------------------------------------------------------


def test_a_rule_over_two_streams_goes_on_with_a_new_document_of_one_and_stops_what_would_change_its_state(
    tmp_path: Path,
) -> None:
    shop = Shop(InProcessApp(build_app(settings(tmp_path, ORDERS, LOGINS))))
    both: dict[str, Any] = {"on": ["logins", "orders"], "where": "pieces > 1 or _stream = 'logins'"}
    assert statuses(shop.send(window("busy", "count(*) >= 2 and sum(pieces) > 2", **both)))[0]["status"] == "accepted"
    assert shop.publish(changed(2, {"coupon": "string"}))["status"] == "accepted"
    answer = shop.publish(changed(3, {"coupon": "string", "pieces": "double"}))
    assert answer["status"] == "rejected"
    assert "rule busy version 1 has state" in answer["reason"]
    events = [order(1, pieces=3, coupon="X"), {"type": "login", "at": NOW_MS - 1000, "user": "a", "country": "it"}]
    alerts = lane(shop.send(rule("coupon", on=["logins", "orders"], where="coupon = 'X'"), events=events), ALERTS)
    assert sorted(one["rule"] for one in alerts) == ["busy", "coupon"]
