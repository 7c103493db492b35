"""The rules in ``rules/examples`` are sound, and their own tests pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rulecore.check import check
from rulecore.load import load_path
from rulecore.model import Rule
from rulecore.ruletests import run_tests
from rulecore.runner import run_in_process
from streamcore.schema import StreamSchema

ROOT = Path(__file__).parents[3]
STREAMS = {
    path.stem: StreamSchema.parse(yaml.safe_load(path.read_text()))
    for path in sorted((ROOT / "streams").glob("*.yaml"))
}
LOADED, PROBLEMS = load_path(ROOT / "rules" / "examples")
RULES = [loaded.rule for loaded in LOADED if loaded.rule is not None]


def test_all_examples_pass_the_check() -> None:
    report = check(LOADED, STREAMS)
    assert [problem.render() for problem in (*PROBLEMS, *report.problems)] == []
    assert len(report.rules) == len(LOADED)


def test_session_and_count_windows_have_an_example() -> None:
    assert {type(rule.within).__name__ for rule in RULES} >= {"Session", "Count"}


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_the_tests_of_an_example_pass(rule: Rule) -> None:
    assert {bool(test.expect) for test in rule.tests} == {True, False}
    failed = [(r.test, *r.diff) for r in run_tests(rule, STREAMS, run_in_process) if not r.passed]
    assert failed == []
