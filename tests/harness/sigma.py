"""What the tests of the Sigma import share: a stream, a map, and documents from text."""

from __future__ import annotations

from pathlib import Path

import yaml

from rulecore.model import Rule
from rulecore.ruletests import Alert, complete
from rulecore.runner import run_in_process
from rulecore.sigma import FieldMap, Report, Wishes, import_rules, read_map
from rulecore.values import ScalarValue
from rulecore.yamldoc import Document, read_yaml
from streamcore.schema import StreamSchema

DATA = Path(__file__).resolve().parents[2] / "libs/rulecore/tests/sigma/data"
HOSTS = StreamSchema.parse(yaml.safe_load((DATA / "hosts.yaml").read_text()))


def field_map() -> FieldMap:
    """The map of the tests."""
    found, problems = read_map((DATA / "map.yaml").read_text(), "map.yaml", HOSTS)
    assert found is not None
    assert not problems
    return found


def documents(text: str, file: str = "sigma.yml") -> list[Document]:
    """The documents of a text that is YAML."""
    found, problems = read_yaml(text, file)
    assert not problems
    return found


def importing(text: str, *group_by: str) -> Report:
    """The report on a text."""
    return import_rules(documents(text), field_map(), Wishes(group_by))


def run(rule: Rule, *events: dict[str, ScalarValue]) -> list[Alert]:
    """The alerts of these events, one second apart unless they say a time."""
    return [*run_in_process([rule], {"hosts": HOSTS}, {"hosts": complete(events, HOSTS)})]
