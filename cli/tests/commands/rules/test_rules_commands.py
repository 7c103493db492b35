"""`headgate rules check` and `test` without a cluster: messages name the place and the change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.main import run

GOOD = """\
id: large-payment
version: 1
owner: me
on: shop
where: type = 'payment' and amount >= 5000
then: {severity: high, outcome: review, score: 40, message: "{user_id} paid {amount}"}
tests:
  - name: a large one fires
    events: [{type: payment, user_id: u1, amount: 5000}]
    expect: [{user_id: u1, message: u1 paid 5000.00}]
"""

WINDOWED = """\
id: big-spender
version: 1
owner: me
on: shop
where: type = 'payment'
group_by: [user_id]
within: {tumbling: 1h}
having: sum(amount) > 100
emit: final
then: {severity: low, outcome: review, score: 1, message: "{user_id} spent {sum}"}
tests:
  - name: the window's end tells
    events:
      - {ts: +1s, type: payment, user_id: u1, amount: 60}
      - {ts: +2s, type: payment, user_id: u1, amount: 60}
    expect: [{user_id: u1, timing: final, values: {sum(amount): 120}}]
"""


def write(folder: Path, text: str, name: str = "rule.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_the_shipped_rules_are_valid_and_pass_their_tests(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "check", "-o", "json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["rules"] == len(checked["costs"]) >= 10
    assert run(["rules", "test", "rules", "-o", "json"]) == 0
    tested = json.loads(capsys.readouterr().out)
    assert tested["passed"] >= 2 * checked["rules"]
    assert tested["failed"] == tested["untested"] == []


def test_check_with_a_sample_names_the_keys_whose_state_only_grows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "id: r\nversion: 1\nowner: o\non: shop\nwhere: amount > 1\nsuppress: {by: [user_id], for: 1d}\n"
    path = write(tmp_path, text + "then: {severity: low, message: m}\n")
    sample = write(tmp_path, "".join(json.dumps({"user_id": n}) + "\n" for n in range(100)), "events.jsonl")
    assert run(["rules", "check", path, "--sample", f"shop={sample}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(
        f"warning: {path}:6:16: suppress.by: user_id: 100 events of the sample have 100 different"
    )
    assert lines[-1] == "1 rule is sound, 0 problems, 1 warning"
    assert run(["rules", "check", path, "--sample", "shop"]) == 2
    assert run(["rules", "check", path, "--sample", f"shops={sample}"]) != 0
    assert "there is no stream shops" in capsys.readouterr().err


def test_an_unknown_field_is_shown_with_file_line_underline_and_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, GOOD.replace("amount >= 5000", "amuont >= 5000"))
    assert run(["rules", "check", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}:5:29: where: unknown column amuont; did you mean amount?")
    assert lines[1] == "  type = 'payment' and amuont >= 5000"
    assert lines[2] == "                       ^^^^^^"
    assert lines[3:] == ["0 rules are sound, 1 problem"]


@pytest.mark.parametrize(
    ("wrong", "place", "message"),
    [
        (GOOD.replace("high", "hihg"), "6:18", "should be 'low', 'medium', 'high' or 'critical'"),
        (GOOD.replace("owner: me\n", ""), "1:1", "owner is missing"),
        (GOOD.replace("on: shop", "on: shoop"), "4:5", "there is no stream 'shoop'"),
        (GOOD.replace("amount >= 5000", "amount >= 'much'"), "5:39", "cannot be compared with string"),
        (GOOD.replace("{user_id} paid", "{nobody} paid"), "6", "nobody"),
        (WINDOWED.replace("[user_id]", "[usr_id]"), "6:11", "has no usr_id; did you mean user_id? accepted here: ev"),
        (WINDOWED.replace("[user_id]", "[lower(product)]"), "6:18", "unknown column product"),
        (WINDOWED.replace("having: sum(amount) > 100\n", ""), "1:1", "having is missing"),
        (GOOD + "---\n" + GOOD, "12:5", "the id 'large-payment' is taken by"),
        ("id: [\n", "2:1", "not YAML"),
        ("id: &a x\n", "1:5", "anchors and aliases are not read"),
    ],
)
def test_check_reports_each_error_with_its_line(
    wrong: str, place: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, wrong)
    assert run(["rules", "check", path, "-o", "json"]) == 1
    (problem, *_) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["file"] == path
    assert f"{problem['line']}:{problem['column']}".startswith(place)
    assert message in problem["message"]


def test_every_bad_rule_of_a_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, GOOD, "a.yaml")
    write(tmp_path, GOOD.replace("large-payment", "b").replace("amount", "amuont"), "b.yaml")
    write(tmp_path, GOOD.replace("large-payment", "c").replace("then:", "than:"), "c.yml")
    assert run(["rules", "check", str(tmp_path), "-o", "json"]) == 1
    checked = json.loads(capsys.readouterr().out)
    assert checked["rules"] == 1
    assert {Path(p["file"]).name for p in checked["problems"]} == {"b.yaml", "c.yml"}


def test_a_costly_condition_is_a_warning_and_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD.replace("type = 'payment' and amount >= 5000", "lower(user_id) = currency"))
    assert run(["rules", "check", path]) == 0
    assert capsys.readouterr().out.startswith("cost large-payment")


def test_a_failing_test_shows_the_actual_alerts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD.replace("u1 paid 5000.00", "u1 paid 6000.00"))
    assert run(["rules", "test", path]) == 1
    shown = capsys.readouterr().out
    assert "FAILED large-payment: a large one fires" in shown
    assert 'message: expected "u1 paid 6000.00", got "u1 paid 5000.00"' in shown
    assert shown.splitlines()[-1] == "1 test of 1 rule: 1 failed"


def test_a_test_of_a_rule_closes_its_final_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "test", write(tmp_path, WINDOWED)]) == 0
    assert capsys.readouterr().out == "1 test of 1 rule: 0 failed\n"


def test_an_event_that_the_decoder_rejects_fails_its_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD.replace("amount: 5000}", "amount: a lot}"))
    assert run(["rules", "test", path]) == 1
    assert "events[0]" in capsys.readouterr().out


def test_a_rule_that_does_not_compile_fails_the_test_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD.replace("amount >= 5000", "amount >="))
    assert run(["rules", "test", path, "-o", "json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1


def test_a_rule_without_tests_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD[: GOOD.index("tests:")])
    assert run(["rules", "test", path]) == 0
    assert "large-payment: has no tests" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "test", "publish"])
def test_a_missing_path_is_one_line_of_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", command, "/does/not/exist"]) == 1
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "headgate: rules: no such file or folder: /does/not/exist\n")


LISTED = """\
id: tor-payment
version: 1
owner: me
on: shop
where: user_id in list('watched') and amount > lookup('limits', user_id)
then: {severity: high, outcome: review, score: 40, message: "{user_id} paid {amount}"}
tests:
  - name: more than the limit
    events: [{type: payment, user_id: u1, amount: 51}, {type: payment, user_id: u2, amount: 51}]
    expect: [{user_id: u1}]
