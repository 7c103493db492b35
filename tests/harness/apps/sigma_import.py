"""What the tests of the Sigma import share: a stream, a map, and documents from text."""

from __future__ import annotations

from pathlib import Path

import yaml

from rulecore.documents.rule import Rule
from rulecore.documents.scalars import FieldValue
from rulecore.documents.yaml_reader import YamlDocument, read_yaml
from rulecore.sigma import FieldMap, ImportOptions, ImportReport, import_rules, read_map
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import Alert, complete
from streamcore.schema import StreamSchema

DATA = Path(__file__).resolve().parents[3] / "libs/rulecore/tests/sigma/data"
HOSTS = StreamSchema.parse(yaml.safe_load((DATA / "hosts.yaml").read_text()))


def field_map() -> FieldMap:
    """Return the field map of the tests."""
    found, problems = read_map((DATA / "map.yaml").read_text(), "map.yaml", HOSTS)
    assert found is not None
    assert not problems
    return found


def documents(text: str, file: str = "sigma.yml") -> list[YamlDocument]:
    """Return the documents of a YAML text."""
    found, problems = read_yaml(text, file)
    assert not problems
    return found


def importing(text: str, *group_by: str) -> ImportReport:
    """Import a text; return the report."""
    return import_rules(documents(text), field_map(), ImportOptions(group_by))


def run(rule: Rule, *events: dict[str, FieldValue]) -> list[Alert]:
    """Run rules over these events, one second apart unless they have a time; return the alerts."""
    return [*run_in_process([rule], {"hosts": HOSTS}, {"hosts": complete(events, HOSTS)})]
