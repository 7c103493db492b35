"""Rules: read, checked, published, paused, rolled back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from headgate.web.changes.check import CheckValue, as_value, check_text, run_tests
from headgate.web.changes.publish import Terms
from headgate.web.context import Console, TheApp, TheConsole, TheSession
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from headgate.web.state.rule_views import (
    find_rule,
    find_version,
    list_versions,
    newest_document,
    select_versions,
)
from headgate.web.state.values import DocumentValue, OutcomeValue, RulePage, RuleValue, TestValue, VersionValue

ROUTER = APIRouter(prefix="/api/v1/apps/{app}", tags=["rules"])
IfMatch = Annotated[str | None, Header(description="The ETag that was read. A change without it is refused (428).")]
IfNoneMatch = Annotated[str | None, Header(description="`*`: the rule must not exist yet.")]
IdempotencyKey = Annotated[
    str | None, Header(description="Name of the request: the same one again does nothing and has the same answer.")
]
Limit = Annotated[int, Query(ge=1, description="Most rows; the console's own limit holds too.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RuleText(_Body):
    """A rule as people write it."""

    yaml: Annotated[str, Field(description="The rule's document, as in a file.")]


class RulePublication(RuleText):
    """A version of a rule to publish."""

    mode: Annotated[str | None, Field(description="Instead of the document's: live, shadow, canary=10%, ...")] = None
    why: Annotated[str | None, Field(max_length=1_000, description="The reason, kept in the history.")] = None
    wait_ms: Annotated[int, Field(ge=0, description="Longest wait for the app's answer.")] = 10_000


class ModeChange(_Body):
    """Another mode for the newest version."""

    mode: Annotated[str, Field(description="live, shadow, canary=10%, paused, draft or retired.")]
    why: Annotated[str | None, Field(max_length=1_000, description="The reason, kept in the history.")] = None
    wait_ms: Annotated[int, Field(ge=0, description="Longest wait for the app's answer.")] = 10_000


class RollBack(_Body):
    """The way back to an earlier version."""

    to: Annotated[int | None, Field(ge=1, description="The version; null: the one that was live before.")] = None
    why: Annotated[str | None, Field(max_length=1_000, description="The reason, kept in the history.")] = None
    wait_ms: Annotated[int, Field(ge=0, description="Longest wait for the app's answer.")] = 10_000


def page_of(versions: list[VersionValue], cursor: str | None, limit: int) -> RulePage:
    """Return the versions after the cursor, which is the last rule and slot of the page before."""
    after = tuple((cursor or "").split("@", 1))
    left = [one for one in versions if cursor is None or (one.rule, one.slot) > after]
    shown = left[:limit]
    following = f"{shown[-1].rule}@{shown[-1].slot}" if len(left) > limit else None
    return RulePage(rules=tuple(shown), total=len(versions), next=following)


@ROUTER.get("/rules")
def list_rules(
    app: TheApp,
    console: TheConsole,
    text: Annotated[str, Query(description="In id, owner, tags or description.")] = "",
    mode: Annotated[str, Query(description="Only this mode.")] = "",
    owner: Annotated[str, Query(description="Only of this owner.")] = "",
    tag: Annotated[str, Query(description="Only with this tag.")] = "",
    stream: Annotated[str, Query(description="Only on this stream.")] = "",
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Limit = 100,
) -> RulePage:
    """List the versions that have a slot, by rule and slot."""
    words = {"text": text, "mode": mode, "owner": owner, "tag": tag, "stream": stream}
    versions = select_versions(list_versions(app.snapshot()), words)
    return page_of(sorted(versions, key=lambda one: (one.rule, one.slot)), cursor, console.rows(limit))


@ROUTER.post("/rule-checks")
def check_rule(app: TheApp, console: TheConsole, body: RuleText) -> CheckValue:
    """Check a rule without publishing it: mistakes with line and column, cost, and its tests."""
    snapshot = app.snapshot()
    checked = check_text(snapshot, body.yaml)
    tests: tuple[TestValue, ...] = ()
    if not checked.problems and checked.rule is not None:
        with console.working():
            tests = run_tests(snapshot, checked.rule, checked.loaded)
    return as_value(checked, tests)


@ROUTER.get("/rules/{rule}")
def read_rule(app: TheApp, rule: str, response: Response) -> RuleValue:
    """Return a rule: its versions in slots, the newest document, its trial. The answer has its ETag."""
    found = find_rule(app.snapshot(), rule)
    response.headers["ETag"] = found.etag
    return found


@ROUTER.put("/rules/{rule}")
def publish_rule(
    app: TheApp,
    rule: str,
    body: RulePublication,
    console: TheConsole,
    session: TheSession,
    response: Response,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> OutcomeValue:
    """Check a version of a rule and publish it, as `headgate rules publish` does."""
    terms = _terms(console, session.subject, (if_match, if_none_match), body.why, idempotency_key, body.wait_ms)
    return _answered(response, app.writer.publish(rule, body.yaml, body.mode, terms))


@ROUTER.post("/rules/{rule}/mode")
def set_mode(
    app: TheApp,
    rule: str,
    body: ModeChange,
    console: TheConsole,
    session: TheSession,
    response: Response,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> OutcomeValue:
    """Publish the newest version again in another mode, such as paused; its number is the next one."""
    terms = _terms(console, session.subject, (if_match, None), body.why, idempotency_key, body.wait_ms)
    return _answered(response, app.writer.set_mode(rule, body.mode, terms))


@ROUTER.post("/rules/{rule}/rollback")
def roll_back_rule(
    app: TheApp,
    rule: str,
    body: RollBack,
    console: TheConsole,
    session: TheSession,
    response: Response,
    if_match: IfMatch = None,
    idempotency_key: IdempotencyKey = None,
) -> OutcomeValue:
    """Publish an earlier version again under a new number, as `headgate rules rollback` does."""
    terms = _terms(console, session.subject, (if_match, None), body.why, idempotency_key, body.wait_ms)
    return _answered(response, app.writer.roll_back(rule, body.to, terms))


@ROUTER.get("/rules/{rule}/versions")
def list_rule_versions(app: TheApp, rule: str) -> tuple[int, ...]:
    """List the versions of a rule that were ever accepted."""
    return find_rule(app.snapshot(), rule).versions


@ROUTER.get("/rules/{rule}/versions/{version}")
def read_version(app: TheApp, rule: str, version: int) -> DocumentValue:
    """Return one version of a rule."""
    return find_version(app.snapshot(), rule, version)


@ROUTER.get("/rules/{rule}/tests")
def run_rule_tests(app: TheApp, console: TheConsole, rule: str) -> tuple[TestValue, ...]:
    """Run the tests of the newest version with the kernel, and return the results."""
    snapshot = app.snapshot()
    found = newest_document(snapshot, rule)
    with console.working():
        return run_tests(snapshot, found)


def _terms(
    console: Console,
    by: str,
    match: tuple[str | None, str | None],
    why: str | None,
    key: str | None,
    wait_ms: int,
) -> Terms:
    """Return the terms of a change. ``match``: the headers If-Match and If-None-Match."""
    etag, absent = match
    if absent is not None and (absent != "*" or etag is not None):
        place = ProblemPlace(path="If-None-Match", message="only * is accepted, and no If-Match beside it")
        raise ProblemError(422, ProblemCode.INVALID_REQUEST, "If-None-Match: only * is accepted", [place])
    if etag == "*":
        raise ProblemError(428, ProblemCode.NO_PRECONDITION, "If-Match: * says nothing of what was read; send the ETag")
    return Terms(etag if absent is None else "*", by, why, key, min(wait_ms, console.settings.limits.wait_ms))


def _answered(response: Response, outcome: OutcomeValue) -> OutcomeValue:
    """Return the outcome: 200 if the app has answered, 202 if its answer is to come."""
    response.status_code = 202 if outcome.status is None else 200
    response.headers["ETag"] = outcome.etag
    return outcome
