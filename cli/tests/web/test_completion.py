"""What fits at the cursor of a rule's text: entries of the schema, fields, functions, lists, streams, rules."""

from __future__ import annotations

import pytest

from headgate.rules.bundle import load_streams
from headgate.web.changes.complete import complete
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.values import CompletionsValue
from rulecore.documents.rule import canonical_json
from rulecore.lists.records import ListHead, list_records
from rulecore.ruleset.history import ControlEntry, replay_log
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kernel import ControlRecord
from tests.harness.apps.console_scene import rule

HEAD = "id: mine\nversion: 1\non: shop\n"


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """An app with the shipped streams, a list and a rule."""
    head = ListHead.model_validate({"list": "denied", "version": 1, "owner": "me", "of": "string"})
    written = [*list_records(head, [["u1"]]), ("seen", canonical_json(rule("seen")))]
    log = [ControlEntry(ControlRecord(0, i, key.encode(), value), 0) for i, (key, value) in enumerate(written)]
    history = replay_log(RuleSet.empty(load_streams()), log)
    assert history.rules.live("seen") is not None
    return Snapshot("", history)


def at(snapshot: Snapshot, text: str) -> CompletionsValue:
    """Complete a text at its mark ``|``."""
    before, _, after = text.partition("|")
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    return complete(snapshot, before + after, line, column)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("ow|", "owner: "),
        ("where: am|", "amount"),
        ("where: type = 'payment' and low|", "lower("),
        ("where: >\n  type = 'payment'\n  and am|", "amount"),
        ("where: user_id in list('de|", "denied"),
        ("where: user_id in den|", "list('denied')"),
        ("having: su|", "sum("),
        ("then:\n  se|", "severity: "),
        ("then: {severity: high, mes|", "message: "),
        ("then:\n  severity: h|", "high"),
        ('then:\n  message: "paid {am|', "amount"),
        ("mode: sh|", "shadow"),
        ("group_by: [us|", "user_id"),
        ("group_by:\n  - us|", "user_id"),
        ("suppress: {by: [us|", "user_id"),
        ("sequence:\n  - step: one\n    wh|", "where: "),
        ("sequence:\n  - step: one\n    where: am|", "amount"),
        ("tests:\n  - name: one\n    ev|", "events: "),
        ("tests:\n- name: one\n  ev|", "events: "),
        ("tests:\n  - name: one\n    events:\n      - {type: payment, am|", "amount: "),
        ("tests:\n  - name: one\n    events: [{type: payment, am|", "amount: "),
        ("tests:\n  - name: one\n    events:\n      - type: payment\n        am|", "amount: "),
        ("tests:\n  - name: one\n    expect:\n      - sev|", "severity: "),
        ("expect: {every: 5m, of: {list: d|", "denied"),
        ("score:\n  of: {se|", "seen: "),
    ],
)
def test_the_first_option_fits_the_place(snapshot: Snapshot, text: str, first: str) -> None:
    options = at(snapshot, HEAD + text).options
    assert options
    assert options[0].text == first


def test_a_stream_is_offered_before_any_is_named(snapshot: Snapshot) -> None:
    assert [one.text for one in at(snapshot, "id: mine\non: sh|").options] == ["shop"]
    assert at(snapshot, "id: mine\nwhere: amou|").options == ()


def test_options_say_what_they_are(snapshot: Snapshot) -> None:
    (amount, *_) = at(snapshot, f"{HEAD}where: amount|").options or at(snapshot, f"{HEAD}where: amoun|").options
    assert (amount.kind, amount.detail) == ("field", "decimal(12,2)")
    (lower,) = at(snapshot, f"{HEAD}where: lower|").options
    assert (lower.kind, lower.detail, lower.about) == ("function", "lower(text)", "The text in lower case. text")


@pytest.mark.parametrize("text", ["# am|", "where: amount > 1  # am|", "where: status = 'am|", "description: am|"])
def test_nothing_fits_in_a_comment_or_a_text(snapshot: Snapshot, text: str) -> None:
    assert at(snapshot, HEAD + text).options == ()


def test_an_entry_is_offered_once(snapshot: Snapshot) -> None:
    names = {one.label for one in at(snapshot, f"{HEAD}|\nwhere: amount > 1\nthen: {{}}").options}
    assert "owner" in names
    assert not names & {"id", "version", "on", "where", "then"}


def test_every_place_of_a_text_has_an_answer_within_it(snapshot: Snapshot) -> None:
    text = f"{HEAD}then: {{severity: high, message: \"{{\n- - [: {{'\n  where: >\n    a\n\t- x: [1, {{\n"
    for line, content in enumerate(text.split("\n"), 1):
        for column in range(1, len(content) + 3):
            found = complete(snapshot, text, line, column)
            assert 1 <= found.start <= column
            assert len(found.options) <= 40
    assert complete(snapshot, text, 99, 1).options == ()


FEATURES = """features:
  - {name: usual, of: avg(amount), within: {sliding: 30d, every: 1h}}
  - name: known
    of: seen(card)
"""


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (HEAD + FEATURES + "where: amount > us|", "usual"),
        (HEAD + FEATURES + "where: not kno|", "known"),
        (HEAD + FEATURES + "then:\n  message: '{usu|", "usual"),
        (HEAD + "features:\n  - {name: a, of: see|", "seen("),
        (HEAD + "features:\n  - name: a\n    of: count_|", "count_distinct("),
        ("id: x\non:\n  - shop\nwhere: amo|", "amount"),
    ],
)
def test_features_are_offered_where_they_are_read(snapshot: Snapshot, text: str, first: str) -> None:
    assert at(snapshot, text).options[0].text == first


def test_nothing_is_offered_in_a_line_that_is_too_long(snapshot: Snapshot) -> None:
    assert at(snapshot, HEAD + "where: " + "a" * 150_000 + " |").options == ()
    assert at(snapshot, HEAD + "where: " + "[" * 150_000 + "|").options == ()
