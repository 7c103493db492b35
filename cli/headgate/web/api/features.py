"""Features: the values that the app computes, their readers, and the value for a key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headgate.web.api.rules import ChangeBody, IfNoneMatch, NamedPublication, TheChange, Wait, Why, answer_outcome
from headgate.web.changes.feature_value import find_value
from headgate.web.changes.publish_named import delete_named, publish_named
from headgate.web.context import TheApp, TheConsole
from headgate.web.state.feature_values import (
    FeatureDetail,
    FeatureReadingValue,
    RuleFeatureValue,
    SharedFeatureValue,
)
from headgate.web.state.feature_views import find_feature, list_features, rule_features
from headgate.web.state.rule_views import find_rule
from headgate.web.state.values import OutcomeValue
from rulecore.documents.status import Subject

ROUTER = APIRouter(prefix="/api/v1/apps/{app}", tags=["features"])


@ROUTER.get("/features")
def list_the_features(app: TheApp) -> tuple[SharedFeatureValue, ...]:
    """List the features that the app computes, each once, as `headgate features list` does."""
    return list_features(app.snapshot())


@ROUTER.get("/features/{feature}")
def read_feature(app: TheApp, feature: str, response: Response) -> FeatureDetail:
    """Return the features that are published under a name, or that rules call so. The answer has the ETag."""
    found = find_feature(app.snapshot(), feature)
    response.headers["ETag"] = found.etag
    return found


@ROUTER.get("/features/{feature}/value")
def read_feature_value(
    app: TheApp,
    console: TheConsole,
    feature: str,
    key: Annotated[tuple[str, ...], Query(description="column=value, for each column of `by`.")],
    at: Annotated[str | None, Query(description="A time, or how long ago (2h); without it now.")] = None,
) -> FeatureReadingValue:
    """Return the value of a published feature for a key, as `headgate features get` does."""
    with console.working():
        return find_value(app.known(), feature, key, at, console.settings.limits.explain_records)


@ROUTER.put("/features/{feature}")
def publish_feature(
    app: TheApp,
    feature: str,
    body: NamedPublication,
    change: TheChange,
    response: Response,
    if_none_match: IfNoneMatch = None,
) -> OutcomeValue:
    """Check a version of a feature and publish it, as `headgate rules publish` does."""
    terms = change.terms(body, if_none_match)
    key = app.proposals.key
    return answer_outcome(response, publish_named(app.reader, Subject.FEATURE, feature, body.yaml, terms, key))


@ROUTER.delete("/features/{feature}")
def delete_feature(
    app: TheApp, feature: str, change: TheChange, response: Response, why: Why = None, wait_ms: Wait = 10_000
) -> OutcomeValue:
    """Delete a feature that no rule names, as `headgate rules publish --delete-feature` does."""
    terms = change.terms(ChangeBody(why=why, wait_ms=wait_ms))
    return answer_outcome(response, delete_named(app.reader, Subject.FEATURE, feature, terms, app.proposals.key))


@ROUTER.get("/rules/{rule}/features")
def list_rule_features(app: TheApp, rule: str) -> tuple[RuleFeatureValue, ...]:
    """List the features of a rule, those of other keys too."""
    snapshot = app.snapshot()
    find_rule(snapshot, rule)
    return rule_features(snapshot, rule)
