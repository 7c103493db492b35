"""Broker, app and generator of `headgate up`, started together and stopped in order.

::

    generator ─▶ <events> ─▶ app ─▶ <app>.<lanes>, and the service's server
                 <app>.control ─┘

Start: the broker and, when the shop exists already, the app beside it; then the service's server and topics, then the
service's rules and tables, then events. Stop: the generator, acknowledged; the app, at a batch boundary; the
servers that this stack started. Promises: after ``stop`` returns True nothing is lost and the next start continues.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.console.messages import Print
from headgate.console.timeline import Timeline
from headgate.demo import workspace as workspaces
from headgate.demo.app_process import AppProcess, stop_leftover
from headgate.demo.generator import Generator, GeneratorSettings
from headgate.demo.service import Server, Service, ServiceContext
from headgate.demo.workspace import Workspace
from headgate.errors import HeadgateError
from headgate.local import jars, java
from headgate.local.java import Java
from headgate.local.servers.base import HOST
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from headgate.records import stream_files as streams
from streamcore.kafka.control_topic import disable_compaction
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import ensure_topics, wait_for_broker

_BROKER_WAIT_MS: Final = 30_000
_GENERATOR_WAIT_S: Final = 60.0
_LEFTOVER_WAIT_MS: Final = 60_000
#: By size only, or a shop of last month could not be compared.
RETENTION_MS: Final = 10 * 365 * 86_400_000
#: One task a stage: half the fixed cost of a cut, and the other core is the broker's.
SHARDS: Final = 2
PARALLELISM: Final = 1


@dataclass(frozen=True, slots=True)
class StackSettings:
    """``bootstrap``: an external Kafka; None: the local broker in ``broker_folder`` on ``port``.

    ``seed``: of a new shop. ``drain_s``: the most seconds that the app may take to reach a batch boundary.
    """

    folder: Path
    broker_folder: Path
    port: int
    streams: Path | None = None
    bootstrap: str | None = None
    seed: int | None = None
    fresh: bool = False
    keep_broker: bool = False
    drain_s: float = 90.0


class DemoStack:
    """See the module. ``start`` and ``stop`` are called once each, ``stop`` also after a ``start`` that failed."""

    def __init__(self, service: Service, settings: StackSettings, print_message: Print, timeline: Timeline) -> None:
        self.service = service
        self.settings = settings
        self._print_message = print_message
        self._timeline = timeline
        self._java: Java | None = None
        self._jars = Path()
        self.broker: EmbeddedBroker | None = None  # None with a Kafka of somebody else's
        self._started_broker = False
        self._workspace: Workspace | None = None
        self._server: Server | None = None
        self._app: AppProcess | None = None
        self._generator: Generator | None = None
        self.kafka = KafkaSettings(settings.bootstrap or f"{HOST}:{settings.port}", client_id="headgate-up")

    @property
    def workspace(self) -> Workspace:
        """The workspace; there is one after ``start``."""
        assert self._workspace is not None, "start() comes first"
        return self._workspace

    @property
    def streams(self) -> Path | None:
        """The folder of stream files that the user names; None: the shipped one."""
        return self.settings.streams

    @property
    def context(self) -> ServiceContext:
        """The environment of the service; it exists after ``start``."""
        return self._context_for(self.workspace)

    @property
    def app(self) -> AppProcess:
        """The app; there is one after ``start``."""
        assert self._app is not None, "start() comes first"
        return self._app

    @property
    def generator(self) -> Generator:
        """The generator; there is one after ``generate``."""
        assert self._generator is not None, "generate() comes first"
        return self._generator

    # --- start --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything but the generator."""
        self._java = java.ensure(self._print_message)
        java.activate(self._java)
        self._jars = jars.ensure(jars.JarSet.SPARK, self._java, self._print_message)
        self._timeline.mark("java and jars are there")
        stop_leftover(
            self.service.module, self.settings.folder / "settings.json", _LEFTOVER_WAIT_MS, self._print_message
        )
        self._server = self.service.server(self.settings.folder, self._java)
        if self.settings.bootstrap is None:
            wanted = BrokerSettings(self.settings.broker_folder, self.settings.port)
            self.broker = EmbeddedBroker(wanted, self._java, self._print_message)
        with ThreadPoolExecutor(2) as pool:
            started = [pool.submit(self._start_broker), pool.submit(self._start_server)]
            self._start_known_app()
            self.service.preload()
            for one in started:
                one.result()
        self._timeline.mark("servers are ready")
        self._open_shop()
        self._prepare()
        if self._app is None:
            self._start_app(self.workspace)

    def _identity(self) -> str:
        """Which Kafka this is: the local one is another one after its data was deleted."""
        if self.broker is None:
            return self.kafka.bootstrap
        formatted = self.broker.files.formatted_marker
        return f"local broker of {formatted.stat().st_mtime_ns}" if formatted.exists() else "a new local broker"

    def _start_broker(self) -> None:
        if self.broker is None:
            wait_for_broker(self.kafka, _BROKER_WAIT_MS)
            return
        self._started_broker = self.broker.running is None
        self.broker.start()

    def _start_server(self) -> None:
        if self._server is not None:
            self._server.start(self._print_message)

    def _start_known_app(self) -> None:
        """Start the app beside the broker if the shop exists: the app waits for the broker itself."""
        if self.settings.fresh or self.broker is None or self._server is not None:
            return
        known = workspaces.load(self.settings.folder, self._identity(), self.service.topic_names)
        if known is not None:
            self._start_app(known)

    def _open_shop(self) -> None:
        folder, seed = self.settings.folder, self.settings.seed
        like = self.service.topic_names
        found = None if self.settings.fresh else workspaces.load(folder, self._identity(), like)
        if found is not None and not workspaces.is_whole(found, self.kafka):
            self._print_message(f"the topics of shop {found.names.app} are gone: starting anew")
            self._end_app()
            found = None
        self._workspace = found or workspaces.create(
            folder, self._identity(), self.kafka, seed, self._print_message, like
        )
        how = "going on with" if found else "new"
        self._print_message(f"{how} shop {self.workspace.names.app} at {self.kafka.bootstrap}, data in {folder}")
        if not self.workspace.checkpoint.exists():  # new, or a start was killed before its app had begun
            self.service.delete_leftovers(self.context, self._print_message)

    def _prepare(self) -> None:
        """All that must be there before the app and its events."""
        context = self.context
        if disable_compaction(self.kafka, control := self.workspace.names.control):
            self._print_message(
                f"{control} was compacted and now keeps everything: history before this start is not complete"
            )
        ensure_topics(self.kafka, self.service.topics(self.service.settings(context)))
        self._timeline.mark("topics are there")
        self.service.prepare(context, self._print_message)
        self._timeline.mark("the service is prepared")

    def _context_for(self, shop: Workspace) -> ServiceContext:
        return ServiceContext(self.kafka, shop, self._jars, self.settings.streams or streams.default_folder())

    def _start_app(self, shop: Workspace) -> None:
        settings = self.service.settings(self._context_for(shop))
        shop.settings_file.write_text(settings.model_dump_json(indent=2), encoding="utf-8")
        self._app = AppProcess(self.service.module, shop.settings_file, shop.log, shop.names.read)
        self._print_message(f"{self.service.name} app: starting (Spark takes some seconds)")
        self._app.start()
        self._timeline.mark("the app started")

    # --- run ----------------------------------------------------------------------------------------------------

    def generate(self, orders: GeneratorSettings) -> None:
        """Start sending events."""
        app = self.app
        feed = self.service.event_feed(self.workspace.names, self.workspace.shop)
        generator = Generator(self.kafka, feed, orders, lambda: app.metrics.processed)
        generator.start()
        self._generator = generator

    def check(self) -> None:
        """Raise the first error of any part of the stack."""
        self.app.check()
        if self._generator is not None:
            self._generator.check()
        if self.broker is not None and self.broker.running is None:
            files = self.broker.files
            raise HeadgateError(f"the local broker ended; last in its log {files.log}: {files.last_error()}")
        if self._server is not None:
            self._server.check()

    # --- stop ---------------------------------------------------------------------------------------------------

    def stop(self, hurry: threading.Event) -> bool:
        """Stop in order; at once when ``hurry`` is set. False when something had to be ended by force."""
        if self.broker is not None and self.broker.running is None:
            self._print_message("broker: gone, so nothing can come to an orderly end")
            hurry.set()
        in_order = self._stop_generator(hurry)
        in_order = self.stop_app(hurry) and in_order
        if self._server is not None and not self.settings.keep_broker:
            self._server.stop(self._print_message)
        if self.broker is not None and self._started_broker and not self.settings.keep_broker:
            self._print_message("broker: stopping")
            self.broker.stop()
        elif self.broker is not None and self.broker.running is not None:
            self._print_message("broker: left running; headgate broker stop ends it")
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
        self._print_message(f"{self.service.name} app: stopping at a batch boundary")
        drained = self._app.drain(self.settings.drain_s, hurry)
        if not drained:
            why = "" if hurry.is_set() else f"not done after {self.settings.drain_s:g} s, "
            self._print_message(
                f"{self.service.name} app: {why}ending it by force; the next start repeats its open batch"
            )
        self._end_app()
        return drained

    def _end_app(self) -> None:
        if self._app is not None:
            self._app.kill()
            self._app.close()
            self._app = None
