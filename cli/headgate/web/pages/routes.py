"""The routes of the pages that are read."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import JsonValue

from headgate.dead_letters.model import DeadLetterFilter
from headgate.web.access.rights import ConsoleSession
from headgate.web.access.roles import Role
from headgate.web.api.deadletters import Offset, Partition
from headgate.web.api.rules import take_page
from headgate.web.changes.check import run_tests
from headgate.web.changes.explain import Question, explain
from headgate.web.context import Console, ShownApp, TheApp, TheConsole, TheSession
from headgate.web.pages import html, marks, plots
from headgate.web.pages.frame import Frame
from headgate.web.pages.html import Draft, RuleContent
from headgate.web.problems import ProblemError
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.entity import find_newest_event
from headgate.web.state.feature_views import rule_features
from headgate.web.state.lanes.alert_records import AlertFilter
from headgate.web.state.lanes.newest_first import read_cursor
from headgate.web.state.overview import read_app
from headgate.web.state.policy_views import all_tones
from headgate.web.state.rule_views import (
    find_rule,
    find_version,
    list_changes,
    list_streams,
    list_versions,
    newest_document,
    select_versions,
)
from headgate.web.state.trial import on_trial, read_trial
from headgate.web.state.values import AppValue, FieldValue, RuleValue
from rulecore.documents.rule import RuleKind
from rulecore.streams import find_stream, stream_names
from streamcore.errors import StreamError
from streamcore.wire.lanes import ALERTS

ROUTER = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)
_CHANGES = 30
_RULE_ALERTS = 20
NEW_RULE = """\
id: my-rule
version: 1
owner: my-team
description: Why this rule exists.
on: {stream}
where: {field} is not null
then:
  severity: low
  message: "{{{field}}}"
mode: shadow
tests: []
"""


def make_frame(
    console: Console,
    session: ConsoleSession,
    app: str | None,
    section: str,
    title: str,
    command: str = "",
    notice: str = "",
) -> Frame:
    """Return the frame of a page."""
    names, role = console.visible(session), session.role_in(app) or Role.VIEWER
    now_ms = int(time.time() * 1000)
    return Frame(names, app, section, title, session.subject, role, now_ms, command, notice)


def new_key() -> str:
    """Return a name for the next publication."""
    return secrets.token_hex(16)


@ROUTER.get("/")
def overview(console: TheConsole, session: TheSession) -> str:
    """Show all apps."""
    apps, faults = list[AppValue](), dict[str, str]()
    for name in console.visible(session):
        app = console.apps[name]
        try:
            apps.append(_read(app))
        except StreamError as error:
            faults[name] = str(error)
    command = "headgate status rules --settings FILE"
    return html.overview_page(make_frame(console, session, None, "overview", "Overview", command), apps, faults)


@ROUTER.get("/components")
def components(console: TheConsole, session: TheSession) -> str:
    """Show every component with its states."""
    from headgate.web.pages.components import components_page

    return components_page(make_frame(console, session, None, "", "Components"))


@ROUTER.get("/apps/{app}")
def app_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show one app."""
    changes = [one for one, _ in zip(list_changes(app.snapshot()), range(_CHANGES), strict=False)]
    command = f"headgate rules list --history --app {app.name}"
    frame = make_frame(console, session, app.name, "overview", app.name, command)
    return html.app_page(frame, _read(app), changes)


@ROUTER.get("/apps/{app}/rules")
def rules_page(
    app: TheApp,
    console: TheConsole,
    session: TheSession,
    text: str = "",
    mode: str = "",
    stream: str = "",
    cursor: str | None = None,
) -> str:
    """Show the rules."""
    words = {"text": text, "mode": mode, "stream": stream}
    versions = sorted(select_versions(list_versions(app.snapshot()), words), key=lambda one: (one.rule, one.slot))
    frame = make_frame(console, session, app.name, "rules", "Rules", f"headgate rules list --app {app.name}")
    return html.rules_page(frame, take_page(versions, cursor, console.rows(100)), words)


@ROUTER.get("/apps/{app}/new-rule")
def new_rule_page(app: TheApp, console: TheConsole, session: TheSession) -> str:
    """Show the page on which a new rule is written."""
    streams = app.snapshot().history.rules.streams
    name, schema = min(streams.items())
    text = NEW_RULE.format(stream=name, field=schema.keys[0][0] if schema.keys and schema.keys[0] else schema.names[0])
    draft = Draft(text, "*", new_key())
    return html.new_rule_page(new_rule_frame(console, session, app), draft, editor_fields(app.snapshot()))


def editor_fields(snapshot: Snapshot, streams: Iterable[str] = ()) -> Mapping[str, Sequence[FieldValue]]:
    """Return the fields of the named streams, or of all."""
    wanted = {name for one in streams for name in stream_names(one)}
    return {one.name: one.fields for one in list_streams(snapshot) if not wanted or one.name in wanted}


