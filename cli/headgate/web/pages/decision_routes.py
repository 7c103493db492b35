"""The pages of decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import orjson
from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from headgate.explain.decision import ExplainedDecision
from headgate.web.context import TheApp, TheConsole, TheSession
from headgate.web.pages import plots
from headgate.web.pages.html import next_query
from headgate.web.pages.routes import make_frame
from headgate.web.rendering import render
from headgate.web.state.decision_values import DecisionValue
from headgate.web.state.lanes.decision_records import DecisionFilter
from headgate.web.state.lanes.newest_first import read_cursor
from headgate.web.state.policy_views import all_tones, outcome_tones
from rulecore.documents.decision_policy import Scoring

ROUTER = APIRouter(prefix="/apps/{app}/decisions", include_in_schema=False, default_response_class=HTMLResponse)
_PLOTTED = 5_000


@ROUTER.get("")
def decisions_page(
    app: TheApp,
    console: TheConsole,
    session: TheSession,
    outcome: str = "",
    rule: str = "",
    key: str = "",
    policy: str = "",
    cursor: str = "",
) -> str:
    """Show decisions, the newest first."""
    wanted = DecisionFilter(outcome, rule, key, policy)
    page, tones = app.decisions.page(wanted, console.rows(50), read_cursor(cursor)), all_tones(app.snapshot())
    words = {"outcome": outcome, "rule": rule, "key": key, "policy": policy}
    times = [] if cursor else app.decisions.outcomes(wanted, _PLOTTED)
    counts = Counter(name for _, name in times)
    command = f"headgate rules explain DECISION_ID --app {app.name}"
    return render(
        "decisions.html",
        frame=make_frame(console, session, app.name, "decisions", "Decisions", command),
        page=page,
        words=words,
        first=not cursor,
        more=next_query(words, page.next),
        tones=tones,
        tones_text=orjson.dumps(tones).decode(),
        drawn=plots.outcome_plot(times, tones) if times else None,
        counts=[(name, counts[name]) for name in [*tones, *sorted(counts.keys() - tones.keys())] if counts[name]],
        plotted=len(times),
    )


@ROUTER.get("/{decision}")
def decision_page(app: TheApp, decision: str, console: TheConsole, session: TheSession) -> str:
    """Show a decision as a tree: the rules that fired at its event, and how they became its outcome."""
    snapshot = app.snapshot()
    found, explained = app.decisions.explain(decision, snapshot.history)
    policy = explained.policy
    tones = all_tones(snapshot) if policy is None else outcome_tones(policy)
    command = f"headgate rules explain {quote(found.decision_id)} --app {app.name}"
    fired = [*found.rules, *found.shadow]
    return render(
        "decision.html",
        frame=make_frame(console, session, app.name, "decisions", f"{found.outcome}: {found.policy}", command),
        decision=found,
        explained=explained,
        policy=policy,
        tones=tones,
        track=plots.score_plot(_points(found, explained, tones), _bands(explained)),
        alerts=app.alerts.known([one.alert_id for one in fired]),
    )


#: Colour, text and points of a rule.
_Points = tuple[str, str, int]


def _points(decision: DecisionValue, explained: ExplainedDecision, tones: Mapping[str, str]) -> Sequence[_Points]:
    """Return the points that made the score: of all rules, or of the one with the most."""
    rules, policy = decision.rules, explained.policy
    own = [(tones.get(one.outcome or "", "event"), f"{one.rule}: {one.score} points", one.score) for one in rules]
    if policy is not None and policy.decide.score is Scoring.MAX:
        return sorted(own, key=lambda one: -one[2])[:1]
    return own


def _bands(explained: ExplainedDecision) -> Mapping[str, int]:
    policy = explained.policy
    return {} if policy is None else {f"{n} from {least} points": least for n, least in policy.decide.bands.items()}
