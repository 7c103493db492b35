"""The pages of features."""

from __future__ import annotations

from itertools import islice
from shlex import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from headgate.web.changes.feature_value import find_value
from headgate.web.context import TheApp, TheConsole, TheSession
from headgate.web.pages import marks
from headgate.web.pages.routes import make_frame
from headgate.web.problems import ProblemError
from headgate.web.rendering import render
from headgate.web.state.feature_values import FeatureReadingValue, SharedFeatureValue
from headgate.web.state.feature_views import find_feature, list_features
from headgate.web.state.rule_views import list_changes
from streamcore.errors import StreamError

ROUTER = APIRouter(prefix="/apps/{app}/features", include_in_schema=False, default_response_class=HTMLResponse)
_CHANGES = 50


@ROUTER.get("")
def features_page(app: TheApp, console: TheConsole, session: TheSession, text: str = "") -> str:
    """Show the features that the app computes."""
    found = [one for one in list_features(app.snapshot()) if text.lower() in _words(one)]
    command = f"headgate features list --app {app.name}"
    frame = make_frame(console, session, app.name, "features", "Features", command)
    return render("features.html", frame=frame, features=found, text=text)


def _words(one: SharedFeatureValue) -> str:
    """Return the text of a feature that the filter of the page looks through, in small letters."""
    rules = (use.rule for use in one.rules)
    return " ".join((*one.names, one.definition.of, *one.definition.by, *rules)).lower()


@ROUTER.get("/{feature}")
def feature_page(app: TheApp, feature: str, console: TheConsole, session: TheSession, request: Request) -> str:
    """Show a feature: its definition, the rules that read it, and its value for a key."""
    snapshot = app.snapshot()
    found = find_feature(snapshot, feature)
    document = snapshot.history.rules.features.documents.get(feature)
    by = () if document is None else document.by
    words = request.query_params
    asked = {name: words.get(f"k.{name}", "").strip() for name in by}
    at, fault = words.get("at", "").strip(), ""
    reading: FeatureReadingValue | None = None
    if by and all(asked.values()):
        key = [f"{name}={value}" for name, value in asked.items()]
        try:
            with console.working():
                scan = console.settings.limits.explain_records
                reading = find_value(app.known(), feature, key, at or None, scan)
        except (ProblemError, StreamError) as error:
            fault = str(error)
    changes = (c for c in list_changes(snapshot) if (c.subject, c.name) == ("feature", feature))
    command = f"headgate features show {quote(feature)} --app {app.name}"
    if reading is not None:
        given = " ".join(quote(f"{name}={value}") for name, value in asked.items())
        when = f" --at {quote(at)}" if at else ""
        command = f"headgate features get {quote(feature)} {given} --app {app.name}{when}"
    return render(
        "feature.html",
        frame=make_frame(console, session, app.name, "features", feature, command),
        found=found,
        lines=marks.yaml_lines(found.yaml or ""),
        changes=[*islice(changes, _CHANGES)],
        by=by,
        asked=asked,
        at=at,
        reading=reading,
        fault=fault,
    )
