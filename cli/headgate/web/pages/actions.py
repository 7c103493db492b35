"""The forms of the pages: check, publish, another mode, roll back. Each does the same as its route of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headgate.web.access.rights import ConsoleSession
from headgate.web.changes.check import check_text, check_with_tests
from headgate.web.changes.publish import Terms
from headgate.web.context import Console, ShownApp, TheApp, TheConsole, TheSession
from headgate.web.pages import html
from headgate.web.pages.html import Draft, RuleContent
from headgate.web.pages.routes import new_rule_frame, rule_frame
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.rule_views import find_rule
from headgate.web.state.values import OutcomeValue

ROUTER = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
_FORM = "application/x-www-form-urlencoded"
_ENTRIES = 20
_WAIT_MS = 5_000


async def read_form(request: Request) -> Mapping[str, str]:
    """Return the entries of a form."""
    if request.headers.get("content-type", "").partition(";")[0] != _FORM:
        raise ProblemError(415, ProblemCode.INVALID_REQUEST, f"a form is sent as {_FORM}")
    try:
        entries = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=_ENTRIES)
    except ValueError:
        raise ProblemError(422, ProblemCode.INVALID_REQUEST, "the form cannot be read") from None
    return {name: values[-1] for name, values in entries.items()}


Form = Annotated[Mapping[str, str], Depends(read_form)]


def _draft(form: Mapping[str, str]) -> Draft:
    text = form.get("yaml", "").replace("\r\n", "\n")
    return Draft(text, form.get("etag", ""), form.get("key", ""), form.get("mode", ""), form.get("why", ""))


def _terms(console: Console, by: ConsoleSession, form: Mapping[str, str]) -> Terms:
    wait_ms = min(_WAIT_MS, console.settings.limits.wait_ms)
    return Terms(form.get("etag") or None, by, form.get("why") or None, form.get("key") or None, wait_ms)


def _checked(console: Console, snapshot: Snapshot, draft: Draft) -> Draft:
    """Return the draft with the result of its check."""
    return replace(draft, check=check_with_tests(snapshot, draft.text, console.working))


@ROUTER.post("/apps/{app}/rules/{rule}/edit")
def check(app: TheApp, rule: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Check the text of the form, and show it again with the result."""
    snapshot = app.snapshot()
    frame = rule_frame(console, session, app, rule, "yaml")
    draft = _checked(console, snapshot, _draft(form))
    return HTMLResponse(html.rule_page(frame, find_rule(snapshot, rule), "yaml", RuleContent(), draft))


@ROUTER.post("/apps/{app}/rules/{rule}/publish")
def publish(app: TheApp, rule: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish the text of the form; show it again with the mistakes if that is refused."""
    draft, terms = _draft(form), _terms(console, session, form)
    try:
        outcome = app.writer.publish(rule, draft.text, draft.mode or None, terms)
    except ProblemError as error:
        snapshot = app.snapshot()
        frame = rule_frame(console, session, app, rule, "yaml")
        shown = replace(_checked(console, snapshot, draft), problem=error.document)
        page = html.rule_page(frame, find_rule(snapshot, rule), "yaml", RuleContent(), shown)
        return HTMLResponse(page, error.status)
    return _to_rule(app, outcome)


@ROUTER.post("/apps/{app}/new-rule")
def publish_new(app: TheApp, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Check the text of a new rule; publish it if the form asks for it and the role allows it."""
    draft, snapshot = _draft(form), app.snapshot()
    frame = new_rule_frame(console, session, app)
    if form.get("do") != "publish":
        return HTMLResponse(html.new_rule_page(frame, _checked(console, snapshot, draft)))
    try:
        if not frame.may("publisher"):
            raise ProblemError(403, ProblemCode.NOT_ALLOWED, "this needs the role publisher")
        rule = check_text(snapshot, draft.text).require()
        outcome = app.writer.publish(rule.id, draft.text, draft.mode or None, _terms(console, session, form))
    except ProblemError as error:
        shown = replace(_checked(console, snapshot, draft), problem=error.document)
        return HTMLResponse(html.new_rule_page(frame, shown), error.status)
    return _to_rule(app, outcome)


@ROUTER.post("/apps/{app}/rules/{rule}/mode")
def set_mode(app: TheApp, rule: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish the newest version in another mode."""
    terms = _terms(console, session, form)
    return _to_rule(app, app.writer.set_mode(rule, form.get("mode", ""), terms))


@ROUTER.post("/apps/{app}/rules/{rule}/rollback")
def roll_back(app: TheApp, rule: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish an earlier version again."""
    to = form.get("to", "")
    terms = _terms(console, session, form)
    return _to_rule(app, app.writer.roll_back(rule, int(to) if to.isdecimal() else None, terms))


def _to_rule(app: ShownApp, outcome: OutcomeValue) -> Response:
    """Return the way to the rule's page, which shows the outcome of the change."""
    rule = quote(outcome.rule, safe="")
    return RedirectResponse(f"/apps/{quote(app.name)}/rules/{rule}?changed={outcome.offset}", status_code=303)
