"""The pages Access and Audit."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headgate.web.api.approvals import governance_value, session_value
from headgate.web.api.apps import Before, audit_page
from headgate.web.changes.propose import list_proposals
from headgate.web.context import TheApp, TheConsole, TheSession
from headgate.web.pages.forms import Form
from headgate.web.pages.routes import make_frame
from headgate.web.rendering import render
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.rule_views import list_changes
from rulecore.documents.status import StatusKind, Subject

ROUTER = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
_ROWS = 100
_WAIT_MS = 5_000


@ROUTER.get("/apps/{app}/access")
def access_page(app: TheApp, console: TheConsole, session: TheSession, decided: int = -1) -> str:
    """Show roles, proposals that wait for approval, policies and signers. ``decided``: the offset of a decision."""
    snapshot = app.snapshot()
    command = f"headgate rules proposals --app {app.name}"
    frame = make_frame(console, session, app.name, "access", "Access", command, _outcome(snapshot, decided))
    return render(
        "access.html",
        frame=frame,
        session=session_value(session),
        governance=governance_value(app),
        proposals=list_proposals(snapshot),
    )


@ROUTER.post("/apps/{app}/access")
def decide(app: TheApp, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Approve or refuse a proposal."""
    refuse = form.get("verdict") == "refuse"
    wait_ms = min(_WAIT_MS, console.settings.limits.wait_ms)
    outcome = app.proposals.decide(form.get("proposal", ""), session, form.get("why", ""), wait_ms, refuse=refuse)
    return RedirectResponse(f"/apps/{quote(app.name)}/access?decided={outcome.offset}", status_code=303)


def _outcome(snapshot: Snapshot, offset: int) -> str:
    """Return the outcome of the decision or proposal at an offset of the control topic; nothing if there is none."""
    own = (one for one in list_changes(snapshot) if one.offset == offset)
    found = next((one for one in own if one.subject in (Subject.PROPOSAL, Subject.APPROVAL)), None)
    if found is None:
        return ""
    if found.status == StatusKind.PROPOSED:
        return f"Proposed; it waits for approval: {found.reason or 'another person has to agree'}"
    return f"{found.status}: {found.reason or 'the proposal counts'}" if found.answered else "sent; no answer yet"


@ROUTER.get("/apps/{app}/audit")
def audit(
    app: TheApp,
    console: TheConsole,
    session: TheSession,
    by: Annotated[str, Query(max_length=200)] = "",
    name: Annotated[str, Query(max_length=200)] = "",
    subject: Annotated[str, Query(max_length=20)] = "",
    cursor: Before = None,
) -> str:
    """Show requests, their authors, and the answers."""
    words = {"by": by, "name": name, "subject": subject}
    page = audit_page(app, words, console.rows(_ROWS), cursor)
    more = "" if page.next is None else "?" + urlencode({**{k: v for k, v in words.items() if v}, "cursor": page.next})
    command = f"headgate rules list --history --app {app.name}"
    frame = make_frame(console, session, app.name, "audit", "Audit", command)
    return render("audit.html", frame=frame, page=page, words=words, more=more)
