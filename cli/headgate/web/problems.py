"""Errors of the API: a problem document (RFC 9457) with a code of ours, and the places of the mistakes in a rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from rulecore.documents.yaml_reader import Problem
from streamcore.codes import Code


class ProblemCode(Code):
    """Codes of the API's errors, in the entry `code` of a problem document."""

    NO_SESSION = (
        "no_session",
        "The request has no valid session or token. A header that a proxy sets is none.",
        "Open the address that `headgate console` prints, or send the token of `--token-file` as `Authorization: "
        "Bearer`.",
    )
    NOT_ALLOWED = ("not_allowed", "The role of the session is below that of the route.", "Ask for the role.")
    WRONG_HOST = (
        "wrong_host",
        "The header `Host` is not the address of the console (DNS rebinding).",
        "Use the printed address.",
    )
    WRONG_ORIGIN = (
        "wrong_origin",
        "A change with a cookie comes from a page of another origin, or of an unknown one.",
        "Send changes from the console's own pages, or with a token.",
    )
    NOT_FOUND = ("not_found", "There is no such app, rule, version, alert, record or page.", "Correct the address.")
    INVALID_REQUEST = (
        "invalid_request",
        "A part of the request has the wrong type or form.",
        "Correct what `problems` names; docs/reference/openapi.json has the form.",
    )
    INVALID_LIST = (
        "invalid_list",
        "The list has a mistake; nothing was published.",
        "Mend it at the place in `problems`.",
    )
    INVALID_STREAM = (
        "invalid_stream",
        "The document of the stream has a mistake; nothing was published.",
        "Correct it; `headgate streams check` finds mistakes beside a sample.",
    )
    INVALID_RULE = (
        "invalid_rule",
        "The rule document has mistakes; nothing was published.",
        "Correct each place in `problems`: line, column, path and message.",
    )
    NO_PRECONDITION = (
        "no_precondition",
        "A change comes without `If-Match` (or `If-None-Match: *` for a new rule, list or stream).",
        "Read the rule, list or stream, and send its ETag with the change.",
    )
    CHANGED_MEANWHILE = (
        "changed_meanwhile",
        "Somebody has changed the rule since it was read.",
        "Read it again, merge the two changes, and send the new ETag.",
    )
    KEY_REUSED = (
        "key_reused",
        "The `Idempotency-Key` belongs to another change.",
        "Take a new key for each change, and the same key only to repeat one.",
    )
    REJECTED = (
        "rejected",
        "The app has rejected the change. It is on the control topic, and the version before stays in force.",
        "Read `detail`, and publish a changed version.",
    )
    TOO_LARGE = ("too_large", "The body has more bytes than the console reads.", "Shorten it, or raise `body_bytes`.")
    BUSY = ("busy", "As many requests of this kind run as the limits allow.", "Try again after `Retry-After` seconds.")
    CANNOT_ANSWER = (
        "cannot_answer",
        "The question cannot be answered: a record, a rule or a topic that it needs is not there.",
        "Read `detail`.",
    )
    PROVIDER_AWAY = ("provider_away", "The OpenID provider does not answer.", "Try again; the message names it.")
    KAFKA_AWAY = ("kafka_away", "Kafka does not answer.", "Try again; the message names the address.")
    FAILED = ("failed", "A fault of the console.", "Its log on standard error has the traceback; please report it.")


class ProblemPlace(BaseModel):
    """A mistake in a document. ``line`` and ``column`` count from 1; null where there is no document."""

    line: Annotated[int | None, Field(description="Line, from 1.")] = None
    column: Annotated[int | None, Field(description="Column, from 1.")] = None
    path: Annotated[str, Field(description="The entry, such as then.severity.")] = ""
    message: Annotated[str, Field(description="What is wrong, and what would be accepted.")]
    detail: Annotated[str, Field(description="Further lines, such as the underlined expression.")] = ""

    @classmethod
    def of(cls, problem: Problem) -> ProblemPlace:
        """Return the place of a problem in a file."""
        line, column = problem.place.line, problem.place.column
        return cls(line=line, column=column, path=problem.path, message=problem.message, detail=problem.detail)


class ProblemDocument(BaseModel):
    """An error, as `application/problem+json`."""

    type: Annotated[str, Field(description="urn:headgate:problem:CODE")]
    title: Annotated[str, Field(description="When the code occurs.")]
    status: Annotated[int, Field(description="The HTTP status.")]
    detail: Annotated[str, Field(description="What happened here.")]
    code: Annotated[str, Field(description="The code, see docs/reference/codes.md.")]
    remedy: Annotated[str, Field(description="What to do.")]
    problems: Annotated[tuple[ProblemPlace, ...], Field(description="Mistakes with their places.")] = ()


class ProblemError(Exception):
    """A request that is answered with a problem document. Catch it where answers are written."""

    def __init__(
        self,
        status: int,
        code: ProblemCode,
        detail: str,
        places: Sequence[ProblemPlace] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.places = status, code, detail, tuple(places)
        self.headers = dict(headers or {})

    @property
    def document(self) -> ProblemDocument:
        """The problem document."""
        return ProblemDocument(
            type=f"urn:headgate:problem:{self.code.value}",
            title=self.code.occurs,
            status=self.status,
            detail=self.detail,
            code=self.code.value,
            remedy=self.code.remedy,
            problems=self.places,
        )


class BusyError(ProblemError):
    """A request that finds no place among those that run. ``wait_s``: when to try again, in seconds."""

    def __init__(self, detail: str, wait_s: int) -> None:
        super().__init__(503, ProblemCode.BUSY, detail, headers={"Retry-After": str(wait_s)})


def not_found(what: str) -> ProblemError:
    """Return the error for a thing that does not exist."""
    return ProblemError(404, ProblemCode.NOT_FOUND, what)
