"""The rules in ``rules/shop`` and ``rules/retail`` are valid, and their own tests pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rulecore.check import check_rules
from rulecore.documents.loading import load_path
from rulecore.documents.rule import Rule
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import run_tests
from streamcore.schema import Kind, StreamSchema

ROOT = Path(__file__).parents[4]
STREAMS = {
    path.stem: StreamSchema.parse(yaml.safe_load(path.read_text()))
    for path in sorted((ROOT / "streams").glob("*.yaml"))
}
FOLDERS = [load_path(ROOT / "rules" / name) for name in ("retail", "shop")]
LOADED = [loaded for folder, _ in FOLDERS for loaded in folder]
PROBLEMS = [problem for _, problems in FOLDERS for problem in problems]
RULES = [loaded.rule for loaded in LOADED if loaded.rule is not None]


def test_all_shipped_rules_pass_the_check() -> None:
    report = check_rules(LOADED, STREAMS)
    assert [problem.render() for problem in (*PROBLEMS, *report.problems)] == []
    assert len(report.rules) == len(LOADED)


def test_there_are_enough_rules_of_every_kind() -> None:
    shop = [rule for rule in RULES if rule.on == "shop"]
    retail = [rule for rule in RULES if rule.on == "retail"]
    assert len(shop) >= 10
    assert len(retail) >= 6
    for rules in (shop, retail):
        assert {rule.windowed for rule in rules} == {True, False}
        assert {rule.emit for rule in rules} == {"early", "final"}
        assert {type(rule.within).__name__ for rule in rules} >= {"NoneType", "TumblingSpec", "SlidingSpec"}


def test_every_file_holds_the_rule_of_its_name_in_the_folder_of_its_stream() -> None:
    for loaded in LOADED:
        assert loaded.rule is not None
        path = Path(loaded.document.file)
        assert (path.stem, path.parent.name) == (loaded.rule.id, loaded.rule.on)
        assert loaded.rule.description


def test_aggregates_over_retail_use_exact_types() -> None:
    """With doubles an oracle would depend on the order of additions."""
    report = check_rules(LOADED, STREAMS)
    kinds = {a.type.kind for rule in report.rules if rule.rule.on == "retail" for a in rule.aggregates}
    assert kinds == {Kind.LONG, Kind.DECIMAL}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_the_tests_of_a_shipped_rule_pass(rule: Rule) -> None:
    assert {bool(test.expect) for test in rule.tests} == {True, False}
    failed = [(r.test, *r.diff) for r in run_tests(rule, STREAMS, run_in_process) if not r.passed]
    assert failed == []
