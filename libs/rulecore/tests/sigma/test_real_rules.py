"""Sigma rules as people write them, each with events that must match and events that must not, through the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from rulecore.documents.loading import load_text
from rulecore.documents.scalars import FieldValue
from rulecore.documents.yaml_reader import read_yaml
from rulecore.sigma import ImportReport, import_rules, write_rule
from tests.harness.apps.sigma_import import DATA, documents, field_map, run

RULES = sorted((DATA / "rules").glob("*.yml"))


def import_files(*files: Path) -> ImportReport:
    some = [document for file in files for document in documents(file.read_text(), file.name)]
    report = import_rules(some, field_map())
    assert not report.rejected, [one.problem.render() for one in report.rejected]
    return report


def events(file: Path) -> dict[str, list[dict[str, FieldValue]]]:
    """Return ``match`` and ``miss``, loaded like rule files, so that times stay text."""
    found, problems = read_yaml((DATA / "events" / f"{file.stem}.yaml").read_text(), file.name)
    assert not problems
    value = found[0].value
    assert isinstance(value, dict)
    return value  # type: ignore[return-value]


def test_the_data_has_rules_of_every_kind() -> None:
    assert len(RULES) >= 25


@pytest.mark.slow
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.stem)
def test_an_imported_rule_fires_only_on_the_events_that_it_describes(file: Path) -> None:
    rule = import_files(file).imported[0].rule
    rows = events(file)
    assert rows["match"]
    assert rows["miss"]
    for wanted, row in [(1, r) for r in rows["match"]] + [(0, r) for r in rows["miss"]]:
        assert len(run(rule, row)) == wanted, (row, rule.where)


def test_a_written_file_reads_back_as_the_same_rules() -> None:
    report = import_files(*RULES)
    assert len(report.imported) == len(RULES)
    assert len({one.rule.id for one in report.imported}) == len(RULES)
    for one in report.imported:
        loaded, problems = load_text(write_rule(one.rule, one.notes))
        assert not problems
        assert [document.rule for document in loaded] == [one.rule]
