"""Documents of decision policies, and their table in the rule set: what is accepted, kept and rejected, and why."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pyarrow as pa
import pytest

from rulecore.alerts.decision_parts import chosen_events
from rulecore.alerts.decisions import (
    DECISION_PARTS,
    MAX_LISTED,
    MAX_LISTED_BYTES,
    DecisionCause,
    decide,
    merge_decisions,
)
from rulecore.compile.decision_policy import compile_policy
from rulecore.compile.rule import RuleLimits
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.loading import decode_policy, load_path, load_policies
from rulecore.errors import RuleError
from rulecore.factory import RulesFactory
from rulecore.ruleset.history import ControlEntry, replay_log
from rulecore.ruleset.ruleset import RuleSet
from rulecore.ruleset.stream_changes import check_rules
from rulecore.settings import DispatchSettings
from rulecore.streams import RuleStream
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.engine.merged_lanes import read_rows
from streamcore.kernel import ControlRecord, Cut, StreamKey
from streamcore.savepoint.division import divide_state
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.lanes import DECISIONS
from tests.harness.apps.governed import ADMIN, APPROVER, AUTHOR, PUBLISHER, introduced
from tests.harness.oracles.decided_payments import (
    CLOCK,
    LOGINS,
    PAYMENTS,
    POLICY,
    RULES,
    app,
    events,
    on,
    publish,
    records,
    rule,
)

PAYMENT = {"id": "e", "at": CLOCK, "user": "u", "card": "c", "amount": 900, "note": None}
STREAMS = {"payments": PAYMENTS, "logins": LOGINS}


def policy(**changes: Any) -> dict[str, Any]:
    return {**POLICY, **changes}


def deciding(**changes: Any) -> dict[str, Any]:
    return policy(decide={**POLICY["decide"], **changes})


def apply(rules: RuleSet, *changes: dict[str, Any] | str) -> tuple[RuleSet, list[tuple[str, str | None]]]:
    """Publish documents and delete names. Return the set and the statuses."""
    found = []
    for change in changes:
        name = change if isinstance(change, str) else change["decision_policy"]
        value = None if isinstance(change, str) else orjson.dumps(change)
        rules, (status,) = rules.apply([ControlRecord(0, 0, f"decision-policy/{name}".encode(), value)], CLOCK)
        assert status.subject == "decision_policy"
        found.append((status.status.value, status.reason))
    return rules, found


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (deciding(default="none"), "decide: default: none is no outcome of `order`; there are block, review, allow"),
        (
            deciding(bands={"stop": 4}),
            "decide: bands.stop: stop is no outcome of `order`; there are block, review, allow",
        ),
        (deciding(bands={"block": 4, "review": 4}), "decide: bands: a stronger outcome needs a higher score"),
        (deciding(order=["allow", "allow"]), "decide.order: names an outcome twice"),
        (deciding(order=[]), "decide.order: should have at least 1 item"),
        (policy(share="120%"), "share: '120%' is no share; write a percentage between 0% and 100%, such as 1%"),
        (policy(share="-1%"), "share: '-1%' is no share"),
        (policy(share="nan%"), "share: 'nan%' is no share"),
        (policy(share=-5.0), "is no share; write a percentage between 0% and 100%, such as 1%"),
        (policy(share=500.0), "is no share; write a percentage between 0% and 100%, such as 1%"),
        (policy(share=0.5), "is no share; write a percentage between 0% and 100%, such as 0.5%"),
        (policy(share=1), "1 is no share; write a percentage between 0% and 100%, such as 1%"),
        (policy(share=0.5, decide=1), "decide: should be a mapping"),
        (policy(extra=1), "extra: unknown entry"),
        (policy(where="amount >"), "where:1:8: something is missing after >"),
        (policy(where="user in list('vip')"), "where:"),
        (policy(where="amount"), "where:1:1"),
        (policy(on="refunds"), "on: there is no stream refunds; there are logins, payments"),
    ],
)
def test_a_policy_that_is_not_valid_is_rejected_with_what_to_do(document: dict[str, Any], message: str) -> None:
    _, ((status, reason),) = apply(RuleSet.empty(STREAMS), document)
    assert status == "rejected"
    assert message in str(reason)


def test_canonical_bytes_are_read_back_and_a_default_is_written_out() -> None:
    document = {name: value for name, value in POLICY.items() if name != "where"}
    read = DecisionPolicy.model_validate(document)
    again = decode_policy(encode_policy(read), 10_000)
    assert again == read
    assert orjson.loads(encode_policy(read))["share"] == "30%"
    assert orjson.loads(encode_policy(read))["where"] is None


@pytest.mark.parametrize("share", ["0%", "100%", "33.3333333333%", "0.00001%", "12.5%"])
def test_a_share_keeps_all_its_digits(share: str) -> None:
    read = DecisionPolicy.model_validate(policy(share=share))
    assert orjson.loads(encode_policy(read))["share"] == share
    assert decode_policy(encode_policy(read), 10_000) == read


def test_a_stored_policy_that_cannot_be_read_any_more_is_replaced_or_deleted() -> None:
    rules, _ = apply(RuleSet.empty(STREAMS), POLICY)
    records = [(key, value.replace(b'"share":"30%"', b'"share":"-5%"')) for key, value in rules.records()]
    assert records != [*rules.records()]
    broken = RuleSet.restore(STREAMS, rules.limits, records)
    assert broken.policies.by_stream == {}, "it decides nothing"
    other = policy(decision_policy="login", on="logins", where=None)
    mended, statuses = apply(broken, other, policy(version=2))
    assert [status for status, _ in statuses] == ["accepted", "accepted"]
    assert {*mended.policies.by_stream} == {"logins", "payments"}
    without, statuses = apply(broken, "pay")
    assert statuses == [("deleted", None)]
    assert without.policies.stored == {}


def test_a_version_replaces_a_lower_one_raises_the_epoch_and_is_kept() -> None:
    rules, statuses = apply(RuleSet.empty(STREAMS), POLICY, POLICY, policy(share="2%"), policy(version=2, share="2%"))
    assert [status for status, _ in statuses] == ["accepted", "accepted", "rejected", "accepted"]
    assert statuses[1][1] == "no change"
    assert statuses[2][1] == "version 1 is not above version 1, the newest; raise it"
    assert rules.epoch == 2
    restored = RuleSet.restore(STREAMS, rules.limits, rules.records())
    assert restored == rules
    assert restored.policies.by_stream["payments"].policy.share == 2
    after, statuses = apply(rules, "pay", "pay")
    assert statuses == [("deleted", None), ("deleted", "there is no such decision policy")]
    assert after.epoch == 3
    assert after.policies.by_stream == {}


def test_a_stream_has_one_policy_and_their_number_has_a_limit() -> None:
    other = policy(decision_policy="other", on=["logins", "payments"], where=None)
    _, statuses = apply(RuleSet.empty(STREAMS), POLICY, other)
    assert statuses[1] == ("rejected", "on: decision policy pay decides about events of payments; a stream has one")
    few = RuleSet.empty(STREAMS, RuleLimits(decision_policies=1))
    _, statuses = apply(few, POLICY, policy(decision_policy="login", on="logins", where=None))
    assert statuses[1] == ("rejected", "there are 1 decision policies, which is the limit; delete one first")


def test_the_log_gives_the_same_policies_as_the_app() -> None:
    rules, _ = apply(RuleSet.empty(STREAMS), POLICY, policy(version=2))
    empty = RuleSet.empty(STREAMS)
    replay = empty.start_replay()
    for document in (POLICY, policy(version=2)):
        replay.apply(ControlRecord(0, 0, b"decision-policy/pay", orjson.dumps(document)), CLOCK)
    assert empty.after_replay(replay) == rules


def test_a_stream_document_that_a_policy_does_not_fit_is_rejected() -> None:
    rules, _ = apply(RuleSet.empty(STREAMS), POLICY)
    names = {"id": "string", "at": "timestamp", "user": "string", "card": "string"}
    fields = {name: f"{kind} not null" for name, kind in names.items()}
    new = {"name": "payments", "event_time": "at", "event_id": "id", "keys": [["user"], ["card"]], "fields": fields}
    with pytest.raises(RuleError, match="decision policy pay version 1 would not be valid any more"):
        check_rules(rules, PAYMENTS, StreamSchema.parse(new))


def test_a_policy_stands_beside_rules_in_a_file(tmp_path: Path) -> None:
    text = "---\n".join(f"{orjson.dumps(each).decode()}\n" for each in (POLICY, RULES["large"]))
    (tmp_path / "all.yaml").write_text(text)
    (tmp_path / "wrong.yaml").write_text("decision_policy: x\nversion: one\n")
    rules, problems = load_path(tmp_path)
    assert [one.rule.id for one in rules if one.rule is not None] == ["large"]
    assert problems == []
    good, bad = load_policies(tmp_path)
    assert good.policy == DecisionPolicy.model_validate(POLICY)
    wrong = [(problem.place.line, problem.path, problem.message) for problem in bad.problems]
    assert (2, "version", "should be a whole number") in wrong


def test_a_share_is_about_that_many_events_and_always_the_same() -> None:
    compiled = compile_policy(DecisionPolicy.model_validate(policy(where=None, share="10%")), STREAMS, RuleLimits())
    frame = pl.DataFrame({"id": [f"e{n}" for n in range(20_000)]})
    ((cause, chosen),) = chosen_events(compiled, PAYMENTS, frame)
    assert cause is DecisionCause.SHARE
    assert chosen is not None
    assert 1_850 < chosen.height < 2_150
    ((_, again),) = chosen_events(compiled, PAYMENTS, frame[::-1])
    assert again is not None
    assert {*again["id"]} == {*chosen["id"]}


def test_the_strongest_of_rules_and_band_counts() -> None:
    order = {"order": ["block", "review", "allow"], "default": "allow", "bands": {"review": 40, "block": 80}}
    add = {**order, "score": "sum"}
    assert decide(add, []) == ("allow", 0, None)
    assert decide(add, [("allow", 39)]) == ("allow", 39, None)
    assert decide(add, [("allow", 20), ("allow", 20)]) == ("review", 40, "review")
    assert decide({**add, "score": "max"}, [("allow", 20), ("allow", 20)]) == ("allow", 20, None)
    assert decide(add, [("block", 0), ("allow", 45)]) == ("block", 45, "review")
    assert decide(add, [("notify", 80)]) == ("block", 80, "block"), (
        "an outcome that is not in the order gives its score"
    )


def test_a_decision_lists_so_many_rules_and_counts_all() -> None:
    running = InProcessApp(replace(app(1), merges={}))
    running.cut([publish(0, POLICY), publish(1, RULES["large"])], CLOCK)
    (part,) = (r for r in running.cut(records([(0, PAYMENT)]), CLOCK) if r.lane == DECISION_PARTS)
    (parts,) = read_rows([part.value])
    names = [f"r{number:03}" for number in range(MAX_LISTED + 5)]
    many = pa.concat_tables([parts.set_column(6, "rule", pa.array([name])) for name in names])
    (decision,) = on(merge_decisions(many), DECISIONS)
    assert (decision["score"], decision["left_out"]) == (25 * len(names), 5)
    assert len(decision["rules"]) == MAX_LISTED


def governed(**terms: object) -> RuleSet:
    """Return a set whose governance asks for something of all rules, and so of decision policies."""
    entries = {"tags": [], "approvals": 0, **terms}
    rules, answers = RuleSet.empty(STREAMS).apply([*introduced(), ADMIN.policy("two", 1, **entries)], CLOCK)
    assert {one.status.value for one in answers} == {"accepted"}
    return rules


def test_unsigned_decision_policies_are_refused_where_changes_have_to_be_signed() -> None:
    rules = governed(require="signed")
    assert apply(rules, POLICY)[1] == [
        ("rejected", "changes of decision policy pay have to be signed; headgate rules propose signs them")
    ]
    _, record = PUBLISHER.propose(at_ms=CLOCK, decision_policies=[POLICY])
    rules, answers = rules.apply([record], CLOCK)
    assert [(one.subject.value, one.status.value, one.by) for one in answers] == [
        ("proposal", "accepted", "bob"),
        ("decision_policy", "accepted", "bob"),
    ]
    assert apply(rules, POLICY)[1] == [("accepted", "no change")]
    refused, statuses = apply(rules, "pay", policy(version=2))
    assert [status for status, _ in statuses] == ["rejected", "rejected"]
    assert refused.policies == rules.policies
    after, answers = rules.apply([PUBLISHER.propose(at_ms=CLOCK, delete_policies=["pay"])[1]], CLOCK)
    assert answers[1].status == "deleted"
    assert after.policies.by_stream == {}


def test_a_decision_policy_waits_for_approvals_as_a_rule_without_tags_does() -> None:
    rules = governed(approvals=1)
    assert "needs an approval by another subject (policy two)" in str(apply(rules, POLICY)[1][0][1])
    name, record = AUTHOR.propose(at_ms=CLOCK, decision_policies=[POLICY])
    rules, (waiting,) = rules.apply([record], CLOCK)
    assert (waiting.status, rules.policies.by_stream) == ("proposed", {})
    assert rules.compute_need(rules.governance.proposals[name].document).approvals == 1
    rules, _ = rules.apply([APPROVER.approve(name, CLOCK)], CLOCK)
    assert rules.policies.by_stream["payments"].policy.version == 1
    assert apply(rules, "pay")[1] == [("deleted", None)], "the mode retired is not among those of the policy"
    assert apply(governed(tags=["payments"], approvals=1), POLICY)[1] == [("accepted", None)], "it has no tags"


def test_a_proposal_with_a_wrong_decision_policy_changes_nothing() -> None:
    wrong = policy(on="refunds", where=None)
    rules, (status,) = governed().apply(
        [PUBLISHER.propose(RULES["large"], at_ms=CLOCK, decision_policies=[wrong])[1]], CLOCK
    )
    assert (status.status, rules.live("large")) == ("rejected", None)
    assert "decision policy pay: on: there is no stream refunds" in str(status.reason)
    _, urgent = PUBLISHER.propose(at_ms=CLOCK, decision_policies=[POLICY], emergency=True)
    _, (status,) = governed(approvals=1, emergency_hours=2).apply([urgent], CLOCK)
    assert "an emergency has only versions of rules" in str(status.reason)


def test_a_decision_is_well_below_the_size_of_a_record() -> None:
    running = InProcessApp(replace(app(1), merges={}))
    running.cut([publish(0, POLICY), publish(1, RULES["large"])], CLOCK)
    (part,) = (r for r in running.cut(records([(0, PAYMENT)]), CLOCK) if r.lane == DECISION_PARTS)
    (parts,) = read_rows([part.value])
    parts = parts.set_column(parts.column_names.index("entry"), "entry", pa.array(['{"m":"' + "x" * 20_000 + '"}']))
    one = [parts.set_column(6, "rule", pa.array([f"r{number:03}"])) for number in range(90)]
    (record,) = merge_decisions(pa.concat_tables(one))
    decision = orjson.loads(record.value or b"")
    assert MAX_LISTED_BYTES - 21_000 < len(record.value or b"") < MAX_LISTED_BYTES + 2_000
    assert len(decision["rules"]) + decision["left_out"] == 90
    assert decision["score"] == 25 * 90


def test_long_texts_are_shortened_in_decisions_alone() -> None:
    last = {"name": "before", "of": "last(card)", "within": {"tumbling": "1d"}}
    named = rule("named", {"score": 1}, group_by=["user"], where="before is not null", features=[last])
    running = InProcessApp(app(1))
    running.cut([publish(0, POLICY), publish(1, named)], CLOCK)
    long = {**PAYMENT, "card": "k" * 5_000}
    output = running.cut(records([(0, long), (0, {**long, "id": "e2"})]), CLOCK)
    decision = next(one for one in on(output, DECISIONS) if one["event_id"] == "e2")
    assert decision["rules"][0]["values"] == {"before": "k" * 197 + "..."}
    assert decision["key"]["card"] == "k" * 197 + "..."
    assert on(output, "alerts")[0]["values"] == {"before": "k" * 5_000}


def test_a_rule_without_an_outcome_gives_its_score_alone() -> None:
    running = InProcessApp(app(1))
    running.cut(
        [publish(0, deciding(bands={"block": 8})), publish(1, rule("small", {"score": 5}, where="amount > 0"))], CLOCK
    )
    output = running.cut(records([(0, PAYMENT)]), CLOCK)
    (decision,) = on(output, DECISIONS)
    assert (decision["outcome"], decision["score"], decision["rules"][0]["outcome"]) == ("allow", 5, None)
    assert on(output, "alerts")[0]["outcome"] == "review", "an alert says what its receiver should do"


def test_of_several_firings_of_a_rule_a_decision_has_the_earliest_of_those_with_an_alert() -> None:
    running = InProcessApp(replace(app(1), merges={}))
    running.cut([publish(0, POLICY), publish(1, RULES["large"])], CLOCK)
    (part,) = (r for r in running.cut(records([(0, PAYMENT)]), CLOCK) if r.lane == DECISION_PARTS)
    (parts,) = read_rows([part.value])
    (row,) = parts.to_pylist()

    def shown(*firings: tuple[int, int, str]) -> list[object]:
        rows = [{**row, "withheld": w, "start_ms": at, "entry": orjson.dumps(name).decode()} for w, at, name in firings]
        (record,) = merge_decisions(pa.Table.from_pylist(rows, parts.schema))
        found: list[object] = orjson.loads(record.value or b"")["rules"]
        return found

    assert shown((0, 60, "a"), (0, 9, "b"), (0, 70, "c")) == ["b"]
    assert shown((1, 5, "a"), (0, 70, "b"), (2, 4, "c")) == ["b"]


def test_a_canary_with_another_key_than_the_live_version_counts_in_no_decision() -> None:
    count = {"name": "n", "of": "count(*)", "within": {"tumbling": "1d"}}
    live = rule("r", {"score": 1}, group_by=["user"], features=[count], where="n >= 0")
    canary = {**live, "version": 2, "group_by": ["card"], "mode": {"canary": "50%"}}
    running = InProcessApp(app(2))
    running.cut([publish(0, POLICY), publish(1, live), publish(2, canary)], CLOCK)
    places = [(user, card) for user in range(6) for card in range(6)]
    history = [(0, {**PAYMENT, "id": f"{u}-{c}", "user": f"u{u}", "card": f"c{c}"}) for u, c in places]
    output = running.cut(records(history), CLOCK)
    decisions = on(output, DECISIONS)
    assert len(decisions) == 36
    assert {tuple(one["version"] for one in decision["rules"]) for decision in decisions} == {(1,)}
    assert {tuple(one["version"] for one in decision["shadow"]) for decision in decisions} == {(2,)}
    same = InProcessApp(app(2))
    same.cut([publish(0, POLICY), publish(1, live), publish(2, {**canary, "group_by": ["user"]})], CLOCK)
    decisions = on(same.cut(records(history), CLOCK), DECISIONS)
    assert {len(decision["rules"]) for decision in decisions} == {1}
    assert {decision["rules"][0]["version"] for decision in decisions} == {1, 2}, "by one key, each has its share"


def test_a_shard_chooses_so_many_events_of_a_cut_and_counts_the_others() -> None:
    few = RulesFactory((RuleStream(PAYMENTS, "pay-topic"),), dispatch=DispatchSettings(chosen=3), is_alone=True)()
    fields = {name: [PAYMENT[name]] * 8 for name in ("user", "card", "amount", "note")}
    times = pl.Series([CLOCK] * 8, dtype=pl.Int64)
    events = pl.DataFrame(
        {
            "id": [f"e{n}" for n in range(8)],
            "at": times,
            **fields,
            PARTITION: [0] * 8,
            OFFSET: [*range(8)],
            EVENT_MS: times,
        }
    )
    published = ControlRecord(0, 0, b"decision-policy/pay", orjson.dumps(policy(where="amount > 0", share="100%")))
    cut = Cut(0, {StreamKey("payments", 0): events}, (published,), CLOCK, NO_WATERMARK, CLOCK, {})
    output = few.step(cut)
    (rows,) = output.lanes
    assert rows.rows["offset"].to_list() == [0, 1, 2]
    assert {name: count for name, count in output.counters.items() if "chosen" in name} == {"not_chosen.pay": 5}


def test_events_without_an_id_are_in_the_share_by_their_place() -> None:
    fields = {"id": "string", "at": "timestamp not null", "user": "string not null"}
    document = {"name": "payments", "event_time": "at", "event_id": "id", "keys": [["user"]], "fields": fields}
    schema = StreamSchema.parse(document)
    chosen_share = DecisionPolicy.model_validate(policy(where=None, share="10%"))
    compiled = compile_policy(chosen_share, {"payments": schema}, RuleLimits())
    ids = [None if number % 2 else f"e{number}" for number in range(20_000)]
    frame = pl.DataFrame({"id": ids, PARTITION: [0] * 20_000, OFFSET: [*range(20_000)]})
    ((_, chosen),) = chosen_events(compiled, schema, frame)
    assert chosen is not None
    assert 850 < chosen["id"].null_count() < 1_150
    assert 850 < chosen["id"].drop_nulls().len() < 1_150
    ((_, with_ids),) = chosen_events(compiled, schema, frame.filter(pl.col("id").is_not_null()))
    assert with_ids is not None
    assert {*with_ids["id"]} == {*chosen["id"].drop_nulls()}


def test_the_history_has_the_accepted_versions_alone() -> None:
    wrong, again = policy(on="refunds", where=None), policy(share="7%")
    documents = (wrong, POLICY, policy(share="9%"), None, again)
    values = (None if each is None else orjson.dumps(each) for each in documents)
    controls = (ControlRecord(0, n, b"decision-policy/pay", value) for n, value in enumerate(values))
    log = [ControlEntry(control, 100 * number) for number, control in enumerate(controls)]
    history = replay_log(RuleSet.empty(STREAMS), log)
    assert [one.status.status.value for one in history.entries] == [
        "rejected",
        "accepted",
        "rejected",
        "deleted",
        "accepted",
    ]
    shares = [None if (found := history.policy("pay", 1, at)) is None else found.share for at in (250, 399, 400, 50)]
    assert shares == [30, 30, 7, 30]
    assert history.policy("pay", 2, 500) is None


def test_policies_survive_another_number_of_shards() -> None:
    running = InProcessApp(app(2))
    running.cut([publish(0, POLICY), publish(1, RULES["large"])], CLOCK)
    more = InProcessApp(app(3), divide_state(running.blobs, running.app, app(3)), next_offsets=running.next_offsets)
    (decision,) = on(more.cut(records([(0, PAYMENT)]), CLOCK), DECISIONS)
    assert (decision["outcome"], decision["version"]) == ("review", 1)


def test_a_policy_reads_fields_that_no_rule_reads() -> None:
    running = InProcessApp(app(2))
    running.cut([publish(0, policy(where="note = 3", share="0%")), publish(1, RULES["large"])], CLOCK)
    running.cut(records([(0, PAYMENT)]), CLOCK)
    assert running.projection is not None, "the next cut decodes only what is read"
    offsets = [RawRecord(0, 0, n, orjson.dumps({**PAYMENT, "amount": 5, "note": n})) for n in (2, 3, 4)]
    (decision,) = on(running.cut(offsets, CLOCK), DECISIONS)
    assert (decision["cause"], decision["event_id"], decision["source"]["offset"]) == ("where", "e", 3)


def test_without_a_policy_there_is_no_decision() -> None:
    running = InProcessApp(app(1))
    running.cut([publish(0, RULES["large"])], CLOCK)
    output = running.cut(records(events(random.Random(1), 20)), CLOCK)
    assert on(output, DECISIONS) == [], "without a policy"
    assert all("decision_id" not in alert for alert in on(output, "alerts"))
