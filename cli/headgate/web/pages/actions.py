"""The forms of the pages: check, publish, another mode, roll back. Each does the same as its route of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from headgate.web.access.rights import ConsoleSession
from headgate.web.api.deadletters import Offset, Partition
from headgate.web.changes.check import check_text, check_with_tests
from headgate.web.changes.replay import send_again
from headgate.web.changes.review import review
from headgate.web.context import Console, ShownApp, TheApp, TheConsole, TheSession
from headgate.web.pages import html
from headgate.web.pages.forms import Form, read_terms, read_text, read_version
from headgate.web.pages.html import Draft, RuleContent
from headgate.web.pages.routes import editor_fields, make_frame, new_key, new_rule_frame, rule_frame
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.rule_views import find_rule
from headgate.web.state.values import OutcomeValue
from rulecore.documents.status import StatusKind

ROUTER = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def _draft(form: Mapping[str, str]) -> Draft:
    return Draft(
        read_text(form, "yaml"), form.get("etag", ""), form.get("key", ""), form.get("mode", ""), form.get("why", "")
    )


def _checked(console: Console, snapshot: Snapshot, draft: Draft) -> Draft:
    """Return the draft with the result of its check."""
    return replace(draft, check=check_with_tests(snapshot, draft.text, console.working))


@ROUTER.post("/apps/{app}/rules/{rule}/edit")
def check(app: TheApp, rule: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Check the text of the form, and show it again with the result."""
    snapshot = app.snapshot()
    frame = rule_frame(console, session, app, rule, "yaml")
    found, draft = find_rule(snapshot, rule), _checked(console, snapshot, _draft(form))
    content = RuleContent(fields=editor_fields(snapshot, [one.stream for one in found.slots]))
    return HTMLResponse(html.rule_page(frame, found, "yaml", content, draft))


@ROUTER.post("/apps/{app}/new-rule")
def check_new(app: TheApp, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Check the text of a new rule, and show it again with the result."""
    snapshot = app.snapshot()
    draft = _checked(console, snapshot, _draft(form))
    frame = new_rule_frame(console, session, app)
    return HTMLResponse(html.new_rule_page(frame, draft, editor_fields(snapshot)))


@ROUTER.post("/apps/{app}/review")
def review_change(app: TheApp, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Show the effects of a publication of the text."""
    return _reviewed(console, session, app, _draft(form))


@ROUTER.post("/apps/{app}/publish")
def publish(app: TheApp, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish the text of the form; show the review again with the reason if that is refused."""
    draft, terms = _draft(form), read_terms(console, session, form)
    try:
        rule = check_text(app.snapshot(), draft.text).require()
        return _to_rule(app, app.writer.publish(rule.id, draft.text, draft.mode or None, terms))
    except ProblemError as error:
        # the record of a rejected version has its key; another attempt is another request
        key = new_key() if error.code is ProblemCode.REJECTED else draft.key
        return _reviewed(console, session, app, replace(draft, problem=error.document, key=key), error.status)


def _reviewed(
    console: Console, session: ConsoleSession, app: ShownApp, draft: Draft, status: int = 200
) -> HTMLResponse:
    snapshot = app.snapshot()
    found = review(snapshot, check_text(snapshot, draft.text))
    home = f"/apps/{quote(app.name)}"
    at = f"{home}/rules/{quote(found.rule, safe='')}"
    known = found.old_version is not None
    shown = html.ShownReview(
        found,
        publish=f"{home}/publish",
        edit=f"{at}/edit" if known else f"{home}/new-rule",
        back=f"{at}?tab=yaml" if known else f"{home}/new-rule",
    )
    command = f"headgate rules diff {found.rule or 'RULE'}.yaml --app {app.name}"
    frame = make_frame(console, session, app.name, "rules", f"Review of {found.rule or 'a rule'}", command)
    return HTMLResponse(html.review_page(frame, shown, _checked(console, snapshot, draft)), status)


@ROUTER.post("/apps/{app}/dead-letters/{partition}/{offset}/replay")
def replay_dead_letter(
    app: TheApp, partition: Partition, offset: Offset, form: Form, console: TheConsole, session: TheSession
) -> Response:
    """Send a dead letter again; show it with the reason if that is refused."""
    value = read_text(form, "value")
    address = f"/apps/{quote(app.name)}/dead-letters/{partition}/{offset}"
    try:
        outcome = send_again(app.kafka, app.letters, (partition, offset), value)
    except ProblemError as error:
        letter = app.letters.find(partition, offset)
        frame = make_frame(console, session, app.name, "dead letters", f"Dead letter {letter.at}")
        return HTMLResponse(html.dead_letter_page(frame, letter, value, error.document), error.status)
    return RedirectResponse(f"{address}?sent={'now' if outcome.sent else 'before'}", status_code=303)


@ROUTER.post("/apps/{app}/rules/{rule}/mode")
def set_mode(app: TheApp, rule: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish the version that the page shows in another mode."""
    terms, version = read_terms(console, session, form), read_version(form, "version")
    return _to_rule(app, app.writer.set_mode(rule, form.get("mode", ""), version, terms))


@ROUTER.post("/apps/{app}/rules/{rule}/rollback")
def roll_back(app: TheApp, rule: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish an earlier version again."""
    terms, to = read_terms(console, session, form), read_version(form, "to")
    return _to_rule(app, app.writer.roll_back(rule, to, terms))


def _to_rule(app: ShownApp, outcome: OutcomeValue) -> Response:
    """Return the way to the page that shows the outcome of the change: that of the rule, or the proposals that wait."""
    if outcome.status == StatusKind.PROPOSED:
        return RedirectResponse(f"/apps/{quote(app.name)}/access?decided={outcome.offset}", status_code=303)
    rule = quote(outcome.rule, safe="")
    return RedirectResponse(f"/apps/{quote(app.name)}/rules/{rule}?changed={outcome.offset}", status_code=303)
