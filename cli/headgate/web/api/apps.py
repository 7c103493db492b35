"""Apps: how they are, their history, releases, lists and streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from headgate.web.api.rules import ChangeBody, TheChange, answer_outcome
from headgate.web.changes.release import MOST_RULES, publish_release, review_release, roll_back_release
from headgate.web.context import ShownApp, TheApp, TheConsole, TheSession
from headgate.web.state.overview import read_app
from headgate.web.state.releases import find_release
from headgate.web.state.rule_views import list_changes, list_lists, list_streams
from headgate.web.state.values import (
    AppValue,
    ChangePage,
    ChangeValue,
    ListValue,
    OutcomeValue,
    ReleaseReviewValue,
    ReleaseValue,
    ReviewedRule,
    StreamValue,
)

ROUTER = APIRouter(prefix="/api/v1/apps", tags=["apps"])
Limit = Annotated[int, Query(ge=1, description="Most rows; the console's own limit holds too.")]
Before = Annotated[int | None, Query(ge=0, description="`next` of the page before.")]


class NewRelease(ChangeBody):
    """Versions that are to go live together."""

    name: Annotated[str, Field(max_length=80, description="Name of the release.")]
    rules: Annotated[
        tuple[str, ...], Field(min_length=1, max_length=MOST_RULES, description="RULE@VERSION, of each rule.")
    ]


@ROUTER.get("")
def list_apps(console: TheConsole, session: TheSession) -> tuple[str, ...]:
    """List the apps that the console shows to the session."""
    return console.visible(session)


@ROUTER.get("/{app}")
def read_the_app(app: TheApp) -> AppValue:
    """Return an app at a glance: its process and lag, its figures, and the matters that need a person."""
    return read_app(app.snapshot(), app.app.settings, app.rate, app.letters)


@ROUTER.get("/{app}/history")
def list_history(
    app: TheApp,
    console: TheConsole,
    rule: Annotated[str, Query(description="Only changes of this rule.")] = "",
    cursor: Before = None,
    limit: Limit = 100,
) -> ChangePage:
    """List the changes of the control topic, the newest first, with the app's answer to each."""
    return _page(app, console.rows(limit), cursor, lambda one: not rule or (one.subject, one.name) == ("rule", rule))


@ROUTER.get("/{app}/audit")
def list_audit(
    app: TheApp,
    console: TheConsole,
    by: Annotated[str, Query(description="A part of who has asked.")] = "",
    name: Annotated[str, Query(description="A part of the name of the rule, list or proposal.")] = "",
    subject: Annotated[str, Query(description="rule, list, proposal, approval, policy, ...")] = "",
    cursor: Before = None,
    limit: Limit = 100,
) -> ChangePage:
    """List requests and answers, the newest first: changes, proposals, approvals, policies, signers."""
    return audit_page(app, {"by": by, "name": name, "subject": subject}, console.rows(limit), cursor)


@ROUTER.get("/{app}/releases")
def list_releases(app: TheApp, console: TheConsole, cursor: Before = None, limit: Limit = 100) -> ChangePage:
    """List the releases, the newest first."""
    return _page(app, console.rows(limit), cursor, lambda one: one.subject == "release")


@ROUTER.get("/{app}/releases/{release}")
def read_release(app: TheApp, release: str, response: Response) -> ReleaseValue:
    """Return a release with its rules. The answer has its ETag."""
    found = find_release(app.snapshot(), release)
    response.headers["ETag"] = found.etag
    return found


@ROUTER.get("/{app}/release-review")
def read_release_review(
    app: TheApp,
    response: Response,
    rule: Annotated[list[str], Query(min_length=1, max_length=MOST_RULES, description="RULE@VERSION, of each.")],
) -> ReleaseReviewValue:
    """Return the changes that a release of these versions would make. The answer has the ETag of its publication."""
    draft = review_release(app.snapshot(), rule)
    response.headers["ETag"] = draft.etag
    return ReleaseReviewValue(
        etag=draft.etag,
        problems=draft.problems,
        rules=tuple(
            ReviewedRule(
                rule=one.rule,
                before=one.old_version,
                version=one.new_version,
                fields=tuple(asdict(field) for field in one.fields),
                state=tuple(asdict(part) for part in one.state),
            )
            for one in draft.reviews
        ),
    )


@ROUTER.post("/{app}/releases")
def publish_new_release(app: TheApp, body: NewRelease, change: TheChange, response: Response) -> OutcomeValue:
    """Publish versions again, live, as one release, as `headgate rules release` does."""
    outcome = publish_release(app.reader, body.name, body.rules, change.terms(body), app.proposals.key)
    return answer_outcome(response, outcome)


@ROUTER.post("/{app}/releases/{release}/rollback")
def undo_release(app: TheApp, release: str, body: ChangeBody, change: TheChange, response: Response) -> OutcomeValue:
    """Publish the rules before a release in one step, as `headgate rules rollback --release` does."""
    return answer_outcome(response, roll_back_release(app.reader, release, change.terms(body), app.proposals.key))


@ROUTER.get("/{app}/lists")
def list_the_lists(app: TheApp) -> tuple[ListValue, ...]:
    """List the lists that were published to an app."""
    return tuple(list_lists(app.snapshot()))


@ROUTER.get("/{app}/streams")
def list_the_streams(app: TheApp) -> tuple[StreamValue, ...]:
    """List the streams that rules of the app may read."""
    return tuple(list_streams(app.snapshot()))


def audit_page(app: ShownApp, words: Mapping[str, str], limit: int, cursor: int | None) -> ChangePage:
    """Return a page of changes with these words: ``by`` and ``name`` as parts, ``subject`` exactly."""

    def wanted(one: ChangeValue) -> bool:
        fits = words["by"].lower() in (one.by or "").lower() and words["name"].lower() in one.name.lower()
        return fits and (not words["subject"] or one.subject == words["subject"])

    return _page(app, limit, cursor, wanted)


def _page(app: ShownApp, limit: int, cursor: int | None, wanted: Callable[[ChangeValue], bool]) -> ChangePage:
    """Return a page of the changes that are wanted. The cursor is an offset of the control topic;
    the changes of one record are on one page."""
    left = (one for one in list_changes(app.snapshot()) if (cursor is None or one.offset < cursor) and wanted(one))
    shown = [*islice(left, limit)]
    following = next(left, None)
    while following is not None and shown and following.offset == shown[-1].offset:
        shown.append(following)
        following = next(left, None)
    return ChangePage(changes=tuple(shown), next=None if following is None else str(shown[-1].offset))
