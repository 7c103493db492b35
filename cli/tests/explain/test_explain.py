"""`headgate rules explain` without Kafka, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headgate.explain import answer as explaining
from headgate.explain.render_text import tree
from headgate.main import headgate, run
from rulecore import language as lang
from rulecore.explain.condition import explain_condition
from streamcore.schema import LONG, STRING

RULES = """\
id: tiny
version: 1
owner: me
on: shop
where: type = 'payment' and (status = 'declined' or not (country in ('DE', 'FR'))) and amount < 2
then: {severity: low, message: "{user_id}"}
---
id: burst
version: 1
owner: me
on: shop
where: type = 'payment'
group_by: [user_id]
within: {tumbling: 1m}
having: count(*) >= 3
then: {severity: low, message: "{user_id}"}
"""


def event(second: int, user: str = "u1", **values: object) -> dict[str, object]:
    time = f"2026-01-05T10:00:{second:02d}Z"
    return {"event_id": f"e{second}", "ts": time, "type": "payment", "user_id": user, "amount": 99.5, **values}


def write(folder: Path, *events: dict[str, object]) -> list[str]:
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    (folder / "events.json").write_text("\n".join(json.dumps(one) for one in events), encoding="utf-8")
    return ["--rules", str(folder / "rules.yaml"), "--event-json", str(folder / "events.json")]


def test_the_events_of_a_score_rule_have_no_empty_column_of_conditions(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = write(tmp_path, event(0), event(1), event(2))
    with (tmp_path / "rules.yaml").open("a", encoding="utf-8") as file:
        file.write(
            "---\nid: sum\nversion: 1\nowner: me\non: shop\ngroup_by: [user_id]\n"
            "score: {of: {burst: 80}, within: 1h, limit: 70}\nthen: {severity: low, message: m}\n"
        )
    assert run(["rules", "explain", "sum", *options]) == 0
    shown = capsys.readouterr().out
    assert "TIME (UTC)" in shown
    assert "SATISFIES" not in shown


def test_an_event_that_does_not_match_is_shown_as_a_tree_of_clauses(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = write(tmp_path, event(0, status="ok"))
    assert run(["rules", "explain", "tiny", *options]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"tiny version 1 (event) on the last event of {options[3]}: DID NOT FIRE",
        "  does not fire: the event does not satisfy where, which is FALSE",
        "",
        "event events.json:0:0 of 2026-01-05 10:00:00 UTC",
        "  where: all of                      FALSE",
        "  ├─ type = 'payment'                TRUE    type = 'payment'",
        "  ├─ any of                          NULL",
        "  │  ├─ status = 'declined'          FALSE   status = 'ok'",
        "  │  └─ country not in ('DE', 'FR')  NULL    country = NULL",
        "  └─ amount < 2                      FALSE*  amount = 99.50",
        "",
        "* this clause decided",
    ]


@pytest.mark.parametrize("more", [["--key", "user_id=u2"], ["--at", "2026-01-05T10:00:00Z"], ["--event", "shop:0:0"]])
def test_a_file_is_explained_about_its_last_event_and_nothing_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, more: list[str]
) -> None:
    assert run(["rules", "explain", "tiny", *write(tmp_path, event(0), event(1)), *more]) == 1
    assert "--event-json is about the last event of the file" in capsys.readouterr().err


def test_an_explanation_of_a_window_shows_its_values_and_where_it_fired(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = write(tmp_path, *(event(second) for second in range(4)), event(5, "u2"), event(6))
    assert run(["rules", "explain", "burst", *options]) == 0
    shown = capsys.readouterr().out
    assert "DID NOT FIRE\n  does not fire again: it has already fired in this window" in shown
    assert (
        "  having: count(*) >= 3  TRUE*   count(*) = 5\n  fired at events.json:0:2 of 2026-01-05 10:00:02 UTC" in shown
    )
    assert "5 of the key's 5 events satisfied where" in shown


def test_the_json_output_contains_the_same_explanation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert (
        run(["rules", "explain", "tiny", *write(tmp_path, event(0, status="declined", amount=1.5)), "-o", "json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["rule"], found["fired"], found["verdict"]) == ("tiny", True, "fires for this event")
    where = found["event"]["conditions"]["where"]
    assert (where["result"], where["joint"], len(where["parts"])) == ("TRUE", "and", 3)
    assert where["parts"][2] == {
        "text": "amount < 2",
        "result": "TRUE",
        "decided": True,
        "joint": None,
        "values": {"amount": "1.50"},
        "note": "",
        "parts": [],
    }


def test_only_terminals_get_colours(tmp_path: Path) -> None:
    command = ["rules", "explain", "tiny", *write(tmp_path, event(0))]
    plain = CliRunner().invoke(headgate, command, standalone_mode=False)
    coloured = CliRunner().invoke(headgate, command, standalone_mode=False, color=True)
    assert "\x1b[" not in plain.output
    assert "\x1b[" in coloured.output
    assert click.unstyle(coloured.output) == plain.output


def test_a_null_result_names_the_operand_that_is_null() -> None:
    scope = lang.Scope({"a": LONG, "b": LONG, "c": STRING})
    condition = lang.parse("a % b > 1 and c = 'x'", scope, field="where")
    lines = tree("where", explain_condition(condition, {"a": 7, "b": None, "c": "x"}))
    assert [click.unstyle(line).rstrip() for line in lines] == [
        "  where: all of  NULL",
        "  ├─ a % b > 1   NULL*   a % b = NULL, a = 7, b = NULL  (b is NULL)",
        "  └─ c = 'x'     TRUE    c = 'x'",
    ]


@pytest.mark.parametrize(
    ("target", "events", "message"),
    [
        ("tinny", [event(0)], "did you mean tiny?"),
        ("tiny", [], "is empty"),
        ("tiny", [event(0, amount="much")], "not an event of shop: wrong_type: field amount"),
    ],
)
def test_the_command_reports_a_wrong_rule_or_event(
    target: str, events: list[dict[str, object]], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["rules", "explain", target, *write(tmp_path, *events)]) == 1
    assert message in capsys.readouterr().err


LISTED = """\
id: listed
version: 1
owner: me
on: shop
where: user_id in list('denied')
then: {severity: low, message: "{user_id}"}
"""


def test_an_explanation_looks_up_lists_of_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = write(tmp_path, event(0))
    (tmp_path / "rules.yaml").write_text(LISTED, encoding="utf-8")
    for entries, fired in (("[u1, u2]", True), ("[u2]", False)):
        denied = f"list: denied\nversion: 1\nowner: me\nof: string\nentries: {entries}\n"
        (tmp_path / "denied.yaml").write_text(denied, encoding="utf-8")
        lists = ["--lists", str(tmp_path / "denied.yaml"), "-o", "json"]
        assert run(["rules", "explain", "listed", *options, *lists]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["fired"], found["event"]["conditions"]["where"]["values"]) == (fired, {"user_id": "u1"})
        assert found["notes"] == ["lists are used with their present content, at the time of the event: denied"]


@pytest.mark.parametrize(
    "events",
    [
        [event(0, status="declined", amount=1.5)],
        [event(0, status="ok")],
        [event(0, status="declined", amount=1), event(1, country=None), event(2, status="declined", amount="1.99")],
        [event(0, not_declared=[1, {"a": 2}])],
        [event(0, amount="much"), event(1, ts="yesterday"), event(2, amount="more")],
        [event(0, user_id=None), event(1)],
    ],
)
def test_few_and_many_events_give_the_same_explanation(
    events: list[dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Few events are evaluated one by one, many in columns."""
    command = ["rules", "explain", "tiny", *write(tmp_path, *events), "-o", "json"]
    few = run(command), capsys.readouterr()
    monkeypatch.setattr(explaining, "SCALAR_LIMIT", 0)
    assert (run(command), capsys.readouterr()) == few


