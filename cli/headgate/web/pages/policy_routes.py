"""The pages of decision policies."""

from __future__ import annotations

from itertools import islice
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from headgate.rules.yaml_text import yaml_text
from headgate.web.context import TheApp, TheConsole, TheSession
from headgate.web.pages import marks
from headgate.web.pages.routes import make_frame
from headgate.web.rendering import render
from headgate.web.state.policy_views import (
    all_tones,
    find_policy_document,
    list_policies,
    outcome_tones,
    policy_versions,
)
from headgate.web.state.rule_views import list_changes

ROUTER = APIRouter(prefix="/apps/{app}/decision-policies", include_in_schema=False, default_response_class=HTMLResponse)
_CHANGES = 50


@ROUTER.get("")
def policies_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show the decision policies."""
    snapshot = app.snapshot()
    command = f"headgate rules list --history --app {app.name}"
    frame = make_frame(console, session, app.name, "decision policies", "Decision policies", command)
    documents = snapshot.history.rules.policies.documents
    tones = {name: outcome_tones(one) for name, one in documents.items()}
    return render("policies.html", frame=frame, policies=list_policies(snapshot), tones=tones)


@ROUTER.get("/{policy}")
def policy_page(
    app: TheApp,
    policy: str,
    console: TheConsole,
    session: TheSession,
    version: Annotated[int | None, Query(ge=1)] = None,
) -> str:
    """Show a decision policy: how it decides, the rules that it merges, and its history. ``version``: the one that is
    compared with that before."""
    snapshot = app.snapshot()
    found, versions = find_policy_document(snapshot, policy), policy_versions(snapshot, policy)
    shown = max(versions) if version not in versions or version is None else version
    before = max((one for one in versions if one < shown), default=None)
    texts = ["" if one is None else yaml_text(versions[one]) for one in (before, shown)]
    changes = (c for c in list_changes(snapshot) if (c.subject, c.name) == ("decision_policy", policy))
    held = snapshot.history.rules.policies.documents.get(policy)
    command = f"headgate rules list --history --app {app.name} --rule {quote(policy)}"
    return render(
        "policy.html",
        frame=make_frame(console, session, app.name, "decision policies", policy, command),
        found=found,
        tones=all_tones(snapshot) if held is None else outcome_tones(held),
        shown=shown,
        before=before,
        diff=marks.diff_lines(*texts),
        lines=marks.yaml_lines(found.yaml),
        changes=[*islice(changes, _CHANGES)],
    )
