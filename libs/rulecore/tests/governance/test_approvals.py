"""Signed records, policies, four eyes and emergencies: case by case."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from rulecore.documents.status import RuleStatus, Subject
from rulecore.governance.signatures import SignedText
from rulecore.ruleset.history import ControlEntry, replay_log
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from tests.harness.apps.control_records import HOUR, NOW, STREAMS, after, document, evaluated_versions, put, release
from tests.harness.apps.governed import (
    ADMIN,
    APPROVER,
    AUTHOR,
    CONSOLE,
    PEOPLE,
    PUBLISHER,
    SECOND,
    STRANGER,
    Signer,
    introduced,
)

PAY = {"tags": ["payments"]}


def governed(**policy: object) -> RuleSet:
    terms: dict[str, object] = {"tags": ["payments"], "approvals": 1, "emergency_hours": 24, **policy}
    return after(RuleSet.empty(STREAMS), *introduced(), ADMIN.policy("two", 1, **terms))


def told(rules: RuleSet, record: ControlRecord, clock_ms: int = NOW) -> tuple[RuleSet, RuleStatus]:
    changed, answers = rules.apply([record], clock_ms)
    return changed, answers[0]


def refused(rules: RuleSet, record: ControlRecord, reason: str, clock_ms: int = NOW) -> RuleSet:
    changed, status = told(rules, record, clock_ms)
    assert status.status == "rejected"
    assert reason in str(status.reason)
    assert evaluated_versions(changed) == evaluated_versions(rules)
    return changed


def with_live(rules: RuleSet, version: int = 1, where: str = "amount > 1") -> RuleSet:
    """Return the rules with an approved version of ``r``."""
    name, record = AUTHOR.propose(document("r", version, where=where, **PAY), at_ms=NOW)
    return after(rules, record, APPROVER.approve(name, NOW))


def test_an_approval_by_another_subject_makes_a_proposal_live() -> None:
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW, why="new fraud")
    rules, status = told(governed(), record)
    assert (status.status, status.subject, status.by) == ("proposed", Subject.PROPOSAL, "alice")
    assert status.reason == "needs an approval by another subject (policy two)"
    assert evaluated_versions(rules) == []
    rules, answers = rules.apply([APPROVER.approve(name, NOW)], NOW)
    assert [(one.subject.value, one.status, one.by) for one in answers] == [
        ("approval", "accepted", "alice, approved by carol"),
        ("rule", "accepted", "alice, approved by carol"),
    ]
    assert evaluated_versions(rules) == [("r", 1)]
    refused(rules, record, "was made before")
    refused(rules, SECOND.approve(name, NOW), "no such open proposal")


@pytest.mark.parametrize("mode", ["live", {"canary": "10%"}])
def test_a_change_without_approval_is_refused(mode: object) -> None:
    rules = governed()
    refused(rules, put("r", 1, mode=mode, **PAY), "an approval by another subject")
    refused(rules, release("one", [document("r", 1, mode=mode, **PAY), document("free")])[-1], "an approval")
    assert evaluated_versions(after(rules, put("r", 1, mode="shadow", **PAY))) == [("r", 1)]
    assert evaluated_versions(after(rules, put("r", 1))) == [("r", 1)], "no policy is about it"


def test_a_version_does_not_escape_by_leaving_its_tag_out() -> None:
    rules = with_live(governed())
    refused(rules, put("r", 2, where="amount > 9"), "an approval by another subject")
    paused = after(rules, put("r", 2, mode="paused"))
    refused(paused, put("r", 3, where="amount > 9"), "an approval by another subject")
    gone = after(rules, ControlRecord(0, 0, b"r", None))
    refused(gone, put("r", 1, where="amount > 9"), "an approval by another subject")
    strict = with_live(governed(modes=["live", "canary", "retired"]))
    refused(strict, ControlRecord(0, 0, b"r", None), "an approval by another subject")


def test_who_has_proposed_cannot_approve_nor_one_person_twice() -> None:
    name, record = APPROVER.propose(document("r", 1, **PAY), at_ms=NOW)
    rules = after(governed(approvals=2), record)
    rules = refused(rules, APPROVER.approve(name, NOW), "another subject has to approve")
    as_carol = {"by": {"subject": "carol", "issuer": "https://id", "role": "approver"}}
    rules = refused(rules, CONSOLE.approve(name, NOW, **as_carol), "another subject has to approve")
    rules, status = told(rules, SECOND.approve(name, NOW))
    assert (status.status, status.reason) == ("proposed", "1 of 2 approvals")
    rules = refused(rules, SECOND.approve(name, NOW), "has approved it before")
    as_erin = {"by": {"subject": "erin", "issuer": "https://id", "role": "admin"}}
    rules, answers = rules.apply([CONSOLE.approve(name, NOW, **as_erin)], NOW)
    assert answers[-1].by == "carol, approved by dora, erin"
    assert evaluated_versions(rules) == [("r", 1)]


def test_roles_of_signers() -> None:
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW)
    rules = after(governed(), record)
    refused(rules, PUBLISHER.approve(name, NOW), "needs the role approver; bob has publisher")
    refused(rules, AUTHOR.propose(document("x", 1), at_ms=NOW)[1], "needs the role publisher")
    refused(rules, APPROVER.policy(version=2, approvals=0), "needs the role admin")
    refused(rules, APPROVER.introduce(STRANGER), "needs the role admin")
    as_admin = {"by": {"subject": "erin", "issuer": "", "role": "author"}}
    refused(rules, CONSOLE.approve(name, NOW, **as_admin), "needs the role approver; erin has author")
    refused(rules, CONSOLE.approve(name, NOW), "names nobody")


def test_forged_and_foreign_records_are_refused() -> None:
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW)
    rules = after(governed(), record)
    good = APPROVER.approve(name, NOW)
    assert good.value is not None
    stolen = Signer("carol", "approver", "carol", STRANGER.key).approve(name, NOW)
    refused(rules, stolen, "not that of signer carol")
    refused(rules, STRANGER.approve(name, NOW), "no signer of this app")
    fields = orjson.loads(good.value)
    changed = SignedText(fields["signer"], fields["text"].replace(str(NOW), str(NOW + 1)), fields["signature"])
    refused(rules, replace(good, value=changed.encode()), "not that of signer")
    for broken in (b"", b"{}", b"[1]", b'{"signer": 1, "text": "", "signature": ""}', b"\xff", b'{"signer":"carol"'):
        refused(rules, replace(good, value=broken), "sign")
    refused(rules, replace(good, key=b"approval/" + b"0" * 32), "proposal")
    refused(rules, APPROVER.approve(name, NOW, app="other"), "one of app other")
    refused(rules, replace(record, key=b"proposal/" + b"0" * 32), "not the digest")
    revoked = after(rules, ADMIN.introduce(APPROVER, 2, revoked=True))
    refused(revoked, good, "a revoked signer")
    assert evaluated_versions(after(rules, good)) == [("r", 1)]


def test_a_revoked_signer_takes_its_approvals_of_open_proposals_along() -> None:
    rules = governed(approvals=2)
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW)
    approved = after(rules, record, APPROVER.approve(name, NOW))
    restored = RuleSet.restore(STREAMS, approved.limits, approved.records())
    for known in (approved, restored):
        revoked = after(known, ADMIN.introduce(APPROVER, 2, revoked=True))
        assert evaluated_versions(after(known, SECOND.approve(name, NOW))) == [("r", 1)], "both count"
        alone = after(revoked, SECOND.approve(name, NOW))
        assert evaluated_versions(alone) == [], "one of two"
        assert evaluated_versions(after(alone, ADMIN.approve(name, NOW))) == [("r", 1)]
    by_other = after(approved, ADMIN.introduce(SECOND, 2, revoked=True), ADMIN.approve(name, NOW))
    assert evaluated_versions(by_other) == [("r", 1)], "the approval of another signer stays"


def test_an_approval_does_not_survive_another_key_of_its_signer_or_a_lower_role() -> None:
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW)
    approved = after(governed(approvals=2), record, APPROVER.approve(name, NOW))
    with_key = after(approved, ADMIN.introduce(replace(APPROVER, key=STRANGER.key), 2))
    assert evaluated_versions(after(with_key, SECOND.approve(name, NOW))) == [], "one of two"
    lower = after(approved, ADMIN.introduce(APPROVER, 2, role="author"))
    assert evaluated_versions(after(lower, SECOND.approve(name, NOW))) == [], "one of two"
    same = after(approved, ADMIN.introduce(APPROVER, 2))
    assert evaluated_versions(after(same, SECOND.approve(name, NOW))) == [("r", 1)], "nothing changed"


def test_the_first_signer_is_an_admin_who_signs_itself() -> None:
    empty = RuleSet.empty(STREAMS)
    refused(empty, ADMIN.introduce(AUTHOR), "first signer")
    refused(empty, AUTHOR.introduce(AUTHOR), "role admin")
    refused(empty, STRANGER.introduce(ADMIN), "signs its own record")
    refused(empty, ADMIN.policy(), "no signer of this app")
    rules = after(empty, ADMIN.introduce(ADMIN))
    refused(rules, STRANGER.introduce(STRANGER), "no signer of this app")
    refused(rules, ADMIN.introduce(ADMIN, 1), "not above version 1")
    refused(rules, ADMIN.introduce(ADMIN, 2, revoked=True), "last admin")


def test_old_and_future_texts_are_refused() -> None:
    rules = governed()
    refused(rules, AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW - 31 * 24 * HOUR)[1], "30 days")
    refused(rules, AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW + 2 * HOUR)[1], "30 days")
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW)
    later = NOW + 30 * 24 * HOUR
    refused(after(rules, record), APPROVER.approve(name, later), "no such open proposal", later)


def test_a_roll_back_to_approved_content_needs_nobody() -> None:
    rules = with_live(with_live(governed()), 2, "amount > 2")
    back = after(rules, put("r", 3, where="amount > 1", **PAY))
    assert evaluated_versions(back) == [("r", 3)]
    refused(rules, put("r", 3, where="amount > 3", **PAY), "an approval")
    refused(rules, put("r", 3, where="amount > 1", mode={"canary": "50%"}, **PAY), "an approval")


def test_require_signed_refuses_every_unsigned_change() -> None:
    rules = governed(tags=[], require="signed", approvals=0)
    refused(rules, put("r", 1, mode="draft"), "have to be signed")
    refused(rules, release("one", [document("r", 1)])[-1], "have to be signed")
    rules = after(rules, PUBLISHER.propose(document("r", 1), at_ms=NOW)[1])
    assert evaluated_versions(rules) == [("r", 1)]
    refused(rules, ControlRecord(0, 0, b"r", None), "have to be signed")
    assert evaluated_versions(after(rules, PUBLISHER.propose(at_ms=NOW, delete=["r"])[1])) == []


def test_a_feature_does_not_change_a_rule_that_needs_a_signature() -> None:
    feature = {"feature": "many", "version": 1, "owner": "o", "on": "pay", "by": ["user"], "of": "count(*)"}

    def published(version: int, of: str) -> ControlRecord:
        body = {**feature, "version": version, "of": of, "within": {"tumbling": "1d"}}
        return ControlRecord(0, 0, b"feature/many", orjson.dumps(body))

    rules = after(governed(tags=[], require="signed", approvals=0), published(1, "count(*)"))
    assert [*rules.features.documents] == ["many"], "no rule names it"
    named = document("r", 1, where="many > 1", group_by=["user"], features=["many"])
    rules = after(rules, PUBLISHER.propose(named, at_ms=NOW)[1])
    (digest,) = (one.digest for one in rules.evaluated_rules())
    unchanged, (status,) = rules.apply([published(2, "count(distinct amount)")], NOW)
    assert status.status == "rejected"
    assert "it would change rule r, of which changes need a signature" in str(status.reason)
    assert [one.digest for one in unchanged.evaluated_rules()] == [digest]


def test_an_emergency_counts_alone_for_its_hours_then_the_version_before_is_back() -> None:
    rules = with_live(governed())
    name, record = PUBLISHER.propose(document("r", 2, where="amount > 5", **PAY), at_ms=NOW, emergency=True)
    rules, answers = rules.apply([record], NOW)
    assert all("emergency until" in str(one.reason) for one in answers)
    assert evaluated_versions(rules) == [("r", 2)]
    end = NOW + 24 * HOUR
    assert rules.boundary_ms() == end
    assert evaluated_versions(rules.at_time(end - 1)[0]) == [("r", 2)]
    ended, answers = rules.at_time(end)
    assert [(one.status, one.version) for one in answers] == [("effective", 3)]
    assert "ended unapproved" in str(answers[0].reason)
    live = ended.live("r")
    assert live is not None
    assert (live.rule.version, str(live.rule.where)) == (3, "amount > 1")
    again = PUBLISHER.propose(document("r", 4, where="amount > 5", **PAY), at_ms=end, emergency=True)[1]
    refused(ended, again, "has to approve first", end)
    refused(ended, APPROVER.approve(name, end), "no such open proposal", end)
    approved = after(rules, APPROVER.approve(name, NOW))
    assert evaluated_versions(approved.at_time(end)[0]) == [("r", 2)]


def test_an_emergency_that_leaves_the_tag_out_binds_the_rule_and_needs_all_approvals() -> None:
    rules = governed(approvals=2)
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW)
    rules = after(rules, record, APPROVER.approve(name, NOW), SECOND.approve(name, NOW))
    name, record = PUBLISHER.propose(document("r", 2, where="amount > 5"), at_ms=NOW, emergency=True)
    rules = after(rules, record)
    refused(rules, put("r", 3, where="amount > 9"), "2 approvals by another subject")
    rules, status = told(rules, APPROVER.approve(name, NOW))
    assert status.status == "proposed"
    free = after(rules, SECOND.approve(name, NOW))
    assert evaluated_versions(after(free, put("r", 3, where="amount > 9"))) == [("r", 3)], (
        "without the tag, as approved"
    )


def test_a_second_emergency_ends_with_the_first() -> None:
    rules = with_live(governed())
    for version, hours in ((2, 0), (3, 23)):
        clock = NOW + hours * HOUR
        record = PUBLISHER.propose(
            document("r", version, where=f"amount > {version}", **PAY), at_ms=clock, emergency=True
        )
        rules = after(rules, record[1], clock_ms=clock)
    assert evaluated_versions(rules) == [("r", 3)]
    live = rules.at_time(NOW + 24 * HOUR)[0].live("r")
    assert live is not None
    assert str(live.rule.where) == "amount > 1"


def test_a_new_rule_expires_with_its_emergency_and_a_refusal_ends_it() -> None:
    name, record = PUBLISHER.propose(document("r", 1, **PAY), at_ms=NOW, emergency=True)
    rules = after(governed(), record)
    ended, answers = rules.at_time(NOW + 24 * HOUR)
    assert ([one.status for one in answers], evaluated_versions(ended)) == (["expired"], [])
    turned_down, answers = rules.apply([APPROVER.approve(name, NOW, verdict="refuse")], NOW)
    assert [one.status for one in answers] == ["deleted", "expired"]
    assert evaluated_versions(turned_down) == []
    refused(governed(emergency_hours=0), record, "knows no emergency")
    refused(governed(), AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW, emergency=True)[1], "role publisher")


def test_a_policy_changes_by_a_higher_version_only() -> None:
    rules = governed()
    refused(rules, ADMIN.policy(version=1, approvals=0), "not above version 1")
    lifted = after(rules, ADMIN.policy(version=2, removed=True))
    assert evaluated_versions(after(lifted, put("r", 1, **PAY))) == [("r", 1)]
    refused(lifted, ADMIN.policy(version=1, approvals=1), "not above version 2")


def test_all_changes_of_a_proposal_or_none() -> None:
    good, bad = document("a", 1, **PAY), document("b", 1, where="nothing > 1", **PAY)
    refused(governed(), AUTHOR.propose(good, bad, at_ms=NOW)[1], "b:")
    name, record = AUTHOR.propose(good, document("b", 1, **PAY), at_ms=NOW)
    rules = after(governed(), record)
    assert evaluated_versions(after(rules, APPROVER.approve(name, NOW))) == [("a", 1), ("b", 1)]
    stale = after(rules, put("b", 7, mode="shadow"))
    refused(stale, APPROVER.approve(name, NOW), "not above version 7")


def test_the_state_is_restored_from_its_records_and_the_log_replays_to_the_same() -> None:
    name, record = AUTHOR.propose(document("x", 1, **PAY), at_ms=NOW)
    emergency = PUBLISHER.propose(document("r", 2, where="amount > 5", **PAY), at_ms=NOW, emergency=True)[1]
    rules = after(with_live(governed()), record, emergency)
    restored = RuleSet.restore(STREAMS, rules.limits, rules.records())
    assert restored == rules
    assert restored.governance == rules.governance
    assert evaluated_versions(after(restored, SECOND.approve(name, NOW))) == [("r", 2), ("x", 1)]


def test_the_history_shows_who_really_was() -> None:
    name, record = AUTHOR.propose(document("r", 1, **PAY), at_ms=NOW)
    log = [*introduced(), ADMIN.policy(tags=["payments"]), record, APPROVER.approve(name, NOW)]
    entries = [ControlEntry(replace(one, offset=number), NOW, "root@laptop") for number, one in enumerate(log)]
    history = replay_log(RuleSet.empty(STREAMS), entries)
    assert history.entries[-1].status.by == "alice, approved by carol"
    assert history.documents["r", 1].id == "r"
    assert len(history.entries) == len(log) + 1
    assert len(PEOPLE) == len({one.key.public for one in PEOPLE})


def test_a_refusal_of_any_of_its_proposals_ends_an_emergency() -> None:
    rules = with_live(governed())
    first, record = PUBLISHER.propose(document("r", 2, where="amount > 2", **PAY), at_ms=NOW, emergency=True)
    rules = after(rules, record)
    trial = document("r", 3, where="amount > 3", mode={"canary": "10%"}, **PAY)
    rules = after(rules, PUBLISHER.propose(trial, at_ms=NOW + 1, emergency=True)[1])
    assert sorted(evaluated_versions(rules)) == [("r", 2), ("r", 3)]
    rules, _ = rules.apply([APPROVER.approve(first, NOW, verdict="refuse")], NOW)
    assert [one.rule.where for one in rules.evaluated_rules()] == ["amount > 1"]


def test_an_emergency_that_was_signed_long_ago_can_be_refused() -> None:
    at_ms = NOW - 30 * 24 * HOUR + 60_000
    name, record = PUBLISHER.propose(document("r", 1, **PAY), at_ms=at_ms, emergency=True)
    rules = after(governed(), record)
    assert evaluated_versions(rules) == [("r", 1)]
    later = NOW + 2 * HOUR
    rules, answers = rules.apply([APPROVER.approve(name, later, verdict="refuse")], later)
    assert answers[0].status == "deleted"
    assert evaluated_versions(rules) == []


def test_an_emergency_that_another_version_has_replaced_leaves_no_open_proposal() -> None:
    first, record = PUBLISHER.propose(document("r", 1, where="amount > 1", **PAY), at_ms=NOW, emergency=True)
    rules = after(governed(), record)
    second, record = AUTHOR.propose(document("r", 2, where="amount > 2", **PAY), at_ms=NOW)
    rules = after(rules, record, APPROVER.approve(second, NOW))
    assert first in rules.governance.proposals
    rules = after(rules, AUTHOR.propose(document("r", 3, where="amount > 3", **PAY), at_ms=NOW)[1])
    assert first not in rules.governance.proposals


def test_one_person_does_not_keep_all_others_from_proposing() -> None:
    rules = governed()
    for number in range(20):
        rules = after(rules, AUTHOR.propose(document(f"r{number}", 1, **PAY), at_ms=NOW)[1])
    refused(rules, AUTHOR.propose(document("more", 1, **PAY), at_ms=NOW)[1], "20 proposals of alice are open")
    _, status = told(rules, APPROVER.propose(document("more", 1, **PAY), at_ms=NOW)[1])
    assert status.status == "proposed"
    at_once = after(rules, PUBLISHER.propose(document("free", 1), at_ms=NOW)[1])
    assert evaluated_versions(at_once) == [("free", 1)], "it needs no room: no policy is about it"


def test_the_last_admin_stays_one() -> None:
    rules = governed()
    refused(rules, ADMIN.introduce(ADMIN, 2, role="author"), "the last admin stays one")
    rules = after(rules, ADMIN.introduce(CONSOLE, 2, role="admin"))  # a console signs no signers
    refused(rules, ADMIN.introduce(ADMIN, 2, revoked=True), "the last admin stays one")


def test_the_tags_of_a_version_that_no_longer_compiles_hold() -> None:
    rules = with_live(governed())
    rules = replace(rules, governance=replace(rules.governance, bound={}, approved={}))  # it was live before its policy
    narrow = {name: schema for name, schema in STREAMS.items() if name != document("r")["on"]}
    broken = RuleSet.restore(narrow, rules.limits, rules.records())
    assert not broken.rules
    refused(broken, put("r", 2), "an approval by another subject")
