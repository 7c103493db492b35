"""Decisions: pages, live, and how each came about."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from headgate.explain.decision import decision_json
from headgate.web.api.live import EVENT_STREAM, LastEventId, follow_lane
from headgate.web.context import TheApp, TheConsole, TheSessionCheck
from headgate.web.state.decision_values import DecisionPage, DecisionValue, ExplainedDecisionValue
from headgate.web.state.lanes.decision_records import DecisionFilter
from headgate.web.state.lanes.newest_first import read_cursor

ROUTER = APIRouter(prefix="/api/v1/apps/{app}/decisions", tags=["decisions"])


@ROUTER.get("")
def list_decisions(
    app: TheApp,
    console: TheConsole,
    outcome: Annotated[str, Query(description="Only this outcome.")] = "",
    rule: Annotated[str, Query(description="Only those at which this rule fired, in shadow too.")] = "",
    key: Annotated[str, Query(description="A value of the key, or column=value.")] = "",
    policy: Annotated[str, Query(description="Only of this decision policy.")] = "",
    since_ms: Annotated[int | None, Query(description="Written at this time or later.")] = None,
    until_ms: Annotated[int | None, Query(description="Written before this time.")] = None,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, description="Most rows; the console's own limit holds too.")] = 50,
) -> DecisionPage:
    """List decisions, the newest first. A page may have fewer rows than `limit` and still a `next`."""
    wanted = DecisionFilter(outcome, rule, key, policy, since_ms, until_ms)
    return app.decisions.page(wanted, console.rows(limit), read_cursor(cursor))


@ROUTER.get("/live", response_class=StreamingResponse, responses={200: {"content": {EVENT_STREAM: {}}}})
async def follow_decisions(
    app: TheApp, console: TheConsole, session_holds: TheSessionCheck, last_event_id: LastEventId = None
) -> StreamingResponse:
    """Send each new decision as a server-sent event `decision`, with the decision as JSON, until the session ends."""
    return follow_lane(app, console, app.decision_feed, "decision", session_holds, last_event_id)


@ROUTER.get("/{decision}")
def read_decision(app: TheApp, decision: str) -> DecisionValue:
    """Return one decision, among the newest that one search reads."""
    return app.decisions.find(decision)


@ROUTER.get("/{decision}/explanation")
def explain_decision(app: TheApp, decision: str) -> ExplainedDecisionValue:
    """Explain how a decision came about, as `headgate rules explain DECISION_ID -o json` does."""
    _, found = app.decisions.explain(decision, app.snapshot().history)
    return ExplainedDecisionValue.model_validate(decision_json(found))
