"""The slots of a rule's versions: trial, waiting, draft, paused and retired; and releases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rulecore.compile.cache
import rulecore.ruleset.ruleset
from rulecore.compile.rule import RuleLimits
from rulecore.documents.control_keys import STAGED_KEY
from rulecore.documents.scalars import render_time
from rulecore.documents.slots import Slot, VersionSlot
from rulecore.documents.status import StatusKind, Subject
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from tests.harness.apps.control_records import (
    HOUR,
    NOW,
    STREAMS,
    after,
    answer,
    document,
    evaluated_versions,
    put,
    release,
)

CANARY = {"canary": "10%"}


def empty_rules(limits: RuleLimits | None = None) -> RuleSet:
    return RuleSet.empty(STREAMS, limits)


def at(**times: int) -> dict[str, str]:
    return {name.rstrip("_"): render_time(NOW + hours * HOUR) for name, hours in times.items()}


@pytest.mark.parametrize("mode", ["shadow", CANARY])
def test_a_trial_is_evaluated_beside_the_live_version(mode: object) -> None:
    rules = after(empty_rules(), put("r", 1), put("r", 2, mode=mode))
    assert evaluated_versions(rules) == [("r", 2), ("r", 1)]
    assert (rules.live("r"), rules.candidate("r")) == (rules.evaluated_rules()[1], rules.evaluated_rules()[0])


def test_a_trial_is_evaluated_without_a_live_version() -> None:
    rules = after(empty_rules(), put("r", 1, mode="shadow"))
    assert set(rules.stored) == {VersionSlot("r", Slot.LIVE)}
    assert evaluated_versions(rules) == [("r", 1)]


def test_a_newer_live_version_ends_the_trial() -> None:
    rules = after(empty_rules(), put("r", 1), put("r", 2, mode="shadow"), put("r", 3))
    assert evaluated_versions(rules) == [("r", 3)]
    assert set(rules.stored) == {VersionSlot("r", Slot.LIVE)}


def test_a_newer_trial_replaces_the_previous_one() -> None:
    rules = after(empty_rules(), put("r", 1), put("r", 2, mode="shadow"), put("r", 3, mode=CANARY))
    assert evaluated_versions(rules) == [("r", 3), ("r", 1)]


def test_a_draft_is_kept_and_changes_nothing() -> None:
    before = after(empty_rules(), put("r", 1), put("r", 2, mode="shadow"))
    rules = after(before, put("r", 3, mode="draft"))
    assert evaluated_versions(rules) == evaluated_versions(before)
    assert rules.epoch == before.epoch
    assert VersionSlot("r", Slot.DRAFT) in rules.stored
    assert VersionSlot("r", Slot.DRAFT) not in after(rules, put("r", 4)).stored


def test_a_paused_rule_keeps_its_state_and_a_retired_one_does_not() -> None:
    paused = after(empty_rules(), put("r", 1), put("r", 2, mode="paused"))
    assert evaluated_versions(paused) == []
    assert [c.rule.version for c in paused.with_state()] == [2]
    retired = after(paused, put("r", 3, mode="retired"))
    assert retired.with_state() == ()
    assert evaluated_versions(after(retired, put("r", 4))) == [("r", 4)]


def test_a_scheduled_version_takes_effect_at_its_time_and_the_previous_one_is_live_until_then() -> None:
    rules = after(empty_rules(), put("r", 1), put("r", 2, effective=at(from_=1)))
    assert evaluated_versions(rules) == [("r", 1)]
    assert rules.boundary_ms() == NOW + HOUR
    same, silent = rules.at_time(NOW + HOUR - 1)
    assert (same, silent) == (rules, ())
    later, (status,) = rules.at_time(NOW + HOUR)
    assert evaluated_versions(later) == [("r", 2)]
    assert (status.status, status.version, status.rules_epoch) == (StatusKind.EFFECTIVE, 2, rules.epoch + 1)
    assert later.at_time(NOW + 2 * HOUR)[1] == ()


def test_an_expired_version_is_not_evaluated_and_its_end_is_reported_once() -> None:
    rules = after(empty_rules(), put("r", 1, effective=at(to=1)))
    over, (status,) = rules.at_time(NOW + HOUR)
    assert evaluated_versions(over) == []
    assert over.with_state() == ()
    assert (status.status, status.version) == (StatusKind.EXPIRED, 1)
    assert over.at_time(NOW + 2 * HOUR) == (over, ())
    assert RuleSet.restore(STREAMS, over.limits, over.records()) == over
    assert evaluated_versions(after(over, put("r", 2, mode="shadow"), clock_ms=NOW + HOUR)) == [("r", 2)]


def test_a_scheduled_trial_starts_beside_the_live_version() -> None:
    rules = after(empty_rules(), put("r", 1), put("r", 2, mode="shadow", effective=at(from_=1, to=2)))
    on_trial, _ = rules.at_time(NOW + HOUR)
    assert evaluated_versions(on_trial) == [("r", 2), ("r", 1)]
    over, _ = on_trial.at_time(NOW + 2 * HOUR)
    assert evaluated_versions(over) == [("r", 1)]


def test_a_jump_of_the_clock_applies_all_scheduled_changes_at_once() -> None:
    rules = after(empty_rules(), put("r", 1, effective=at(to=1)), put("r", 2, effective=at(from_=2, to=3)))
    over, statuses = rules.at_time(NOW + 10 * HOUR)
    assert evaluated_versions(over) == []
    assert [(s.version, s.status) for s in statuses] == [(1, "expired"), (2, "expired")]


def test_deleting_removes_every_version() -> None:
    rules = after(empty_rules(), put("r", 1), put("r", 2, mode="shadow"), put("r", 3, mode="draft"))
    gone = after(rules, ControlRecord(0, 9, b"r", None))
    assert gone.stored == {}


def test_a_new_version_must_be_above_the_versions_in_all_slots() -> None:
    rules = after(empty_rules(), put("r", 1), put("r", 5, mode="draft"))
    assert "not above version 5" in (answer(rules, put("r", 4)).reason or "")


# --- releases ---------------------------------------------------------------------------------------------------------


def test_a_release_takes_effect_atomically() -> None:
    before = after(empty_rules(), put("a", 1), put("gone", 1))
    changes = release("q3", [document("a", 2), document("b", 1)], deleted=["gone"])
    rules, answers = before.apply(changes, NOW)
    assert evaluated_versions(rules) == [("a", 2), ("b", 1)]
    assert rules.epoch == before.epoch + 1
    assert [(a.subject, a.name, a.status) for a in answers] == [
        (Subject.RELEASE, "q3", "accepted"),
        (Subject.RULE, "a", "accepted"),
        (Subject.RULE, "b", "accepted"),
        (Subject.RULE, "gone", "deleted"),
    ]
    assert {a.release for a in answers[1:]} == {"q3"}
    assert {a.offset for a in answers} == {0}


def test_one_bad_change_rejects_the_whole_release_and_the_reason_names_each_bad_change() -> None:
    before = after(empty_rules(), put("a", 2))
    changes = release("q3", [document("b", 1), document("a", 1), document("c", 1, where="colour = 1")])
    same, (status,) = before.apply(changes, NOW)
    assert same is before
    assert status.status is StatusKind.REJECTED
    assert "2 of 3 changes are rejected, so nothing changed" in (status.reason or "")
    assert "a: version 1 is not above version 2" in (status.reason or "")
    assert "c: where:1:1" in (status.reason or "")


def test_a_release_that_would_exceed_the_limit_of_rules_is_rejected() -> None:
    rules = after(empty_rules(RuleLimits(rules=2)), put("a", 1))
    assert "the limit" in (answer(rules, release("x", [document("b"), document("c")])[0]).reason or "")
    assert answer(rules, release("x", [document("b")])[0]).status is StatusKind.ACCEPTED
    swapped = release("x", [document("b"), document("c")], deleted=["a"])
    assert answer(rules, swapped[0]).status is StatusKind.REJECTED, "deletions follow the published rules"


def test_a_large_release_has_parts_that_take_effect_with_its_last_record() -> None:
    large = [document(f"r{i}", 1, description="x" * 1_000) for i in range(200)]
    records = release("large", large)
    assert len(records) > 5
    rules, answers = empty_rules().apply(records[:-1], NOW)
    assert evaluated_versions(rules) == []
    assert {a.status for a in answers} == {"staged"}
    assert rules.epoch == 0
    restored = RuleSet.restore(STREAMS, rules.limits, rules.records())
    assert restored == rules
    done, statuses = restored.apply(records[-1:], NOW)
    assert len(evaluated_versions(done)) == 200
    assert len(statuses) == 201
    assert (done.staged, done.epoch) == ({}, 1)


def test_each_part_of_a_release_is_compiled_when_it_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def record_calls(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            done.append(name)
            return function(*arguments)

        return call

    for name in ("compile_rule", "decode_part", "canonical_json"):
        monkeypatch.setattr(rulecore.compile.cache, name, record_calls(name, getattr(rulecore.compile.cache, name)))
    records = release("prepared", [document(f"prepared{i}", 1, description="y" * 1_000) for i in range(100)])
    rules, _ = empty_rules().apply(records[:-1], NOW)
    assert {name: done.count(name) for name in done} == {
        "decode_part": len(records) - 1,
        "canonical_json": 100,
        "compile_rule": 100,
    }
    done.clear()
    released, _ = rules.apply(records[-1:], NOW)
    assert len(evaluated_versions(released)) == 100
    assert done == []
    rulecore.ruleset.ruleset._LAST.clear()
    elsewhere, _ = RuleSet.restore(STREAMS, rules.limits, rules.records()).apply(records[-1:], NOW)
    assert (elsewhere, done) == (released, [])


@pytest.mark.slow
def test_a_release_gives_the_same_result_when_the_caches_were_cleared() -> None:
    records = release("cold", [document(f"cold{i}", 1, description="z" * 1_000) for i in range(100)])
    rules, _ = empty_rules().apply(records[:-1], NOW)
    warm = rules.apply(records[-1:], NOW)
    rulecore.compile.cache.decode_part_cached.cache_clear()
    rulecore.compile.cache._compile_record.cache_clear()
    rulecore.ruleset.ruleset._LAST.clear()
    assert rules.apply(records[-1:], NOW) == warm


def test_shards_of_a_worker_share_the_result_of_a_change() -> None:
    records = [put("shared", 1), put("shared-too", 1)]
    one, statuses = empty_rules().apply(records, NOW)
    other, other_statuses = empty_rules().apply(records, NOW)
    assert other is one
    assert other_statuses == statuses
    assert other.matcher("pay", other.streams["pay"].keys[0]) is one.matcher("pay", other.streams["pay"].keys[0])
    assert empty_rules().apply(records, NOW + 1)[0] is not one
    assert empty_rules(RuleLimits(rules=1)).apply(records, NOW)[1] != statuses


def test_a_release_without_its_parts_is_rejected() -> None:
    records = release("large", [document(f"r{i}", 1, description="x" * 1_000) for i in range(100)])
    status = answer(empty_rules(), records[-1])
    assert "publish the parts of a release before the release" in (status.reason or "")


def test_a_part_with_changed_bytes_is_rejected() -> None:
    part = release("large", [document(f"r{i}", 1, description="x" * 1_000) for i in range(100)])[0]
    status = answer(empty_rules(), ControlRecord(0, 0, part.key, (part.value or b"") + b" "))
    assert (status.status, status.subject) == (StatusKind.REJECTED, Subject.PART)


def test_the_status_of_a_part_reports_its_errors_before_the_release() -> None:
    wrong = [document(f"r{i}", 1, where="colour = 1", description="x" * 1_000) for i in range(100)]
    status = answer(empty_rules(), release("large", wrong)[0])
    assert (status.status, status.subject) == (StatusKind.STAGED, Subject.PART)
    assert "will be rejected:\nr0: where:1:1" in (status.reason or "")


def test_parts_without_a_release_are_bounded_in_bytes() -> None:
    rules = empty_rules(RuleLimits(staged_bytes=100_000))
    records = release("large", [document(f"r{i}", 1, description="x" * 1_000) for i in range(150)])
    _, answers = rules.apply(records, NOW)
    assert [a.status for a in answers[:2]] == ["staged", "staged"]
    assert "at most 100000;" in (answers[2].reason or "")


@given(st.sampled_from(["release/x", STAGED_KEY + "0" * 32, "release/", STAGED_KEY]), st.binary(max_size=80))
def test_no_bytes_of_a_release_make_applying_raise(key: str, value: bytes) -> None:
    before = after(empty_rules(), put("r"))
    same, (status,) = before.apply([ControlRecord(0, 0, key.encode(), value)], NOW)
    assert same is before
    assert status.status is StatusKind.REJECTED
    assert not (status.reason or "").startswith("internal error")


Step = tuple[str, int, object, tuple[int, int] | None]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(1, 6),
        st.sampled_from(["live", "shadow", "paused", "draft", "retired", CANARY, None]),
        st.none() | st.tuples(st.integers(-2, 4), st.integers(5, 8)),
    ),
    max_size=12,
)


@given(STEPS, st.integers(0, 12))
def test_the_rule_set_and_its_restored_copy_do_not_depend_on_how_the_history_is_cut(
    steps: list[Step], cut: int
) -> None:
    records = []
    for offset, (name, version, mode, hours) in enumerate(steps):
        times = {} if hours is None else {"effective": at(from_=hours[0], to=hours[1])}
        value = (
            put(name, version, offset, mode=mode, **times) if mode else ControlRecord(0, offset, name.encode(), None)
        )
        records.append(value)
    whole, _ = empty_rules().apply(records, NOW)
    first, _ = empty_rules().apply(records[:cut], NOW)
    rest, _ = RuleSet.restore(STREAMS, first.limits, first.records()).apply(records[cut:], NOW)
    assert dict(rest.stored) == dict(whole.stored)
    assert evaluated_versions(rest.at_time(NOW + 6 * HOUR)[0]) == evaluated_versions(whole.at_time(NOW + 6 * HOUR)[0])
    for rule_id in ("a", "b"):
        live = [v for name, v in evaluated_versions(whole) if name == rule_id]
        assert len(live) <= 2
