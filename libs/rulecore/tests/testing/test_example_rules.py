"""The rules in ``rules/examples`` are valid and have a cost, and their own tests pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rulecore.check import check_rules
from rulecore.check_features import check_published
from rulecore.compile.feature import with_definitions
from rulecore.documents.loading import load_features, load_path, load_text
from rulecore.documents.rule import Rule
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import run_tests
from streamcore.schema import StreamSchema

ROOT = Path(__file__).parents[4]
STREAMS = {
    path.stem: StreamSchema.parse(yaml.safe_load(path.read_text()))
    for path in sorted((ROOT / "streams").glob("*.yaml"))
}
LOADED, PROBLEMS = load_path(ROOT / "rules" / "examples")
FEATURES = check_published(load_features(ROOT / "rules" / "examples"), STREAMS)
RULES = [with_definitions(one.rule, FEATURES.features) for one in LOADED if one.rule is not None]


def test_all_example_rules_pass_the_check_and_have_a_cost() -> None:
    report = check_rules(LOADED, STREAMS, published=FEATURES.features)
    assert [problem.render() for problem in (*PROBLEMS, *FEATURES.problems, *report.problems)] == []
    assert len(report.rules) == len(LOADED)
    assert all(cost.note and cost.cheap for cost in report.costs)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_the_tests_of_an_example_rule_pass(rule: Rule) -> None:
    failed = [(r.test, *r.diff) for r in run_tests(rule, STREAMS, run_in_process, RULES) if not r.passed]
    assert failed == []


def test_the_check_locates_a_score_rule_that_names_an_unusable_rule() -> None:
    text = (ROOT / "rules" / "examples" / "user-risk-score.yaml").read_text().partition("tests:")[0]
    documents, _ = load_text(text.replace("user_id]", "card]").replace("{user_id}", "{card}"), "score.yaml")
    others = [loaded for loaded in LOADED if loaded.rule is not None and loaded.rule.id != "user-risk-score"]
    (problem,) = check_rules([*documents, *others], STREAMS, published=FEATURES.features).problems
    assert problem.path == "score.of.failed-logins"
    assert problem.place.line == text[: text.index("failed-logins: null")].count("\n") + 1
    assert "it needs [card] in group_by" in problem.message
