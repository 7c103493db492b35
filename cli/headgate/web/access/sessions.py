"""Sessions: a one-time token in the printed address becomes a cookie; programs send a token of their own.

Secrets are compared by their digests, and only the digests are kept. Sessions end with the process.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headgate.web.access.roles import Role

_COOKIE = "headgate_session"


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """Who sends a request. ``with_cookie``: a browser sends it by itself, so the origin of a change is checked."""

    subject: str
    role: Role
    with_cookie: bool = True


class Sessions:
    """The sessions of one process, for a person of this machine. Thread-safe.

    ``cookie``: the name of the cookie. It has the port, because browsers send cookies to all ports of a host.
    """

    def __init__(self, subject: str, role: Role, most: int, port: int) -> None:
        self._session = ConsoleSession(subject, role)
        self.cookie = f"{_COOKIE}_{port}"
        self._most = most
        self._open: dict[str, ConsoleSession] = {}
        self._once: set[str] = set()
        self._lock = threading.Lock()
        #: Called whenever a one-time token was used.
        self.on_opened: Callable[[], None] = lambda: None

    def new_token(self) -> str:
        """Return a token for the printed address. It opens one session."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._once.add(_digest(token))
        return token

    def new_api_token(self) -> str:
        """Return a token for programs, valid as long as the process runs."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._open[_digest(token)] = ConsoleSession(self._session.subject, self._session.role, with_cookie=False)
        return token

    def exchange(self, token: str) -> str | None:
        """Use up a one-time token and return the secret of a new session; None for another or a used token."""
        with self._lock:
            if _digest(token) not in self._once:
                return None
            self._once.discard(_digest(token))
            secret = secrets.token_urlsafe(32)
            with_cookie = [digest for digest, one in self._open.items() if one.with_cookie]
            for oldest in with_cookie[: max(0, len(with_cookie) + 1 - self._most)]:
                del self._open[oldest]
            self._open[_digest(secret)] = self._session
        self.on_opened()
        return secret

    def by_cookie(self, secret: str) -> ConsoleSession | None:
        """Return the session with this secret of a cookie."""
        return self._find(secret, with_cookie=True)

    def by_token(self, token: str) -> ConsoleSession | None:
        """Return the session of a program with this token. A cookie's secret is no token."""
        return self._find(token, with_cookie=False)

    def _find(self, secret: str, *, with_cookie: bool) -> ConsoleSession | None:
        with self._lock:
            found = self._open.get(_digest(secret))
        return found if found is not None and found.with_cookie is with_cookie else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
