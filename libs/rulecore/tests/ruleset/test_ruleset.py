"""The life of a rule set: accepted, rejected, replaced, deleted, put into quarantine, restored."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rulecore.compile.cache
import rulecore.compile.rule
from rulecore import language as lang
from rulecore.compile.rule import CompiledRule, RuleLimits
from rulecore.documents.rule import RuleKind
from rulecore.documents.status import RuleStatus, StatusKind
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user_id"], ["card", "country"]],
        "fields": {
            "ts": "timestamp not null",
            "user_id": "string",
            "card": "string",
            "country": "string",
            "amount": "decimal(12,2)",
            "quantity": "long",
        },
    }
)
STREAMS = {"pay": SCHEMA}
CLOCK = 1_800_000_000_000


def record(rule_id: str = "r", version: int = 1, offset: int = 0, /, **fields: object) -> ControlRecord:
    document: dict[str, object] = {
        "id": rule_id,
        "version": version,
        "owner": "o",
        "on": "pay",
        "then": {"severity": "low", "message": "m"},
    }
    if "having" not in fields:
        document["where"] = "amount > 1"
    return ControlRecord(0, offset, rule_id.encode(), orjson.dumps(document | fields))


def window(rule_id: str = "w", version: int = 1, /, **fields: object) -> ControlRecord:
    base: dict[str, object] = {"group_by": ["user_id"], "within": {"sliding": "1h", "every": "5m"}}
    return record(rule_id, version, 0, **(base | {"having": "count(*) >= 3"} | fields))


def tombstone(rule_id: str) -> ControlRecord:
    return ControlRecord(0, 9, rule_id.encode(), None)


def empty_rules() -> RuleSet:
    return RuleSet.empty(STREAMS)


def live_rule(rules: RuleSet, rule_id: str) -> CompiledRule:
    found = rules.live(rule_id)
    assert found is not None
    return found


def ids(rules: RuleSet) -> set[str]:
    return {place.rule for place in rules.rules}


def window_rule_ids(rules: RuleSet) -> list[str]:
    return [c.rule.id for c in rules.evaluated_rules() if c.kind is RuleKind.WINDOW]


def apply_one(rules: RuleSet, change: ControlRecord) -> tuple[RuleSet, RuleStatus]:
    after, (status,) = rules.apply([change], CLOCK)
    return after, status


def compile_record(change: ControlRecord) -> CompiledRule:
    after, status = apply_one(empty_rules(), change)
    assert status.status is StatusKind.ACCEPTED, status.reason
    (rule,) = after.rules.values()
    return rule


def test_an_accepted_rule_is_live_from_the_next_epoch() -> None:
    rules, status = apply_one(empty_rules(), record("r", 1, 7))
    assert status == RuleStatus("r", 1, StatusKind.ACCEPTED, None, 1, 0, 7, mode="live")
    assert rules.epoch == 1
    assert [c.rule.id for c in rules.matcher("pay", ("user_id",)).rules] == ["r"]
    assert empty_rules().epoch == 0


def test_the_epoch_increases_once_for_all_records_of_a_call() -> None:
    rules, statuses = empty_rules().apply(
        [record("a"), record("b"), ControlRecord(0, 2, b"c", b"junk"), record("a", 2)], CLOCK
    )
    assert rules.epoch == 1
    assert [s.status for s in statuses] == ["accepted", "accepted", "rejected", "accepted"]
    assert {s.rules_epoch for s in statuses} == {1}
    assert live_rule(rules, "a").rule.version == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (record("r", 2, where="amount >"), "where:1:8"),
        (record("r", 2, where="colour = 'red'"), "colour"),
        (record("r", 2, where="amount > 'a'"), "where:1:"),
        (record("r", 2, where="reflect('java.lang.Runtime', 'exec')"), "reflect"),
        (record("r", 2, where="amount > (select 1)"), "where:1:"),
        (record("r", 2, where="(" * 200 + "amount > 1" + ")" * 200), "where:1:"),
        (record("r", 2, where="amount > 1" + " or amount > 1" * 2_000), "where"),
        (record("r", 2, on="nowhere"), "there is no stream 'nowhere'; there are pay"),
        (record("r", 2, then={"severity": "low", "message": "{colour}"}), "unknown name {colour}"),
        (window("r", 2, group_by=["lower(card"]), "group_by.0:1:6: ( is never closed"),
        (window("r", 2, group_by=["LOWER( card )"]), "group_by: write lower(card) for LOWER( card )"),
        (window("r", 2, group_by=["card", "_x"]), "group_by: stream pay has no _x; accepted here: ts, user_id"),
        (window("r", 2, group_by=["upper('a')"]), "group_by: upper('a') has one value for all events"),
        (window("r", 2, group_by=["split(card, '-')"]), "group_by: split(card, '-') is array<string>"),
        (window("r", 2, group_by=["user_id", "colour"]), "has no colour"),
        (window("r", 2, having="user_id = 'a'"), "has no aggregate"),
        (window("r", 2, having="amount > 1"), "having:1:1"),
        (window("r", 2, having="count(*) > 1", then={"severity": "low", "message": "{sum}"}), "{count}"),
        (window("r", 2, within={"sliding": "1d", "every": "1s"}), "86400 panes a window, at most 2000"),
        (window("r", 2, within={"tumbling": "401d"}), "a window of 401d, at most 400d"),
        (window("r", 2, having=" + ".join(f"sum(quantity + {i})" for i in range(17)) + " > 1"), "17 aggregates"),
        (record("r", 1, where="amount > 2"), "version 1 is not above version 1, the newest; raise it"),
        (ControlRecord(0, 0, b"r", b"{"), "not JSON"),
        (ControlRecord(0, 0, b"other", record("r", 2).value), "the record's key is 'other' and the rule's id 'r'"),
        (ControlRecord(0, 0, None, record("r", 2).value), "the record's key is ''"),
        (record("r", 2, description="x" * 2_001), "description"),
        (record("r", 2, sequence=[]), "sequence: "),
        (ControlRecord(0, 0, b"r", b" " * 70_000), "at most 65536"),
    ],
)
def test_a_rejected_record_has_a_reason_and_leaves_the_previous_version_live(change: ControlRecord, words: str) -> None:
    before, _ = apply_one(empty_rules(), record())
    after, status = apply_one(before, change)
    assert status.status is StatusKind.REJECTED
    assert words in (status.reason or "")
    assert after is before
    assert status.rules_epoch == 1


def test_the_status_of_a_rejected_record_has_its_version() -> None:
    _, status = apply_one(empty_rules(), record("r", 5, where="amount >"))
    assert status.version == 5


def test_publishing_the_same_version_again_changes_nothing() -> None:
    before, _ = apply_one(empty_rules(), record())
    spaced = orjson.dumps(orjson.loads(record().value or b""), option=orjson.OPT_INDENT_2)
    after, status = apply_one(before, ControlRecord(0, 3, b"r", spaced))
    assert status.status is StatusKind.ACCEPTED
    assert after is before


def test_a_deleted_rule_can_be_published_again() -> None:
    rules, status = apply_one(apply_one(empty_rules(), record("r", 3))[0], tombstone("r"))
    assert (status.status, status.version, status.rules_epoch) == (StatusKind.DELETED, 3, 2)
    assert rules.rules == {}
    assert rules.matcher("pay", ("user_id",)).rules == ()
    again, status = apply_one(rules, record("r", 1))
    assert status.status is StatusKind.ACCEPTED
    assert again.epoch == 3


def test_deleting_a_missing_rule_changes_nothing() -> None:
    before = empty_rules()
    after, status = apply_one(before, tombstone("r"))
    assert after is before
    assert (status.status, status.reason) == (StatusKind.DELETED, "there is no such rule")


def test_more_rules_than_the_limit_are_rejected_and_replacing_one_is_not() -> None:
    rules = RuleSet.empty(STREAMS, RuleLimits(rules=1))
    rules, _ = apply_one(rules, record("a"))
    same, status = apply_one(rules, record("b"))
    assert "which is the limit" in (status.reason or "")
    assert same is rules
    assert apply_one(rules, ControlRecord(0, 0, b"b", b"{"))[1].reason == status.reason, (
        "the limit is checked before the record is decoded"
    )
    assert apply_one(rules, record("a", 2))[1].status is StatusKind.ACCEPTED


def test_a_paused_rule_is_kept_and_not_evaluated() -> None:
    rules, _ = empty_rules().apply(
        [record("r", mode="paused"), window("w", mode="paused"), record("s", mode="shadow")], CLOCK
    )
    assert ids(rules) == {"r", "s", "w"}
    assert [c.rule.id for c in rules.matcher("pay", ("user_id",)).rules] == ["s"]
    assert window_rule_ids(rules) == []


def test_a_rule_in_quarantine_is_not_evaluated_until_its_next_version() -> None:
    rules, _ = empty_rules().apply([record("a"), record("b"), window("w")], CLOCK)
    away = rules.quarantine(live_rule(rules, "a"), "it raised").quarantine(live_rule(rules, "w"), "too")
    assert away.quarantine(compile_record(record("nobody")), "x") is away
    assert dict(away.quarantined) == {"a@1": "it raised", "w@1": "too"}
    assert away.epoch == rules.epoch
    assert [c.rule.id for c in away.matcher("pay", ("user_id",)).rules] == ["b"]
    assert window_rule_ids(away) == []
    assert len(rules.matcher("pay", ("user_id",)).rules) == 2
    same, status = apply_one(away, record("a"))
    assert same is away
    assert status.reason == "no change; in quarantine: it raised"
    back, _ = apply_one(away, record("a", 2))
    assert dict(back.quarantined) == {"w@1": "too"}
    assert len(back.matcher("pay", ("user_id",)).rules) == 2


def test_a_restored_rule_set_equals_the_original() -> None:
    rules, _ = empty_rules().apply([record("b"), window("w"), record("a", mode="shadow")], CLOCK)
    rules = apply_one(rules, record("a", 2))[0]
    rules = rules.quarantine(live_rule(rules, "b"), "it raised")
    restored = RuleSet.restore(STREAMS, rules.limits, rules.records())
    assert restored == rules
    assert restored.rules == rules.rules
    assert restored.matcher("pay", ("user_id",)).rules == rules.matcher("pay", ("user_id",)).rules
    assert window_rule_ids(restored) == window_rule_ids(rules)
    assert restored.apply([record("a", 3)], CLOCK) == rules.apply([record("a", 3)], CLOCK)
    assert empty_rules() != rules


def test_a_stored_rule_that_no_longer_compiles_is_in_quarantine() -> None:
    rules, _ = empty_rules().apply([record("a"), record("b", where="quantity > 1")], CLOCK)
    narrower = StreamSchema("pay", SCHEMA.fields[:5], "ts", (("user_id",),))
    restored = RuleSet.restore({"pay": narrower}, rules.limits, rules.records())
    assert ids(restored) == {"a"}
    assert "no longer compiles" in restored.quarantined["b@1"]
    assert restored.stored == rules.stored
    fixed, status = apply_one(restored, record("b", 2))
    assert status.status is StatusKind.ACCEPTED
    assert ids(fixed) == {"a", "b"}


@given(st.lists(st.tuples(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=60)), max_size=6))
def test_no_bytes_make_applying_raise(junk: list[tuple[bytes | None, bytes | None]]) -> None:
    before, _ = apply_one(empty_rules(), record())
    controls = [ControlRecord(0, i, key, value) for i, (key, value) in enumerate(junk) if key != b"r"]
    after, statuses = before.apply(controls, CLOCK)
    assert after is before
    assert [s.offset for s in statuses] == [c.offset for c in controls]
    assert all(s.status in (StatusKind.REJECTED, StatusKind.DELETED) and s.reason for s in statuses)


NAMES = st.sampled_from(["id", "version", "on", "where", "then", "within", "having", "mode", "tests"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(NAMES, VALUES))
def test_no_document_makes_applying_raise(changes: dict[str, object]) -> None:
    before, _ = apply_one(empty_rules(), record())
    document = orjson.loads(record("r", 2).value or b"") | changes
    try:
        value = orjson.dumps(document)
    except TypeError:  # a whole number of more than 64 bits, or half a surrogate pair: no JSON
        return
    after, status = apply_one(before, ControlRecord(0, 1, b"r", value))
    assert status.status in (StatusKind.ACCEPTED, StatusKind.REJECTED)
    assert (after is before) == (status.status is StatusKind.REJECTED)


@given(st.text(max_size=40))
def test_no_text_of_a_condition_makes_applying_raise(text: str) -> None:
    _, status = apply_one(empty_rules(), record("r", 1, where=text, then={"severity": "low", "message": text or "m"}))
    assert status.reason is None or not status.reason.startswith("internal error")


def test_only_the_changed_rule_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, _ = empty_rules().apply([record(f"r{i}", where=f"amount > {i + 0.5}") for i in range(20)], CLOCK)
    done: list[str] = []
    compile_rule = rulecore.compile.rule.compile_rule

    def count_and_compile(*arguments: object) -> CompiledRule:
        done.append("one")
        return compile_rule(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rulecore.compile.cache, "compile_rule", count_and_compile)
    after, _ = apply_one(rules, record("r3", 2, where="amount > 99.25"))
    assert done == ["one"]
    assert all(after.rules[i] is rules.rules[i] for i in rules.rules if i.rule != "r3")


def test_a_change_keeps_the_matchers_of_other_streams() -> None:
    other = StreamSchema("other", SCHEMA.fields, "ts", (("user_id",),))
    rules, _ = RuleSet.empty({"pay": SCHEMA, "other": other}).apply([record("a"), record("b", on="other")], CLOCK)
    kept, rebuilt = rules.matcher("other", ("user_id",)), rules.matcher("pay", ("user_id",))
    after, _ = apply_one(rules, record("a", 2))
    assert after.matcher("other", ("user_id",)) is kept
    assert after.matcher("pay", ("user_id",)) is not rebuilt


def test_a_new_threshold_keeps_the_fingerprints_of_the_aggregates() -> None:
    before = compile_record(window(having="count(*) >= 3 and sum(amount) > 10"))
    after = compile_record(window("w", 2, having="sum(amount) > 99 or count(*) >= 7", description="new", mode="shadow"))
    assert {a.fingerprint for a in before.aggregates} == {a.fingerprint for a in after.aggregates}
    assert before.digest != after.digest


@pytest.mark.parametrize(
    "fields",
    [
        {"where": "amount > 2"},
        {"group_by": ["user_id", "country"]},
        {"within": {"sliding": "1h", "every": "10m"}},
        {"having": "sum(amount + 1) > 10"},
        {"having": "avg(amount) > 10"},
    ],
)
def test_the_fingerprint_covers_everything_that_is_counted(fields: dict[str, object]) -> None:
    base: dict[str, object] = {"having": "sum(amount) > 10", "where": "amount > 1"}
    before, after = compile_record(window(**base)), compile_record(window(**(base | fields)))
    assert before.aggregates[0].fingerprint != after.aggregates[0].fingerprint


def test_rules_that_count_the_same_share_a_fingerprint() -> None:
    """For any rule id, spelling, order of the group and length of the window."""
    before = compile_record(window("a", group_by=["country", "user_id"], having="sum(quantity * amount) > 1"))
    after = compile_record(
        window(
            "b",
            group_by=["user_id", "country"],
            within={"sliding": "10m", "every": "5m"},
            having="sum( amount*quantity ) > 2",
        )
    )
    assert before.aggregates[0].fingerprint == after.aggregates[0].fingerprint
    assert before.group_by == after.group_by == ("user_id", "country")


def test_having_is_rewritten_to_columns_that_the_message_can_use() -> None:
    rule = compile_record(
        window(
            having="sum(amount) > 10 and sum(quantity) > 2 and user_id <> 'x'",
            then={"severity": "low", "message": "{user_id} {sum}"},
        )
    )
    total, pieces = rule.aggregates
    assert (total.text, total.function) == ("sum(amount)", "sum")
    assert [(p.name, p.column) for p in rule.placeholders] == [("user_id", "user_id"), ("sum", total.column)]
    assert rule.having_on_columns is not None
    columns = lang.columns(rule.having_on_columns)
    assert columns == {"user_id", total.column, pieces.column}
    assert (rule.route_key, rule.window and rule.window.panes) == (("user_id",), 12)


def test_events_are_routed_by_the_first_declared_key_in_group_by_or_by_all_of_it() -> None:
    def key(*group_by: str) -> tuple[str, ...]:
        return compile_record(window(group_by=group_by)).route_key

    assert key("country", "card") == key("quantity", "country", "card") == ("card", "country")
    assert key("card", "user_id") == key("country", "card", "user_id") == ("user_id",)
    assert key("card") == ("card",)
    assert key("lower(card)", "country") == ("country", "lower(card)")
    assert key("lower(card)", "user_id") == ("user_id",)
