"""The login of people: OpenID Connect, authorization code flow with PKCE (RFC 7636), state and nonce.

The console keeps what it has asked the provider, by a secret in a cookie of the browser that asked; an answer counts
once, in the same browser, within ten minutes. The page after the login is one of the console, by its path.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final  # claims are JSON of any content

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session

from headgate.web.access.rights import ConsoleSession, find_grants
from headgate.web.access.settings import AccessSettings, IssuerSettings, LoginSettings
from headgate.web.access.tokens import Provider, TokenVerifier, refused
from headgate.web.problems import ProblemCode, ProblemError

CALLBACK: Final = "/login/callback"
_WITHIN_S: Final = 600.0
_MOST: Final = 1_000  # logins that have begun and not ended
_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Begun:
    secret: str
    nonce: str
    verifier: str
    after: str
    at_s: float


def identify(
    claims: Mapping[str, Any], issuer: IssuerSettings, access: AccessSettings, *, with_cookie: bool, ends_s: float
) -> ConsoleSession:
    """Return the session of the person whom verified claims name. ``ProblemError`` if the person has no role."""
    subject, groups = claims.get(issuer.subject_claim), claims.get(issuer.groups_claim, [])
    if not isinstance(subject, str) or not subject or not subject.isprintable() or " " in subject:
        raise refused(f"the token has no claim {issuer.subject_claim} that names a person")
    named = [one for one in (groups if isinstance(groups, list) else [groups]) if isinstance(one, str)]
    grants = find_grants(access.grants, subject, named)
    if not grants:
        raise ProblemError(403, ProblemCode.NOT_ALLOWED, f"{subject} has no role here")
    return ConsoleSession(subject, grants, with_cookie, issuer.issuer, ends_s, by_proxy=not with_cookie)


class Login:
    """Logins by one provider. Thread-safe. ``secret``: of the client; empty for a public one."""

    def __init__(self, access: AccessSettings, login: LoginSettings, now_s: Callable[[], float] = time.time) -> None:
        self._access, self._login, self._now_s = access, login, now_s
        self._provider = Provider(login.issuer, now_s)
        self._verifier = TokenVerifier(self._provider, login.client_id, now_s)
        self._callback = f"{access.public_address}{CALLBACK}"
        file = login.client_secret_file
        self._secret = None if file is None else file.read_text().strip()
        self._begun: dict[str, _Begun] = {}
        self._lock = threading.Lock()

    def begin(self, after: str) -> tuple[str, str]:
        """Return the provider's address to go to, and the secret of the browser's cookie. ``after``: the path of the
        page that follows."""
        secret, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        path = after if after.startswith("/") and not after.startswith(("//", "/\\")) and after.isprintable() else "/"
        with self._client() as client:
            address, state = client.create_authorization_url(
                self._provider.document().authorization_endpoint, code_verifier=verifier, nonce=nonce
            )
        with self._lock:
            for old in [*self._begun][: max(0, len(self._begun) + 1 - _MOST)]:
                del self._begun[old]
            self._begun[state] = _Begun(_digest(secret), nonce, verifier, path, self._now_s())
        return str(address), secret

    def finish(self, answer: Mapping[str, str], secret: str) -> tuple[ConsoleSession, str]:
        """Return the session of a login and the page that follows. ``answer``: the parameters of the callback.
        ``ProblemError`` if it is not the answer to what this browser has asked."""
        with self._lock:
            begun = self._begun.pop(answer.get("state", ""), None)
        if begun is None or begun.at_s + _WITHIN_S <= self._now_s():
            raise refused("this login was not begun here, was used before or took too long; begin again at /login")
        if not secrets.compare_digest(begun.secret, _digest(secret)):
            raise refused("this login was begun in another browser")
        if "error" in answer or "code" not in answer:
            raise refused(f"the provider refuses the login: {answer.get('error', 'no code')[:200]}")
        claims = self._verifier.verify(self._id_token(answer["code"], begun.verifier), begun.nonce)
        ends_s = self._now_s() + self._login.session_hours * 3600
        return identify(claims, self._login, self._access, with_cookie=True, ends_s=ends_s), begun.after

    def _id_token(self, code: str, verifier: str) -> str:
        try:
            with self._client() as client:
                found = client.fetch_token(
                    self._provider.document().token_endpoint, code=code, code_verifier=verifier, timeout=_TIMEOUT_S
                )
        except (AuthlibBaseError, requests.RequestException, ValueError) as error:
            raise refused(f"the provider gives no token: {type(error).__name__}") from None
        token = found.get("id_token")
        if not isinstance(token, str):
            raise refused("the provider gives no id_token")
        return token

    def _client(self) -> OAuth2Session:
        return OAuth2Session(
            client_id=self._login.client_id,
            client_secret=self._secret,
            token_endpoint_auth_method="client_secret_basic" if self._secret else "none",
            scope=" ".join(self._login.scopes),
            redirect_uri=self._callback,
            code_challenge_method="S256",
        )


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
