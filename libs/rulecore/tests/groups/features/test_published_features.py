"""Features that are published by themselves: a rule that names one does what a rule that declares it does, through
versions, restarts and deletions."""

from __future__ import annotations

import random
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pytest

from rulecore.backfill import BackfillCollector, backfill_records
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.control_keys import STAGED_KEY
from rulecore.documents.loading import decode_feature
from rulecore.documents.published_feature import PublishedFeature, encode_feature
from rulecore.documents.rule import Rule
from rulecore.errors import RuleError
from rulecore.factory import RulesFactory
from rulecore.language import ListType
from rulecore.lists.list_columns import ListColumn
from rulecore.ruleset.ruleset import RuleSet
from rulecore.ruleset.stream_changes import check_rules
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.types import RawBatch
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.kernel import ControlRecord
from streamcore.savepoint.division import divide_state
from streamcore.schema import STRING, StreamSchema
from streamcore.wire.lanes import ALERTS, STATUS, Record

HOUR = 3_600_000
T0 = 1_700_006_400_000
CLOCK = T0 + 1000 * 86_400_000
DOCUMENT = {
    "name": "pay",
    "event_time": "ts",
    "keys": [["user"], ["card"]],
    "fields": {"ts": "timestamp not null", "user": "string", "amount": "double", "card": "string"},
}
SCHEMA = StreamSchema.parse(DOCUMENT)
VALUE = {"of": "avg(amount)", "within": {"sliding": "30d", "every": "1h"}}
MEAN: dict[str, Any] = {"feature": "usual", "version": 1, "owner": "o", "on": "pay", "by": ["user"], **VALUE}
LARGER = {**MEAN, "version": 2, "of": "max(amount)"}
DECLARED = {"name": "usual", "by": ["user"], **VALUE}


def rule(name: str = "r", version: int = 1, **entries: Any) -> dict[str, Any]:
    own = {"group_by": ["user"], "features": ["usual"], "where": "amount > 2 * usual"}
    then = {"severity": "low", "message": "{user} {usual}"}
    return {"id": name, "version": version, "owner": "o", "on": "pay", "then": then, **own, **entries}


def made(shards: int = 2) -> App:
    kernel = RulesFactory((RuleStream(SCHEMA, "pay"),))
    return App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=shards)


def publish(offset: int, document: dict[str, Any]) -> RawRecord:
    key = f"feature/{document['feature']}" if "feature" in document else str(document["id"])
    return control_record(offset, key, orjson.dumps(document))


def payments(seed: int, count: int, start: int = 0) -> list[RawRecord]:
    rng = random.Random(seed)
    found = []
    for n in range(start, start + count):
        event = {
            "ts": T0 + n * HOUR // 4,
            "user": rng.choice("abc"),
            "card": rng.choice("kl"),
            "amount": rng.choice([1.0, 2.0, 3.0, 9.0]),
        }
        found.append(RawRecord(0, 0, n, orjson.dumps(event)))
    return found