def new_rule_frame(console: Console, session: ConsoleSession, app: ShownApp) -> Frame:
    """Return the frame of the page on which a new rule is written."""
    command = f"headgate rules publish RULE.yaml --app {app.name}"
    return make_frame(console, session, app.name, "rules", "New rule", command)


@ROUTER.get("/apps/{app}/rules/{rule}")
def rule_page(
    app: TheApp,
    rule: str,
    console: TheConsole,
    session: TheSession,
    request: Request,
    tab: Literal["now", "yaml", "tests", "history", "trial", "backtest", "why"] = "now",
    version: Annotated[int | None, Query(ge=1)] = None,
    changed: Annotated[int | None, Query(ge=0)] = None,
) -> str:
    """Show a rule."""
    snapshot = app.snapshot()
    found = find_rule(snapshot, rule)
    content = _content(console, app, snapshot, found, tab, version)
    if tab == "why":
        content = _answered(console, app, snapshot, found, request.query_params)
    frame = rule_frame(console, session, app, found.rule, tab, _outcome(snapshot, rule, changed))
    return html.rule_page(frame, found, tab, content, first_draft(found))


def _outcome(snapshot: Snapshot, rule: str, offset: int | None) -> str:
    """Return the outcome of the change at an offset of the control topic; nothing for None."""
    changes = (one for one in list_changes(snapshot) if one.offset == offset and one.name == rule)
    for one in changes if offset is not None else ():
        answer = one.status if one.answered else "published; the app has not answered yet"
        return f"Version {one.version}: {answer}" + (f", {one.mode}" if one.mode and one.answered else "")
    return ""


def rule_frame(
    console: Console, session: ConsoleSession, app: ShownApp, rule: str, tab: str, notice: str = ""
) -> Frame:
    """Return the frame of a tab of a rule."""
    commands = {
        "now": f"headgate rules list --app {app.name} --rule {rule}",
        "yaml": f"headgate rules publish {rule}.yaml --app {app.name} --why REASON",
        "tests": f"headgate rules test {rule}.yaml",
        "history": f"headgate rules list --history --app {app.name} --rule {rule}",
        "trial": f"headgate rules list --app {app.name} --rule {rule}",
        "backtest": f"headgate rules backtest {rule}.yaml --from 24h --app {app.name}",
        "why": f"headgate rules explain {rule} --key COLUMN=VALUE --app {app.name}",
    }
    return make_frame(console, session, app.name, "rules", rule, commands[tab], notice)


def first_draft(rule: RuleValue) -> Draft:
    """Return the newest version as the text of the next one."""
    return Draft(marks.next_version(rule.yaml, rule.newest + 1), rule.etag, new_key())


def _content(
    console: Console, app: ShownApp, snapshot: Snapshot, rule: RuleValue, tab: str, version: int | None
) -> RuleContent:
    match tab:
        case "now":
            page = app.alerts.page(ALERTS, AlertFilter(rule=rule.rule), _RULE_ALERTS, {})
            features = rule_features(snapshot, rule.rule)
            return RuleContent(alerts=page.alerts, tried=on_trial(rule), features=features)
        case "yaml":
            return RuleContent(fields=editor_fields(snapshot, [one.stream for one in rule.slots]))
        case "trial":
            return RuleContent(tried=on_trial(rule), compared=read_trial(snapshot, rule, app.alerts))
        case "backtest":
            return RuleContent(backtests=app.backtests.of_rule(rule.rule))
        case "tests":
            with console.working():
                return RuleContent(tests=run_tests(snapshot, newest_document(snapshot, rule.rule)))
        case "history":
            shown = version or rule.newest
            before = max((one for one in rule.versions if one < shown), default=None)
            new = find_version(snapshot, rule.rule, shown).yaml
            old = "" if before is None else find_version(snapshot, rule.rule, before).yaml
            own = tuple(c for c in list_changes(snapshot) if (c.subject, c.name) == ("rule", rule.rule))
            diff = marks.diff_lines(old, new)
            return RuleContent(changes=own, shown=shown, before=before, diff=diff)
    return RuleContent()


