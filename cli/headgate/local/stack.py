"""Broker, rules app and generator of `headgate up`, started together and stopped in order.

::

    generator ─▶ <events> ─▶ rules app ─▶ <app>.alerts, .late, .deadletters, .status
                             <app>.control ─┘

Start: the broker and, when the shop exists already, the app beside it; then topics, then rules, then events, so that
every rule is there before the first event. Stop: the generator, acknowledged; the app, at a batch boundary; the broker,
if this stack started it. Promises: after ``stop`` returned True nothing was lost and the next start goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate import streams
from headgate.errors import HeadgateError
from headgate.local import jars, java, workspace
from headgate.local.broker import HOST, BrokerSettings, EmbeddedBroker
from headgate.local.generator import Generator, Orders
from headgate.local.java import Java
from headgate.local.rules_process import RulesProcess, end_leftover
from headgate.local.workspace import Workspace
from headgate.talk import Say
from headgate.timeline import Timeline
from headgate_rules.settings import RulesSettings
from streamcore.kafka.control import ControlLog, keep_history
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import ensure_topics, wait_for_broker
from streamcore.service.documents import KafkaDocument, StreamDocument

if TYPE_CHECKING:
    from headgate.rulebook import Book
    from rulecore.audit import History
    from rulecore.model import Rule

_STREAM: Final = "shop"
_BROKER_WAIT_MS: Final = 30_000
_GENERATOR_WAIT_S: Final = 60.0
_LEFTOVER_WAIT_MS: Final = 60_000
_RETENTION_MS: Final = 10 * 365 * 86_400_000  # by size only, or a shop of last month could not be compared
#: One task a stage: half the fixed cost of a cut, and the other core is the broker's.
SHARDS: Final = 2
PARALLELISM: Final = 1


@dataclass(frozen=True, slots=True)
class StackSettings:
    """``bootstrap``: a Kafka of somebody else's; None: the local broker in ``broker_folder`` on ``port``.

    ``book`` reads the rules to publish; it is called while the app starts. ``seed``: of a new shop. ``drain_s``: how
    long the app may take to come to a batch boundary.
    """

    folder: Path
    broker_folder: Path
    port: int
    book: Callable[[], Book]
    streams: Path | None = None
    bootstrap: str | None = None
    seed: int | None = None
    fresh: bool = False
    keep_broker: bool = False
    drain_s: float = 90.0


class Stack:
    """See the module. ``start`` and ``stop`` are called once each, ``stop`` also after a ``start`` that failed."""

    def __init__(self, settings: StackSettings, say: Say, timeline: Timeline) -> None:
        self.settings = settings
        self._say = say
        self._timeline = timeline
        self._java: Java | None = None
        self._jars = Path()
        self.broker: EmbeddedBroker | None = None  # None with a Kafka of somebody else's
        self._started_broker = False
        self._shop: Workspace | None = None
        self._app: RulesProcess | None = None
        self._generator: Generator | None = None
        self._book: Book | None = None
        self.kafka = KafkaSettings(settings.bootstrap or f"{HOST}:{settings.port}", client_id="headgate-up")

    @property
    def shop(self) -> Workspace:
        """The workspace; there is one after ``start``."""
        assert self._shop is not None, "start() comes first"
        return self._shop

    @property
    def app(self) -> RulesProcess:
        """The app; there is one after ``start``."""
        assert self._app is not None, "start() comes first"
        return self._app

    @property
    def book(self) -> Book:
        """The rules to publish; there are some after ``start``."""
        assert self._book is not None, "start() comes first"
        return self._book

    @property
    def generator(self) -> Generator:
        """The generator; there is one after ``generate``."""
        assert self._generator is not None, "generate() comes first"
        return self._generator

    # --- start --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything but the generator."""
        self._java = java.ensure(self._say)
        java.activate(self._java)
        self._jars = jars.ensure(jars.JarSet.SPARK, self._java, self._say)
        self._timeline.mark("java and jars are there")
        end_leftover(self.settings.folder / "rules.json", _LEFTOVER_WAIT_MS, self._say)
        if self.settings.bootstrap is None:
            wanted = BrokerSettings(self.settings.broker_folder, self.settings.port)
            self.broker = EmbeddedBroker(wanted, self._java, self._say)
        with ThreadPoolExecutor(1) as pool:
            broker = pool.submit(self._start_broker)
            self._start_known_app()
            self._book = self.settings.book()  # what reads rules is slow to import; broker and app start meanwhile
            broker.result()
        self._timeline.mark("broker is ready")
        self._open_shop()
        self._ensure_topics()
        self._timeline.mark("topics are there")
        self._publish()
        if self._app is None:
            self._start_app(self.shop)

    def _identity(self) -> str:
        """Which Kafka this is: the local one is another one after its data was deleted."""
        if self.broker is None:
            return self.kafka.bootstrap
        formatted = self.broker.files.formatted
        return f"local broker of {formatted.stat().st_mtime_ns}" if formatted.exists() else "a new local broker"

    def _start_broker(self) -> None:
        if self.broker is None:
            wait_for_broker(self.kafka, _BROKER_WAIT_MS)
            return
        self._started_broker = self.broker.running is None
        self.broker.start()

    def _start_known_app(self) -> None:
        """The app waits for the broker by itself, so a shop that is there already need not wait for either."""
        if self.settings.fresh or self.broker is None:
            return
        known = workspace.load(self.settings.folder, self._identity())
        if known is not None:
            self._start_app(known)

    def _open_shop(self) -> None:
        folder, seed = self.settings.folder, self.settings.seed
        found = None if self.settings.fresh else workspace.load(folder, self._identity())
        if found is not None and not workspace.is_whole(found, self.kafka):
            self._say(f"the topics of shop {found.names.app} are gone: starting anew")
            self._end_app()
            found = None
        self._shop = found or workspace.create(folder, self._identity(), self.kafka, seed, self._say)
        how = "going on with" if found else "new"
        self._say(f"{how} shop {self.shop.names.app} at {self.kafka.bootstrap}, data in {folder}")

    def _ensure_topics(self) -> None:
        from headgate_rules.topics import topics

        if keep_history(self.kafka, control := self.shop.names.control):
            self._say(f"{control} was compacted and now keeps everything: history before this start is not complete")
        ensure_topics(self.kafka, topics(self._app_settings(self.shop)))

    def _app_settings(self, shop: Workspace) -> RulesSettings:
        schema = (self.settings.streams or streams.default_folder()) / f"{_STREAM}.yaml"
        return RulesSettings(
            app=shop.names.app,
            kafka=KafkaDocument(bootstrap=self.kafka.bootstrap),
            streams=(StreamDocument(schema_file=schema.absolute(), topic=shop.names.events, reject_extra_fields=True),),
            checkpoint=shop.checkpoint,
            jars=self._jars,
            local_dir=shop.scratch,
            shards=SHARDS,
            parallelism=PARALLELISM,
            output_retention_ms=_RETENTION_MS,
        )

    def _start_app(self, shop: Workspace) -> None:
        shop.settings_file.write_text(self._app_settings(shop).model_dump_json(indent=2), encoding="utf-8")
        self._app = RulesProcess(shop.settings_file, shop.log, shop.names.events)
        self._say("rules app: starting (Spark takes some seconds)")
        self._app.start()
        self._timeline.mark("rules app started")

    def _publish(self) -> None:
        """The rules that were never accepted, or only in an older version. One that was deleted stays deleted."""
        from rulecore.model import canonical_json

        rules, history = [r.rule for r in self.book.rules], self._history()
        missing = [rule for rule in rules if history.newest(rule.id) < rule.version]
        with ControlLog(self.kafka, self.shop.names.control) as log:
            for rule in missing:
                log.publish(rule.id, canonical_json(rule))
        self._say(f"rules: {len(rules) - len(missing)} were there, {len(missing)} published")
        self._timeline.mark("rules are published")

    def published(self) -> Mapping[str, Rule]:
        """By id, the newest version that the app has now in any slot."""
        from headgate.history import newest_rules

        return newest_rules(self._history())

    def _history(self) -> History:
        from headgate.history import read_history
        from headgate.publishing import AppTopics

        return read_history(self.kafka, AppTopics(self.shop.names.app), self.settings.streams, int(time.time() * 1000))

    # --- run ----------------------------------------------------------------------------------------------------

    def generate(self, orders: Orders) -> None:
        """Start sending events."""
        names = self.shop.names
        app = self.app
        generator = Generator(self.kafka, names.events, self.shop.shop, orders, lambda: app.figures.processed)
        generator.start()
        self._generator = generator

    def check(self) -> None:
        """Raise what went wrong with any of the three."""
        self.app.check()
        if self._generator is not None:
            self._generator.check()
        if self.broker is not None and self.broker.running is None:
            files = self.broker.files
            raise HeadgateError(f"the local broker ended; last in its log {files.log}: {files.complaint()}")

    # --- stop ---------------------------------------------------------------------------------------------------

    def stop(self, hurry: threading.Event) -> bool:
        """Stop in order; at once when ``hurry`` is set. False when something had to be ended by force."""
        if self.broker is not None and self.broker.running is None:
            self._say("broker: gone, so nothing can come to an orderly end")
            hurry.set()
        in_order = self._stop_generator(hurry)
        in_order = self.stop_app(hurry) and in_order
        if self.broker is not None and self._started_broker and not self.settings.keep_broker:
            self._say("broker: stopping")
            self.broker.stop()
        elif self.broker is not None and self.broker.running is not None:
            self._say("broker: left running; headgate broker stop ends it")
        return in_order

    def _stop_generator(self, hurry: threading.Event) -> bool:
        if self._generator is None:
            return True
        deadline = time.monotonic() + _GENERATOR_WAIT_S
        while not (stopped := self._generator.stop(0.1)) and time.monotonic() < deadline and not hurry.is_set():
            pass
        return stopped

    def stop_app(self, hurry: threading.Event) -> bool:
        """Stop the app at a batch boundary, by force when that takes too long or ``hurry`` is set: False then."""
        if self._app is None:
            return True
        self._say("rules app: stopping at a batch boundary")
        drained = self._app.drain(self.settings.drain_s, hurry)
        if not drained:
            why = "" if hurry.is_set() else f"not done after {self.settings.drain_s:g} s, "
            self._say(f"rules app: {why}ending it by force; the next start repeats its open batch")
        self._end_app()
        return drained

    def _end_app(self) -> None:
        if self._app is not None:
            self._app.kill()
            self._app.close()
            self._app = None
