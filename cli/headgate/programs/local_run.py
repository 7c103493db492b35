"""Runs a program or a service on this machine with a live view: the broker, the topics, the process.

Order of the start: the broker, unless another Kafka is named; the topics that the program reads, if they are missing;
the local PostgreSQL, if the settings name it; records of files; the program, which creates the topics that
it writes. Order of the stop: the program, at a batch boundary; the servers, if this run started them. Promises:
whatever ends the run, it stops in this order, and the next run continues it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live

from headgate.console.messages import Print
from headgate.console.timeline import Timeline
from headgate.demo.app_process import AppProcess, stop_leftover
from headgate.demo.run import ForcedStopError, Signals
from headgate.demo.views.panels import RunMetrics
from headgate.demo.views.service_watch import ServiceLiveView
from headgate.demo.workspace import lock_folder
from headgate.errors import InputError
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker, default_folder
from headgate.programs.local_tables import LocalTables
from headgate.programs.runnable import Runnable
from headgate.programs.spark_jars import ensure_spark
from headgate.records.replay import KafkaSink, ensure_topic
from streamcore.kafka.readers import end_offsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import describe, ensure_topics, wait_for_broker

_BROKER_WAIT_MS = 30_000
_LEFTOVER_WAIT_MS = 60_000
_DRAIN_S = 90.0
_REFRESH_S = 0.3
_LINE_EVERY_S = 5.0
_COUNT_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """``port``: of the local broker; None with another Kafka. ``partitions``: of topics that are created. ``fresh``:
    delete the program's data of this machine first. ``keep_broker``: leave the local servers running.
    ``create_topics``: whether missing topics that the program reads are created. ``sends``: records that
    are sent before the program starts, by topic."""

    port: int | None
    partitions: int
    fresh: bool
    keep_broker: bool
    create_topics: bool = True
    sends: Mapping[str, Sequence[bytes]] = field(default_factory=dict)


class LocalRun:
    """One run of a program."""

    def __init__(self, program: Runnable, options: LocalOptions, print_message: Print) -> None:
        self._program = program
        self._options = options
        self._print_message = print_message
        self._timeline = Timeline()
        self._signals = Signals(print_message)
        self._broker: EmbeddedBroker | None = None
        self._started_broker = False
        self._tables = LocalTables(print_message)
        self._app: AppProcess | None = None
        self._sent, self._counted_s = 0, 0.0

    def run(self, console: Console) -> None:
        """Run until a signal arrives or the program ends. Raises ``HeadgateError`` if a part of the run fails."""
        with lock_folder(self._program.folder), self._signals.handling():
            try:
                self._start()
                self._signals.setting_up = False
                with closing(self._view()) as view:
                    self._watch(view, console)
            finally:
                self._signals.setting_up = False
                in_order = self._stop()
        if not in_order:
            raise ForcedStopError("stopped by force; the next start repeats the unfinished cut and loses nothing")

    def _start(self) -> None:
        stop_leftover(self._arguments, self._program.settings_file, _LEFTOVER_WAIT_MS, self._print_message)
        if self._options.fresh:
            for name in ("checkpoint", "savepoints", "tmp"):
                shutil.rmtree(self._program.folder / name, ignore_errors=True)
        jars = ensure_spark(self._program.settings.checkpoint, self._print_message)
        if not self._has_jars() and jars is not None:
            self._program = self._program.save(jars=str(jars))
        else:
            self._program = self._program.save()
        if self._options.port is not None:
            self._broker = EmbeddedBroker(
                BrokerSettings(default_folder(), self._options.port), None, self._print_message
            )
            self._started_broker = self._broker.running is None
            self._broker.start()
        kafka = self._program.settings.kafka
        wait_for_broker(kafka, _BROKER_WAIT_MS)
        if not self._options.create_topics:
            raise_missing_topics(kafka, self._topics)
        for topic in self._topics:
            ensure_topic(kafka, topic, self._options.partitions)
        ensure_topics(kafka, self._program.service.topics(self._program.settings))
        self._program = self._tables.start(self._program)
        for topic, values in self._options.sends.items():
            sink = KafkaSink(kafka, topic)
            for value in values:
                sink.send_record(value, None)
            sink.flush_all()
            self._print_message(f"{topic}: sent {len(values):,} records")
        self._app = AppProcess(
            self._program.module,
            self._program.settings_file,
            self._program.folder / "app.log",
            self._topics,
            self._program.arguments,
        )
        self._print_message(f"{self._program.settings.app}: starting (Spark takes some seconds)")
        self._app.start()

    @property
    def _arguments(self) -> str:
        return " ".join([self._program.module, *self._program.arguments])

    def _has_jars(self) -> bool:
        """Return whether the settings name jars that are here; say so if they are not."""
        named = self._program.settings.jars
        if named is not None and "jars" in self._program.document and not any(named.glob("*.jar")):
            self._print_message(f"jars: {named} has no jars on this machine; those of headgate jars are used")
            return False
        return "jars" in self._program.document

    @property
    def _topics(self) -> tuple[str, ...]:
        """The topics that the program reads."""
        return self._program.service.build_app(self._program.settings).topics

    @property
    def _process(self) -> AppProcess:
        assert self._app is not None, "it has started"
        return self._app

    def _view(self) -> ServiceLiveView:
        settings = self._program.settings
        lanes = {settings.lane_topic(lane): lane for lane in self._program.service.lanes(settings)}
        hint = f"headgate savepoint create NAME --service {self._program.name_for_savepoints}"
        return ServiceLiveView(settings.kafka, lanes, lambda: self._process.metrics, self._figures, hint)

    def _figures(self, phase: str) -> RunMetrics:
        settings, metrics = self._program.settings, self._process.metrics
        if time.monotonic() - self._counted_s > _COUNT_EVERY_S:
            self._counted_s = time.monotonic()
            self._sent = sum(end_offsets(settings.kafka, self._topics).values())
        return RunMetrics(
            app=settings.app,
            bootstrap=settings.kafka.bootstrap,
            phase=phase,
            elapsed_s=self._timeline.elapsed_s,
            sent=self._sent,
            processed=None if metrics.committed is None else metrics.processed,
            events_per_second=metrics.events_per_second,
            lag_s=metrics.lag_s,
            newest_event_ms=metrics.newest_event_ms,
            watermark_ms=metrics.watermark_ms,
            silent_partitions=metrics.silent_partitions,
            cut_ms=metrics.cut_ms,
            cuts=metrics.cuts,
            epoch=metrics.epoch,
            waits_for=metrics.waits_for,
            waits_s=time.monotonic() - metrics.waits_since_s,
        )

    def _watch(self, view: ServiceLiveView, console: Console) -> None:
        """Draw the view until the run is over; without a terminal print a status line every few seconds."""
        if not console.is_terminal:
            self._print_lines(view)
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not self._is_over():
                view.poll()
                phase = "running" if self._process.metrics.cuts else "starting"
                live.update(view.render(phase, *console.size), refresh=True)
                self._signals.stop.wait(_REFRESH_S)
        self._print_message(view.status_line())

    def _print_lines(self, view: ServiceLiveView) -> None:
        next_s = 0.0
        while not self._is_over():
            view.poll()
            if time.monotonic() >= next_s:
                self._print_message(view.status_line())
                next_s = time.monotonic() + _LINE_EVERY_S
            self._signals.stop.wait(_REFRESH_S)
        view.poll()
        self._print_message(view.status_line())

    def _is_over(self) -> bool:
        """Return whether to stop. Raise ``AppEndedError`` if the program has failed."""
        if self._signals.stop.is_set():
            return True
        if self._process.has_finished:
            return True
        self._process.raise_if_ended()
        return False

    def _stop(self) -> bool:
        in_order = True
        if self._app is not None:
            self._print_message(f"{self._program.settings.app}: stopping at a batch boundary")
            in_order = self._app.drain(_DRAIN_S, self._signals.hurry)
            self._app.kill()
            self._app.close()
        if self._broker is not None and self._started_broker and not self._options.keep_broker:
            self._print_message("broker: stopping")
            self._broker.stop()
        if not self._options.keep_broker:
            self._tables.stop()
        return in_order


def raise_missing_topics(kafka: KafkaSettings, topics: Sequence[str]) -> None:
    """Raise ``InputError`` if one of the topics does not exist."""
    existing = describe(kafka, topics)
    if missing := [topic for topic in topics if topic not in existing]:
        raise InputError(
            f"topic {', '.join(missing)}: does not exist at {kafka.bootstrap}; correct the name in the settings, "
            "create it (headgate topics create), or add --create-topics"
        )