def _answered(
    console: Console, app: ShownApp, snapshot: Snapshot, rule: RuleValue, words: Mapping[str, str]
) -> RuleContent:
    """Return the answer to why the rule fired for a key or an event, or did not."""
    document = newest_document(snapshot, rule.rule)
    schema = find_stream(snapshot.history.rules.streams, document.on)
    columns = document.group_by or next((key for key in schema.keys if key), ())
    asked = {name.removeprefix("k."): text.strip() for name, text in words.items() if name[:2] == "k." and text.strip()}
    asked |= {name: text.strip() for name in ("at", "event") if (text := words.get(name, "")).strip()}
    if not asked:
        return RuleContent(columns=columns)
    key = [f"{name}={asked[name]}" for name in columns if name in asked]
    event = asked.get("event")
    question = Question(rule.rule, event, () if event else key, None if event else asked.get("at"))
    why, fault = _explained(console, app, question)
    if isinstance(why, dict) and len(key) == 1 and document.kind is RuleKind.EVENT and not (event or why["fired"]):
        # the key's newest event shows with which values the rule did not fire
        one = (columns[0], asked[columns[0]])
        scan = console.settings.limits.scan_records
        place = find_newest_event(snapshot, app.kafka, app.app, document.on, one, scan)
        newest, _ = (None, "") if place is None else _explained(console, app, Question(rule.rule, place))
        why |= {"event": newest["event"], "newest": True} if isinstance(newest, dict) else {}
    known = app.alerts.known(plots.signal_ids(why))
    return RuleContent(columns=columns, asked=asked, why=why, fault=fault, known=known)


def _explained(console: Console, app: ShownApp, question: Question) -> tuple[JsonValue, str]:
    """Return an explanation, or why there is none."""
    try:
        with console.working():
            limit = console.settings.limits.explain_records
            return orjson.loads(orjson.dumps(explain(app.known(), question, limit))), ""
    except (ProblemError, StreamError) as error:
        return None, str(error)


@ROUTER.get("/apps/{app}/alerts")
def alerts_page(
    app: TheApp,
    request: Request,
    console: TheConsole,
    session: TheSession,
    rule: str = "",
    severity: str = "",
    key: str = "",
    lane: Literal["alerts", "shadow"] = "alerts",
    cursor: str | None = None,
) -> str:
    """Show alerts."""
    wanted = AlertFilter(rule, severity, key)
    page = app.alerts.page(lane, wanted, console.rows(50), read_cursor(cursor))
    words = {"rule": rule, "severity": severity, "key": key, "lane": lane if lane != ALERTS else ""}
    command = f"headgate rules explain ALERT_ID --app {app.name}"
    frame = make_frame(console, session, app.name, "alerts", "Alerts", command)
    return html.alerts_page(frame, page, {**words, "cursor": request.query_params.get("cursor", "")})


@ROUTER.get("/apps/{app}/alerts/{alert}")
def alert_page(app: TheApp, alert: str, console: TheConsole, session: TheSession) -> str:
    """Show an alert and why it was raised."""
    found = app.alerts.find(alert)
    why = _explained(console, app, Question(found.alert_id))
    command = f"headgate rules explain {quote(found.alert_id)} --app {app.name}"
    frame = make_frame(console, session, app.name, "alerts", found.rule, command)
    decided = found.body.get("decision_id")
    decision = app.decisions.known(decided) if isinstance(decided, str) else None
    known = app.alerts.known(plots.signal_ids(why[0]))
    return html.alert_page(frame, found, why, decision, all_tones(app.snapshot()), known)


@ROUTER.get("/apps/{app}/dead-letters")
def dead_letters_page(
    app: TheApp,
    request: Request,
    console: TheConsole,
    session: TheSession,
    code: str = "",
    reason: str = "",
    source: str = "",
    cursor: str | None = None,
) -> str:
    """Show dead letters."""
    wanted = DeadLetterFilter((), (code,) if code else (), reason or None, (source,) if source else ())
    page = app.letters.page(wanted, console.rows(50), read_cursor(cursor))
    command = f"headgate deadletters list --app {app.name}" + (f" --code {quote(code)}" if code else "")
    frame = make_frame(console, session, app.name, "dead letters", "Dead letters", command)
    words = {"code": code, "reason": reason, "source": source, "cursor": request.query_params.get("cursor", "")}
    return html.dead_letters_page(frame, page, words)


@ROUTER.get("/apps/{app}/dead-letters/{partition}/{offset}")
def dead_letter_page(
    app: TheApp,
    partition: Partition,
    offset: Offset,
    console: TheConsole,
    session: TheSession,
    sent: Literal["", "now", "before"] = "",
) -> str:
    """Show one dead letter."""
    letter = app.letters.find(partition, offset)
    command = f"headgate deadletters show {letter.at} --app {app.name}"
    notice = {"now": "It was sent again", "before": "It had been sent before; nothing was done"}.get(sent, "")
    frame = make_frame(console, session, app.name, "dead letters", f"Dead letter {letter.at}", command, notice)
    return html.dead_letter_page(frame, letter)


def _read(app: ShownApp) -> AppValue:
    return read_app(app.snapshot(), app.app.settings, app.rate, app.letters)