def lane(records: list[Record], name: str) -> list[dict[str, Any]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def alerts(records: list[Record], *names: str) -> list[dict[str, Any]]:
    """Return what alerts of these rules say, without what another publication of the same rule changes."""
    changing = ("rules_epoch", "epoch", "alert_id")
    found = [one for one in lane(records, ALERTS) if not names or one["rule"] in names]
    return [{name: value for name, value in one.items() if name not in changing} for one in found]


def apply(rules: RuleSet, *changes: dict[str, Any] | str) -> tuple[RuleSet, list[tuple[str, str | None]]]:
    """Publish documents, and delete features by name. Return the set and the statuses."""
    found = []
    for change in changes:
        if isinstance(change, str):
            key, value = f"feature/{change}", None
        else:
            key = f"feature/{change['feature']}" if "feature" in change else change["id"]
            value = orjson.dumps(change)
        rules, (status,) = rules.apply([ControlRecord(0, 0, key.encode(), value)], CLOCK)
        assert status.subject == ("feature" if key.startswith("feature/") else "rule")
        found.append((status.status.value, status.reason))
    return rules, found


EMPTY = RuleSet.empty({"pay": SCHEMA})
EMPTY_RULES = apply(EMPTY, MEAN)[0]


@pytest.mark.parametrize("order", ["on_arrival", "in_order"])
@pytest.mark.parametrize("extra", [{}, {"including_this": True}, {"where": "amount < 9"}])
@pytest.mark.quick_cases(2)
def test_a_rule_that_names_a_feature_does_what_one_that_declares_it_does(order: str, extra: dict[str, Any]) -> None:
    named, declared = InProcessApp(made()), InProcessApp(made())
    named.cut([publish(0, {**MEAN, **extra, "order": order}), publish(1, rule(order=order))], CLOCK)
    declared.cut([publish(0, rule(order=order, features=[{**DECLARED, **extra}]))], CLOCK)
    got, want = [], []
    for cut in range(3):
        got += alerts(named.cut(payments(cut, 60, cut * 60), CLOCK))
        want += alerts(declared.cut(payments(cut, 60, cut * 60), CLOCK))
    assert len(want) > 10
    assert got == want


def test_a_published_feature_is_kept_without_a_rule_and_shared_with_equal_ones() -> None:
    running = InProcessApp(made())
    (status,) = lane(running.cut([publish(0, MEAN), *payments(0, 40)], CLOCK), STATUS)
    assert (status["subject"], status["rule"], status["status"]) == ("feature", "usual", "accepted")
    always = InProcessApp(made())
    always.cut([publish(0, MEAN), publish(1, rule()), *payments(0, 40)], CLOCK)
    then = {"severity": "low", "message": "{mean}"}
    declared = rule("own", features=[{**DECLARED, "name": "mean"}], where="amount > 2 * mean", then=then)
    running.cut([publish(1, rule()), publish(2, declared)], CLOCK)
    got, want = running.cut(payments(1, 40, 40), CLOCK), always.cut(payments(1, 40, 40), CLOCK)
    assert len(alerts(want)) > 3
    assert [one["values"] for one in alerts(got, "r")] == [one["values"] for one in alerts(want)]
    assert [one["source"] for one in alerts(got, "own")] == [one["source"] for one in alerts(want)]


def test_a_new_version_counts_for_its_rules_from_its_cut_on() -> None:
    running = InProcessApp(made())
    running.cut([publish(0, MEAN), publish(1, rule()), publish(2, rule("other", features=[DECLARED]))], CLOCK)
    running.cut(payments(0, 40), CLOCK)
    (status,) = lane(running.cut([publish(3, LARGER)], CLOCK), STATUS)
    assert (status["status"], status["version"], status["reason"]) == ("accepted", 2, "compiled again: r")
    fresh = InProcessApp(made())
    largest = {**DECLARED, "of": "max(amount)"}
    fresh.cut([publish(0, rule(features=[largest]))], CLOCK)
    events = payments(1, 60, 40)
    got, want = running.cut(events, CLOCK), fresh.cut(events, CLOCK)
    assert [one["values"] for one in alerts(got, "r")] == [one["values"] for one in alerts(want)]
    assert len(alerts(want)) > 0
    assert alerts(got, "other"), "a rule that declares the feature keeps its own"


def test_features_survive_a_restart_and_another_number_of_shards() -> None:
    running, always = InProcessApp(made()), InProcessApp(made())
    for one in (running, always):
        one.cut([publish(0, MEAN), publish(1, rule()), *payments(0, 40)], CLOCK)
    again = InProcessApp(made(3), divide_state(running.blobs, running.app, made(3)), next_offsets=running.next_offsets)
    got, want = again.cut(payments(1, 40, 40), CLOCK), always.cut(payments(1, 40, 40), CLOCK)
    assert len(alerts(want)) > 3
    by_offset = lambda one: one["source"]["offset"]  # noqa: E731
    assert sorted(alerts(got), key=by_offset) == sorted(alerts(want), key=by_offset)


def test_a_feature_that_rules_name_is_not_deleted() -> None:
    rules, statuses = apply(EMPTY, MEAN, rule(), rule("trial", mode="draft"), "usual")
    assert statuses[3][0] == "rejected"
    assert "rules name it: r, trial; publish versions without it" in str(statuses[3][1])
    rules, statuses = apply(rules, rule(version=2, features=[DECLARED]), rule("trial", 2, features=[DECLARED]), "usual")
    assert [status for status, _ in statuses] == ["accepted", "accepted", "deleted"]
    assert rules.features.stored == {}
    assert apply(rules, "usual")[1] == [("deleted", "there is no such feature")]
    assert "there is no published feature usual" in str(apply(rules, rule(version=3))[1][0][1])


def test_versions_raise_the_epoch_and_are_kept() -> None:
    rules, statuses = apply(EMPTY, MEAN, MEAN, {**MEAN, "owner": "x"}, LARGER)
    assert [status for status, _ in statuses] == ["accepted", "accepted", "rejected", "accepted"]
    assert statuses[1][1] == "no change"
    assert statuses[2][1] == "version 1 is not above version 1, the newest; raise it"
    assert rules.epoch == 2
    rules, _ = apply(rules, rule())
    restored = RuleSet.restore(rules.streams, rules.limits, rules.records())
    assert restored == rules
    assert restored.rules == rules.rules
    assert restored.with_state() == rules.with_state()
    assert restored.features.documents["usual"] == PublishedFeature.model_validate(LARGER)


def test_the_log_gives_the_same_features_as_the_app() -> None:
    changes = [MEAN, rule(), LARGER]
    rules, _ = apply(EMPTY, *changes)
    replay = EMPTY.start_replay()
    for one in changes:
        key = f"feature/{one['feature']}" if "feature" in one else one["id"]
        replay.apply(ControlRecord(0, 0, key.encode(), orjson.dumps(one)), CLOCK)
    after = EMPTY.after_replay(replay)
    assert after == rules
    assert after.rules == rules.rules


def test_a_version_with_which_a_rule_is_not_valid_is_rejected() -> None:
    rules, _ = apply(EMPTY, MEAN, rule())
    after, ((status, reason),) = apply(rules, {**MEAN, "version": 2, "of": "last(card)"})
    assert status == "rejected"
    assert "rule r version 1 would not be valid any more: where:1:14" in str(reason)
    assert after is rules
    _, ((status, reason),) = apply(rules, {**MEAN, "version": 2, "order": "in_order"})
    assert "usual is for rules with order: in_order, and this one has order: on_arrival" in str(reason)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"of": "avg(amont)"}, "of:1:5: unknown column amont"),
        ({"where": "amount >"}, "where:1:8"),
        ({"by": ["nobody"]}, "by: stream pay has no nobody"),
        ({"by": []}, "by: should have at least 1 item"),
        ({"feature": "amount"}, "feature: amount is a field of pay; take another name"),
        ({"on": "refunds"}, "on: "),
        ({"within": {"session": "5m"}}, "within: is {sliding: 30d, every: 1h}"),
        ({"within": {"sliding": "500d", "every": "1d"}}, "within: 500d back, at most 400d"),
        ({"extra": 1}, "extra: unknown entry"),
        ({"version": "one"}, "version: should be a whole number"),
    ],
)
def test_a_feature_that_is_not_valid_is_rejected_with_what_to_do(changes: dict[str, Any], message: str) -> None:
    rules, ((status, reason),) = apply(EMPTY, {**MEAN, **changes})
    assert status == "rejected"
    assert message in str(reason)
    assert rules is EMPTY


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"features": ["nothing"]}, "features.0: there is no published feature nothing; publish it first"),
        ({"features": ["usual", DECLARED]}, "features.1.name: two are named usual"),
        ({"features": ["Usual"]}, "features.0: String should match pattern"),
        ({"features": [3]}, "features.0: should be a mapping"),
        ({"order": "in_order"}, "features.0: usual is for rules with order: on_arrival"),
    ],
)
def test_a_rule_that_cannot_read_a_feature_is_rejected(entries: dict[str, Any], message: str) -> None:
    _, (_, (status, reason)) = apply(EMPTY, MEAN, rule(**entries))
    assert status == "rejected"
    assert message in str(reason)


