"""A release with features and decision policies: all in one cut or nothing, and back."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.published_feature import PublishedFeature
from rulecore.documents.releases import MAX_NAMED_BYTES, NamedChanges, to_records
from rulecore.documents.rule import Rule
from rulecore.documents.status import StatusKind, Subject
from rulecore.errors import DocumentError
from rulecore.ruleset.history import ControlEntry, RuleHistory, extend, revert_release
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema

SHOP = StreamSchema.parse(
    {
        "name": "shop",
        "event_time": "ts",
        "keys": [["user_id"]],
        "fields": {"ts": "timestamp not null", "user_id": "string", "amount": "double"},
    }
)


def feature(version: int = 1, of: str = "avg(amount)") -> PublishedFeature:
    document = {"feature": "usual", "version": version, "owner": "me", "on": "shop", "by": ["user_id"], "of": of}
    return PublishedFeature.model_validate({**document, "within": {"sliding": "30d", "every": "1h"}})


def policy(version: int = 1, band: int = 40) -> DecisionPolicy:
    decide = {"order": ["block", "allow"], "default": "allow", "bands": {"block": band}}
    document = {"decision_policy": "shop", "version": version, "owner": "me", "on": "shop", "decide": decide}
    return DecisionPolicy.model_validate(document)


def rule(version: int = 1, **entries: Any) -> Rule:
    document = {"id": "large", "version": version, "owner": "me", "on": "shop", "group_by": ["user_id"]}
    own = {"features": ["usual"], "where": "amount > 3 * usual", "then": {"severity": "low", "message": "m"}}
    return Rule.model_validate({**document, **own, **entries})


class Log:
    """A rule set with its log."""

    def __init__(self) -> None:
        self.history = RuleHistory(RuleSet.empty({"shop": SHOP}))
        self._offset = 0

    def release(self, name: str, *rules: Rule, deleted: tuple[str, ...] = (), **named: Any) -> list[tuple[str, str]]:
        """Publish a release; return subject and status of each answer."""
        before = len(self.history.entries)
        for key, value in to_records(name, rules, deleted, named=NamedChanges.model_construct(**named)):
            control = ControlRecord(0, self._offset, key.encode(), value)
            extend(self.history, [ControlEntry(control, 1_000 * self._offset)])
            self._offset += 1
        return [(e.status.subject.value, e.status.status.value) for e in self.history.entries[before:]]

    def quarantine(self, key: str) -> None:
        """Put a version into quarantine, as the app does."""
        control = ControlRecord(0, self._offset, f"quarantine/{key}".encode(), b'{"reason": "too large"}')
        extend(self.history, [ControlEntry(control, 1_000 * self._offset)])
        self._offset += 1
        assert self.history.entries[-1].status.status is StatusKind.QUARANTINED

    def undo(self, name: str) -> None:
        """Roll a release back, through the records that do it."""
        rules, deleted, named = revert_release(self.history, name)
        answers = self.release(
            f"undo-{name}", *rules, deleted=tuple(deleted), **{n: getattr(named, n) for n in NamedChanges.model_fields}
        )
        assert answers[0] == ("release", "accepted"), self.history.entries[-1].status.reason

    @property
    def bands(self) -> dict[str, int]:
        """The bands of each policy."""
        return {name: one.decide.bands["block"] for name, one in self.history.rules.policies.documents.items()}

    @property
    def features(self) -> dict[str, str]:
        """The definition of each feature."""
        return {name: one.of for name, one in self.history.rules.features.documents.items()}


def test_features_rules_and_policies_take_effect_together() -> None:
    log = Log()
    answers = log.release("one", rule(), features=(feature(),), decision_policies=(policy(),))
    assert answers == [
        ("release", "accepted"),
        ("feature", "accepted"),
        ("rule", "accepted"),
        ("decision_policy", "accepted"),
    ]
    assert all(entry.status.release == "one" for entry in log.history.entries[1:])
    assert (log.features, log.bands) == ({"usual": "avg(amount)"}, {"shop": 40})
    assert log.history.rules.live("large") is not None
    assert log.history.rules.epoch == 1, "one change of the set"


@pytest.mark.parametrize(
    ("rules", "named", "reason"),
    [
        ((rule(2, where="no_such > usual"),), {"features": (feature(2, "max(amount)"),)}, "no_such"),
        ((rule(2, where="amount > usual"),), {"features": (feature(1, "max(amount)"),)}, "feature usual: version 1"),
        ((), {"decision_policies": (policy(1, 60),)}, "decision policy shop: version 1"),
        ((), {"features": (feature(2),), "delete_features": ("usual",)}, "feature usual is there twice"),
        (
            (),
            {"decision_policies": (policy(2),), "delete_policies": ("shop",)},
            "decision policy shop is there twice",
        ),
        ((), {"decision_policies": (policy(2), policy(3))}, "decision policy shop is there twice"),
        ((rule(2),), {"deleted": ("large",)}, "rule large is there twice"),
        ((rule(2, where="amount > 5 * usual"),), {"delete_features": ("usual",)}, "feature usual: rules name it"),
    ],
)
def test_a_release_of_which_one_change_is_rejected_changes_nothing(
    rules: tuple[Rule, ...], named: dict[str, Any], reason: str
) -> None:
    log = Log()
    log.release("one", rule(), features=(feature(),), decision_policies=(policy(),))
    before = log.history.rules
    assert log.release("two", *rules, **named) == [("release", "rejected")]
    assert reason in str(log.history.entries[-1].status.reason)
    assert (log.features, log.bands) == ({"usual": "avg(amount)"}, {"shop": 40})
    assert log.history.rules.rules == before.rules
    assert log.history.rules.epoch == before.epoch


def test_a_release_is_rolled_back_with_its_features_and_policies() -> None:
    log = Log()
    log.release("one", rule(), features=(feature(),), decision_policies=(policy(),))
    changed: dict[str, Any] = {"features": (feature(2, "max(amount)"),), "decision_policies": (policy(2, 50),)}
    log.release("two", rule(2, where="amount > usual"), **changed)
    assert (log.features, log.bands) == ({"usual": "max(amount)"}, {"shop": 50})
    log.undo("two")
    live = log.history.rules.live("large")
    assert live is not None
    assert (live.rule.version, live.rule.where) == (3, "amount > 3 * usual")
    assert (log.features, log.bands) == ({"usual": "avg(amount)"}, {"shop": 40})
    assert log.history.rules.features.documents["usual"].version == 3
    log.undo("one")
    assert (log.features, log.bands, log.history.rules.live("large")) == ({}, {}, None)
    log.release("gone", features=(feature(5),), decision_policies=(policy(5),))
    log.release("deleted", delete_features=("usual",), delete_policies=("shop",))
    assert (log.features, log.bands) == ({}, {})
    log.undo("deleted")
    assert (log.features, log.bands) == ({"usual": "avg(amount)"}, {"shop": 40})
    assert log.history.named_before(Subject.FEATURE, "usual", 0) is None
    assert {one.status.status for one in log.history.entries} == {StatusKind.ACCEPTED, StatusKind.DELETED}


def test_a_release_in_parts_changes_each_rule_once_too() -> None:
    log, large = Log(), [rule(id=f"r{n}", description="x" * 1_900) for n in range(40)]
    *parts, answer = log.release("one", *large, rule(2, id="r0", where="amount > usual"), features=(feature(),))
    assert (set(parts), answer) == ({("part", "staged")}, ("release", "rejected"))
    assert str(log.history.entries[-1].status.reason).endswith("rule r0 is there twice")
    assert (log.history.rules.rules, log.history.rules.staged) == ({}, {})


def test_a_rollback_restores_the_documents_of_before_though_their_numbers_began_again() -> None:
    log = Log()
    log.release("one", features=(feature(),), decision_policies=(policy(),))
    log.release("gone", delete_features=("usual",), delete_policies=("shop",))
    log.release("again", features=(feature(1, "max(amount)"),), decision_policies=(policy(1, 50),))
    assert (log.features, log.bands) == ({"usual": "max(amount)"}, {"shop": 50})
    log.undo("gone")
    assert (log.features, log.bands) == ({"usual": "avg(amount)"}, {"shop": 40})
    assert log.history.rules.policies.documents["shop"].version == 2


def test_a_rollback_restores_a_feature_that_is_in_quarantine() -> None:
    log = Log()
    log.release("one", features=(feature(),))
    log.quarantine("feature/usual@1")
    log.release("two", features=(feature(2, "max(amount)"),))
    log.undo("two")
    found = log.history.rules.features.documents["usual"]
    assert (found.version, found.of) == (3, "avg(amount)")


def test_features_and_policies_fit_into_one_record() -> None:
    many = tuple(feature().model_copy(update={"description": "x" * 2_000}) for _ in range(500))
    with pytest.raises(DocumentError, match="make two releases"):
        to_records("large", [], named=NamedChanges.model_construct(features=many))
    (record,) = to_records("small", [], named=NamedChanges.model_construct(features=many[:100]))
    assert len(orjson.loads(record[1])["features"]) == 100
    assert len(record[1]) < MAX_NAMED_BYTES
