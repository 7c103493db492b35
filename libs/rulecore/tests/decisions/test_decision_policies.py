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
from rulecore.alerts.decisions import DECISION_PARTS, MAX_LISTED, DecisionCause, decide, merge_decisions
from rulecore.compile.decision_policy import compile_policy
from rulecore.compile.rule import RuleLimits
from rulecore.documents.decision_policy import DecisionPolicy, encode_policy
from rulecore.documents.loading import decode_policy, load_path, load_policies
from rulecore.errors import RuleError
from rulecore.ruleset.ruleset import RuleSet
from rulecore.ruleset.stream_changes import check_rules
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.engine.merged_lanes import read_rows
from streamcore.kernel import ControlRecord
from streamcore.savepoint.division import divide_state
from streamcore.schema import StreamSchema
from streamcore.wire.lanes import DECISIONS
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
        (deciding(default="none"), "decide: none is no outcome of `order`; there are block, review, allow"),
        (deciding(bands={"stop": 4}), "decide: stop is no outcome of `order`; there are block, review, allow"),
        (deciding(bands={"block": 4, "review": 4}), "decide: bands: a stronger outcome needs a higher score"),
        (deciding(order=["allow", "allow"]), "decide.order: names an outcome twice"),
        (deciding(order=[]), "decide.order: should have at least 1 item"),
        (policy(share="120%"), "share: '120%' is no share; write a percentage between 0% and 100%, such as 1%"),
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
