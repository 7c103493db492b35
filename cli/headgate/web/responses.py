"""The answer to a refused request: a problem document for programs, a page for people."""

from __future__ import annotations

from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from headgate.web.problems import ProblemError
from headgate.web.rendering import render

API = "/api/"
PROBLEM_JSON = "application/problem+json"


def problem_response(scope: Scope, error: ProblemError) -> Response:
    """Return the answer to a request that failed: of the API a problem document, of a page a page."""
    if scope["path"].startswith(API):
        text = error.document.model_dump_json()
        return Response(text, error.status, headers=error.headers, media_type=PROBLEM_JSON)
    page = render("problem.html", problem=error.document)
    return HTMLResponse(page, error.status, headers=error.headers)
