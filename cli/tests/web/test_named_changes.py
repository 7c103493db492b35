"""Features and decision policies of a snapshot: what may be published or deleted, who signs it, whether it is
complete."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from headgate.rules.bundle import load_streams
from headgate.rules.render import RULES_HEAD, rule_rows
from headgate.rules.signing import KeyHolder
from headgate.rules.yaml_text import yaml_text
from headgate.web.access.rights import ConsoleSession, Grant
from headgate.web.access.roles import Role
from headgate.web.changes.publish import NEW, Terms, check_etag
from headgate.web.changes.publish_named import require_in_force, sign_named
from headgate.web.changes.release import review_text
from headgate.web.problems import ProblemError
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.feature_views import find_feature, rule_features
from rulecore.documents.decision_policy import encode_policy
from rulecore.documents.published_feature import encode_feature
from rulecore.documents.releases import NO_NAMED, NamedChanges
from rulecore.documents.rule import canonical_json
from rulecore.documents.status import StatusKind, Subject
from rulecore.governance.signatures import SigningKey
from rulecore.ruleset.history import ControlEntry, replay_log
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from tests.harness.apps.console_scene import decision_policy, published_feature, rule

PERSON = ConsoleSession.local("ada", Role.ADMIN)
FEATURE = ("feature/usual", encode_feature(published_feature("usual")))
POLICY = ("decision-policy/guard", encode_policy(decision_policy("guard")))
RULE = ("seen", canonical_json(rule("seen")))
SUBJECTS = ((Subject.FEATURE, "usual"), (Subject.DECISION_POLICY, "guard"), (Subject.RULE, "seen"))


def read(*written: tuple[str, bytes | None]) -> Snapshot:
    """Return the snapshot of an app with the shipped streams after these records."""
    log = [ControlEntry(ControlRecord(0, i, key.encode(), value), 0) for i, (key, value) in enumerate(written)]
    return Snapshot("shop", replay_log(RuleSet.empty(load_streams()), log))


@pytest.mark.parametrize(("subject", "name"), SUBJECTS)
def test_only_a_document_in_force_is_in_the_way_of_a_new_one(subject: Subject, name: str) -> None:
    terms, own = Terms(NEW, PERSON), (FEATURE, POLICY, RULE)
    with pytest.raises(ProblemError) as found:
        check_etag(read(*own), subject, name, terms)
    assert found.value.status == 412
    check_etag(read(*own, *((key, None) for key, _ in own)), subject, name, terms)
    rejected = read(*((key, b"{}") for key, _ in own))
    assert {one.status.status for one in rejected.history.entries} == {StatusKind.REJECTED}
    check_etag(rejected, subject, name, terms)


@pytest.mark.parametrize("name", ["none", "no name", "gone"])
def test_what_is_not_in_force_cannot_be_deleted(name: str) -> None:
    gone = ("decision-policy/gone", encode_policy(decision_policy("gone")))
    snapshot = read(gone, ("decision-policy/gone", None), POLICY)
    require_in_force(snapshot, Subject.DECISION_POLICY, ("guard",))
    for entry in ("delete_policies", "delete_features"):
        with pytest.raises(ProblemError, match=f"has no (feature|decision policy) {name}") as found:
            review_text(snapshot, "", (), NamedChanges.model_construct(**{entry: (name,)}))  # type: ignore[arg-type]
        assert found.value.status == 404


def test_a_release_publishes_or_deletes_each_document() -> None:
    snapshot = read(FEATURE, POLICY, RULE)
    usual, guard = NamedChanges(delete_features=("usual",)), NamedChanges(delete_policies=("guard",))
    for text, deleted, gone, name in (
        (yaml_text(published_feature("usual", 2)), (), usual, "feature usual"),
        (yaml_text(decision_policy("guard", 2)), (), guard, "decision policy guard"),
        (yaml_text(rule("seen", 2)), ("seen",), NO_NAMED, "rule seen"),
        ("", (), NamedChanges(delete_features=("usual", "usual")), "feature usual"),
    ):
        with pytest.raises(ProblemError, match=f"{name} occurs twice") as found:
            review_text(snapshot, text, deleted, gone)
        assert found.value.status == 422


def test_a_console_signs_policies_for_who_may_change_those_of_their_owners() -> None:
    key, mine = KeyHolder("console", SigningKey(b"c" * 32), "shop"), decision_policy("guard", 2, owner="me")
    terms = Terms(None, ConsoleSession("erin", (Grant(Role.PUBLISHER, owners=("me",)),)))
    found = NamedChanges(decision_policies=(mine,))
    before = ("decision-policy/guard", encode_policy(decision_policy("guard", owner="me")))
    assert len(sign_named(read(before), found, terms, key)) == 1
    with pytest.raises(ProblemError, match="no role"):
        sign_named(read(POLICY), found, terms, key)


def test_a_backfill_completes_the_features_that_it_names() -> None:
    within = {"sliding": "30d", "every": "1h"}
    features = [
        {"name": n, "of": of, "within": within} for n, of in (("spent", "sum(amount)"), ("most", "max(amount)"))
    ]
    own = rule("past", group_by=["user_id"], features=features, where="spent > most", tests=[])
    snapshot = read(("past", canonical_json(own)))
    spent, most = (one.fingerprint for one in next(iter(snapshot.history.rules.rules.values())).features)
    document = {"rule": "past", "version": 1, "from": "2026-01-01T00:00:00Z", "since": {spent: 1_000}, "parts": []}
    filled = read(("past", canonical_json(own)), ("backfill/past", orjson.dumps(document)))
    assert filled.history.entries[-1].status.status is StatusKind.ACCEPTED, filled.history.entries[-1].status.reason

    def warming(began: dict[str, int]) -> list[bool]:
        now = replace(filled, began=began)
        shown = {one.name: one.definition.complete_ms is not None for one in rule_features(now, "past")}
        listed = [find_feature(now, name).features[0].definition.complete_ms is not None for name in shown]
        assert listed == [*shown.values()]
        return listed

    assert warming({spent: 1_000, most: 1_000}) == [False, True], "a feature that no backfill names"
    assert warming({spent: 2_000}) == [True, False], "it began again after the backfill"


def test_a_rule_that_is_not_evaluated_has_no_decision_policy() -> None:
    modes = {"all": "live", "tried": "shadow", "some": {"canary": "10%"}, "held": "paused", "text": "draft"}
    rules = [(name, canonical_json(rule(name, mode=mode, tests=[]))) for name, mode in modes.items()]
    later = rule("later", effective={"from": "2030-01-01T00:00:00Z"}, tests=[])
    snapshot = read(POLICY, *rules, ("later", canonical_json(later)))
    place = RULES_HEAD.index("POLICY")
    found = {row[0]: row[place] for row in rule_rows(snapshot.history, ())}
    assert found == {**dict.fromkeys(["all", "tried", "some"], "guard"), "held": None, "text": None, "later": None}
