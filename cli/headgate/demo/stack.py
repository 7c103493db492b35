"""The processes of one ``headgate up``: broker, app, generator, and the service's server.

::

    generator ─▶ <events> ─▶ app ─▶ <app>.<lanes>, and the service's server
                 <app>.control ─┘

Order of the start: the broker, the service's server and, if the workspace exists already, the app, at the same time;
the topics; what ``Service.prepare`` creates; the app of a new workspace; the generator. Order of the stop: the
generator, once Kafka has acknowledged its records; the app, at a batch boundary; the servers that this stack started.
Promises: after ``stop`` returns True nothing is lost and the next start continues.
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
from headgate.local.class_archive import ClassArchive
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
#: The retention of the output topics in milliseconds: ten years, because the verification reads all output.
RETENTION_MS: Final = 10 * 365 * 86_400_000
#: Two shards and one task per stage: half the fixed cost of a cut, and the broker needs a core too.
SHARDS: Final = 2
PARALLELISM: Final = 1


@dataclass(frozen=True, slots=True)
class StackSettings:
    """``bootstrap``: an external Kafka; None: the local broker in ``broker_folder`` on ``port``.

    ``folder``: the data folder. ``streams``: the folder of stream files; None: the shipped one. ``seed``: of a new demo
    shop; None: random. ``fresh``: replace the workspace by a new one. ``keep_broker``: leave the local servers running.
    ``drain_s``: the most seconds that the app may take to reach a batch boundary.
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
    """Starts and stops the processes in the order of the module's docstring.

    ``start`` and ``stop`` are called once each, ``stop`` also after a ``start`` that failed.
    """

    def __init__(self, service: Service, settings: StackSettings, print_message: Print, timeline: Timeline) -> None:
        self.service = service
        self.settings = settings
        self._print_message = print_message
        self._timeline = timeline
        self._java: Java | None = None
        self._jars = Path()
        self._class_archive: ClassArchive | None = None  # to be built
        self.broker: EmbeddedBroker | None = None  # None with an external Kafka
        self._started_broker = False
        self._workspace: Workspace | None = None
        self._server: Server | None = None
        self._app: AppProcess | None = None
        self._generator: Generator | None = None
        self.kafka = KafkaSettings(settings.bootstrap or f"{HOST}:{settings.port}", client_id="headgate-up")

    @property
    def workspace(self) -> Workspace:
        """The workspace, after ``start``."""
        assert self._workspace is not None, "call start() first"
        return self._workspace

    @property
    def user_streams(self) -> Path | None:
        """The folder of stream files that the user named; None if the user named none."""
        return self.settings.streams

    @property
    def context(self) -> ServiceContext:
        """The environment of the service, after ``start``."""
        return self._context_for(self.workspace)

    @property
    def app(self) -> AppProcess:
        """The app, after ``start``."""
        assert self._app is not None, "call start() first"
        return self._app

    @property
    def generator(self) -> Generator:
        """The generator, after ``generate``."""
        assert self._generator is not None, "call generate() first"
        return self._generator

    # --- start --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all processes but the generator."""
        self._java = java.ensure(self._print_message)
        java.activate(self._java)
        self._jars = jars.ensure(jars.JarSet.SPARK, self._java, self._print_message)
        self._use_class_archive(self._java)
        self._timeline.mark("Java and the jars are ready")
        stop_leftover(
            self.service.module, self.settings.folder / "settings.json", _LEFTOVER_WAIT_MS, self._print_message
        )
        self._server = self.service.server(self.settings.folder, self._java)
        if self.settings.bootstrap is None:
            broker_settings = BrokerSettings(self.settings.broker_folder, self.settings.port)
            self.broker = EmbeddedBroker(broker_settings, self._java, self._print_message)
        with ThreadPoolExecutor(2) as pool:
            started = [pool.submit(self._start_broker), pool.submit(self._start_server)]
            self._start_known_app()
            self.service.preload()
            for start in started:
                start.result()
        self._timeline.mark("servers are ready")
        self._open_workspace()
        self._prepare()
        if self._app is None:
            self._start_app(self.workspace)

    def _use_class_archive(self, java: Java) -> None:
        """Have the app's JVM use the archive of classes, or keep in mind that it is to be built."""
        archive = ClassArchive.of(java)
        if archive is not None and not archive.use():
            self._class_archive = archive

    def _broker_identity(self) -> str:
        """Return a text that identifies the Kafka. The local broker gets another one when its data was deleted."""
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
        """Start the app of an existing workspace while the broker starts; the app itself waits for the broker."""
        if self.settings.fresh or self.broker is None or self._server is not None:
            return
        known = workspaces.load(self.settings.folder, self._broker_identity(), self.service.app_names)
        if known is not None:
            self._start_app(known)

    def _open_workspace(self) -> None:
        folder, seed = self.settings.folder, self.settings.seed
        like = self.service.app_names
        known = None if self.settings.fresh else workspaces.load(folder, self._broker_identity(), like)
        if known is not None and not workspaces.has_topics(known, self.kafka):
            self._print_message(f"the topics of {known.names.app} no longer exist: creating a new workspace")
            self._end_app()
            known = None
        self._workspace = known or workspaces.create(
            folder, self._broker_identity(), self.kafka, seed, self._print_message, like
        )
        action = "continuing with" if known else "new"
        self._print_message(
            f"{action} workspace {self.workspace.names.app} at {self.kafka.bootstrap}, data in {folder}"
        )
        if not self.workspace.checkpoint.exists():  # new, or an earlier start was killed before the app ran
            self.service.delete_leftovers(self.context, self._print_message)

    def _prepare(self) -> None:
        """Create everything that must exist before the app and the events."""
        context = self.context
        if disable_compaction(self.kafka, control := self.workspace.names.control):
            self._print_message(
                f"{control} was compacted and now keeps everything: history before this start is not complete"
            )
        ensure_topics(self.kafka, self.service.app_topics(self.service.settings(context)))
        self._timeline.mark("the topics exist")
        self.service.prepare(context, self._print_message)
        self._timeline.mark("the service is prepared")

    def _context_for(self, workspace: Workspace) -> ServiceContext:
        return ServiceContext(self.kafka, workspace, self._jars, self.settings.streams or streams.default_folder())

    def _start_app(self, workspace: Workspace) -> None:
        settings = self.service.settings(self._context_for(workspace))
        workspace.settings_file.write_text(settings.model_dump_json(indent=2), encoding="utf-8")
        self._app = AppProcess(self.service.module, workspace.settings_file, workspace.log, workspace.names.read)
        self._print_message(f"{self.service.name} app: starting (Spark takes some seconds)")
        self._app.start()
        self._timeline.mark("the app started")

    # --- run ----------------------------------------------------------------------------------------------------

    def generate(self, settings: GeneratorSettings) -> None:
        """Start the generator, and build the archive of classes for the next start if there is none."""
        if self._class_archive is not None:
            self._print_message("classes: an archive that halves the next start of Spark is built in the background")
            self._class_archive.build_in_background()
        app = self.app
        feed = self.service.event_feed(self.workspace.names, self.workspace.shop)
        generator = Generator(self.kafka, feed, settings, lambda: app.metrics.processed)
        generator.start()
        self._generator = generator

    def raise_if_ended(self) -> None:
        """Raise the first error of any part of the stack."""
        self.app.raise_if_ended()
        if self._generator is not None:
            self._generator.raise_if_ended()
        if self.broker is not None and self.broker.running is None:
            files = self.broker.files
            raise HeadgateError(f"the local broker ended; last in its log {files.log}: {files.last_error()}")
        if self._server is not None:
            self._server.raise_if_ended()

    # --- stop ---------------------------------------------------------------------------------------------------

    def stop(self, hurry: threading.Event) -> bool:
        """Stop all processes in order, without waiting once ``hurry`` is set. Return False if one was killed."""
        if self.broker is not None and self.broker.running is None:
            self._print_message("broker: it has ended, so the other processes cannot stop in order")
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
        """Stop the app at a batch boundary. If that takes too long or ``hurry`` is set, kill it and return False."""
        if self._app is None:
            return True
        self._print_message(f"{self.service.name} app: stopping at a batch boundary")
        drained = self._app.drain(self.settings.drain_s, hurry)
        if not drained:
            reason = "" if hurry.is_set() else f"not stopped after {self.settings.drain_s:g} s, "
            self._print_message(
                f"{self.service.name} app: {reason}ending it by force; the next start repeats its unfinished batch"
            )
        self._end_app()
        return drained

    def _end_app(self) -> None:
        if self._app is not None:
            self._app.kill()
            self._app.close()
            self._app = None
