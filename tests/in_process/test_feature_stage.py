"""Rules that read features of several keys, in an app with a stage for features: what happens beside the values, which
``test_keys_of_rules`` and ``test_features_of_other_keys`` compare with plain Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate.records.decoder import EventDecoder
from headgate_rules.app import build_app
from rulecore.backfill import BackfillCollector, backfill_records
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.control_keys import DECISION_POLICY_KEY, STAGED_KEY
from rulecore.documents.loading import decode_record
from rulecore.feature_stage.exchanges import FACTS
from rulecore.feature_stage.kernel import FeatureKernel
from rulecore.lists.records import ListHead, list_records
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.engine.in_process import InProcessApp
from streamcore.kernel import Cut, KernelOutput
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.compatibility import Compatibility, RestoreDecisions
from streamcore.savepoint.restore import restore_checkpoint
from streamcore.schema import StreamSchema
from streamcore.wire.lanes import ALERTS, CONTROL, DECISIONS, Record
from tests.harness.apps.published_shop import LOGINS, NOW_MS, Shop, lane, order, rule, settings, statuses
from tests.harness.apps.versioned_shop import initial_of, moment, save

CARDS: dict[str, Any] = {
    "name": "orders",
    "when": {"from": "type", "equals": "order"},
    "event_time": "at",
    "event_id": "id",
    "keys": [["user"], ["card"]],
    "fields": {"id": "string not null", "at": "timestamp not null", "user": "string not null", "card": "string"}
    | {"total": "decimal(8,2)", "pieces": "long", "device": "string"},
}
DAY = {"sliding": "1d", "every": "1h"}


def feature(name: str, by: Sequence[str], of: str = "count(*)", **entries: Any) -> dict[str, Any]:
    return {"name": name, "of": of, "by": by, "within": DAY, **entries}


OF_CARD, OF_DEVICE = feature("of_card", ["card"]), feature("of_device", ["device"])
BOTH: dict[str, Any] = {"group_by": ["user"], "features": [OF_CARD, OF_DEVICE]}


def new_shop(folder: Path, *documents: Mapping[str, Any], **entries: Any) -> Shop:
    body = {"feature_stage": True, "shards": 3, **entries}
    return Shop(InProcessApp(build_app(settings(folder, *(documents or (CARDS,)), **body))))


def buy(number: int, user: str, card: str, device: str = "d", **fields: object) -> dict[str, object]:
    return order(number, user=user, card=card, device=device, **fields)


def places(records: Sequence[Record], name: str = ALERTS) -> list[int]:
    return sorted(one["source"]["offset"] for one in lane(records, name))


def test_without_the_stage_such_a_rule_is_rejected_and_says_what_to_set(tmp_path: Path) -> None:
    shop = new_shop(tmp_path, feature_stage=False)
    (rejected,) = statuses(shop.send(rule("r", where="of_card > 1", group_by=["user"], features=[OF_CARD])))
    assert rejected["status"] == "rejected"
    assert rejected["reason"].startswith("features.0.by: does not contain user, by which the rule's events are routed")
    assert "feature_stage: true" in rejected["reason"]


def test_an_alert_has_the_values_of_all_keys_and_says_which_are_incomplete(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    shop.send(events=[buy(0, "a", "c1")])
    first = shop.send(rule("r", where="of_card >= 0 and pieces is null", **BOTH), events=[buy(1, "a", "c1", "d1")])
    assert statuses(first) == [], "the key of the device is new: the rule waits for the next cut"
    output = shop.send(events=[buy(2, "b", "c1", "d1"), buy(3, "a", "c2", "d1"), buy(4, "a", "c1", "d2", pieces=1)])
    (accepted,) = statuses(output)
    assert (accepted["status"], len(accepted["incomplete"]["since_ms"])) == ("accepted", 2)
    found = {one["source"]["offset"]: (one["key"], one["values"], one["incomplete"]) for one in lane(output, ALERTS)}
    assert found == {
        2: ({"user": "b"}, {"of_card": 0, "of_device": 0}, True),
        3: ({"user": "a"}, {"of_card": 0, "of_device": 1}, True),
    }


def test_suppression_trials_and_decisions_are_as_of_any_rule(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    decide = {"order": ["block", "allow"], "default": "allow", "score": "sum"}
    policy = {"decision_policy": "p", "version": 1, "owner": "o", "on": "orders", "decide": decide}
    blocks = {"severity": "low", "message": "{of_card} of {card}", "outcome": "block"}
    entries: dict[str, Any] = {**BOTH, "features": [OF_CARD], "suppress": {"for": "1h", "by": ["user"]}, "then": blocks}
    shop.send((DECISION_POLICY_KEY + "p", orjson.dumps(policy)), rule("r", where="of_card >= 1", **entries))
    shop.send(rule("r", 2, where="of_card >= 2", mode="shadow", **entries))
    output = shop.send(events=[buy(0, "a", "c"), buy(1, "b", "c"), buy(2, "a", "c"), buy(3, "b", "c")])
    assert (places(output), places(output, "shadow")) == ([1, 2], [2, 3])
    decisions = {one["source"]["offset"]: one for one in lane(output, DECISIONS)}
    assert {place: (one["outcome"], len(one["shadow"])) for place, one in decisions.items()} == {
        1: ("block", 0),
        2: ("block", 1),
        3: ("block", 1),
    }
    assert [one["values"] for one in decisions[3]["rules"]] == [{"of_card": 3}]
    assert {one["message"] for one in lane(output, ALERTS)} == {"1 of c", "2 of c"}


def test_a_rule_whose_features_keep_too_much_is_in_quarantine_in_both_stages(tmp_path: Path) -> None:
    shop = new_shop(tmp_path, max_rule_state_bytes=3_000)
    shop.send(rule("r", where="of_card >= 0", group_by=["user"], features=[feature("of_card", ["card"])]))
    other = rule("small", where="mine >= 0", group_by=["user"], features=[feature("mine", ["user"])])
    shop.send(other)
    output = shop.send(events=[buy(n, "a", f"c{n}") for n in range(60)])
    assert {(one["rule"], one["status"]) for one in statuses(output)} == {("r", "quarantined")}
    assert {one["rule"] for one in lane(output, ALERTS)} == {"small"}, "its shards are told in the same cut"
    records = [(one.key.decode(), one.value) for one in output if one.lane == CONTROL and one.key]
    again = shop.send(*dict(records).items(), events=[buy(60, "a", "c0")])
    assert {one["rule"] for one in lane(again, ALERTS)} == {"small"}
    assert not any(name.startswith("feature:stage") for one in stage_kernels(shop) for name in one.tables())


def stage_kernels(shop: Shop) -> list[Any]:
    return [shard.kernel for (stage, _), shard in shop.app.shards.items() if stage == 0]


def test_repeated_events_count_once_in_both_stages(tmp_path: Path) -> None:
    shop = new_shop(tmp_path, {**CARDS, "deduplicate": "1h"})
    shop.send(rule("r", where="of_card = 2 and mine >= 0", group_by=["user"], features=[OF_CARD, feature("mine", [])]))
    events = [
        buy(0, "a", "c"),
        buy(1, "b", "c"),
        buy(0, "a", "c"),
        buy(1, "b", "c"),
        buy(2, "a", "c"),
        buy(2, "a", "c"),
    ]
    output = [*shop.send(events=events[:2]), *shop.send(events=events[2:])]
    assert [(one["source"]["offset"], one["values"]) for one in lane(output, ALERTS)] == [
        (4, {"of_card": 2, "mine": 1})
    ]


def test_features_of_several_keys_over_two_streams(tmp_path: Path) -> None:
    logins = {**LOGINS, "keys": [["user"], ["device"]], "fields": {**LOGINS["fields"], "device": "string"}}
    shop = new_shop(tmp_path, {**CARDS, "keys": [["user"], ["device"]]}, logins)
    both = feature("of_device", ["device"], "count(distinct user)")
    where = "of_device >= 2 and _stream = 'orders'"
    shop.send(rule("r", on=["logins", "orders"], group_by=["user"], features=[both], where=where))
    login = {"type": "login", "at": NOW_MS - 900, "user": "z", "device": "d"}
    output = shop.send(events=[buy(1, "a", "c"), login, {**buy(2, "b", "c"), "at": NOW_MS - 800}])
    assert [(one["key"], one["values"]) for one in lane(output, ALERTS)] == [({"user": "b"}, {"of_device": 2})]


def test_a_feature_of_another_key_may_ask_a_list(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    head = ListHead.model_validate({"list": "vips", "version": 1, "owner": "o", "of": "string"})
    vips = feature("vips", ["card"], where="user in list('vips')")
    shop.send(*list_records(head, ["a"]))
    shop.send(rule("r", where="vips = 1 and user in list('vips')", group_by=["user"], features=[vips]))
    output = shop.send(events=[buy(0, "b", "c"), buy(1, "a", "c"), buy(2, "b", "c"), buy(3, "a", "c")])
    assert places(output) == [3]


def test_a_rule_of_another_key_reads_the_whole_past_of_a_published_feature(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    published = {"feature": "of_card", "version": 1, "owner": "o", "on": "orders", "by": ["card"], "of": "count(*)"}
    shop.send(("feature/of_card", orjson.dumps({**published, "within": DAY})))
    shop.send(events=[buy(0, "a", "c"), buy(1, "b", "c")])
    (accepted,) = statuses(shop.send(rule("r", where="of_card = 2", group_by=["user"], features=["of_card"])))
    assert (accepted["status"], accepted.get("incomplete")) == ("accepted", None), "it has counted before"
    assert places(shop.send(events=[buy(2, "a", "c")])) == [2]


def compiled(record: tuple[str, bytes | None]) -> CompiledRule:
    value = record[1] or b""
    return compile_rule(decode_record(value, len(value)), {"orders": StreamSchema.parse(CARDS)}, RuleLimits())


def test_a_backfill_fills_the_features_of_all_keys(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    past = [buy(n, "ab"[n % 2], f"c{n % 3}") for n in range(12)]
    shop.send(events=past)
    record = rule("r", where="of_card >= 0", group_by=["user"], features=[OF_CARD, feature("mine", [])])
    (accepted,) = statuses(shop.send(record))
    schema = StreamSchema.parse(CARDS)
    collector = BackfillCollector(compiled(record), schema)
    lines = [orjson.dumps(one) for one in past]
    collector.add(EventDecoder(schema, NOW_MS).of_lines(lines, range(len(lines))))
    since = accepted["incomplete"]["since_ms"]
    (answer,) = statuses(shop.send(*backfill_records(collector, NOW_MS - 86_400_000 * 2, since, STAGED_KEY)))[-1:]
    assert (answer["subject"], answer["status"]) == ("backfill", "accepted")
    (alert,) = lane(shop.send(events=[buy(12, "a", "c1")]), ALERTS)
    assert (alert["values"], alert["incomplete"]) == ({"of_card": 4, "mine": 6}, False)


def test_an_app_loses_the_stage_by_a_decision_and_its_rules_go_into_quarantine(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    several = rule("r", where="of_card >= 0", group_by=["user"], features=[OF_CARD])
    shop.send(several, rule("one", where="total > 1"), events=[buy(0, "a", "c")])
    point = dataclasses.replace(moment(), streams=shop.app.streams)
    saved = save(shop.app.app, shop.app.blobs, tmp_path / "savepoints", point, "s")
    without = build_app(settings(tmp_path, CARDS, shards=3))
    report = check_app_compatibility(saved.manifest, without)
    assert report.compatibility is Compatibility.DECISION
    assert all("nothing in this app takes the state feature" in one.text for one in report.reasons), report.reasons
    decided = RestoreDecisions(frozenset({"feature_groups", "feature:stage_feature"}))
    report = check_app_compatibility(saved.manifest, without, decided)
    root = CheckpointRoot(tmp_path / "restored")
    restore_checkpoint(saved, without, report, root, saved.manifest.epoch + 1)
    shop.app = InProcessApp(without, initial_of(tmp_path / "restored", without), streams=shop.app.streams)
    output = shop.send(events=[buy(1, "a", "c")])
    assert {one["rule"] for one in lane(output, ALERTS)} == {"one"}


def restored(shop: Shop, folder: Path, drops: Sequence[str] = (), *, feature_stage: bool) -> Shop:
    """Return the app, restored from a savepoint with this setting."""
    folder.mkdir()
    point = dataclasses.replace(moment(), streams=shop.app.streams)
    saved = save(shop.app.app, shop.app.blobs, folder / "savepoints", point, "s")
    app = build_app(settings(folder, CARDS, shards=3, feature_stage=feature_stage))
    report = check_app_compatibility(saved.manifest, app, RestoreDecisions(frozenset(drops)))
    restore_checkpoint(saved, app, report, CheckpointRoot(folder / "restored"), saved.manifest.epoch + 1)
    process = InProcessApp(app, initial_of(folder / "restored", app), streams=shop.app.streams)
    return Shop(process, shop.control, shop.events)


PUBLISHED: dict[str, Any] = {"version": 1, "owner": "o", "on": "orders", "by": ["card"], "of": "count(*)"}


def test_a_published_feature_begins_in_the_stage_with_the_first_cut_after_the_restore(tmp_path: Path) -> None:
    shop = new_shop(tmp_path, feature_stage=False)
    shop.send(("feature/of_card", orjson.dumps({"feature": "of_card", **PUBLISHED, "within": DAY})))
    shop.send(events=[buy(n, "ab"[n % 2], "c") for n in range(6)])
    shop = restored(shop, tmp_path / "on", feature_stage=True)
    shop.send(rule("r", where="of_card >= 0", group_by=["user"], features=["of_card"]))
    (alert,) = lane(shop.send(events=[buy(6, "a", "c")]), ALERTS)
    assert (alert["values"], alert["incomplete"]) == ({"of_card": 0}, True)


def test_features_begin_anew_when_the_stage_was_off_for_a_time(tmp_path: Path) -> None:
    shop = new_shop(tmp_path)
    features = [OF_CARD, feature("mine", ["user"])]
    shop.send(rule("r", where="of_card >= 0 and mine >= 0", group_by=["user"], features=features))
    shop.send(rule("mine", where="mine >= 0", group_by=["user"], features=[feature("mine", [])]))
    shop.send(events=[buy(n, "a", "c") for n in range(6)])
    shop = restored(shop, tmp_path / "off", ["feature_groups", "feature:stage_feature"], feature_stage=False)
    shop.send(events=[buy(n, "a", "c") for n in range(6, 9)])
    shop = restored(shop, tmp_path / "on", feature_stage=True)
    output = shop.send(events=[buy(9, "a", "c")])
    found = {one["rule"]: (one["values"], one["incomplete"]) for one in lane(output, ALERTS)}
    assert found["r"] == ({"of_card": 0, "mine": 9}, True)


def test_only_events_at_which_the_rule_may_fire_have_their_values_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    step = FeatureKernel.step

    def count_rows(kernel: FeatureKernel, cut: Cut) -> KernelOutput:
        output = step(kernel, cut)
        sent.append(sum(frame.height for key, frame in output.rows.items() if key != FACTS))
        return output

    monkeypatch.setattr(FeatureKernel, "step", count_rows)
    shop = new_shop(tmp_path)
    features = [OF_CARD, OF_DEVICE, feature("mine", ["user"], "avg(total)")]
    where = "pieces = 1 and total > 3 * coalesce(mine, 0) and (of_card >= 1 or of_device >= 1)"
    shop.send(rule("r", where=where, group_by=["user"], features=features))
    shop.send()
    sent.clear()
    shop.send(events=[buy(n, "a", "c", pieces=n % 5, total="9.00") for n in range(20)])
    assert sum(sent) == 2 * 4, "of 20 events four have one piece; there are two other keys"
