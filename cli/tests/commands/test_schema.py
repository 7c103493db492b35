"""The JSON Schemas that ``headgate schema`` prints accept what ships and reject what the loader rejects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from headgate.commands.schema import command, document_schema
from rulecore.documents.loading import load_text
from rulecore.documents.yaml_reader import read_yaml

ROOT = Path(__file__).parents[3]
RULES = sorted((ROOT / "rules").rglob("*.yaml"))
BASE = "id: a\nversion: 1\nowner: me\non: shop\nthen: {severity: low, message: hi}\n"
SEQUENCE = "[{step: a, where: x}, {step: b, where: y}]"


def _validate(document: str, text: str, file: str = "<text>") -> list[str]:
    validator = Draft202012Validator(document_schema(document))
    documents, problems = read_yaml(text, file)
    assert not problems
    return [error.message for one in documents for error in validator.iter_errors(one.value)]


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.stem)
def test_a_shipped_rule_policy_or_feature_is_valid(file: Path) -> None:
    text = file.read_text("utf8")
    kinds = {"decision_policy": "decision-policy", "feature": "feature"}
    found = [kind for entry, kind in kinds.items() if text.startswith(f"{entry}:") or f"\n{entry}:" in text]
    assert _validate(found[0] if found else "rule", text, str(file)) == []


def test_an_invalid_feature_is_rejected_by_the_schema() -> None:
    head = "feature: f\nversion: 1\nowner: me\non: [shop, web]\nof: count(*)\n"
    span = "within: {sliding: 30d, every: 1h}\n"
    assert _validate("feature", f"{head}by: [user_id]\n{span}where: x\norder: in_order\n") == []
    for wrong in (span, f"by: []\n{span}", "by: [k]\nwithin: {session: 1h}\n", f"by: [k]\n{span}id: x\n"):
        assert _validate("feature", head + wrong)


def test_an_invalid_policy_is_rejected_by_the_schema() -> None:
    decide = "{order: [a, b], default: b, bands: {a: 5}}"
    head = "decision_policy: p\nversion: 1\nowner: me\non: [shop, web]\n"
    assert _validate("decision-policy", f"{head}decide: {decide}\nshare: 2.5%\nwhere: x\n") == []
    for wrong in ("decide: {order: []}", f"decide: {decide}\nshare: 2", f"decide: {decide}\nid: x", "where: x"):
        assert _validate("decision-policy", f"{head}{wrong}\n")


#: Those with other times than the shipped streams have.
TIMES = [ROOT / f"examples/events/streams/{name}.yaml" for name in ("nyc311", "syslog", "wikipedia")]
STREAMS = [*sorted((ROOT / "streams").glob("*.yaml")), *TIMES]


@pytest.mark.parametrize("file", STREAMS, ids=lambda file: file.stem)
def test_a_shipped_stream_is_valid(file: Path) -> None:
    assert _validate("stream", file.read_text("utf8")) == []


ACCEPTED = [
    "group_by: [k]\nwhere: x > f\nfeatures: [f, {name: g, of: count(*), within: {tumbling: 1d}}]",
    "where: x > 1",
    "where: x > 1\nmode: {canary: 10%}",
    "group_by: [k]\nwithin: {tumbling: 1h}\nhaving: count(*) > 1\nemit: final",
    f"group_by: [k]\nwithin: 1h\nskip: none\nsequence: {SEQUENCE}",
    "group_by: [k]\nwithin: 1h\nsequence: [{step: a, where: x, times: {at_least: 3}}, {next: b, where: y}]",
    "group_by: [k]\nwithin: 1h\nsequence: [{group: [{step: a, where: x}], times: {at_most: 2}}, {next: b, where: y}]",
    "group_by: [k]\nexpect: {where: x, every: 1h, again: 2h, of: {list: keys}}",
    "group_by: [k]\nscore: {of: [a-b, c], within: 1h, limit: 10}",
    "group_by: [k]\nscore: {of: {a-b: 10, c: null}, within: 1h, limit: 10}",
]
REJECTED = [
    "group_by: [k]\nwhere: x > f\nfeatures: [F]",
    "",
    "where: x > 1\nwehre: x",
    "where: x > 1\nsuppress: {for: 1h}",
    "where: x > 1\nemit: final",
    "where: x > 1\nskip: none",
    "where: x > 1\nmode: canary",
    "group_by: [k]\nhaving: count(*) > 1",
    "group_by: [k]\nwithin: 1h\nhaving: count(*) > 1",
    "group_by: [k]\nwithin: {span: 1h}\nhaving: count(*) > 1",
    f"group_by: [k]\nwithin: {{tumbling: 1h}}\nsequence: {SEQUENCE}",
    f"within: 1h\nsequence: {SEQUENCE}",
    "group_by: [k]\nwithin: 1h\nsequence: [{without: x}, {step: b, where: y}]",
    "group_by: [k]\nwithin: 1h\nsequence: [{step: a, where: x}, {next: b, step: c, where: y}]",
    "group_by: [k]\nwithin: 1h\nsequence: [{step: a, where: x, times: {min: 1, at_least: 2}}, {step: b, where: y}]",
    "group_by: [k]\nwhere: x\nexpect: {where: x, every: 1h}",
    "group_by: [k]\nexpect: {where: x, every: 1h, of: others}",
    "expect: {where: x, every: 1h}",
    "group_by: [k]\nscore: {of: [], within: 1h, limit: 10}",
]


@pytest.mark.parametrize("text", ACCEPTED)
def test_each_kind_of_rule_is_valid_for_the_loader_and_the_schema(text: str) -> None:
    assert _can_load(BASE + text)
    assert _validate("rule", BASE + text) == []


@pytest.mark.parametrize("text", REJECTED)
@pytest.mark.quick_cases(4)
def test_an_invalid_rule_is_rejected_by_the_loader_and_the_schema(text: str) -> None:
    assert not _can_load(BASE + text)
    assert _validate("rule", BASE + text)


def test_a_list_has_either_entries_or_a_file() -> None:
    head = "list: limits\nversion: 1\nowner: me\nof: long\nvalue: decimal(12,2)\n"
    assert _validate("list", head + 'entries: [[1, "2.00"]]') == []
    assert _validate("list", head + "file: limits.csv") == []
    assert _validate("list", head)
    assert _validate("list", head + "file: limits.csv\nentries: [1]")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "arguments",
    [
        ["rule"],
        ["decision-policy"],
        ["list"],
        ["stream"],
        *(["settings", "--service", s] for s in ("etl", "rules", "search", "sessions")),
    ],
)
def test_the_command_prints_a_schema_of_the_draft(arguments: list[str]) -> None:
    import json

    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    schema: Any = json.loads(result.output)
    assert schema["$schema"].endswith("2020-12/schema")
    Draft202012Validator.check_schema(schema)


def _can_load(text: str) -> bool:
    loaded, problems = load_text(text)
    return not problems and all(one.rule is not None for one in loaded)
