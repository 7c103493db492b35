"""Decision policies: how rules become decisions, their versions and the rules that they merge."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headgate.rules.yaml_text import yaml_text
from headgate.web.api.rules import ChangeBody, IfNoneMatch, NamedPublication, TheChange, Wait, Why, answer_outcome
from headgate.web.changes.publish_named import delete_named, publish_named
from headgate.web.context import TheApp
from headgate.web.problems import not_found
from headgate.web.state.policy_values import DecisionPolicyValue, PolicyDetail
from headgate.web.state.policy_views import find_policy_document, list_policies, policy_versions
from headgate.web.state.values import OutcomeValue
from rulecore.documents.status import Subject

ROUTER = APIRouter(prefix="/api/v1/apps/{app}/decision-policies", tags=["decisions"])


@ROUTER.get("")
def list_decision_policies(app: TheApp) -> tuple[DecisionPolicyValue, ...]:
    """List the decision policies of an app."""
    return list_policies(app.snapshot())


@ROUTER.get("/{policy}")
def read_decision_policy(app: TheApp, policy: str, response: Response) -> PolicyDetail:
    """Return a decision policy with the rules that it merges. The answer has its ETag."""
    found = find_policy_document(app.snapshot(), policy)
    response.headers["ETag"] = found.etag
    return found


@ROUTER.put("/{policy}")
def publish_decision_policy(
    app: TheApp,
    policy: str,
    body: NamedPublication,
    change: TheChange,
    response: Response,
    if_none_match: IfNoneMatch = None,
) -> OutcomeValue:
    """Check a version of a decision policy and publish it, as `headgate rules publish` does."""
    terms = change.terms(body, if_none_match)
    key = app.proposals.key
    return answer_outcome(response, publish_named(app.reader, Subject.DECISION_POLICY, policy, body.yaml, terms, key))


@ROUTER.delete("/{policy}")
def delete_decision_policy(
    app: TheApp, policy: str, change: TheChange, response: Response, why: Why = None, wait_ms: Wait = 10_000
) -> OutcomeValue:
    """Delete a decision policy, as `headgate rules publish --delete-policy` does."""
    terms = change.terms(ChangeBody(why=why, wait_ms=wait_ms))
    return answer_outcome(response, delete_named(app.reader, Subject.DECISION_POLICY, policy, terms, app.proposals.key))


@ROUTER.get("/{policy}/versions/{version}")
def read_policy_version(app: TheApp, policy: str, version: int) -> str:
    """Return a version that was accepted, as YAML."""
    found = policy_versions(app.snapshot(), policy).get(version)
    if found is None:
        raise not_found(f"app {app.name} has no version {version} of decision policy {policy}")
    return yaml_text(found)
