"""The guard in front of every request: host, session, origin, size; and the headers of every answer.

Scripts, styles and images come from the console alone and from no page's text; a text can become no script (Trusted
Types); no other page can frame the console. So a rule, an event or a header that holds HTML is shown as text even where
a template should fail to escape it.
"""

from __future__ import annotations

from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.web.access.sessions import ConsoleSession, Sessions
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.responses import problem_response

OPEN_PATH = "/open"
STATIC = "/static/"
_READING = frozenset({"GET", "HEAD"})
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware. ``hosts``: the permitted values of ``Host``. The session is in ``scope["session_of"]``."""

    def __init__(self, app: ASGIApp, sessions: Sessions, hosts: Collection[str], body_bytes: int) -> None:
        self._app, self._sessions, self._hosts, self._body_bytes = app, sessions, frozenset(hosts), body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is refused, and pass on the others."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            answer = self._check(scope)
        except ProblemError as error:
            answer = problem_response(scope, error)
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return
        await self._app(scope, _Bounded(receive, self._body_bytes), send_guarded)

    def _check(self, scope: Scope) -> Response | None:
        """Return the answer of a request that goes no further; None for one that is passed on."""
        headers = Headers(scope=scope)
        if headers.get("host", "") not in self._hosts:
            raise ProblemError(421, ProblemCode.WRONG_HOST, "this is not the console's address; use the printed one")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._body_bytes:
            raise ProblemError(413, ProblemCode.TOO_LARGE, f"a body has at most {self._body_bytes} bytes")
        if scope["path"] == OPEN_PATH and scope["method"] in _READING:
            return self._open(scope)
        if scope["path"].startswith(STATIC):
            return None
        session = self._find_session(headers)
        if session is None:
            raise ProblemError(401, ProblemCode.NO_SESSION, "no session: open the address that the console has printed")
        if session.with_cookie and scope["method"] not in _READING:
            _check_origin(headers)
        scope["session_of"] = session
        return None

    def _open(self, scope: Scope) -> Response:
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        secret = self._sessions.exchange(token)
        if secret is None:
            detail = "this address was used already; the console has printed a new one"
            raise ProblemError(401, ProblemCode.NO_SESSION, detail)
        answer = Response(status_code=303, headers={"Location": "/"})
        answer.set_cookie(self._sessions.cookie, secret, httponly=True, samesite="strict", path="/")
        return answer

    def _find_session(self, headers: Headers) -> ConsoleSession | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            return self._sessions.by_token(token) if scheme.lower() == "bearer" else None
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._sessions.cookie)
        except CookieError:
            return None
        return None if cookie is None else self._sessions.by_cookie(cookie.value)


def _check_origin(headers: Headers) -> None:
    """Refuse a change that a page of another origin sends. A browser names the origin of every change."""
    if headers.get("origin") != f"http://{headers['host']}" or headers.get("sec-fetch-site") == "cross-site":
        raise ProblemError(403, ProblemCode.WRONG_ORIGIN, "a change has to come from the console's own pages")


class _Bounded:
    """Receives a body of at most so many bytes, whatever length it has announced."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._left = receive, most

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise ProblemError(413, ProblemCode.TOO_LARGE, "the body has more bytes than the console reads")
        return message
