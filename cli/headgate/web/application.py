"""The application: routes, errors as problem documents, the guard around everything."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headgate.errors import InputError
from headgate.web.access.guard import STATIC, Guard
from headgate.web.access.identity import Authenticator
from headgate.web.access.sessions import Sessions
from headgate.web.api import alerts, approvals, apps, deadletters, decision_policies, decisions, features, rules, runs
from headgate.web.context import Console, require_role
from headgate.web.pages import (
    actions,
    data_routes,
    decision_routes,
    feature_routes,
    oversight,
    policy_routes,
    run_routes,
)
from headgate.web.pages import routes as pages
from headgate.web.problems import ProblemCode, ProblemDocument, ProblemError, ProblemPlace
from headgate.web.responses import PROBLEM_JSON, problem_response
from headgate.web.static_files import static_file
from streamcore.errors import Retryable, StreamError

_LOG = logging.getLogger(__name__)
_TITLE = "Headgate"
_ERRORS: dict[int | str, dict[str, object]] = {
    "4XX": {"description": "The request is refused.", "model": ProblemDocument},
    "5XX": {"description": "The console or Kafka fails.", "model": ProblemDocument},
}
_CODES = {404: ProblemCode.NOT_FOUND, 405: ProblemCode.NOT_FOUND}
_API = (apps, rules, features, approvals, alerts, decisions, decision_policies, deadletters, runs)
_PAGES = (pages, decision_routes, feature_routes, policy_routes, actions, run_routes, data_routes, oversight)
ROUTERS = tuple(module.ROUTER for module in (*_API, *_PAGES))
#: Routes without a role: what a page needs before there is a session.
PUBLIC = frozenset({f"{STATIC}{{name}}"})


def build_api(console: Console | None) -> FastAPI:
    """Return the application without its guard. ``console`` None: only for its description."""

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        if console is not None:
            console.start()
        yield
        if console is not None:
            console.close()

    app = FastAPI(
        title=_TITLE,
        version="1",
        description="What the console shows and does, for programs.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        dependencies=[Depends(require_role)],
        lifespan=running,
        responses={status: {**entry, "content": {PROBLEM_JSON: {}}} for status, entry in _ERRORS.items()},
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.console = console
    app.add_api_route("/api/v1/openapi.json", _openapi, methods=["GET"], name="read_openapi", tags=["apps"])
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(Route(f"{STATIC}{{name}}", static_file, methods=["GET"]))
    for kind in (ProblemError, RequestValidationError, HTTPException, StreamError, Exception):
        app.add_exception_handler(kind, _answer_error)
    return app


def build(
    console: Console, sessions: Sessions, hosts: Collection[str], identity: Authenticator | None = None
) -> ASGIApp:
    """Return the application with its guard."""
    return Guard(build_api(console), sessions, hosts, console.settings.limits.body_bytes, identity)


def _openapi(request: Request) -> dict[str, JsonValue]:
    """Return the description of this API: OpenAPI 3.1."""
    found: dict[str, JsonValue] = request.app.openapi()
    return found


def _answer_error(request: Request, error: Exception) -> Response:
    return problem_response(request.scope, _as_request_error(error))


def _as_request_error(error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            places = [*_places(error.errors())]
            detail = "; ".join(f"{one.path}: {one.message}" for one in places)
            return ProblemError(422, ProblemCode.INVALID_REQUEST, detail, places)
        case HTTPException():
            code = _CODES.get(error.status_code, ProblemCode.INVALID_REQUEST)
            return ProblemError(error.status_code, code, str(error.detail), headers=error.headers)
        case Retryable():
            return ProblemError(503, ProblemCode.KAFKA_AWAY, str(error), headers={"Retry-After": "5"})
        case InputError():
            return ProblemError(404, ProblemCode.CANNOT_ANSWER, str(error))
        case StreamError():
            return ProblemError(422, ProblemCode.CANNOT_ANSWER, str(error))
    _LOG.error("a request failed", exc_info=error)
    return ProblemError(500, ProblemCode.FAILED, type(error).__name__)


def _places(errors: Iterable[dict[str, object]]) -> Iterable[ProblemPlace]:
    for one in errors:
        location = one.get("loc", ())
        assert isinstance(location, tuple)
        yield ProblemPlace(path=".".join(str(part) for part in location[1:]), message=str(one.get("msg", "")))
