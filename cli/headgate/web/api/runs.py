"""Back-tests as jobs, the events and alerts of a key, health, savepoints and upgrades."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from headgate.web.access.rights import ConsoleSession
from headgate.web.changes.backtest import BacktestJob, BacktestTask
from headgate.web.changes.check import check_text
from headgate.web.context import Console, ShownApp, TheApp, TheConsole, TheSession
from headgate.web.problems import ProblemCode, ProblemError, not_found
from headgate.web.state.app_reader import Snapshot
from headgate.web.state.entity import read_entity
from headgate.web.state.health import read_health
from headgate.web.state.values import BacktestValue, EntityValue, HealthValue, SavepointValue, UpgradesValue
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from streamcore.service.config.documents import read_settings

ROUTER = APIRouter(prefix="/api/v1/apps/{app}", tags=["runs"])
JobId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="Id of the back-test.")]


class NewBacktest(BaseModel):
    """The candidate: a text, or a version that the app knows."""

    model_config = ConfigDict(extra="forbid")

    yaml: Annotated[str | None, Field(description="The rule's document; null: `rule` and `version`.")] = None
    rule: Annotated[str, Field(description="Id of a rule of the app.")] = ""
    version: Annotated[int, Field(ge=0, description="Its version.")] = 0
    since: Annotated[str, Field(max_length=40, description="A time, or how long ago (24h).")] = "24h"


@ROUTER.post("/backtests", status_code=202)
def begin_backtest(app: TheApp, body: NewBacktest, console: TheConsole, session: TheSession) -> BacktestValue:
    """Begin a back-test of a version beside the live one; it runs on, and `GET` shows its progress."""
    snapshot = app.snapshot()
    if body.yaml is not None:
        document: Rule | None = check_text(snapshot, body.yaml).require()
    else:
        document = snapshot.history.documents.get((body.rule, body.version))
    if document is None:
        raise not_found(f"app {app.name} has no version {body.version} of rule {body.rule}")
    return start_job(console, session, app, snapshot, document, body.since).value()


@ROUTER.get("/backtests")
def list_backtests(app: TheApp, rule: Annotated[str, Query(description="Of this rule.")]) -> tuple[BacktestValue, ...]:
    """List the back-tests of a rule, the newest first."""
    return tuple(app.backtests.of_rule(rule))


@ROUTER.get("/backtests/{job}")
def read_backtest(app: TheApp, job: JobId) -> BacktestValue:
    """Return the progress of a back-test, and its result when it is done."""
    return app.backtests.find(job).value()


@ROUTER.delete("/backtests/{job}")
def end_backtest(app: TheApp, job: JobId) -> BacktestValue:
    """Cancel a back-test."""
    found = app.backtests.find(job)
    found.cancelled.set()
    return found.value()


@ROUTER.get("/entity")
def read_the_entity(
    app: TheApp,
    console: TheConsole,
    column: Annotated[str, Query(description="A column that events are keyed by.")],
    value: Annotated[str, Query(description="Its value, as text.")],
) -> EntityValue:
    """Return the events, alerts and lists of a key on one time line."""
    with console.working():
        scan = console.settings.limits.scan_records
        return read_entity(app.snapshot(), app.kafka, app.app, app.alerts, (column, value), scan)


@ROUTER.get("/health")
def read_the_health(app: TheApp) -> HealthValue:
    """Return how the app works: its process, watermark and lag by partition, the phases of its cuts."""
    return read_health(app.kafka, app.app.settings)


@ROUTER.get("/savepoints")
def list_savepoints(app: TheApp) -> tuple[SavepointValue, ...]:
    """List the savepoints of an app, the oldest first. 422 without the app's settings file."""
    from headgate.savepoints.options import savepoints_at
    from headgate.savepoints.render import summary

    if app.app.settings is None:
        detail = "no settings file of the app is known; start the console with --app-settings FILE"
        raise ProblemError(422, ProblemCode.CANNOT_ANSWER, detail)
    document = read_settings(app.app.settings)
    beside = str(document.get("checkpoint", "")).rstrip("/").rpartition("/")[0]
    root = str(document.get("savepoints") or f"{beside}/savepoints")
    found = (summary(one.manifest) for one in savepoints_at(root, app.name))
    return tuple(SavepointValue.model_validate(one) for one in found)


@ROUTER.get("/upgrades")
def list_upgrades(app: TheApp) -> UpgradesValue:
    """List the upgrades of an app on Kubernetes with their phases, the newest first, and its savepoints."""
    return app.upgrades.read()


def start_job(
    console: Console, session: ConsoleSession, app: ShownApp, snapshot: Snapshot, document: Rule, since: str
) -> BacktestJob:
    """Start a back-test of a rule beside its live version."""
    rules = snapshot.history.rules
    live = rules.live(document.id)
    live = None if live is None or live.rule.version == document.version else live
    features = rules.features.documents
    new = compile_rule(document, rules.streams, RuleLimits(), snapshot.history.lists.types(), features)
    most = console.settings.limits.backtest_records
    task = BacktestTask(app.kafka, app.app, snapshot, new, live, since, most)
    return app.backtests.start(task, console.backtesting(session))
