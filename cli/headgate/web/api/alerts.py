"""Alerts: pages, live, and why."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import JsonValue
from starlette.concurrency import run_in_threadpool

from headgate.time_arguments import parse_number
from headgate.web.changes.explain import Question, explain
from headgate.web.context import TheApp, TheConsole, TheSessionCheck
from headgate.web.problems import BusyError
from headgate.web.state.alert_records import AlertFilter
from headgate.web.state.newest_first import read_cursor
from headgate.web.state.values import AlertPage, AlertValue

ROUTER = APIRouter(prefix="/api/v1/apps/{app}", tags=["alerts"])
_BEAT_S = 2.0  # and the longest time for which an ended session gets alerts
_EVENT_STREAM = "text/event-stream"


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


@ROUTER.get("/alerts/live", response_class=StreamingResponse, responses={200: {"content": {_EVENT_STREAM: {}}}})
async def follow_alerts(
    app: TheApp,
    console: TheConsole,
    session_holds: TheSessionCheck,
    last_event_id: Annotated[str | None, Header(description="Set by a browser that connects again.")] = None,
) -> StreamingResponse:
    """Send each new alert as a server-sent event `alert`, with the alert as JSON, until the session ends."""
    if app.feed.pages >= console.settings.limits.live_pages:
        detail = f"{app.feed.pages} pages get live alerts already"
        raise BusyError(detail, 10)
    after = None if last_event_id is None else parse_number(last_event_id)

    async def lines() -> AsyncIterator[bytes]:
        yield b"retry: 2000\n: live\n\n"
        looked_s = time.monotonic()
        async for one in app.feed.alerts(after, _BEAT_S):
            if one is None or time.monotonic() - looked_s >= _BEAT_S:
                if not await run_in_threadpool(session_holds):
                    return
                looked_s = time.monotonic()
            yield b": still here\n\n" if one is None else _event(*one)

    return StreamingResponse(lines(), media_type=_EVENT_STREAM, headers={"X-Accel-Buffering": "no"})


def _event(number: int, alert: AlertValue) -> bytes:
    return b"id: %d\nevent: alert\ndata: %s\n\n" % (number, orjson.dumps(alert.model_dump(mode="json")))


@ROUTER.get("/alerts/{alert}")
def read_alert(app: TheApp, alert: str) -> AlertValue:
    """Return one alert, of either lane, among the newest that one search reads."""
    return app.alerts.find(alert)


@ROUTER.get("/explanation")
def read_explanation(
    app: TheApp,
    console: TheConsole,
    target: Annotated[str, Query(description="An alert's id, or a rule, perhaps with @VERSION.")],
    event: Annotated[str | None, Query(description="The event, topic:partition:offset.")] = None,
    key: Annotated[tuple[str, ...], Query(description="column=value, for each column of the key.")] = (),
    at: Annotated[str | None, Query(description="With key: a time, or how long ago (2h).")] = None,
) -> JsonValue:
    """Explain why an alert was raised, or why a rule fired or did not, as `headgate rules explain -o json` does."""
    with console.working():
        found = explain(app.known(), Question(target, event, key, at), console.settings.limits.explain_records)
    result: JsonValue = orjson.loads(orjson.dumps(found))
    return result