def test_their_number_has_a_limit() -> None:
    few = RuleSet.empty({"pay": SCHEMA}, RuleLimits(features=1))
    _, statuses = apply(few, MEAN, {**MEAN, "feature": "other"})
    assert statuses[1] == ("rejected", "there are 1 features, which is the limit; delete one first")


def test_a_failed_feature_is_in_quarantine_until_a_new_version() -> None:
    rules, _ = apply(EMPTY, MEAN)
    (keeper,) = rules.with_state()
    record = ControlRecord(0, 0, b"quarantine/feature/usual@1", b'{"reason": "too large"}')
    rules, (status,) = rules.quarantine(keeper, "too large").apply([record], CLOCK)
    assert (status.subject, status.name, status.status) == ("feature", "usual", "quarantined")
    assert rules.with_state() == ()
    assert apply(rules, MEAN)[1] == [("accepted", "no change; in quarantine: too large")]
    rules, _ = apply(rules, LARGER)
    assert [one.rule.version for one in rules.with_state()] == [2]
    assert rules.quarantined == {}


def test_a_stream_document_that_a_feature_does_not_fit_is_rejected() -> None:
    rules, _ = apply(EMPTY, MEAN)
    fields = {name: kind for name, kind in DOCUMENT["fields"].items() if name != "amount"}  # type: ignore[attr-defined]
    with pytest.raises(RuleError, match="feature usual version 1 would not be valid any more: of:1:5: unknown column"):
        check_rules(rules, SCHEMA, StreamSchema.parse({**DOCUMENT, "fields": fields}))