"""


def write_lists(folder: Path) -> str:
    folder.mkdir()
    head = "version: 1\nowner: me\nof: string\n"
    write(folder, f"list: watched\n{head}entries: [u1]\n", "watched.yaml")
    write(folder, f"list: limits\n{head}value: decimal(12,2)\nfile: limits.csv\n", "limits.yaml")
    write(folder, "value,lookup\nu1,50\nu2,50\n", "limits.csv")
    return str(folder)


def test_check_and_test_read_the_lists_that_rules_look_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, lists = write(tmp_path, LISTED), write_lists(tmp_path / "lists")
    assert run(["rules", "check", file, "--lists", lists]) == 0
    assert run(["rules", "test", file, "--lists", lists]) == 0
    capsys.readouterr()
    assert run(["rules", "check", file]) == 1
    assert "there is no list 'watched'" in capsys.readouterr().out


def test_check_reports_an_error_in_a_list_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, lists = write(tmp_path, LISTED), write_lists(tmp_path / "lists")
    write(tmp_path / "lists", "value,lookup\nu1,50\nu2,much\n", "limits.csv")
    assert run(["rules", "check", file, "--lists", lists]) == 1
    assert "limits.csv:3:1: entries: lookup: 'much' is no decimal(12,2)" in capsys.readouterr().out
    assert run(["rules", "check", file, "--lists", str(tmp_path / "nowhere")]) == 1
    assert "lists: no such file or folder" in capsys.readouterr().err


def test_the_tests_of_a_score_rule_have_the_lists_of_the_rules_whose_scores_it_adds(tmp_path: Path) -> None:
    listed = GOOD.replace("amount >= 5000", "user_id in list('watched')").partition("tests:")[0]
    adding = """\
