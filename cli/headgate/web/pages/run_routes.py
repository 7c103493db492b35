"""The pages of releases and back-tests, with what they do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Literal
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import JsonValue

from headgate.rules.yaml_text import yaml_text
from headgate.web.access.rights import ConsoleSession
from headgate.web.api.runs import start_job
from headgate.web.changes.check import CheckValue, check_with_tests
from headgate.web.changes.explain import Question, explain
from headgate.web.changes.release import MOST_RULES, list_changed, publish_release, review_release, roll_back_release
from headgate.web.context import Console, ShownApp, TheApp, TheConsole, TheSession
from headgate.web.pages import html, marks
from headgate.web.pages.forms import Form, read_terms, read_version
from headgate.web.pages.routes import make_frame, new_key
from headgate.web.problems import BusyError, ProblemCode, ProblemDocument, ProblemError, not_found
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.releases import find_release, list_releases
from headgate.web.state.values import ComparedAlert, OutcomeValue, ReleaseValue
from rulecore.documents.rule import Rule
from streamcore.errors import StreamError

ROUTER = APIRouter(prefix="/apps/{app}", include_in_schema=False, default_response_class=HTMLResponse)
_TESTS_S = 5.0  # in which the tests of a release's rules begin
_SHOWN_DIFFS = 20


# --- releases --------------------------------------------------------------------------------------------------------


@ROUTER.get("/releases")
def releases_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show the releases."""
    command = f"headgate rules list --history --app {app.name}"
    frame = make_frame(console, session, app.name, "releases", "Releases", command)
    return html.releases_page(frame, list_releases(app.snapshot())[: console.rows(100)])


@ROUTER.get("/releases/{release}")
def release_page(app: TheApp, release: str, console: TheConsole, session: TheSession, changed: int = -1) -> str:
    """Show a release with its differences."""
    snapshot = app.snapshot()
    found = find_release(snapshot, release)
    command = f"headgate rules rollback --release {quote(release)} --app {app.name}"
    notice = f"Release {release}: {found.status}" if changed >= 0 else ""
    frame = make_frame(console, session, app.name, "releases", release, command, notice)
    return html.release_page(frame, found, _differences(snapshot, found), new_key())


@ROUTER.get("/new-release")
def new_release_page(
    app: TheApp,
    console: TheConsole,
    session: TheSession,
    rule: Annotated[list[str] | None, Query(max_length=MOST_RULES)] = None,
    name: str = "",
) -> str:
    """Show the versions that a release could make live; with rules, its changes."""
    return _new_release(console, session, app, rule or [], {"name": name, "why": "", "key": new_key()}, None)


