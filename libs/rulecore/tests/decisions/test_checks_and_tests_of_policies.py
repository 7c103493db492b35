"""`headgate rules check` and `headgate rules test` with decision policies: problems, warnings, failing tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rulecore.check_policies import PolicyReport, check_policies
from rulecore.documents.decision_policy import DecisionPolicy
from rulecore.documents.loading import load_path, load_policies, load_text
from rulecore.documents.rule import Rule
from rulecore.testing.in_process import decide_in_process
from rulecore.testing.rule_tests import TestResult, run_policy_tests
from streamcore.schema import StreamSchema
from tests.harness.oracles.decided_payments import LOGINS, PAYMENTS

ROOT = Path(__file__).parents[4]
STREAMS = {"payments": PAYMENTS, "logins": LOGINS}
DECIDE = "decide: {order: [block, review, allow], default: allow, bands: {review: 30}}"
POLICY = f"decision_policy: pay\nversion: 1\nowner: o\non: payments\n{DECIDE}\n"
THEN = "then: {severity: low, score: 30, message: m}"
LARGE = f"id: large\nversion: 1\nowner: o\non: payments\nwhere: amount > 10\n{THEN}\n"


def check(folder: Path, *texts: str) -> PolicyReport:
    (folder / "all.yaml").write_text("---\n".join(texts))
    return check_policies(load_policies(folder), load_path(folder)[0], STREAMS)


def test_a_problem_has_its_place_in_the_file(tmp_path: Path) -> None:
    report = check(tmp_path, POLICY + "where: amount > yes\n", POLICY.replace("pay\n", "other\n"))
    assert [(p.place.line, p.rule, p.path) for p in report.problems] == [(6, "pay", "where"), (11, "other", "on")]
    assert report.problems[1].message == (
        f"the stream 'payments' is taken by {tmp_path / 'all.yaml'}:1; a stream has one policy: "
        "make one document of the two, or name only one of the files"
    )
    assert report.policies == ()


@pytest.mark.parametrize(
    ("decide", "line", "path"),
    [
        ("order: [block]\n  default: allow", 7, "decide.default"),
        ("order: [block, allow]\n  default: allow\n  bands:\n    block: 3\n    hold: 1", 10, "decide.bands.hold"),
        ("order: [b, a]\n  default: a\n  bands: {b: 1, a: 2}", 8, "decide.bands"),
        ("default: a\n  order: [a, a]", 7, "decide.order"),
    ],
)
def test_a_problem_of_outcomes_is_at_its_entry(decide: str, line: int, path: str, tmp_path: Path) -> None:
    (problem,) = check(tmp_path, POLICY.replace(DECIDE, f"decide:\n  {decide}")).problems
    assert (problem.place.line, problem.path) == (line, path)


def test_rules_that_take_no_part_are_named(tmp_path: Path) -> None:
    silent = LARGE.replace("id: large", "id: silent").replace("where: amount > 10", "group_by: [user]") + (
        "within: {tumbling: 1h}\nhaving: count(*) > 1\nemit: final\n"
    )
    odd = LARGE.replace("id: large", "id: odd").replace("score: 30", "score: 30, outcome: notify")
    counted = silent.replace("id: silent", "id: counted").replace("tumbling: 1h", "count: 5")
    waiting = LARGE.replace("id: large", "id: waiting") + (
        "group_by: [user]\nfeatures: [{name: n, of: count(*), within: {tumbling: 1d}}]\norder: in_order\n"
    )
    unnamed = LARGE.replace("id: large", "id: unnamed")
    added = LARGE.replace("id: large", "id: added").replace("where: amount > 10", "group_by: [user]")
    added += "score: {of: {large: 40}, within: 24h, limit: 100}\n"
    odd += "---\n" + unnamed
    report = check(tmp_path, POLICY, LARGE, silent, odd, counted, waiting, added)
    assert [(w.rule, w.path) for w in report.warnings] == [
        ("silent", "then"),
        ("odd", "then.outcome"),
        ("waiting", "then"),
        ("added", "then"),
    ]
    assert report.warnings[3].message.startswith("fires at the alerts of other rules, so it is in no decision of pay")
    assert "it is in no decision of pay" in report.warnings[0].message


def test_a_policy_without_rules_is_named(tmp_path: Path) -> None:
    report = check(tmp_path, POLICY + "tests: [{name: t, events: [], expect: [{rules: [far]}]}]\n")
    (warning,) = report.warnings
    assert report.problems == ()
    assert warning.message == "no rule among these files is on payments, so nothing is merged"


@pytest.mark.parametrize(
    ("events", "expect", "path", "message"),
    [
        (
            "{amount: 50}",
            "{outcomes: review}",
            "tests.0.expect.0",
            "there is no outcomes; there are band, card, cause",
        ),
        (
            "{amount: 50}",
            "{outcome: reveiw}",
            "tests.0.expect.0",
            "there is no reveiw; there are allow, block, review",
        ),
        ("{amount: 50}", "{band: stop}", "tests.0.expect.0", "there is no stop; there are allow, block, review"),
        ("{amount: 50}", "{rules: [largest]}", "tests.0.expect.0", "there is no largest; there are large"),
        ("{sum: 50}", "{user: u}", "tests.0.events.0", "there is no sum; there are amount, at, card, id, note, user"),
    ],
)
def test_names_in_tests_of_a_policy_are_checked(
    events: str, expect: str, path: str, message: str, tmp_path: Path
) -> None:
    policy = POLICY + f"tests: [{{name: t, events: [{events}], expect: [{expect}]}}]\n"
    (problem,) = check(tmp_path, policy, LARGE).problems
    assert (problem.rule, problem.path) == ("pay", path)
    assert problem.message.startswith(message)
    right = "{outcome: review, band: null, cause: rules, rules: [large], shadow: [], key: {user: u}, card: c}"
    assert check(tmp_path, policy.replace(expect, right).replace("sum: 50", "amount: 50"), LARGE).problems == ()


def results(tests: str) -> tuple[TestResult, ...]:
    (rule,) = (one.rule for one in load_text(LARGE)[0])
    assert isinstance(rule, Rule)
    folder = {"events": [{"user": "u", "card": "c", "amount": 50}]}
    expected = {"name": tests, "expect": [{"outcome": tests, "score": 30, "rules": ["large"], "shadow": []}], **folder}
    document = {"decision_policy": "pay", "version": 1, "owner": "o", "on": "payments", "tests": [expected]}
    decide = {"order": ["block", "review", "allow"], "default": "allow", "bands": {"review": 30}}
    policy = DecisionPolicy.model_validate({**document, "decide": decide})
    return run_policy_tests(policy, STREAMS, decide_in_process, [rule])


def test_a_test_of_a_policy_passes_or_shows_the_difference() -> None:
    (passed,) = results("review")
    assert passed.diff == ()
    (failed,) = results("block")
    assert failed.diff[1].endswith('outcome: expected "block", got "review"')
    assert failed.diff[2].startswith('+ too many {"event_id":"e1","outcome":"review"')


def test_the_policies_of_the_examples_are_valid_and_their_tests_pass() -> None:
    streams = {"shop": StreamSchema.parse(yaml.safe_load((ROOT / "streams" / "shop.yaml").read_text()))}
    path = ROOT / "rules" / "examples" / "decisions"
    rules, problems = load_path(path)
    report = check_policies(load_policies(path), rules, streams)
    assert [p.render() for p in (*problems, *report.problems, *report.warnings)] == []
    found = [one.rule for one in rules if one.rule is not None]
    for compiled in report.policies:
        tested = run_policy_tests(compiled.policy, streams, decide_in_process, found)
        assert len(tested) > 2
        assert [(one.test, *one.diff) for one in tested if not one.passed] == []
