"""The context of a request: the console's apps, the session, and limits on concurrent work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from headgate.web.access.rights import ConsoleSession
from headgate.web.access.roles import ROUTES, Role
from headgate.web.changes.backtest import BacktestJobs
from headgate.web.changes.check import warm_tests
from headgate.web.changes.explain import KnownApp
from headgate.web.changes.propose import ProposalWriter
from headgate.web.changes.publish import RuleWriter
from headgate.web.problems import BusyError, ProblemCode, ProblemError, not_found
from headgate.web.settings import ConsoleApp, ConsoleLimits, ConsoleSettings
from headgate.web.state.app_reader import AppReader, Snapshot, limit_wait
from headgate.web.state.dead_letters import DeadLetterReader
from headgate.web.state.lanes.alert_rate import AlertRate
from headgate.web.state.lanes.alert_records import AlertFilter, alert_kind
from headgate.web.state.lanes.alerts import AlertReader
from headgate.web.state.lanes.decision_records import DECISION_KIND, DecisionFilter
from headgate.web.state.lanes.decisions import DecisionReader
from headgate.web.state.lanes.lane_feed import LaneFeed
from headgate.web.state.rule_views import list_versions
from headgate.web.state.upgrades import UpgradeReader
from streamcore.errors import StreamError
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import ALERTS, DECISIONS, SHADOW

_LOG = logging.getLogger(__name__)
_END_S = 5.0


class ShownApp:
    """One app of the console, with its readers and its writer."""

    def __init__(
        self,
        kafka: KafkaSettings,
        app: ConsoleApp,
        limits: ConsoleLimits,
        signing_key: Path | None = None,
        kubeconfig: Path | None = None,
    ) -> None:
        self.kafka, self.app, self.limits = kafka, app, limits
        self.reader = AppReader(kafka, app)
        self.proposals = ProposalWriter(self.reader, signing_key)
        self.writer = RuleWriter(self.reader, self.proposals.key)
        reading = limit_wait(kafka)
        self.alerts = AlertReader(reading, app.name, limits.scan_records)
        self.letters = DeadLetterReader(reading, app.name, limits.scan_records)
        self.decisions = DecisionReader(reading, app.name, limits.scan_records)
        self.alert_feed = LaneFeed(reading, f"{app.name}.{ALERTS}", alert_kind(ALERTS))
        self.decision_feed = LaneFeed(reading, f"{app.name}.{DECISIONS}", DECISION_KIND)
        self.backtests = BacktestJobs()
        self.rate = AlertRate(reading, app.name, limits.scan_records)
        self.upgrades = UpgradeReader(app.stream_app, kubeconfig)

    @property
    def name(self) -> str:
        """The name of the app."""
        return self.app.name

    @property
    def live_pages(self) -> int:
        """The number of pages that get live records."""
        return self.alert_feed.pages + self.decision_feed.pages

    def snapshot(self) -> Snapshot:
        """Return the present content of its topics."""
        return self.reader.snapshot()

    def known(self) -> KnownApp:
        """Return the parts of it that an explanation needs."""
        return KnownApp(self.kafka, self.app, self.snapshot().history)

    def warm(self) -> None:
        """Read all that pages keep in memory, so that the first of them does not wait for it."""
        list_versions(self.snapshot())
        for lane in (ALERTS, SHADOW):
            self.alerts.page(lane, AlertFilter(), 1, {})
        self.decisions.page(DecisionFilter(), 1, {})
        self.letters.codes.read()
        self.rate.by_minute(int(time.time() * 1000))

    def close(self) -> None:
        """Close its clients, and cancel its back-tests."""
        self.alerts.close()
        self.decisions.close()
        self.letters.codes.close()
        self.backtests.close()
        self.alert_feed.close()
        self.decision_feed.close()
        self.rate.close()
        self.reader.close()


class Console:
    """The apps of a console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self._closed = threading.Event()
        self._warming: threading.Thread | None = None
        self._work = threading.BoundedSemaphore(settings.limits.explanations)
        self._backtests: set[tuple[str, str]] = set()  # whose back-tests run
        self._lock = threading.Lock()
        kafka, limits, key, cluster = settings.kafka, settings.limits, settings.signing_key, settings.kubeconfig
        self.apps = {app.name: ShownApp(kafka, app, limits, key, cluster) for app in settings.apps}

    def start(self) -> None:
        """Compute the values of the first pages, in a thread of its own."""
        self._warming = threading.Thread(target=self._warm, name="warm", daemon=True)
        self._warming.start()

    def _warm(self) -> None:
        for app in self.apps.values():
            if self._closed.is_set():
                return
            try:
                app.warm()
            except StreamError as error:
                _LOG.warning("app %s cannot be read yet: %s", app.name, error)
        if not self._closed.is_set():
            warm_tests()

    def app(self, name: str) -> ShownApp:
        """Return an app. ``ProblemError`` if the console does not show it."""
        if name not in self.apps:
            raise not_found(f"this console shows no app {name}; it shows {', '.join(self.apps)}")
        return self.apps[name]

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold one of the places for explanations and tests. ``BusyError`` if none is free."""
        if not self._work.acquire(timeout=1):
            detail = f"{self.settings.limits.explanations} explanations or tests run already"
            raise BusyError(detail, 2)
        try:
            yield
        finally:
            self._work.release()

    @contextmanager
    def backtesting(self, session: ConsoleSession) -> Iterator[None]:
        """Hold the place of a person for a back-test. ``BusyError`` if one of the person runs, or too many."""
        most = self.settings.limits.backtests
        with self._lock:
            if session.person in self._backtests:
                detail = f"a back-test of {session.subject} runs already; cancel it, or wait for its end"
                raise BusyError(detail, 10)
            if len(self._backtests) >= most:
                raise BusyError(f"{most} back-tests run already", 10)
            self._backtests.add(session.person)
        try:
            yield
        finally:
            with self._lock:
                self._backtests.discard(session.person)

    def visible(self, session: ConsoleSession) -> tuple[str, ...]:
        """Return the names of the apps that a session may see."""
        return tuple(name for name in self.apps if session.may(Role.VIEWER, name))

    def rows(self, limit: int) -> int:
        """Return a number of rows within the limits."""
        return max(1, min(limit, self.settings.limits.page_rows))

    def close(self) -> None:
        """Close all clients."""
        self._closed.set()
        if self._warming is not None:
            self._warming.join(_END_S)
        for app in self.apps.values():
            app.close()


def get_console(request: Request) -> Console:
    """Return the console of a request."""
    console = request.app.state.console
    assert isinstance(console, Console)
    return console


def get_session(request: Request) -> ConsoleSession:
    """Return the session of a request, which the guard has found."""
    session = request.scope["session_of"]
    assert isinstance(session, ConsoleSession)
    return session


def get_session_check(request: Request) -> Callable[[], bool]:
    """Return what says whether the session of a request still holds."""
    check: Callable[[], bool] = request.scope["session_holds"]
    return check


def get_app(app: str, console: Annotated[Console, Depends(get_console)]) -> ShownApp:
    """Return the app that the path names."""
    return console.app(app)


def require_role(request: Request) -> None:
    """Refuse a request whose session lacks the role that its route needs; a route that is in no table, too."""
    method = "GET" if request.method == "HEAD" else request.method
    needed = ROUTES.get((method, request.scope["route"].path))
    session, app = get_session(request), request.path_params.get("app")
    if needed is None or not session.may(needed, app):
        asked = "a role that no table names" if needed is None else f"the role {needed.value}"
        role = session.role_in(app)
        detail = f"this needs {asked}; the session has {'none' if role is None else role.value}"
        raise ProblemError(403, ProblemCode.NOT_ALLOWED, detail)


TheConsole = Annotated[Console, Depends(get_console)]
TheSessionCheck = Annotated[Callable[[], bool], Depends(get_session_check)]
TheSession = Annotated[ConsoleSession, Depends(get_session)]
TheApp = Annotated[ShownApp, Depends(get_app)]