@ROUTER.post("/releases")
def publish_new_release(app: TheApp, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish the versions of the form as one release; show them again with the reason if that is refused."""
    chosen, name = form.get("rules", "").split(), form.get("name", "").strip()
    try:
        terms = read_terms(console, session, form)
        review = partial(review_release, chosen=chosen)
        outcome = publish_release(app.reader, name, review, " ".join(chosen), terms, app.proposals.key)
    except ProblemError as error:
        # the record of a rejected release has its key; another attempt is another request
        key = new_key() if error.code in (ProblemCode.REJECTED, ProblemCode.KEY_REUSED) else form.get("key", "")
        words = {"name": name, "why": form.get("why", ""), "key": key}
        return HTMLResponse(_new_release(console, session, app, chosen, words, error.document), error.status)
    return _to_release(app, outcome)


def _new_release(
    console: Console,
    session: ConsoleSession,
    app: ShownApp,
    chosen: list[str],
    words: dict[str, str],
    problem: ProblemDocument | None,
) -> str:
    snapshot = app.snapshot()
    draft = review_release(snapshot, chosen) if chosen else None
    checks = [] if draft is None else _check(console, snapshot, draft.rules)
    command = f"headgate rules release {words['name'] or 'NAME'} FILES --app {app.name} --why REASON"
    frame = make_frame(console, session, app.name, "releases", "New release", command)
    return html.new_release_page(frame, list_changed(snapshot), draft, checks, words, problem)


def _check(console: Console, snapshot: Snapshot, rules: Sequence[Rule]) -> list[CheckValue | None]:
    """Check rules and run their tests. None for those whose tests find no place, or begin after ``_TESTS_S``."""
    end_s, found = time.monotonic() + _TESTS_S, list[CheckValue | None]()
    for rule in rules:
        value = None
        if not rule.tests or time.monotonic() < end_s:
            with suppress(BusyError):
                value = check_with_tests(snapshot, yaml_text(rule), console.working, tests=bool(rule.tests))
        found.append(value)
    return found


def _to_release(app: ShownApp, outcome: OutcomeValue) -> Response:
    """Return the way to the page of a release, or of the proposals: with a key it is one, which has no name."""
    home = f"/apps/{quote(app.name)}"
    if app.proposals.key is not None:
        return RedirectResponse(f"{home}/access?decided={outcome.offset}", status_code=303)
    address = f"{home}/releases/{quote(outcome.rule, safe='')}?changed={outcome.offset}"
    return RedirectResponse(address, status_code=303)


@ROUTER.post("/releases/{release}/rollback")
def undo_release(app: TheApp, release: str, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Publish the rules before a release again, in one step."""
    terms = read_terms(console, session, form)
    return _to_release(app, roll_back_release(app.reader, release, terms, app.proposals.key))


def _differences(snapshot: Snapshot, release: ReleaseValue) -> dict[str, list[marks.DiffLine]]:
    """Return the difference of each of the first rules that had a version before."""
    documents, found = snapshot.history.documents, dict[str, list[marks.DiffLine]]()
    for one in release.rules[:_SHOWN_DIFFS]:
        old = documents.get((one.rule, one.before or 0))
        new = documents.get((one.rule, one.version or 0))
        if old is not None and new is not None:
            found[one.rule] = marks.diff_lines(yaml_text(old), yaml_text(new))
    return found


# --- back-tests ------------------------------------------------------------------------------------------------------


@ROUTER.post("/backtests")
def start_backtest(app: TheApp, form: Form, console: TheConsole, session: TheSession) -> Response:
    """Start a back-test of a version of a rule, and show it."""
    snapshot = app.snapshot()
    rule = form.get("rule", "")
    document = snapshot.history.documents.get((rule, read_version(form, "version") or 0))
    if document is None:
        raise not_found(f"app {app.name} has no version {form.get('version', '')} of rule {rule}")
    job = start_job(console, session, app, snapshot, document, form.get("since", "24h"))
    return RedirectResponse(f"/apps/{quote(app.name)}/backtests/{job.id}", status_code=303)


@ROUTER.get("/backtests/{job}")
def backtest_page(app: TheApp, job: str, console: TheConsole, session: TheSession) -> str:
    """Show a back-test: its progress, or its result."""
    value = app.backtests.find(job).value()
    command = f"headgate rules backtest {value.rule}.yaml --from {value.since} --app {app.name}"
    title = f"Back-test of {value.rule}"
    return html.backtest_page(make_frame(console, session, app.name, "rules", title, command), value)


@ROUTER.post("/backtests/{job}/cancel")
def cancel_backtest(app: TheApp, job: str) -> Response:
    """Cancel a back-test."""
    app.backtests.find(job).cancelled.set()
    return RedirectResponse(f"/apps/{quote(app.name)}/backtests/{quote(job)}", status_code=303)


@ROUTER.get("/backtests/{job}/{side}/{number}")
def backtest_alert_page(
    app: TheApp, job: str, side: Literal["new", "live"], number: int, console: TheConsole, session: TheSession
) -> str:
    """Show why one of two versions has raised an alert of a back-test, and why the other one has not."""
    found = app.backtests.find(job)
    result = found.value().result
    alerts = () if result is None else result.new_alerts if side == "new" else result.live_alerts
    alert = next((one for one in alerts if one.number == number), None)
    if alert is None:
        raise not_found(f"the back-test has no such alert of the {side} version")
    versions = [("The tried version", found.task.new.rule)]
    if found.task.live is not None:
        versions.append(("The live version", found.task.live.rule))
    sides = [(f"{words} {one.version}", *_explained(console, app, one, alert)) for words, one in versions]
    back = f"/apps/{quote(app.name)}/backtests/{quote(job)}"
    command = f"headgate rules explain {found.rule.id} --rules {found.rule.id}.yaml --app {app.name}"
    command += f" --event {alert.event}" if alert.event else ""
    frame = make_frame(console, session, app.name, "rules", alert.message, command)
    return html.explained_page(frame, alert, sides, back, f"only the {side} version raises it")


def _explained(console: Console, app: ShownApp, rule: Rule, alert: ComparedAlert) -> tuple[JsonValue, str]:
    """Return the explanation of a version about an alert's event or key, and why there is none."""
    key = () if alert.event else tuple(f"{name}={value}" for name, value in alert.key.items())
    at = None if alert.event else str(alert.event_time_ms)
    try:
        with console.working():
            limit = console.settings.limits.explain_records
            question = Question(rule.id, alert.event, key, at)
            return orjson.loads(orjson.dumps(explain(app.known(), question, limit, rule))), ""
    except (ProblemError, StreamError) as error:
        return None, str(error)
