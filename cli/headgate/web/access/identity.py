"""Finds out who sends a request where others can reach the console: a login's cookie, or a verified token."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from headgate.web.access.login import OidcLogin, identify
from headgate.web.access.rights import ConsoleSession
from headgate.web.access.settings import AccessSettings
from headgate.web.access.tokens import Provider, TokenVerifier

_KNOWN: Final = 1_000  # verified tokens that are remembered until they end


@dataclass
class Authenticator:
    """How people and programs are identified. ``login``: None if only tokens are accepted."""

    access: AccessSettings
    now_s: Callable[[], float] = time.time
    login: OidcLogin | None = None
    _verifier: TokenVerifier | None = None
    _known: dict[str, ConsoleSession] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.access.login is not None:
            self.login = OidcLogin(self.access, self.access.login, self.now_s)
        if (tokens := self.access.tokens) is not None:
            self._verifier = TokenVerifier(Provider(tokens.issuer, self.now_s), tokens.audience, self.now_s)

    @property
    def host(self) -> str:
        """The permitted value of ``Host``."""
        return urlsplit(self.access.public_address).netloc

    @property
    def secure(self) -> bool:
        """Whether browsers reach the console by https."""
        return self.access.public_address.startswith("https:")

    def by_token(self, headers: Headers) -> ConsoleSession | None:
        """Return who sends a token; None without one. ``ProblemError`` if the token does not count."""
        if self._verifier is None or self.access.tokens is None:
            return None
        text = headers.get(self.access.tokens.header, "")
        scheme, _, rest = text.partition(" ")
        token = rest.strip() if scheme.lower() == "bearer" else text
        if not token:
            return None
        digest = hashlib.sha256(token.encode()).hexdigest()
        with self._lock:
            known = self._known.get(digest)
        if known is not None and known.ends_s is not None and known.ends_s > self.now_s():
            return known
        claims = self._verifier.verify(token)
        session = identify(claims, self.access.tokens, self.access, with_cookie=False, ends_s=float(claims["exp"]))
        with self._lock:
            for old in [*self._known][: max(0, len(self._known) + 1 - _KNOWN)]:
                del self._known[old]
            self._known[digest] = session
        return session
