"""The guard in front of every request: host, session, origin, size, login; and the headers of every answer.

Scripts, styles and images come from the console alone and from no page's text; a text can become no script (Trusted
Types); no other page can frame the console. So a rule, an event or a header that holds HTML is shown as text even where
a template should fail to escape it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from html import escape
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.web.access.identity import Authenticator
from headgate.web.access.login import CALLBACK
from headgate.web.access.rights import ConsoleSession
from headgate.web.access.sessions import Sessions
from headgate.web.problems import ProblemCode, ProblemError
from headgate.web.responses import API, problem_response

OPEN_PATH = "/open"
LOGIN_PATH, LOGOUT_PATH = "/login", "/logout"
HEALTH_PATH = "/healthz"
STATIC = "/static/"
_LOGIN_COOKIE = "headgate_login"
_HOST = "__Host-"  # before the name: no other host or path can set the cookie
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
    """ASGI middleware. ``hosts``: the permitted values of ``Host``. ``identity``: None on a person's own machine. The
    session is in ``scope["session_of"]``; ``scope["session_holds"]()`` says later whether it has not ended."""

    def __init__(
        self,
        app: ASGIApp,
        sessions: Sessions,
        hosts: Collection[str],
        body_bytes: int,
        identity: Authenticator | None = None,
    ) -> None:
        self._app, self._sessions, self._body_bytes, self._identity = app, sessions, body_bytes, identity
        self._hosts = frozenset(hosts if identity is None else {identity.host})
        self._origin = None if identity is None else identity.access.public_address
        self._secure = identity is not None and identity.secure
        prefix = _HOST if self._secure else ""
        self._cookie, self._login_cookie = f"{prefix}{sessions.cookie}", f"{prefix}{_LOGIN_COOKIE}"

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
            answer = self._check(scope) if self._identity is None else await run_in_threadpool(self._check, scope)
        except ProblemError as error:
            answer = problem_response(scope, error)
        if answer is not None:
            await answer(scope, receive, send_guarded)
            return
        await self._app(scope, _Bounded(receive, self._body_bytes), send_guarded)

    def _check(self, scope: Scope) -> Response | None:
        """Return the answer of a request that goes no further; None for one that is passed on."""
        headers = Headers(scope=scope)
        if scope["path"] == HEALTH_PATH and scope["method"] in _READING:
            return PlainTextResponse("ok")
        if headers.get("host", "") not in self._hosts:
            raise ProblemError(421, ProblemCode.WRONG_HOST, "this is not the console's address; use the printed one")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._body_bytes:
            raise ProblemError(413, ProblemCode.TOO_LARGE, f"a body has at most {self._body_bytes} bytes")
        if scope["path"] == OPEN_PATH and scope["method"] in _READING and self._identity is None:
            return self._open(scope)
        if (answer := self._log_in(scope, headers)) is not None:
            return answer
        if scope["path"].startswith(STATIC):
            return None
        session = self._find_session(headers)
        if session is None:
            return self._without_session(scope)
        if scope["method"] not in _READING:
            self._check_origin(headers, session)
        if scope["path"] == LOGOUT_PATH and scope["method"] == "POST":
            return self._log_out(headers)
        scope["session_of"], scope["session_holds"] = session, partial(self._holds, headers)
        return None

    def _log_in(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer of a step of a login; None for another request."""
        login = None if self._identity is None else self._identity.login
        if login is None or scope["method"] != "GET" or scope["path"] not in (LOGIN_PATH, CALLBACK):
            return None
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}
        if scope["path"] == LOGIN_PATH:
            address, sealed = login.begin(query.get("next", "/"))
            answer: Response = RedirectResponse(address, 303)
            # Lax: the browser comes back from the provider's page.
            self._keep_login(answer, sealed)
            return answer
        session, after = login.finish(query, _read_cookie(headers, self._login_cookie) or "")
        # A page, not a redirect: a strict cookie is not sent on the way from another site.
        link = escape(after)
        icon = f'<link rel="icon" href="{STATIC}icon.svg" type="image/svg+xml">'  # or the browser asks for /favicon.ico
        page = f'<!doctype html>{icon}<meta http-equiv="refresh" content="0; url={link}"><a href="{link}">Go on</a>'
        answer = HTMLResponse(page)
        self._keep_login(answer, "")
        self._set_cookie(answer, self._sessions.open(session))
        return answer

    def _log_out(self, headers: Headers) -> Response:
        self._sessions.end(_read_cookie(headers, self._cookie) or "")
        answer = RedirectResponse("/", 303)
        self._set_cookie(answer, "")
        return answer

    def _without_session(self, scope: Scope) -> Response:
        if self._identity is None:
            raise ProblemError(401, ProblemCode.NO_SESSION, "no session: open the address that the console has printed")
        path = scope["path"]
        if self._identity.login is not None and scope["method"] in _READING and not path.startswith(API):
            return RedirectResponse(f"{LOGIN_PATH}?next={quote(path)}", 303)
        raise ProblemError(401, ProblemCode.NO_SESSION, "no session: log in, or send a token of the provider")

    def _set_cookie(self, answer: Response, secret: str) -> None:
        """Set the session's cookie; empty: delete it. A browser refuses a change of it that is not ``Secure``, too."""
        age_s = None if secret else 0
        answer.set_cookie(self._cookie, secret, age_s, httponly=True, samesite="strict", path="/", secure=self._secure)

    def _keep_login(self, answer: Response, sealed: str) -> None:
        """Set the cookie of a login that has begun; empty: delete it."""
        age_s, path = 600 if sealed else 0, "/" if self._secure else CALLBACK
        answer.set_cookie(
            self._login_cookie, sealed, age_s, httponly=True, samesite="lax", path=path, secure=self._secure
        )

    def _open(self, scope: Scope) -> Response:
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        secret = self._sessions.exchange(token)
        if secret is None:
            detail = "this address was used already; the console has printed a new one"
            raise ProblemError(401, ProblemCode.NO_SESSION, detail)
        answer = Response(status_code=303, headers={"Location": "/"})
        self._set_cookie(answer, secret)
        return answer

    def _find_session(self, headers: Headers) -> ConsoleSession | None:
        if self._identity is not None and (found := self._identity.by_token(headers)) is not None:
            return found
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme:
            return self._sessions.by_token(token) if scheme.lower() == "bearer" else None
        cookie = _read_cookie(headers, self._cookie)
        return None if cookie is None else self._sessions.by_cookie(cookie)

    def _holds(self, headers: Headers) -> bool:
        """Return whether the session of a request that takes long is still there."""
        try:
            return self._find_session(headers) is not None
        except ProblemError:
            return False

    def _check_origin(self, headers: Headers, session: ConsoleSession) -> None:
        """Refuse a change that a page of another origin sends. A browser names the origin of every change; a program
        names none, so a session that both may send is refused only if another one is named."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        own = origin == (self._origin or f"http://{headers['host']}") and site != "cross-site"
        from_program = origin is None and "sec-fetch-site" not in headers
        if not own and (session.with_cookie or (session.by_proxy and not from_program)):
            raise ProblemError(403, ProblemCode.WRONG_ORIGIN, "a change has to come from the console's own pages")


def _read_cookie(headers: Headers, name: str) -> str | None:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return None
    return None if cookie is None else cookie.value


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