def test_canonical_bytes_are_read_back_and_those_of_rules_keep_the_name() -> None:
    read = PublishedFeature.model_validate(MEAN)
    assert decode_feature(encode_feature(read), 10_000) == read
    assert orjson.loads(encode_feature(read))["order"] == "on_arrival"
    compiled = compile_rule(Rule.model_validate(rule()), {"pay": SCHEMA}, RuleLimits(), {}, {"usual": read})
    declared = compile_rule(Rule.model_validate(rule(features=[DECLARED])), {"pay": SCHEMA}, RuleLimits())
    assert compiled.rule.features == ("usual",)
    assert compiled.features == declared.features
    assert (compiled.whole, compiled.digest) == (declared.rule, declared.digest)


def test_a_feature_may_ask_a_list_which_is_then_in_use() -> None:
    lists = {"known": ListType("known", STRING)}
    rules, statuses = apply(EMPTY.with_lists(lists), {**MEAN, "where": "card in list('known')"}, rule())
    assert [status for status, _ in statuses] == ["accepted", "accepted"]
    assert rules.rules_using_list("known") == ("feature/usual", "r")
    assert [column.list.name for column in rules.added_columns("pay") if isinstance(column, ListColumn)] == ["known"]
    assert RuleSet.restore(rules.streams, rules.limits, rules.records(), lists) == rules


def test_a_feature_that_begins_amid_events_says_from_where_it_counts() -> None:
    running = InProcessApp(made())
    running.cut(payments(0, 40), CLOCK)
    (status,) = lane(running.cut([publish(0, MEAN)], CLOCK), STATUS)
    (fingerprint,) = (one.fingerprint for one in EMPTY_RULES.with_state()[0].features)
    assert status["incomplete"]["since_ms"] == {fingerprint: T0 + 39 * HOUR // 4}
    assert status["incomplete"]["counts_from"] == {"pay": {"0": 40}}
    (status,) = lane(running.cut([publish(1, rule())], CLOCK), STATUS)
    assert "incomplete" not in status, "the feature was there before"


def test_a_published_feature_is_filled_from_history_through_a_rule_that_names_it() -> None:
    running, always = InProcessApp(made()), InProcessApp(made())
    past = payments(0, 40)
    always.cut([publish(0, MEAN), publish(1, rule()), *past], CLOCK)
    running.cut(past, CLOCK)
    feature, _ = lane(running.cut([publish(0, MEAN), publish(1, rule())], CLOCK), STATUS)
    named = Rule.model_validate(rule())
    published = {"usual": PublishedFeature.model_validate(MEAN)}
    collector = BackfillCollector(compile_rule(named, {"pay": SCHEMA}, RuleLimits(), {}, published), SCHEMA)
    values, offsets = (
        pa.array([one.value for one in past], pa.binary()),
        pa.array([one.offset for one in past], pa.int64()),
    )
    partitions = pa.array([0] * len(past), pa.int32())
    batch = RawBatch(values=values, partition=partitions, offset=offsets, clock_ms=CLOCK)
    collector.add(pl.DataFrame(JsonDecoder(SCHEMA).decode(batch).events))
    records = backfill_records(collector, T0 - 40 * 24 * HOUR, feature["incomplete"]["since_ms"], STAGED_KEY)
    answers = running.cut([control_record(10 + n, *one) for n, one in enumerate(records)], CLOCK)
    assert [one["status"] for one in lane(answers, STATUS) if one["subject"] == "backfill"] == ["accepted"]
    got, want = running.cut(payments(1, 40, 40), CLOCK), always.cut(payments(1, 40, 40), CLOCK)
    assert len(alerts(want)) > 3
    assert [one["values"] for one in alerts(got)] == [one["values"] for one in alerts(want)]
    assert not any(one["incomplete"] for one in alerts(got))
