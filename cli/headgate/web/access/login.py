"""The login of people: OpenID Connect, authorization code flow with PKCE (RFC 7636), state and nonce.

What the console has asked the provider is in a cookie of the browser that asked, encrypted with a key of this process
(JWE, RFC 7516), so logins that begin and never end take no memory. An answer counts in the same browser, within ten
minutes; the provider takes its code once. The page after the login is one of the console, by its path.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final  # claims are JSON of any content

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from pydantic import BaseModel

from headgate.web.access.rights import ConsoleSession, find_grants
from headgate.web.access.settings import AccessSettings, IssuerSettings, LoginSettings
from headgate.web.access.tokens import Provider, TokenVerifier, refused
from headgate.web.problems import ProblemCode, ProblemError

CALLBACK: Final = "/login/callback"
_WITHIN_S: Final = 600.0
_PATH_CHARACTERS: Final = 1_000  # of the page after the login: a browser keeps 4 KB of a cookie
_SEALED: Final = {"alg": "dir", "enc": "A256GCM"}
_TIMEOUT_S: Final = 10.0


class _Begun(BaseModel):
    state: str
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


class OidcLogin:
    """Logins by one provider. Thread-safe. ``secret``: of the client; empty for a public one."""

    def __init__(self, access: AccessSettings, login: LoginSettings, now_s: Callable[[], float] = time.time) -> None:
        self._access, self._login, self._now_s = access, login, now_s
        self._provider = Provider(login.issuer, now_s)
        self._verifier = TokenVerifier(self._provider, login.client_id, now_s)
        self._callback = f"{access.public_address}{CALLBACK}"
        file = login.client_secret_file
        self._secret = None if file is None else file.read_text().strip()
        self._key = OctKey.generate_key(256)

    def begin(self, after: str) -> tuple[str, str]:
        """Return the provider's address to go to, and the content of the browser's cookie. ``after``: the path of the
        page that follows."""
        nonce, verifier = (secrets.token_urlsafe(32) for _ in range(2))
        own = after.startswith("/") and not after.startswith(("//", "/\\")) and after.isprintable()
        path = after if own and len(after) <= _PATH_CHARACTERS else "/"
        with self._client() as client:
            address, state = client.create_authorization_url(
                self._provider.document().authorization_endpoint, code_verifier=verifier, nonce=nonce
            )
        begun = _Begun(state=state, nonce=nonce, verifier=verifier, after=path, at_s=self._now_s())
        return str(address), jwe.encrypt_compact(_SEALED, begun.model_dump_json(), self._key)

    def finish(self, answer: Mapping[str, str], sealed: str) -> tuple[ConsoleSession, str]:
        """Return the session of a login and the page that follows. ``answer``: the parameters of the callback.
        ``ProblemError`` if it is not the answer to what this browser has asked."""
        begun = self._open(sealed)
        if begun is None or begun.at_s + _WITHIN_S <= self._now_s():
            raise refused("this login was not begun here or took too long; begin again at /login")
        if not secrets.compare_digest(begun.state.encode(), answer.get("state", "").encode()):
            raise refused("this login was begun in another browser; begin again at /login")
        if "error" in answer or "code" not in answer:
            raise refused(f"the provider refuses the login: {answer.get('error', 'no code')[:200]}")
        claims = self._verifier.verify(self._id_token(answer["code"], begun.verifier), begun.nonce)
        ends_s = self._now_s() + self._login.session_hours * 3600
        return identify(claims, self._login, self._access, with_cookie=True, ends_s=ends_s), begun.after

    def _open(self, sealed: str) -> _Begun | None:
        """Return what a cookie has sealed; None if this process has not sealed it."""
        try:
            return _Begun.model_validate_json(jwe.decrypt_compact(sealed, self._key).plaintext or b"")
        except (JoseError, ValueError, KeyError, TypeError):
            return None

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