---
id: risk
version: 1
owner: me
on: shop
group_by: [user_id]
score: {of: {large-payment: 100}, within: 1h, limit: 100}
then: {severity: high, message: "{user_id}"}
tests:
  - name: a watched user
    events: [{type: payment, user_id: u1}, {type: payment, user_id: u2}]
    expect: [{user_id: u1}]
"""
    lists = tmp_path / "lists"
    lists.mkdir()
    write(lists, "list: watched\nversion: 1\nowner: me\nof: string\nentries: [u1]\n")
    assert run(["rules", "test", write(tmp_path, listed + adding, "both.yaml"), "--lists", str(lists)]) == 0


BY_EXPRESSION = """\
id: r
version: 1
owner: me
on: shop
where: type = 'payment'
group_by:
  - lower(country)
  - amount % 2
KIND
then: {severity: low, message: "{lower(country)}"}
tests:
  - name: what is equal is counted together
    events:
      - {ts: +1s, type: payment, user_id: u1, country: DE, amount: 61}
      - {ts: +2s, type: payment, user_id: u2, country: de, amount: 63}
      - {ts: +3s, type: payment, user_id: u3, country: De, amount: 64}
      - {ts: +4s, type: payment, user_id: u3, country: De, amount: 65}
    expect: [{lower(country): de, message: de}]
"""


@pytest.mark.parametrize(
    "kind",
    [
        "within: {tumbling: 1h}\nhaving: count(*) >= 3",
        "within: {session: 1h}\nhaving: count(*) >= 3",
        "within: {count: 3}\nhaving: count(*) = 3",
        "features: [{name: n, of: count(*), within: {tumbling: 1d}}]",
        "features: [{name: n, of: count(*), by: [lower(country), amount % 2, amount > 9], within: {tumbling: 1d}}]\n"
        "order: in_order",
        "sequence: [{step: a, where: amount < 62}, {step: b, where: amount > 62}]\nwithin: 1h",
        "expect: {where: amount > 60 and amount <> 64, every: 1500ms}",
    ],
    ids=["window", "session", "count", "features", "in order", "sequence", "absence"],
)
@pytest.mark.quick_cases(2)
def test_a_rule_of_any_kind_is_checked_tested_and_explained_by_keys_that_are_expressions(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = BY_EXPRESSION.replace("KIND", kind)
    if "features" in kind:
        text = text.replace("where: type = 'payment'", "where: n >= 2")
    elif "expect" in kind:
        text = text.replace("where: type = 'payment'\n", "")
    path = write(tmp_path, text)
    assert run(["rules", "check", path]) == 0, capsys.readouterr().out
    assert run(["rules", "test", path]) == 0, capsys.readouterr().out
    times = (f"2026-01-05T10:00:0{second}Z" for second in (1, 2, 3, 4))
    rows = [("DE", 61), ("de", 63), ("De", 64), ("De", 65)]
    events = [
        {
            "event_id": country + str(amount),
            "ts": at,
            "type": "payment",
            "user_id": "u",
            "country": country,
            "amount": amount,
        }
        for at, (country, amount) in zip(times, rows, strict=True)
    ]
    file = write(tmp_path, "\n".join(map(json.dumps, events)), "events.json")
    capsys.readouterr()
    assert run(["rules", "explain", "r", "--rules", path, "--event-json", file, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["alerts"]
    assert all(one["key"] == {"lower(country)": "de", "amount % 2": "1.00"} for one in found["alerts"])
