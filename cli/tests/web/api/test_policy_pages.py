"""Decision policies in the API and on the pages: how they decide, the rules that they merge, their versions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from headgate.main import run
from rulecore.documents.decision_policy import encode_policy
from rulecore.documents.rule import canonical_json
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.console_scene import HOSTILE, Shown, decision_policy, rule
from tests.harness.apps.explained_app import run_app
from tests.harness.servers.console import browser, program, serve

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def decided(kafka: KafkaSettings) -> Iterator[Shown]:
    """An app with two versions of a policy, a deleted one, and rules that take part in it in all ways."""
    then = {"severity": "low", "message": "m", "outcome": "block", "score": 5}
    window = {"within": {"tumbling": "1h"}, "group_by": ["user_id"]}
    final = {"having": "count(*) > 5", "emit": "final", "then": {**then, "outcome": "review"}}
    controls = [
        ("decision-policy/guard", encode_policy(decision_policy("guard", where="amount > 1"))),
        ("decision-policy/guard", encode_policy(decision_policy("guard", 2, share="1%"))),
        ("decision-policy/old", encode_policy(decision_policy("old", on="retail"))),
        ("decision-policy/old", None),
        ("strong", canonical_json(rule("strong", then=then))),
        ("weak", canonical_json(rule("weak"))),
        ("tried", canonical_json(rule("tried", mode="shadow"))),
        ("final", canonical_json(rule("final", tests=[], **window, **final))),  # type: ignore[arg-type]
    ]
    app = run_app(kafka, f"policies-{uuid.uuid4().hex[:8]}", controls, [])
    with serve(kafka, app.name) as server:
        yield Shown(app, server, program(server), browser(server))


def test_a_policy_has_its_rules_by_the_part_that_they_take(decided: Shown) -> None:
    (listed,) = decided.program.get(f"{decided.api}/decision-policies").json
    assert (listed["decision_policy"], listed["version"], listed["owner"]) == ("guard", 2, HOSTILE)
    assert (listed["counting"], listed["shadow"], listed["compiles"], listed["share_percent"]) == (2, 1, True, 1.0)
    answer = decided.program.get(f"{decided.api}/decision-policies/guard")
    assert answer.headers["etag"] == answer.json["etag"] == '"d1"'
    assert answer.json["policy"] == listed
    assert answer.json["versions"] == [1, 2]
    assert [(one["rule"], one["part"], one["outcome"]) for one in answer.json["rules"]] == [
        ("strong", "counts", "block"),
        ("weak", "counts", "review"),
        ("tried", "shadow", "review"),
        ("final", "none", "review"),
    ]
    assert "where: amount > 1" in decided.program.get(f"{decided.api}/decision-policies/guard/versions/1").json
    for path in ("none", "guard/versions/3"):
        assert decided.program.get(f"{decided.api}/decision-policies/{path}").status == 404


def test_the_page_has_the_versions_and_says_of_a_deleted_policy_that_it_is(decided: Shown) -> None:
    page = decided.browser.get(f"{decided.pages}/decision-policies/guard").text
    assert "against version 1" in page
    assert "&#39;1%&#39;" in page
    assert f'href="{decided.pages}/rules/tried"' in page
    assert "against" not in decided.browser.get(f"{decided.pages}/decision-policies/guard?version=1").text
    assert 'class="tag">deleted<' in decided.browser.get(f"{decided.pages}/decision-policies/old").text


def test_the_list_of_rules_names_the_policy_that_merges_each(
    decided: Shown, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", decided.app.name, "--bootstrap", decided.app.bootstrap, "-o", "json"]
    assert run(["rules", "list", *target]) == 0
    policies = {one["rule"]: one["policy"] for one in json.loads(capsys.readouterr().out)}
    assert policies == {"strong": "guard", "weak": "guard", "tried": "guard", "final": None}
    listed = decided.program.get(f"{decided.api}/rules").json["rules"]
    assert {one["rule"]: one["policy"] for one in listed} == policies
    assert f'href="{decided.pages}/decision-policies/guard"' in decided.browser.get(f"{decided.pages}/rules/weak").text
