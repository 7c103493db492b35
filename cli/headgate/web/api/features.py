"""Features: what the app computes, who reads it, and the value for a key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headgate.web.changes.feature_value import find_value
from headgate.web.context import TheApp, TheConsole
from headgate.web.state.feature_values import (
    FeatureDetail,
    FeatureReadingValue,
    RuleFeatureValue,
    SharedFeatureValue,
)
from headgate.web.state.feature_views import find_feature, list_features, rule_features
from headgate.web.state.rule_views import find_rule

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


@ROUTER.get("/rules/{rule}/features")
def list_rule_features(app: TheApp, rule: str) -> tuple[RuleFeatureValue, ...]:
    """List the features of a rule, those of other keys too."""
    snapshot = app.snapshot()
    find_rule(snapshot, rule)
    return rule_features(snapshot, rule)
