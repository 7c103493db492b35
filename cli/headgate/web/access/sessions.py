"""Sessions: a one-time token in the printed address, or a login, becomes a cookie; programs send a token of their own.

Secrets are compared by their digests, and only the digests are kept. Sessions end with the process.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable

from headgate.web.access.rights import ConsoleSession
from headgate.web.access.roles import Role

_COOKIE = "headgate_session"


class Sessions:
    """The sessions of one process. Thread-safe. ``subject`` and ``role``: the person of this machine.

    ``cookie``: the name of the cookie. It has the port, because browsers send cookies to all ports of a host.
    """

    def __init__(self, subject: str, role: Role, most: int, port: int, now_s: Callable[[], float] = time.time) -> None:
        self._subject, self._role, self._now_s = subject, role, now_s
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
            self._open[_digest(token)] = ConsoleSession.local(self._subject, self._role, with_cookie=False)
        return token

    def exchange(self, token: str) -> str | None:
        """Use up a one-time token and return the secret of a new session; None for another or a used token."""
        with self._lock:
            if _digest(token) not in self._once:
                return None
            self._once.discard(_digest(token))
        secret = self.open(ConsoleSession.local(self._subject, self._role))
        self.on_opened()
        return secret

    def open(self, session: ConsoleSession) -> str:
        """Keep a session of a browser, and return its secret. If there are too many, the oldest one of the same person
        ends; without one, the oldest of all."""
        secret = secrets.token_urlsafe(32)
        with self._lock:
            now_s = self._now_s()
            for ended in [digest for digest, one in self._open.items() if one.has_ended(now_s)]:
                del self._open[ended]
            with_cookie = {digest: one for digest, one in self._open.items() if one.with_cookie}
            if len(with_cookie) >= self._most:
                own = (digest for digest, one in with_cookie.items() if one.person == session.person)
                del self._open[next(own, next(iter(with_cookie)))]
            self._open[_digest(secret)] = session
        return secret

    def end(self, secret: str) -> None:
        """End the session with this secret."""
        with self._lock:
            self._open.pop(_digest(secret), None)

    def by_cookie(self, secret: str) -> ConsoleSession | None:
        """Return the session with this secret of a cookie."""
        return self._find(secret, with_cookie=True)

    def by_token(self, token: str) -> ConsoleSession | None:
        """Return the session of a program with this token. A cookie's secret is no token."""
        return self._find(token, with_cookie=False)

    def _find(self, secret: str, *, with_cookie: bool) -> ConsoleSession | None:
        with self._lock:
            found = self._open.get(_digest(secret))
            if found is not None and found.has_ended(self._now_s()):
                del self._open[_digest(secret)]
                return None
        return found if found is not None and found.with_cookie is with_cookie else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
