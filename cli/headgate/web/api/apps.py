"""Apps: how they are, their history, releases, lists and streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Annotated, Self

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from headgate.web.api.rules import ChangeBody, IfNoneMatch, TheChange, answer_outcome
from headgate.web.changes.publish_list import publish_list
from headgate.web.changes.publish_stream import publish_stream
from headgate.web.changes.release import (
    MOST_RULES,
    ReleaseReview,
    publish_release,
    review_release,
    review_text,
    roll_back_release,
)
from headgate.web.context import ShownApp, TheApp, TheConsole, TheSession
from headgate.web.state.overview import read_app
from headgate.web.state.releases import find_release
from headgate.web.state.rule_views import find_etag, find_list, find_stream, list_changes, list_lists, list_streams
from headgate.web.state.values import (
    AppValue,
    ChangePage,
    ChangeValue,
    ListValue,
    OutcomeValue,
    ReleaseReviewValue,
    ReleaseValue,
    ReviewedDocument,
    ReviewedRule,
    StreamValue,
)
from rulecore.documents.releases import NamedChanges
from rulecore.documents.status import Subject
from rulecore.ruleset.diff import RuleDiff

ROUTER = APIRouter(prefix="/api/v1/apps", tags=["apps"])
Limit = Annotated[int, Query(ge=1, description="Most rows; the console's own limit holds too.")]
Before = Annotated[int | None, Query(ge=0, description="`next` of the page before.")]


class ReleaseText(BaseModel):
    """Rules, features and decision policies that are to take effect together, as people write them, and those that are
    to go."""

    model_config = ConfigDict(extra="forbid")
    yaml: Annotated[str, Field(description="The documents, with --- between them.")] = ""
    delete: Annotated[tuple[str, ...], Field(max_length=MOST_RULES, description="Ids of rules to delete.")] = ()
    delete_policies: Annotated[
        tuple[str, ...], Field(max_length=MOST_RULES, description="Names of decision policies to delete.")
    ] = ()
    delete_features: Annotated[
        tuple[str, ...], Field(max_length=MOST_RULES, description="Names of features to delete.")
    ] = ()

    @property
    def gone(self) -> NamedChanges:
        """The features and policies to delete."""
        return NamedChanges.model_construct(delete_policies=self.delete_policies, delete_features=self.delete_features)


class NewRelease(ReleaseText, ChangeBody):
    """A release: versions that the app has, which go live, or the texts of rules."""

    name: Annotated[str, Field(max_length=80, description="Name of the release.")]
    rules: Annotated[
        tuple[str, ...],
        Field(max_length=MOST_RULES, description="RULE@VERSION, of each rule; instead of `yaml` and `delete`."),
    ] = ()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if bool(self.rules) is bool(self.yaml or self.delete or self.gone.count):
            raise ValueError("a release has either `rules`, or `yaml` and `delete`")
        return self


class ListPublication(ChangeBody):
    """A version of a list to publish."""

    yaml: Annotated[str, Field(description="The list's document, as in a file, with its `entries`.")]


class StreamPublicationBody(ChangeBody):
    """A version of a stream's document to publish."""

    document: Annotated[dict[str, JsonValue], Field(description="The document, as in a file.")]
    topic: Annotated[str | None, Field(description="The topic of a new stream.")] = None


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
    return _answer_review(response, review_release(app.snapshot(), rule))


@ROUTER.post("/{app}/release-review")
def review_release_text(app: TheApp, body: ReleaseText, response: Response) -> ReleaseReviewValue:
    """Return the changes that a release of these rules would make. The answer has the ETag of its publication."""
    return _answer_review(response, review_text(app.snapshot(), body.yaml, body.delete, body.gone))


def _answer_review(response: Response, draft: ReleaseReview) -> ReleaseReviewValue:
    response.headers["ETag"] = draft.etag
    return ReleaseReviewValue(
        etag=draft.etag,
        deleted=draft.deleted,
        problems=draft.problems,
        others=tuple(map(_reviewed_other, draft.others)),
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


def _reviewed_other(one: RuleDiff) -> ReviewedDocument:
    fields = tuple({"path": field.path, "old": field.old, "new": field.new} for field in one.fields)
    return ReviewedDocument(
        subject=one.subject.value, name=one.rule, before=one.old_version, version=one.new_version, fields=fields
    )


@ROUTER.post("/{app}/releases")
def publish_new_release(app: TheApp, body: NewRelease, change: TheChange, response: Response) -> OutcomeValue:
    """Publish rules as one release, as `headgate rules release` does: versions again, live, or those of a text."""
    if body.rules:
        review, words = partial(review_release, chosen=body.rules), " ".join(body.rules)
    else:
        review = partial(review_text, text=body.yaml, deleted=body.delete, gone=body.gone)
        words = orjson.dumps((body.delete, body.delete_policies, body.delete_features, body.yaml)).decode()
    outcome = publish_release(app.reader, body.name, review, words, change.terms(body), app.proposals.key)
    return answer_outcome(response, outcome)


@ROUTER.post("/{app}/releases/{release}/rollback")
def undo_release(app: TheApp, release: str, body: ChangeBody, change: TheChange, response: Response) -> OutcomeValue:
    """Publish the rules before a release in one step, as `headgate rules rollback --release` does."""
    return answer_outcome(response, roll_back_release(app.reader, release, change.terms(body), app.proposals.key))


@ROUTER.get("/{app}/lists")
def list_the_lists(app: TheApp) -> tuple[ListValue, ...]:
    """List the lists that were published to an app."""
    return tuple(list_lists(app.snapshot()))


@ROUTER.get("/{app}/lists/{name}")
def read_list(app: TheApp, name: str, response: Response) -> ListValue:
    """Return a list without its entries. The answer has its ETag."""
    snapshot = app.snapshot()
    found = find_list(snapshot, name)
    response.headers["ETag"] = find_etag(snapshot, name, Subject.LIST)
    return found


@ROUTER.put("/{app}/lists/{name}")
def publish_a_list(
    app: TheApp,
    name: str,
    body: ListPublication,
    change: TheChange,
    response: Response,
    if_none_match: IfNoneMatch = None,
) -> OutcomeValue:
    """Check a version of a list and publish it, as `headgate lists publish` does."""
    return answer_outcome(response, publish_list(app.reader, name, body.yaml, change.terms(body, if_none_match)))


@ROUTER.get("/{app}/streams")
def list_the_streams(app: TheApp) -> tuple[StreamValue, ...]:
    """List the streams that rules of the app may read."""
    return tuple(list_streams(app.snapshot()))


@ROUTER.get("/{app}/streams/{name}")
def read_stream(app: TheApp, name: str, response: Response) -> StreamValue:
    """Return a stream. The answer has its ETag."""
    snapshot = app.snapshot()
    found = find_stream(snapshot, name)
    response.headers["ETag"] = find_etag(snapshot, name, Subject.STREAM)
    return found


@ROUTER.put("/{app}/streams/{name}")
def publish_a_stream(
    app: TheApp,
    name: str,
    body: StreamPublicationBody,
    change: TheChange,
    response: Response,
    if_none_match: IfNoneMatch = None,
) -> OutcomeValue:
    """Publish a stream's document to the running app, as `headgate streams publish` does."""
    terms = change.terms(body, if_none_match)
    return answer_outcome(response, publish_stream(app.reader, name, body.document, body.topic, terms))


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
