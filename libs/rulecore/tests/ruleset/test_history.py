"""The history of rules, with authors and every version, follows from the control log alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rulecore.errors import RuleSetError
from rulecore.ruleset.history import ControlEntry, RuleHistory, extend, replay_log, revert_release, roll_back
from rulecore.ruleset.ruleset import RuleSet
from streamcore.engine.publication import StreamPublication
from streamcore.kernel import ControlRecord
from streamcore.schema import StreamSchema
from tests.harness.apps.control_records import HOUR, NOW, STREAMS, document, put, release


def replay(*records: ControlRecord) -> RuleHistory:
    log = [ControlEntry(c, NOW + i * HOUR, f"u{i}", f"because {i}") for i, c in enumerate(records)]
    return replay_log(RuleSet.empty(STREAMS), log)


def test_the_history_lists_every_change_with_author_reason_and_status() -> None:
    history = replay(put("r", 1), put("r", 2, where="colour = 1"), put("r", 3), ControlRecord(0, 3, b"r", None))
    entries = [(e.written.by, e.written.why, e.status.version, str(e.status.status)) for e in history.entries]
    assert entries == [
        ("u0", "because 0", 1, "accepted"),
        ("u1", "because 1", 2, "rejected"),
        ("u2", "because 2", 3, "accepted"),
        ("u3", "because 3", 3, "deleted"),
    ]


def test_a_rollback_publishes_the_previous_version_under_a_new_number() -> None:
    history = replay(put("r", 1, where="amount > 10"), put("r", 2), put("r", 3, mode="draft"))
    back = roll_back(history, "r")
    assert (back.version, back.where) == (4, "amount > 10")


def test_a_rollback_can_restore_any_accepted_version_even_of_a_deleted_rule() -> None:
    history = replay(put("r", 1, where="amount > 10"), put("r", 2), put("r", 3), ControlRecord(0, 3, b"r", None))
    assert roll_back(history, "r", 1).where == "amount > 10"
    assert roll_back(history, "r").version == 4
    with pytest.raises(RuleSetError, match="has no version 9; it has 1, 2, 3"):
        roll_back(history, "r", 9)
    with pytest.raises(RuleSetError, match="no version of 'x' was ever accepted"):
        roll_back(history, "x")
    with pytest.raises(RuleSetError, match="has had no other version than 1"):
        roll_back(replay(put("r", 1)), "r")


def test_a_rollback_reverts_a_whole_release() -> None:
    changes = release("q3", [document("a", 2, where="amount > 9"), document("b", 1)], deleted=["c"])
    history = replay(put("a", 1, where="amount > 5"), put("c", 7, where="amount > 7"), *changes)
    back, deleted, _ = revert_release(history, "q3")
    assert [(r.id, r.version, r.where) for r in back] == [("a", 3, "amount > 5"), ("c", 8, "amount > 7")]
    assert deleted == ["b"]
    with pytest.raises(RuleSetError, match="no accepted release 'q4'"):
        revert_release(history, "q4")


def test_the_history_includes_the_versions_of_releases_in_parts() -> None:
    large = [document(f"r{i}", 1, description="x" * 1_000, where=f"amount > {i}") for i in range(100)]
    history = replay(*release("large", large), put("r7", 2))
    assert roll_back(history, "r7").where == "amount > 7"


def test_the_history_has_published_streams_from_their_record_on() -> None:
    """What ``explain`` and back-tests read: later rules name the new field, and a rejected document changes nothing."""
    pay = {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string", "amount": "long"},
    }
    more = {**pay, "version": 2, "fields": {**pay["fields"], "coupon": "string"}}  # type: ignore[dict-item]
    refunds = {**pay, "name": "refunds", "when": {"from": "type", "equals": "refund"}}
    log = [
        put("early", 1, where="coupon = 'X'"),
        publish({**more, "keys": [["amount"]]}),
        publish(more),
        put("late", 1, where="coupon = 'X'"),
        publish(refunds, "payments"),
        put("back", 1, where="amount > 1", on="refunds"),
        publish(more),
    ]
    start = RuleSet.empty({"pay": StreamSchema.parse(pay)})
    history = replay_log(start, [ControlEntry(c, NOW + i, "me") for i, c in enumerate(log)])
    found = [(e.status.subject.value, e.status.name, e.status.status.value) for e in history.entries]
    assert found == [
        ("rule", "early", "rejected"),
        ("stream", "pay", "rejected"),
        ("stream", "pay", "accepted"),
        ("rule", "late", "accepted"),
        ("stream", "refunds", "accepted"),
        ("rule", "back", "accepted"),
        ("stream", "pay", "accepted"),
    ]
    assert "coupon" in history.rules.streams["pay"].names
    assert history.rules.live("late") is not None


def publish(document: Mapping[str, object], topic: str | None = None) -> ControlRecord:
    record = StreamPublication(document, topic)
    return ControlRecord(0, 0, record.key.encode(), record.encode())


def test_the_time_of_a_replay_is_that_of_its_records_and_a_log_in_pieces_gives_the_same() -> None:
    """Versions with times of effect, lists, quarantine, a release, a deleted rule; one by one, and as one log."""
    until = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"}
    records = [
        put("a", 1, effective=until),
        put("b", 1),
        ControlRecord(0, 2, b"quarantine:b@1", b"it fails"),
        *release("both", [document("a", 2, where="amount > 9"), document("c", 1)], deleted=["b"]),
        put("c", 1),
        put("c", 2, where="colour = 1"),
        ControlRecord(0, 9, b"c", None),
        put("d", 1, mode="shadow"),
        put("d", 2, mode="draft"),
    ]
    whole = replay(*records)
    pieces = RuleHistory(RuleSet.empty(STREAMS))
    for number, record in enumerate(records):
        extend(pieces, [ControlEntry(record, NOW + number * HOUR, f"u{number}", f"because {number}")])
    assert pieces.rules == whole.rules
    assert pieces.rules.records() == whole.rules.records()
    assert [e.status for e in pieces.entries] == [e.status for e in whole.entries]
    assert (pieces.documents, pieces.live_versions) == (whole.documents, whole.live_versions)
