"""Alerts: pages, live, and why."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import JsonValue

from headgate.console.output import Json
from headgate.explain.decision import decision_json
from headgate.web.api.live import EVENT_STREAM, LastEventId, follow_lane
from headgate.web.changes.explain import Question, explain
from headgate.web.context import TheApp, TheConsole, TheSessionCheck
from headgate.web.state.lanes.alert_records import AlertFilter
from headgate.web.state.lanes.newest_first import read_cursor
from headgate.web.state.values import AlertPage, AlertValue

ROUTER = APIRouter(prefix="/api/v1/apps/{app}", tags=["alerts"])


@ROUTER.get("/alerts")
def list_alerts(
    app: TheApp,
    console: TheConsole,
    lane: Annotated[Literal["alerts", "shadow"], Query(description="shadow: of versions on trial.")] = "alerts",
    rule: Annotated[str, Query(description="Only of this rule.")] = "",
    severity: Annotated[str, Query(description="Only this severity.")] = "",
    key: Annotated[str, Query(description="A value of the key, or column=value.")] = "",
    since_ms: Annotated[int | None, Query(description="Raised at this time or later.")] = None,
    until_ms: Annotated[int | None, Query(description="Raised before this time.")] = None,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, description="Most rows; the console's own limit holds too.")] = 50,
) -> AlertPage:
    """List alerts, the newest first. A page may have fewer rows than `limit` and still a `next`."""
    wanted = AlertFilter(rule, severity, key, since_ms, until_ms)
    return app.alerts.page(lane, wanted, console.rows(limit), read_cursor(cursor))


@ROUTER.get("/alerts/live", response_class=StreamingResponse, responses={200: {"content": {EVENT_STREAM: {}}}})
async def follow_alerts(
    app: TheApp, console: TheConsole, session_holds: TheSessionCheck, last_event_id: LastEventId = None
) -> StreamingResponse:
    """Send each new alert as a server-sent event `alert`, with the alert as JSON, until the session ends."""
    return follow_lane(app, console, app.alert_feed, "alert", session_holds, last_event_id)


@ROUTER.get("/alerts/{alert}")
def read_alert(app: TheApp, alert: str) -> AlertValue:
    """Return one alert, of either lane, among the newest that one search reads."""
    return app.alerts.find(alert)


@ROUTER.get("/explanation")
def read_explanation(
    app: TheApp,
    console: TheConsole,
    target: Annotated[str, Query(description="The id of an alert or of a decision, or a rule, perhaps with @VERSION.")],
    event: Annotated[str | None, Query(description="The event, topic:partition:offset.")] = None,
    key: Annotated[tuple[str, ...], Query(description="column=value, for each column of the key.")] = (),
    at: Annotated[str | None, Query(description="With key: a time, or how long ago (2h).")] = None,
) -> JsonValue:
    """Explain why an alert was raised, why a rule fired or did not, or how a decision came about, as
    `headgate rules explain -o json` does."""
    if app.decisions.known(target) is not None:
        _, decision = app.decisions.explain(target, app.snapshot().history)
        return as_value(decision_json(decision))
    with console.working():
        found = explain(app.known(), Question(target, event, key, at), console.settings.limits.explain_records)
    return as_value(found)


def as_value(found: Json) -> JsonValue:
    """Return JSON of the command as a value of the API."""
    result: JsonValue = orjson.loads(orjson.dumps(found))
    return result