def test_only_files_that_name_the_rule_must_be_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = write(tmp_path, event(0))
    (tmp_path / "other.yaml").write_text("id: [", encoding="utf-8")
    options[1] = str(tmp_path)
    assert run(["rules", "explain", "tiny", *options]) == 0
    assert "DID NOT FIRE" in capsys.readouterr().out
    assert run(["rules", "explain", "tinny", *options]) == 1
    assert "other.yaml:2" in capsys.readouterr().err


SUM = """\
id: sum
version: 1
owner: me
on: shop
group_by: [user_id]
score: {of: [part], within: 1h, limit: 5}
then: {severity: low, message: "{user_id}"}
"""
PART = """\
id: %s
version: 1
owner: me
on: shop
where: amount > 1
then: {severity: low, message: "{user_id}", score: 5}
"""
PAIR = """\
id: pair
version: 1
owner: me
on: shop
group_by: [user_id]
sequence:
  - {step: first, where: amount > 1}
  - {step: second, where: amount > 1}
within: 1h
then: {severity: low, message: "{user_id}", score: 5}
"""


@pytest.mark.parametrize("written", ["part", '"p\\u0061rt"'])
def test_an_explanation_of_a_score_includes_its_rules_in_any_file_and_notation(
    written: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = write(tmp_path, event(0))
    (tmp_path / "sum.yaml").write_text(SUM, encoding="utf-8")
    (tmp_path / "part.yaml").write_text(PART % written, encoding="utf-8")
    options[1] = str(tmp_path)
    assert run(["rules", "explain", "sum", *options, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["alerts"]) == 1
    assert found["fired"] is True
    assert [*found["event"]["conditions"]] == ["signal part"]


def test_an_explanation_shows_a_sequence_that_fires_at_the_event(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = write(tmp_path, event(0), event(1))
    (tmp_path / "pair.yaml").write_text(PAIR, encoding="utf-8")
    options[1] = str(tmp_path)
    assert run(["rules", "explain", "pair", *options, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["event_time_ms"] for one in found["alerts"]] == [found["event"]["event_time_ms"]]
    assert found["fired"] is True


def test_an_explanation_of_a_sequence_has_the_values_that_conditions_over_earlier_steps_had(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = write(tmp_path, event(0, amount="2"), event(1, amount="3"), event(2, amount="8"))
    rule = PAIR.replace("amount > 1}\n  - {step: second, where: amount > 1}", "amount < 5, times: 2}\n  - ROW").replace(
        "ROW", "{step: second, where: amount > sum(first.amount) and amount > last(first.amount) and count(first) = 2}"
    )
    (tmp_path / "pair.yaml").write_text(rule, encoding="utf-8")
    options[1] = str(tmp_path)
    assert run(["rules", "explain", "pair", *options, "-o", "json"]) == 0
    (match,) = json.loads(capsys.readouterr().out)["matches"]
    assert [*map(list, (one["conditions"] for one in match["events"]))] == [
        ["step first"],
        ["step first"],
        ["step second"],
    ]
    (second,) = match["events"][-1]["conditions"].values()
    seen = {name: value for part in second["parts"] for name, value in part["values"].items()}
    assert second["result"] == "TRUE"
    assert seen == {"amount": "8.00", "sum(first.amount)": "5.00", "last(first.amount)": "3.00", "count(first)": 2}
    assert run(["rules", "explain", "pair", *options]) == 0
    assert "sum(first.amount) = 5.00" in capsys.readouterr().out
    (tmp_path / "pair.yaml").write_text(rule.replace("sum(first.amount) and", "2 * sum(first.amount) and"), "utf-8")
    assert run(["rules", "explain", "pair", *options, "-o", "json"]) == 0
    partial = json.loads(capsys.readouterr().out)["partials"][0]
    assert (len(partial["events"]), partial["waited_for"]) == (2, ["second"])
    assert [one["source"]["offset"] for one in partial["missed"]] == [2]
    assert run(["rules", "explain", "pair", *options]) == 0
    shown = capsys.readouterr().out
    assert "waited for second; it still waits" in shown
    assert "2 * sum(first.amount) = 10.00, amount = 8.00" in shown


STREAM = """\
name: trail
event_time: eventTime
keys: [[userName]]
fields:
  eventTime: timestamp not null
  eventName: string not null
  userName: {type: string, from: userIdentity.userName}
  mfa: {type: boolean, from: userIdentity.attributes.mfa}
"""
LOGIN_RULE = """\
id: no-mfa
version: 1
owner: me
on: trail
where: eventName = 'ConsoleLogin' and not mfa
then: {severity: low, message: "{userName}"}
tests:
  - name: a login without a second factor
    events: [{eventTime: +1s, eventName: ConsoleLogin, userName: alice, mfa: false}]
    expect: [{message: alice}]
"""


def test_a_field_inside_of_an_object_is_shown_with_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams/trail.yaml").write_text(STREAM)
    (tmp_path / "rules.yaml").write_text(LOGIN_RULE)
    event: dict[str, object] = {"eventTime": "2026-01-05T10:00:00Z", "eventName": "ConsoleLogin"}
    event |= {"userIdentity": {"userName": "alice", "attributes": {"mfa": True}}}
    (tmp_path / "event.json").write_text(json.dumps(event))
    files = ["--rules", str(tmp_path / "rules.yaml"), "--event-json", str(tmp_path / "event.json")]
    folder = ["--streams", str(tmp_path / "streams")]
    assert run(["rules", "test", str(tmp_path / "rules.yaml"), *folder]) == 0
    capsys.readouterr()
    assert run(["rules", "explain", "no-mfa", *files, *folder]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == [
        "event event.json:0:0 of 2026-01-05 10:00:00 UTC",
        "  where: all of                  FALSE",
        "  ├─ eventName = 'ConsoleLogin'  TRUE    eventName = 'ConsoleLogin'",
        "  └─ not mfa                     FALSE*  mfa = true",
        "  mfa is userIdentity.attributes.mfa in the record",
        "",
        "* this clause decided",
    ]


@pytest.mark.parametrize(("count", "total"), [("once", 8), ("every", 13)])
def test_an_explanation_of_a_score_lists_the_signals_with_their_points(
    count: str, total: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of one key's two payments the second reaches the limit; a rule that the score does not name gives no points."""
    options = write(tmp_path, event(0, amount="2"), event(1, amount="3"), event(2, amount="1"))
    score = f"{{of: {{part: null, silent: 3}}, within: 1h, limit: LIMIT, count: {count}}}"
    text = SUM.replace("{of: [part], within: 1h, limit: 5}", score)
    part = PART % "part"
    (tmp_path / "silent.yaml").write_text(
        (PART % "silent").replace("amount > 1", "amount > 2").replace("score: 5", "score: 9, alert: false"), "utf-8"
    )
    (tmp_path / "other.yaml").write_text(PART % "other", "utf-8")
    (tmp_path / "part.yaml").write_text(part, "utf-8")
    (tmp_path / "sum.yaml").write_text(text.replace("LIMIT", "20"), "utf-8")
    options[1] = str(tmp_path)
    assert run(["rules", "explain", "sum", *options, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (score_found,) = found["scores"]
    assert (score_found["total"], score_found["limit"], score_found["count"], found["fired"]) == (total, 20, 3, False)
    signals = [(one["rule"], one["points"], one["counts"]) for one in score_found["signals"]]
    assert signals == [("part", 5, True), ("part", 5, count == "every"), ("silent", 3, True)]
    assert [one["alert_id"] is None for one in score_found["signals"]] == [False, False, True]
    assert score_found["signals"][0]["place"]["offset"] == 0
    assert run(["rules", "explain", "sum", *options]) == 0
    printed = capsys.readouterr().out
    assert f"score {total} of 20, {20 - total} too few: 3 signals" in printed
    assert ("in parentheses" in printed) is (count == "once")
    (tmp_path / "sum.yaml").write_text(text.replace("LIMIT", "6"), "utf-8")
    write(tmp_path, event(0, amount="2"), event(1, amount="3"))
    assert run(["rules", "explain", "sum", *options, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (fired,) = found["scores"]
    assert fired["total"] == found["alerts"][-1]["values"]["sum"]
    assert len(fired["signals"]) == found["alerts"][-1]["values"]["count"]
