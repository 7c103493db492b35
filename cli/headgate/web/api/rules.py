"""Rules: read, checked, published, paused, rolled back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from headgate.web.changes.check import CheckValue, check_text, check_with_tests, run_tests
from headgate.web.changes.complete import complete
from headgate.web.changes.publish import NEW, Terms
from headgate.web.context import TheApp, TheConsole, TheSession
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from headgate.web.state.rule_views import (
    find_rule,
    find_version,
    list_versions,
    newest_document,
    select_versions,
)
from headgate.web.state.values import (
    CompletionsValue,
    DocumentValue,
    OutcomeValue,
    RulePage,
    RuleValue,
    SimilarValue,
    TestValue,
    VersionValue,
)
from rulecore.documents.status import StatusKind

ROUTER = APIRouter(prefix="/api/v1/apps/{app}", tags=["rules"])
IfMatch = Annotated[str | None, Header(description="The ETag that was read. A change without it is refused (428).")]
IfNoneMatch = Annotated[str | None, Header(description="`*`: the rule, list or stream must not exist yet.")]
IdempotencyKey = Annotated[
    str | None, Header(description="Name of the request: the same one again does nothing and has the same answer.")
]
Why = Annotated[str | None, Query(max_length=1_000, description="The reason, kept in the history.")]
Wait = Annotated[int, Query(ge=0, description="Longest wait for the app's answer.")]
Limit = Annotated[int, Query(ge=1, description="Most rows; the console's own limit holds too.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RuleText(_Body):
    """A rule as people write it."""

    yaml: Annotated[str, Field(description="The rule's document, as in a file.")]


class RuleCheck(RuleText):
    """A rule to check."""

    tests: Annotated[bool, Field(description="Run its tests too; false while it is being typed.")] = True


class RulePlace(RuleText):
    """A place in the text of a rule."""

    line: Annotated[int, Field(ge=1, description="Line, from 1.")]
    column: Annotated[int, Field(ge=1, description="Column, from 1, before which the cursor is.")]


class SimilarBody(RuleText):
    """A rule, and where to search on."""

    before: Annotated[
        dict[str, int] | None, Field(max_length=10_000, description="`next` of the answer before; null: the newest.")
    ] = None


class ChangeBody(_Body):
    """The parts that every change may have."""

    why: Annotated[str | None, Field(max_length=1_000, description="The reason, kept in the history.")] = None
    wait_ms: Annotated[int, Field(ge=0, description="Longest wait for the app's answer.")] = 10_000


class RulePublication(RuleText, ChangeBody):
    """A version of a rule to publish."""

    mode: Annotated[str | None, Field(description="Instead of the document's: live, shadow, canary=10%, ...")] = None


class NamedPublication(ChangeBody):
    """A version of a feature or decision policy to publish."""

    yaml: Annotated[str, Field(description="The document, as in a file.")]


class ModeChange(ChangeBody):
    """Another mode for a version that has a slot."""

    mode: Annotated[str, Field(description="live, shadow, canary=10%, paused, draft or retired.")]
    version: Annotated[
        int | None, Field(ge=1, description="The version; null: the only one, or the live one to pause or retire.")
    ] = None


class RollBack(ChangeBody):
    """The way back to an earlier version."""

    to: Annotated[int | None, Field(ge=1, description="The version; null: the one that was live before.")] = None


class ChangeRequest:
    """Who sends a change, and its headers; a dependency of the routes that change rules."""

    def __init__(
        self,
        console: TheConsole,
        session: TheSession,
        if_match: IfMatch = None,
        idempotency_key: IdempotencyKey = None,
    ) -> None:
        self._by, self._etag, self._key = session, if_match, idempotency_key
        self._most_wait_ms = console.settings.limits.wait_ms

    def terms(self, body: ChangeBody, if_none_match: str | None = None) -> Terms:
        """Return the terms of the change; ``ProblemError`` if its headers contradict each other."""
        if if_none_match is not None and (if_none_match != "*" or self._etag is not None):
            place = ProblemPlace(path="If-None-Match", message="only * is accepted, and no If-Match beside it")
            raise ProblemError(422, ProblemCode.INVALID_REQUEST, "If-None-Match: only * is accepted", [place])
        if self._etag == "*":
            detail = "If-Match: * says nothing of what was read; send the ETag"
            raise ProblemError(428, ProblemCode.NO_PRECONDITION, detail)
        etag = self._etag if if_none_match is None else NEW
        return Terms(etag, self._by, body.why, self._key, min(body.wait_ms, self._most_wait_ms))


TheChange = Annotated[ChangeRequest, Depends()]


def take_page(versions: list[VersionValue], cursor: str | None, limit: int) -> RulePage:
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
    return take_page(sorted(versions, key=lambda one: (one.rule, one.slot)), cursor, console.rows(limit))


@ROUTER.post("/rule-checks")
def check_rule(app: TheApp, console: TheConsole, body: RuleCheck) -> CheckValue:
    """Check a rule without publishing it: mistakes with line and column, cost, and its tests."""
    return check_with_tests(app.snapshot(), body.yaml, console.working, tests=body.tests)


@ROUTER.post("/completions")
def complete_rule(app: TheApp, body: RulePlace) -> CompletionsValue:
    """Return the completions at a place of a rule's text: entries, fields, functions, lists, streams."""
    return complete(app.snapshot(), body.yaml, body.line, body.column)


@ROUTER.post("/similar-events")
def find_similar_events(app: TheApp, console: TheConsole, body: SimilarBody) -> SimilarValue:
    """Search a piece of the newest records of a rule's topics for events that satisfy its condition, or all of its
    clauses but one. Nothing is kept: `next` is where to go on."""
    from headgate.web.changes.similar import SimilarSearch, find_similar

    snapshot = app.snapshot()
    checked = check_text(snapshot, body.yaml)
    checked.require()
    assert checked.compiled is not None, "it has no mistakes"
    search = SimilarSearch(app.kafka, app.app, snapshot, checked.compiled, console.settings.limits.scan_records)
    with console.working():
        return find_similar(search, body.before)


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
    change: TheChange,
    response: Response,
    if_none_match: IfNoneMatch = None,
) -> OutcomeValue:
    """Check a version of a rule and publish it, as `headgate rules publish` does."""
    return answer_outcome(response, app.writer.publish(rule, body.yaml, body.mode, change.terms(body, if_none_match)))


@ROUTER.post("/rules/{rule}/mode")
def set_mode(app: TheApp, rule: str, body: ModeChange, change: TheChange, response: Response) -> OutcomeValue:
    """Publish a version again in another mode, such as paused; its number is the next one."""
    return answer_outcome(response, app.writer.set_mode(rule, body.mode, body.version, change.terms(body)))


@ROUTER.post("/rules/{rule}/rollback")
def roll_back_rule(app: TheApp, rule: str, body: RollBack, change: TheChange, response: Response) -> OutcomeValue:
    """Publish an earlier version again under a new number, as `headgate rules rollback` does."""
    return answer_outcome(response, app.writer.roll_back(rule, body.to, change.terms(body)))


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


def answer_outcome(response: Response, outcome: OutcomeValue) -> OutcomeValue:
    """Return the outcome: 200 if the change counts, 202 if the app's answer or an approval is to come."""
    response.status_code = 202 if outcome.status in (None, StatusKind.PROPOSED) else 200
    if outcome.etag:
        response.headers["ETag"] = outcome.etag
    return outcome
